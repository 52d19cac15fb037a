import { Deliveries } from "#domain/deliveries/Deliveries"
import { INBOX_EVENT, TASK_EVENT, type WebhookEvent } from "#domain/messages/Outbox"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { type Batch, batchUpTo } from "#infrastructure/cluster/Job"
import { Secrets } from "#infrastructure/database/Secrets"
import { checkedAddresses, NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { makeActors } from "#infrastructure/platform/Actors"
import { Config } from "#infrastructure/platform/Config"
import { webhookAttempts, webhookPosts, webhookPostsRefused, webhookSeconds } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { forRequest, requestId } from "#infrastructure/platform/RequestId"
import { forTrace, splitOrigin, trace, TRACEPARENT, withTrace } from "#infrastructure/platform/Tracing"
import { plainName } from "#infrastructure/wire/Name"
import { iso } from "#infrastructure/wire/Text"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, FiberSet, Layer, Option } from "effect"
import { EntityId, Sharding } from "effect/cluster"
import { EventData } from "./EventData.ts"
import { makePostQueue } from "./PostQueue.ts"
import { type Attempt as PostAttempt, PostSources } from "./PostSources.ts"
import { deliveryId, signedHeaders } from "./Signature.ts"
import { type PostTarget, TargetHealth } from "./TargetHealth.ts"
import { type Dependencies, type Outcome, WebhookActor } from "./WebhookActor.ts"
import { WebhookClient } from "./WebhookClient.ts"
import { WebhookEntity } from "./WebhookEntity.ts"
import { type SignedTarget, type Waiting, WebhooksRepo, type Work } from "./WebhooksRepo.ts"

/** Deliveries that wait in memory for a place. The others stay in the outbox, where the sweep finds them. */
const WAITING = { inAll: 2_000, perAgent: 256 }
/**
 * The places of `postOnce`. They are separate from the places of deliveries because no circuit holds these posts back.
 */
const ONCE = { inAll: 32, perAgent: 4, perHost: 4, waiting: { inAll: 5_000, perAgent: 200 } }
/** How long a server remembers whether a target answered. */
const STANDING_LASTS_MS = 3_600_000
const REMEMBERED_TARGETS = 10_000
/** An answer that takes longer than this share of the time-out is late. */
const LATE = 1 / 4
const SLICE = 200
const RETENTION_ROWS = 500
/** How long a statement that began before a webhook was deleted may still write deliveries for it. */
const LATE_WRITES_MS = 60_000
const IDLE_MS = 300_000

interface Attempt {
  /** Whether the host answered, with any status. */
  readonly answered: boolean
  readonly outcome: Outcome
}

/** The reason can quote what the target sent, such as the names in its certificate. */
const failed = (reason: string, status?: number): Outcome => ({
  _tag: "Failed",
  reason: plainName(reason),
  ...(status === undefined ? {} : { status })
})
const unanswered = (reason: string): Attempt => ({ answered: false, outcome: failed(reason) })

/**
 * The webhooks that post from this node. A webhook posts from its owner, which is woken after an event is committed to
 * the outbox. If that signal is lost, or the node crashes before the post, the sweep of the outbox (`wakeDue`) wakes
 * the owner. A crash between the post and its mark in the outbox repeats the post, with the same delivery id.
 */
export class WebhookActors extends Context.Service<WebhookActors, {
  /** Wakes a webhook, for which something may be due, on its owner. */
  readonly wake: (id: string) => void
  /**
   * Posts, once and from this node, an event that is not in the outbox. Ignores failures. Drops the event if too many
   * wait.
   */
  readonly postOnce: (target: SignedTarget, event: WebhookEvent, deliveryId: string, data: string) => void
  /** The sweep of the outbox: wakes those webhooks of the next slice that have something due, each on its owner. */
  readonly wakeDue: Effect.Effect<Batch, Unavailable>
  /** Marks as dead some of the deliveries that wait for deactivated webhooks. */
  readonly abandon: Effect.Effect<Batch, Unavailable>
  /** Removes some of the deliveries of deleted webhooks, and some of those webhooks once they have none. */
  readonly sweepDeleted: Effect.Effect<Batch, Unavailable>
}>()("parley/webhooks/WebhookActors") {
  static readonly layer = Layer.effect(
    WebhookActors,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const config = yield* Config
      const data = yield* EventData
      const deliveries = yield* Deliveries
      const postTo = yield* WebhookClient
      const names = yield* NameLookup
      const repo = yield* WebhooksRepo
      const key = (yield* Secrets).deliveryIds
      const sharding = yield* Sharding.Sharding
      const signals = yield* WebhookSignals
      const sources = yield* PostSources
      const fork = yield* FiberSet.makeRuntime<never, void, never>()
      const now = () => clock.currentTimeMillisUnsafe()
      const monotonic = monotonicMillis(clock)
      const timeoutMs = config.WEBHOOK_TIMEOUT_SECONDS * 1_000
      const known = new TargetHealth({
        remembered: REMEMBERED_TARGETS,
        lastsMs: STANDING_LASTS_MS,
        lateMs: timeoutMs * LATE
      })
      const standingOf = (target: PostTarget) => known.of(target, monotonic())
      const places = makePostQueue({
        inAll: config.WEBHOOK_POSTS,
        perAgent: config.WEBHOOK_POSTS_PER_AGENT,
        perHost: config.WEBHOOK_POSTS_PER_HOST,
        waiting: WAITING
      }, standingOf)
      const oncePlaces = makePostQueue(ONCE, standingOf)
      for (const [kind, { underWay, waiting }] of [["delivery", places], ["once", oncePlaces]] as const) {
        yield* webhookPosts.at(kind, "under_way").readsIn(underWay)
        yield* webhookPosts.at(kind, "waiting").readsIn(waiting)
      }

      const isLocal = (id: string): boolean =>
        sharding.hasShardId(sharding.getShardId(EntityId.make(id), WebhookEntity.getShardGroup(EntityId.make(id))))

      const timed = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
        Effect.suspend(() => {
          const began = performance.now()
          return Effect.ensuring(effect, Effect.sync(() => webhookSeconds.millis(performance.now() - began)))
        })
      /** Remembers whether, and how soon, the target of this post answered. */
      const remembered =
        (agentId: string, url: URL) =>
        <R>(effect: Effect.Effect<Attempt, never, R>): Effect.Effect<Outcome, never, R> =>
          Effect.suspend(() => {
            const began = monotonic()
            return Effect.map(effect, ({ answered, outcome }) => {
              const ended = monotonic()
              known.ended({ agentId, host: url.host }, answered, ended - began, ended)
              return outcome
            })
          })
      const attempt = Effect.fn("WebhookActors.post")(function*(
        _agentId: string,
        url: URL,
        id: string,
        body: string,
        headersOf: (attempt: PostAttempt) => Readonly<Record<string, string>>
      ) {
        const addresses = yield* Effect.provideService(
          checkedAddresses(url, config.WEBHOOK_ALLOW_PRIVATE),
          NameLookup,
          names
        )
        const headers = headersOf({ deliveryId: id, at: Math.floor(now() / 1_000), requestId: yield* requestId })
        const context = yield* trace
        const status = yield* postTo({
          url,
          addresses,
          headers: context === undefined ? headers : { ...headers, [TRACEPARENT]: context },
          body
        })
        const isTaken = status >= 200 && status < 300
        webhookAttempts.at(
          isTaken ? "delivered" : status < 200 ? "1xx" : status < 400 ? "3xx" : status < 500 ? "4xx" : "5xx"
        ).add()
        return {
          answered: true,
          outcome: isTaken ? { _tag: "Delivered" as const } : failed(`answered ${status}`, status)
        }
      }, (effect, agentId, url) =>
        effect.pipe(
          Effect.timeoutOrElse({
            // Covers the DNS look-up, the connection and the answer together.
            duration: timeoutMs,
            orElse: () => {
              webhookAttempts.at("timeout").add()
              return Effect.succeed(unanswered(`no answer within ${config.WEBHOOK_TIMEOUT_SECONDS} seconds`))
            }
          }),
          Effect.catch(({ _tag, reason }) => {
            webhookAttempts.at(_tag === "TargetRefused" ? "forbidden" : "failed").add()
            return Effect.succeed(unanswered(reason))
          }),
          remembered(agentId, url),
          timed,
          (posting) => withTrace("webhook", "client", posting, ({ _tag }) => ({ "parley.outcome": _tag }))
        ))

      const isStillTarget = ({ agentId, secret, url }: SignedTarget, event: WebhookEvent) =>
        Effect.map(
          repo.targets([agentId], event, now()),
          (targets) => targets.some((one) => one.url === url && one.secret === secret)
        )

      const bodyOf = (event: string, at: number, rendered: string): string =>
        `{"event":"${event}","timestamp":"${iso(at)}","data":${rendered}}`

      /** The body and the headers to post, or the time to wait; undefined if nothing is left to post. */
      const rendering = Effect.fnUntraced(
        function*(id: string, { agentId, secret }: Work, { createdAt, event, subject }: Waiting) {
          if (event === TASK_EVENT || event === INBOX_EVENT) {
            const rendered = yield* sources.of(event).render({ webhookId: id, secret, subject, createdAt })
            return rendered === undefined || "heldMs" in rendered ? rendered : { ...rendered, envelope: null }
          }
          const rendered = yield* data.render(agentId, event, subject)
          if (rendered === undefined) return undefined
          const body = bodyOf(event, createdAt, rendered.data)
          return {
            body,
            headers: (attempt: PostAttempt) => signedHeaders({ ...attempt, secret, body, event }),
            envelope: rendered.envelope
          }
        }
      )

      const postNow = Effect.fnUntraced(function*(id: string, work: Work, delivery: Waiting, url: URL) {
        const what = yield* rendering(id, work, delivery)
        // If nothing is left to post, the delivery counts as done.
        if (what === undefined) return { _tag: "Delivered" as const }
        if ("heldMs" in what) return { _tag: "Held" as const, heldMs: what.heldMs }
        const outcome = yield* attempt(work.agentId, url, deliveryId(key, delivery.deliveryNo), what.body, what.headers)
        if (outcome._tag === "Delivered" && what.envelope !== null) deliveries.acknowledge(work.agentId, what.envelope)
        return outcome
      })

      const post: Dependencies["post"] = Effect.fnUntraced(function*(id, work, delivery, wanted) {
        // The URL was checked when it was stored, perhaps by an earlier release that accepted more.
        const url = new URL(work.url)
        const posted = yield* places.run({ agentId: work.agentId, host: url.host })((waited) =>
          Effect.gen(function*() {
            if (waited && !(yield* repo.isStillDue(id, work, delivery))) return { _tag: "Unwanted" as const }
            if (!wanted()) return { _tag: "Unwanted" as const }
            return yield* postNow(id, work, delivery, url)
          })
        )
        if (Option.isSome(posted)) return posted.value
        webhookPostsRefused.at("delivery").add()
        return { _tag: "NoPlace" as const }
      }, (effect, _id, _work, delivery) => {
        const origin = splitOrigin(delivery.requestId)
        return forRequest(origin.requestId, forTrace(origin.trace, effect))
      })

      const deps: Dependencies = {
        now,
        circuit: {
          inARow: config.WEBHOOK_CIRCUIT_IN_A_ROW,
          perMinute: config.WEBHOOK_CIRCUIT_PER_MINUTE,
          pauseMs: config.WEBHOOK_CIRCUIT_PAUSE_SECONDS * 1_000
        },
        retryMs: config.WEBHOOK_RETRY_SECONDS.map((seconds) => seconds * 1_000),
        isLocal,
        work: repo.work,
        post,
        delivered: repo.delivered,
        failed: (failure) => repo.failed(failure, config.WEBHOOK_DEAD_IN_A_ROW),
        postponed: repo.postponed,
        fill: (id) => sources.of(INBOX_EVENT).fill(id)
      }

      const actors = yield* makeActors("webhook", (id) => new WebhookActor(id, deps), (actor, id) => {
        if (actor.running || actor.lastUsed >= now() - IDLE_MS) return false
        if (!actor.remembers || !isLocal(id)) return true
        // An actor that remembers failures is woken. It forgets them if its webhook was deleted or deactivated.
        wakeHere(id)
        return false
      })
      const wakeHere = (id: string): void => {
        const actor = actors.of(id)
        if (actor.wake()) {
          fork(
            Effect.catchCause(
              actor.pass,
              (cause) => Effect.logWarning("A webhook stopped posting; the sweep will wake it again", cause)
            )
          )
        }
      }
      const client = yield* EntityRpc.make(WebhookEntity, {
        Wake: { run: (id) => Effect.sync(() => wakeHere(id)) }
      })
      const wake = (id: string): void => {
        if (isLocal(id)) wakeHere(id)
        else fork(Effect.ignore(client.Wake(id)))
      }

      /** Agents whose webhooks may have got deliveries since the last query for these webhooks. */
      const raised = new Set<string>()
      let asking = false
      const ask = Effect.gen(function*() {
        // A message to many agents adds all of them in one turn of the event loop, so one query serves all of them.
        yield* Effect.yieldNow
        while (raised.size > 0) {
          const agentIds = [...raised]
          raised.clear()
          for (const id of yield* repo.activeOf(agentIds)) wake(id)
        }
      }).pipe(
        Effect.catchCause((cause) => Effect.logWarning("Webhooks could not be woken; the sweep will wake them", cause)),
        Effect.ensuring(Effect.sync(() => {
          asking = false
        }))
      )
      signals.listen((agentId) => {
        raised.add(agentId)
        if (asking) return
        asking = true
        fork(ask)
      })

      // The webhook id after which the next slice begins. It is only in memory, so a job that moves to another process
      // starts over.
      let above = ""
      const wakeDue = Effect.gen(function*() {
        const slice = yield* repo.due(above, now(), SLICE)
        const due = slice.filter((one) => one.due)
        for (const { id } of due) wake(id)
        above = slice.length < SLICE ? "" : slice.at(-1)!.id
        return { rows: due.length, more: above !== "" }
      })

      return WebhookActors.of({
        wakeDue,
        abandon: Effect.map(Effect.suspend(() => repo.abandon(now(), RETENTION_ROWS)), batchUpTo(RETENTION_ROWS)),
        // A webhook's row is removed one batch after its last deliveries, so only an empty batch ends the sweep.
        sweepDeleted: Effect.map(
          Effect.suspend(() => repo.sweepDeleted(now() - LATE_WRITES_MS, RETENTION_ROWS)),
          (rows) => ({ rows, more: rows > 0 })
        ),
        wake,
        postOnce: (target, event, id, rendered) => {
          const body = bodyOf(event, now(), rendered)
          fork(
            Effect.gen(function*() {
              const { agentId, secret } = target
              const url = new URL(target.url)
              const posted = yield* oncePlaces.run({ agentId, host: url.host })((waited) =>
                Effect.gen(function*() {
                  if (waited && !(yield* isStillTarget(target, event))) return
                  yield* attempt(agentId, url, id, body, (given) => signedHeaders({ ...given, secret, body, event }))
                })
              )
              if (Option.isNone(posted)) webhookPostsRefused.at("once").add()
            }).pipe(Effect.catchCause((cause) => Effect.logWarning("A best-effort post to a webhook failed", cause)))
          )
        }
      })
    })
  )
}

import { INBOX_EVENT, type WebhookEvent } from "#domain/messages/Outbox"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { type Batch, batchUpTo } from "#infrastructure/cluster/Job"
import { makeActors } from "#infrastructure/platform/Actors"
import { Config } from "#infrastructure/platform/Config"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, FiberSet, Layer } from "effect"
import { EntityId, Sharding } from "effect/cluster"
import { makePosting } from "./Posting.ts"
import { PostSources } from "./PostSources.ts"
import { type Dependencies, WebhookActor } from "./WebhookActor.ts"
import { WebhookEntity } from "./WebhookEntity.ts"
import { type SignedTarget, WebhooksRepo } from "./WebhooksRepo.ts"

const SLICE = 200
const RETENTION_ROWS = 500
/** How long a statement that began before a webhook was deleted may still write deliveries for it. */
const LATE_WRITES_MS = 60_000
const IDLE_MS = 300_000

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
      const repo = yield* WebhooksRepo
      const sharding = yield* Sharding.Sharding
      const signals = yield* WebhookSignals
      const sources = yield* PostSources
      const { post, postOnce } = yield* makePosting
      const fork = yield* FiberSet.makeRuntime<never, void, never>()
      const now = () => clock.currentTimeMillisUnsafe()
      const isLocal = (id: string): boolean =>
        sharding.hasShardId(sharding.getShardId(EntityId.make(id), WebhookEntity.getShardGroup(EntityId.make(id))))

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
              (cause) => Effect.logWarning("A webhook stopped posting; the next sweep will start it again", cause)
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
        Effect.catchCause((cause) =>
          Effect.logWarning("Webhooks could not be notified; the next sweep will notify them", cause)
        ),
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
          fork(
            Effect.catchCause(
              postOnce(target, event, id, rendered),
              (cause) => Effect.logWarning("A best-effort post to a webhook failed", cause)
            )
          )
        }
      })
    })
  )
}

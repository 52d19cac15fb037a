import { Deliveries } from "#domain/deliveries/Deliveries"
import { INBOX_EVENT, TASK_EVENT, type WebhookEvent } from "#domain/messages/Outbox"
import { Secrets } from "#infrastructure/database/Secrets"
import { checkedAddresses, NameLookup } from "#infrastructure/http/PrivateAddressGuard"
import { Config } from "#infrastructure/platform/Config"
import { webhookAttempts, webhookPosts, webhookPostsRefused, webhookSeconds } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { forRequest, requestId } from "#infrastructure/platform/RequestId"
import { forTrace, splitOrigin, trace, TRACEPARENT, withTrace } from "#infrastructure/platform/Tracing"
import { plainName } from "#infrastructure/wire/Name"
import { iso } from "#infrastructure/wire/Text"
import { Clock, Effect, Option } from "effect"
import { EventData } from "./EventData.ts"
import { makePostQueue } from "./PostQueue.ts"
import { type Attempt as PostAttempt, PostSources } from "./PostSources.ts"
import { deliveryId, signedHeaders } from "./Signature.ts"
import { type PostTarget, TargetHealth } from "./TargetHealth.ts"
import type { Dependencies, Outcome } from "./WebhookActor.ts"
import { WebhookClient } from "./WebhookClient.ts"
import { type PendingDelivery, type SignedTarget, WebhooksRepo, type Work } from "./WebhooksRepo.ts"

/**
 * How many deliveries may wait in memory for a place. Further deliveries stay in the outbox, where the sweep finds
 * them.
 */
const WAITING = { inAll: 2_000, perAgent: 256 }
/**
 * The places of `postOnce`. They are separate from the places of deliveries because no circuit breaker delays these
 * posts.
 */
const ONCE = { inAll: 32, perAgent: 4, perHost: 4, waiting: { inAll: 5_000, perAgent: 200 } }
/** How long a server remembers whether a target answered. */
const HEALTH_LASTS_MS = 3_600_000
const MAX_CACHED_TARGETS = 10_000
/** A response that takes longer than this share of the time-out is late. */
const LATE = 1 / 4

interface Attempt {
  /** Whether the host sent a response, with any status. */
  readonly answered: boolean
  readonly outcome: Outcome
}

/** The reason can quote text of the target, such as the names in its certificate. So `plainName` cleans it. */
const failed = (reason: string, status?: number): Outcome => ({
  _tag: "Failed",
  reason: plainName(reason),
  ...(status === undefined ? {} : { status })
})
const unanswered = (reason: string): Attempt => ({ answered: false, outcome: failed(reason) })

const bodyOf = (event: string, at: number, rendered: string): string =>
  `{"event":"${event}","timestamp":"${iso(at)}","data":${rendered}}`

/** Makes the queues in which posts wait for a place, and the record of how targets answered recently. */
const makePlaces = Effect.gen(function*() {
  const config = yield* Config
  const monotonic = monotonicMillis(yield* Clock.Clock)
  const known = new TargetHealth({
    remembered: MAX_CACHED_TARGETS,
    lastsMs: HEALTH_LASTS_MS,
    lateMs: config.WEBHOOK_TIMEOUT_SECONDS * 1_000 * LATE
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
  return { known, monotonic, places, oncePlaces }
})

/**
 * Makes the function that posts once to a URL within the time-out. It counts the outcome in the metrics and records it
 * for the target's standing.
 */
const makeAttempt = Effect.fnUntraced(function*(known: TargetHealth, monotonic: () => number) {
  const clock = yield* Clock.Clock
  const config = yield* Config
  const postTo = yield* WebhookClient
  const names = yield* NameLookup

  const timed = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      const began = performance.now()
      return Effect.ensuring(effect, Effect.sync(() => webhookSeconds.millis(performance.now() - began)))
    })
  /** Records whether the target of this post answered, and after what time. */
  const remembered =
    (agentId: string, url: URL) => <R>(effect: Effect.Effect<Attempt, never, R>): Effect.Effect<Outcome, never, R> =>
      Effect.suspend(() => {
        const began = monotonic()
        return Effect.map(effect, ({ answered, outcome }) => {
          const ended = monotonic()
          known.ended({ agentId, host: url.host }, answered, ended - began, ended)
          return outcome
        })
      })
  return Effect.fn("WebhookActors.post")(function*(
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
    const headers = headersOf({
      deliveryId: id,
      at: Math.floor(clock.currentTimeMillisUnsafe() / 1_000),
      requestId: yield* requestId
    })
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
        // Covers the DNS look-up, the connection and the response together.
        duration: config.WEBHOOK_TIMEOUT_SECONDS * 1_000,
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
})

/**
 * Makes the two functions that post to webhooks: one for deliveries in the outbox, one for events that are tried once.
 */
export const makePosting = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const data = yield* EventData
  const deliveries = yield* Deliveries
  const repo = yield* WebhooksRepo
  const key = (yield* Secrets).deliveryIds
  const sources = yield* PostSources
  const now = () => clock.currentTimeMillisUnsafe()
  const { known, monotonic, oncePlaces, places } = yield* makePlaces
  const attempt = yield* makeAttempt(known, monotonic)

  const isStillTarget = ({ agentId, secret, url }: SignedTarget, event: WebhookEvent) =>
    Effect.map(
      repo.targets([agentId], event, now()),
      (targets) => targets.some((one) => one.url === url && one.secret === secret)
    )

  /**
   * Returns the body and the headers to post, or how long to wait. Returns undefined if there is nothing left to post.
   */
  const rendering = Effect.fnUntraced(
    function*(id: string, { agentId, secret }: Work, { createdAt, event, subject }: PendingDelivery) {
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

  const postNow = Effect.fnUntraced(function*(id: string, work: Work, delivery: PendingDelivery, url: URL) {
    const what = yield* rendering(id, work, delivery)
    // If there is nothing left to post, the delivery counts as delivered.
    if (what === undefined) return { _tag: "Delivered" as const }
    if ("heldMs" in what) return { _tag: "Held" as const, heldMs: what.heldMs }
    const outcome = yield* attempt(work.agentId, url, deliveryId(key, delivery.deliveryNo), what.body, what.headers)
    if (outcome._tag === "Delivered" && what.envelope !== null) deliveries.acknowledge(work.agentId, what.envelope)
    return outcome
  })

  const post: Dependencies["post"] = Effect.fnUntraced(function*(id, work, delivery, wanted) {
    // The URL was checked when it was stored. An earlier release may have accepted more URLs than this one.
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

  const postOnce = Effect.fnUntraced(
    function*(target: SignedTarget, event: WebhookEvent, id: string, rendered: string) {
      const { agentId, secret } = target
      const body = bodyOf(event, now(), rendered)
      const url = new URL(target.url)
      const posted = yield* oncePlaces.run({ agentId, host: url.host })((waited) =>
        Effect.gen(function*() {
          if (waited && !(yield* isStillTarget(target, event))) return
          yield* attempt(agentId, url, id, body, (given) => signedHeaders({ ...given, secret, body, event }))
        })
      )
      if (Option.isNone(posted)) webhookPostsRefused.at("once").add()
    }
  )

  return {
    /** Posts a delivery of the outbox when a place is free. */
    post,
    /** Tries once to post an event that is not in the outbox. Drops the event if too many wait. */
    postOnce
  }
})

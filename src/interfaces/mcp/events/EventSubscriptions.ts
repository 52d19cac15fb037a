import { INBOX_EVENT } from "#domain/messages/Outbox"
import { PostSources } from "#domain/webhooks/PostSources"
import { signedHeaders, standardHeaders } from "#domain/webhooks/Signature"
import { WebhookActors } from "#domain/webhooks/WebhookActors"
import { Webhooks } from "#domain/webhooks/Webhooks"
import type { Batch } from "#infrastructure/cluster/Job"
import { Database } from "#infrastructure/database/Sql"
import { ExchangeFailed } from "#infrastructure/http/GuardedClient"
import { sha256 } from "#infrastructure/platform/Ids"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { type RateLimited, Unauthorized, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Data, Effect, Layer } from "effect"
import { Callbacks } from "./Callbacks.ts"
import type { Position } from "./EventCursor.ts"
import {
  callbackFailed,
  type CallbackReason,
  type EventRefusal,
  forbidden,
  resourceExhausted,
  unavailable
} from "./EventErrors.ts"
import { EventFeed, type Start } from "./EventFeed.ts"
import { acceptedPosition, makeEventPosts, SUBSCRIPTION, WAKE, wakeType } from "./EventPosts.ts"
import { EventSubscriptionsRepo, type NewSubscription } from "./EventSubscriptionsRepo.ts"
import type { EventType } from "./EventTypes.ts"
import type { Owner } from "./Occurrence.ts"

const MAX_SUBSCRIPTIONS = 20
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const TTL = { least: 60_000, most: DAY_MS }
/** How long, in milliseconds, posts are also signed with the former secret after the secret was changed. */
const OLD_SECRET_MS = HOUR_MS
/** How long the server remembers that a URL has repeated a challenge, in milliseconds. */
const VERIFIED_MS = DAY_MS
const CHALLENGES = { name: "event_challenges", limit: 10, windowMs: 60_000, window: "minute" }
/**
 * The limit for new subscriptions of an agent. Each new subscription leaves rows in the database until the sweep of
 * removed webhooks. A refresh does not count.
 */
const MADE = { name: "event_subscriptions", limit: 60, windowMs: 60_000, window: "minute" }
const BATCH_SIZE = 500

/** The URL and the secret of a subscription, as its client gave them. */
export interface CallbackTarget {
  readonly url: string
  readonly secret: string
}

/** The result of making or refreshing a subscription. */
export interface Subscribed {
  readonly id: string
  /** When the subscription expires, in milliseconds since 1970. */
  readonly expiresAt: number
  readonly position: Position
  /** Undefined if the subscription is new. */
  readonly status: {
    readonly active: boolean
    readonly lastDeliveryAt: number | null
    readonly lastError: CallbackReason | null
  } | undefined
}

/**
 * Makes the id of a subscription. The id depends on the arguments alone, so a client that has lost the id gets the same
 * id again.
 */
export const subscriptionId = (agentId: string, url: string, { canonical, name }: EventType): string =>
  `sub_${sha256(JSON.stringify([agentId, url, name, canonical])).toString("hex").slice(0, 32)}`

const wakeId = (agentId: string): string => `wake_${agentId}`

/** Returns the category of the reason why an attempt failed. `failure` is the reason as the outbox stores it. */
const categoryOf = (failure: string | null): CallbackReason | null => {
  if (failure === null) return null
  const [, status] = /^answered (\d)/.exec(failure) ?? []
  if (status !== undefined) return status === "5" ? "http_5xx" : "http_4xx"
  if (failure.startsWith("no answer within")) return "timeout"
  return new ExchangeFailed({ reason: failure }).isOfTls ? "tls_error" : "connection_refused"
}

/** A URL did not repeat the challenge that it received. */
export class ChallengeFailed extends Data.TaggedError("ChallengeFailed")<{ readonly reason: CallbackReason }> {}

const refusalOf = (
  failure: EventRefusal | ChallengeFailed | RateLimited | Unauthorized | Unavailable
): EventRefusal => {
  switch (failure._tag) {
    case "EventRefusal":
      return failure
    case "ChallengeFailed":
      return callbackFailed(failure.reason)
    case "RateLimited":
      return resourceExhausted("challenges per minute", CHALLENGES.limit)
    case "Unauthorized":
      return forbidden(failure.code)
    case "Unavailable":
      return unavailable()
  }
}

/**
 * Subscriptions of MCP Events by webhook, and wake webhooks (wire.md Q). Each of them has a webhook that follows the
 * inbox of its agent. The webhook posts one event at a time, in the order of the inbox (EventPosts.ts). A send writes
 * nothing for a subscription. After the commit of a send, the webhook is woken. The sweep of the outbox also finds
 * webhooks whose inbox has newer messages. If the receiver fails for too long, the subscription is suspended. No event
 * is lost by that.
 */
export class EventSubscriptions extends Context.Service<EventSubscriptions, {
  /**
   * Makes a subscription, or refreshes the existing one with the same URL and type. The URL must already be checked
   * (`Callbacks.check`).
   */
  readonly subscribe: (
    owner: Owner,
    connectionId: string | undefined,
    type: EventType,
    target: CallbackTarget,
    start: Start,
    ttlMs: number | undefined
  ) => Effect.Effect<Subscribed, EventRefusal>
  /** Removes a subscription if it exists. */
  readonly unsubscribe: (agentId: string, url: string, type: EventType) => Effect.Effect<void, Unavailable>
  /**
   * Sets the wake webhook of an agent, in place of the former one. The URL must already be checked (`Callbacks.check`).
   */
  readonly setWake: (
    owner: Owner,
    connectionId: string | undefined,
    target: CallbackTarget
  ) => Effect.Effect<void, ChallengeFailed | RateLimited | Unauthorized | Unavailable>
  readonly clearWake: (agentId: string) => Effect.Effect<void, Unavailable>
  /** Removes those subscriptions of one slice that have ended. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
}>()("parley/mcp/EventSubscriptions") {
  static readonly layer = Layer.effect(
    EventSubscriptions,
    Effect.gen(function*() {
      const actors = yield* WebhookActors
      const callbacks = yield* Callbacks
      const clock = yield* Clock.Clock
      const feed = yield* EventFeed
      const rates = yield* RateLimits
      const repo = yield* EventSubscriptionsRepo
      const { transaction } = yield* Database
      const webhooks = yield* Webhooks
      const now = () => clock.currentTimeMillisUnsafe()
      ;(yield* PostSources).register(INBOX_EVENT, yield* makeEventPosts)

      /**
       * Challenges a URL, unless it has recently repeated a challenge for this agent. Returns when the URL last
       * repeated a challenge.
       */
      const verify = Effect.fnUntraced(function*(
        agentId: string,
        url: string,
        headers: Parameters<typeof callbacks.challenge>[2]
      ) {
        const at = now()
        const before = yield* repo.verifiedAt(agentId, url, at)
        if (before !== null && before > at - VERIFIED_MS && before <= at) return before
        yield* rates.take(CHALLENGES, agentId)
        const reason = yield* callbacks.challenge(agentId, url, headers)
        return reason === undefined ? now() : yield* new ChallengeFailed({ reason })
      })

      /**
       * Locks the agent until the end of the transaction, and fails unless the agent still has the given key. The
       * receiver decides how long a challenge takes. Without this check, somebody with a leaked key could delay the
       * response to a challenge until after a rotation, and the subscription would outlive the rotation.
       */
      const holdKey = Effect.fnUntraced(function*(agentId: string, key: string | null) {
        yield* webhooks.holdOwner(agentId)
        if (key === null || (yield* repo.keyOf(agentId)) !== key) return yield* new Unauthorized()
      })

      /**
       * Removes the remains of a subscription. Then stores the subscription with a new webhook that follows the inbox
       * from a number.
       */
      const store = Effect.fnUntraced(
        function*(
          subscription: Omit<NewSubscription, "webhookId">,
          target: CallbackTarget,
          inboxNo: number,
          at: number
        ) {
          const left = yield* repo.remove(subscription.id, subscription.agentId)
          if (left.length > 0) yield* webhooks.removeUnlisted(left)
          const webhookId = yield* webhooks.createForInbox(subscription.agentId, { ...target, inboxNo })
          const stored = yield* repo.insert({ ...subscription, webhookId }, at)
          return stored ? webhookId : yield* new Unauthorized()
        }
      )

      const remove = Effect.fnUntraced(function*(id: string, agentId: string) {
        yield* transaction(Effect.flatMap(repo.remove(id, agentId), webhooks.removeUnlisted))
      })

      let above = ""

      return EventSubscriptions.of({
        subscribe: Effect.fn("EventSubscriptions.subscribe")(
          function*(owner, connectionId, type, target, start, ttlMs) {
            const { id: agentId } = owner
            const { secret, url } = target
            const id = subscriptionId(agentId, url, type)
            const key = yield* repo.keyOf(agentId)
            const isFull = Effect.map(repo.count(agentId, now()), (count) => count >= MAX_SUBSCRIPTIONS)
            if ((yield* repo.find(id, now())) === undefined) {
              if (yield* isFull) return yield* resourceExhausted("subscriptions", MAX_SUBSCRIPTIONS)
              yield* Effect.catchTag(
                rates.take(MADE, agentId),
                "RateLimited",
                () => Effect.fail(resourceExhausted("new subscriptions per minute", MADE.limit))
              )
            }
            const verifiedAt = yield* verify(agentId, url, (message) => ({
              ...standardHeaders({ ...message, secrets: [secret] }),
              [SUBSCRIPTION]: id
            }))
            const at = now()
            const expiresAt = at + Math.min(Math.max(ttlMs ?? TTL.most, TTL.least), TTL.most)
            const given = {
              id,
              agentId,
              name: type.name,
              arguments: type.canonical,
              connectionId: connectionId ?? null,
              expiresAt,
              verifiedAt
            }
            const made = yield* transaction(Effect.gen(function*() {
              // If two requests run at once, the second one finds what the first one has stored.
              yield* holdKey(agentId, key)
              const stored = yield* repo.find(id, at)
              if (stored === undefined) {
                if (yield* isFull)
                  return yield* resourceExhausted("subscriptions", MAX_SUBSCRIPTIONS)
                const webhookId = yield* store(given, target, start.position.no, at)
                return { webhookId, position: start.position, status: undefined }
              }
              const { webhookId } = stored
              const delivery = yield* repo.delivery(webhookId)
              yield* webhooks.resume(webhookId, secret, !stored.active)
              yield* repo.refresh(
                { ...given, webhookId },
                stored.secret === secret ? undefined : { secret: stored.secret, until: at + OLD_SECRET_MS }
              )
              return {
                webhookId,
                position: acceptedPosition(stored, delivery),
                status: {
                  active: stored.active,
                  lastDeliveryAt: delivery.lastDeliveryAt,
                  lastError: categoryOf(delivery.failure)
                }
              }
            }))
            actors.wake(made.webhookId)
            return { id, expiresAt, position: made.position, status: made.status }
          },
          Effect.mapError(refusalOf)
        ),

        unsubscribe: Effect.fn("EventSubscriptions.unsubscribe")((agentId, url, type) =>
          remove(subscriptionId(agentId, url, type), agentId)
        ),

        setWake: Effect.fn("EventSubscriptions.setWake")(function*(owner, connectionId, target) {
          const { id: agentId } = owner
          yield* rates.take(MADE, agentId)
          const key = yield* repo.keyOf(agentId)
          const verifiedAt = yield* verify(
            agentId,
            target.url,
            ({ at, body, id }) =>
              signedHeaders({ secret: target.secret, body, event: WAKE, deliveryId: id, at, requestId: null })
          )
          const start = yield* feed.start(owner, wakeType(), null)
          const at = now()
          const wake = {
            id: wakeId(agentId),
            agentId,
            name: WAKE,
            arguments: "{}",
            connectionId: connectionId ?? null,
            expiresAt: null,
            verifiedAt
          }
          const webhookId = yield* transaction(Effect.gen(function*() {
            yield* holdKey(agentId, key)
            // A wake webhook that is set again, for example after a suspension, continues where the former one stopped.
            const before = yield* repo.find(wake.id, at)
            const from = before === undefined
              ? start?.position
              : acceptedPosition(before, yield* repo.delivery(before.webhookId))
            return yield* store(wake, target, from?.no ?? 0, at)
          }))
          actors.wake(webhookId)
        }),

        clearWake: Effect.fn("EventSubscriptions.clearWake")((agentId) => remove(wakeId(agentId), agentId)),

        sweep: Effect.gen(function*() {
          const { gone, last, read } = yield* transaction(
            Effect.tap(
              repo.sweep(now(), above, BATCH_SIZE),
              ({ gone }) => gone.length === 0 ? Effect.void : webhooks.removeUnlisted(gone)
            )
          )
          above = read < BATCH_SIZE ? "" : last ?? ""
          return { rows: gone.length, more: above !== "" }
        })
      })
    })
  )
}

import type { Deferral, PostSource, Rendered, Rendering } from "#domain/webhooks/PostSources"
import { signedHeaders, standardHeaders } from "#domain/webhooks/Signature"
import { Webhooks } from "#domain/webhooks/Webhooks"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import { iso } from "#infrastructure/wire/Text"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Effect } from "effect"
import type { Position } from "./EventCursor.ts"
import { EventFeed, POLL_READ } from "./EventFeed.ts"
import { type Delivery, EventSubscriptionsRepo, type StoredSubscription } from "./EventSubscriptionsRepo.ts"
import { type EventType, eventTypeOf, storedEventType } from "./EventTypes.ts"
import type { Owner } from "./Occurrence.ts"

/** The name of a wake webhook among the subscriptions. It is also the name of the event in its posts (wire.md Q). */
export const WAKE = "agent.wake"
/** The header that contains the id of a post's subscription. */
export const SUBSCRIPTION = "X-MCP-Subscription-Id"
/**
 * How long a post is held back after its subscription has ended, in milliseconds. Meanwhile the sweep removes the
 * subscription.
 */
const ENDED_MS = 15_000
/** Two times of the next look count as the same if they differ by at most this many milliseconds. */
const SAME_MS = 1_000
/** How long an event is held back if its owner has too many large responses in progress, in milliseconds. */
const BUSY_MS = 1_000

/**
 * The part of an event that the outbox stores. The event reports messages with inbox numbers above `from` and up to
 * `through`.
 */
interface Subject {
  readonly from: number
  readonly through: number
  readonly eventId: string
}

/** Returns the event type of wake webhooks. A wake webhook reports that messages wait, at most once in ten seconds. */
export const wakeType = (): EventType => eventTypeOf("inbox.waiting", {}) as EventType

const typeOf = ({ arguments: given, name }: StoredSubscription): EventType | undefined =>
  name === WAKE ? wakeType() : storedEventType(name, given)

const ownerOf = ({ agentId, handle }: StoredSubscription): Owner => ({ id: agentId, handle })

const positionOf = ({ inboxNo, name, reportedAt }: StoredSubscription): Position => ({
  no: inboxNo,
  reportedAt: name === "message.received" ? null : reportedAt
})

/**
 * Returns the position up to which the receiver has accepted all events of a subscription, or no event had to be
 * posted.
 */
export const acceptedPosition = (stored: StoredSubscription, { subject }: Delivery): Position =>
  subject === null ? positionOf(stored) : { no: (JSON.parse(subject) as Subject).from, reportedAt: null }

/**
 * Makes the posts of subscriptions and wake webhooks. The outbox stores no content of messages, so `render` reads the
 * reported messages again.
 */
export const makeEventPosts = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const feed = yield* EventFeed
  const reads = yield* LargeReads
  const repo = yield* EventSubscriptionsRepo
  const webhooks = yield* Webhooks
  const now = () => clock.currentTimeMillisUnsafe()

  const inSlot = <A>(owner: Owner, look: Effect.Effect<A, Unavailable>): Effect.Effect<A | Deferral, Unavailable> =>
    Effect.catchTag(reads.during(owner.id, POLL_READ, look), "RateLimited", () => Effect.succeed({ heldMs: BUSY_MS }))

  const fill = Effect.fnUntraced(function*(webhookId: string) {
    const stored = yield* repo.ofWebhook(webhookId, now())
    const type = stored && typeOf(stored)
    if (stored === undefined || type === undefined) return false
    const { inboxNo: from } = stored
    const owner = ownerOf(stored)
    const look = yield* inSlot(owner, feed.look(owner, type, stored.id, positionOf(stored), 1))
    if (!("position" in look)) return look
    const { heldMs, more, position, reported: [first] } = look
    const at = now()
    const step = (inboxNo: number, lookAt: number | null, subject: string | null) =>
      webhooks.step({ id: webhookId, from, inboxNo, lookAt, subject, at })
    if (first !== undefined) {
      const through = first.after.no
      const subject: Subject = {
        from: type.name === "message.received" ? through - 1 : from,
        through,
        eventId: first.occurrence.eventId
      }
      yield* step(through, null, JSON.stringify(subject))
      return true
    }
    const lookAt = heldMs === undefined ? null : at + heldMs
    // A stored `lookAt` that is still in the future and no later than the new one is kept. So messages that arrive
    // during a lease cause no writes.
    const isStored = lookAt === null
      ? stored.lookAt === null
      : stored.lookAt !== null && stored.lookAt > at && stored.lookAt <= lookAt + SAME_MS
    if (position.no !== from || !isStored) yield* step(position.no, lookAt, null)
    return heldMs === undefined ? more : { heldMs }
  })

  const render = Effect.fnUntraced(function*(
    { createdAt, secret, subject, webhookId }: Rendering
  ): Effect.fn.Return<Rendered | Deferral | undefined, Unavailable> {
    const stored = yield* repo.ofWebhook(webhookId, now())
    const type = stored && typeOf(stored)
    if (stored === undefined || type === undefined) return { heldMs: ENDED_MS }
    const { eventId, from, through } = JSON.parse(subject) as Subject
    const owner = ownerOf(stored)
    const found = yield* inSlot(owner, feed.again(owner, type, stored.id, from, through))
    if (found === undefined || "heldMs" in found) return found
    if (stored.name === WAKE) {
      const { conversation_count: conversations, waiting } = found.data
      const body = JSON.stringify({ event: WAKE, timestamp: iso(createdAt), data: { waiting, conversations } })
      return { body, headers: (attempt) => signedHeaders({ ...attempt, secret, body, event: WAKE }) }
    }
    const cursor = feed.cursorOf(owner, {
      no: through,
      reportedAt: type.name === "message.received" ? null : createdAt
    })
    const body = JSON.stringify({ ...found, eventId, cursor })
    const { oldSecret, oldSecretUntil } = stored
    const secrets = [secret, ...(oldSecret !== null && (oldSecretUntil ?? 0) > now() ? [oldSecret] : [])]
    return {
      body,
      headers: ({ at }) => ({ ...standardHeaders({ secrets, body, id: eventId, at }), [SUBSCRIPTION]: stored.id })
    }
  })

  return { fill, render } satisfies PostSource
})

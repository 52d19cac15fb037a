import { Clock, Context, Effect, Layer } from "effect"
import { Agents } from "#domain/agents/Agents"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { ActiveMutes } from "#domain/push/ActiveMutes"
import { MuteSet } from "#domain/push/MuteSet"
import { Replies } from "#domain/replies/Replies"
import type { Unavailable } from "#ground/wire/WireError"
import { decodeCursor, encodeCursor, type Position } from "./EventCursor.ts"
import type { EventType } from "./EventTypes.ts"
import { type Candidate, isReported, type Occurrence, type Owner, received, waiting } from "./Occurrence.ts"

/** Messages that one statement reads: at least, and at most. */
const PAGE = { least: 10, most: 100 }
/** Messages that one look reads. A longer inbox is reported by the looks that follow. */
const MAX_READ = 1_000
/** The inbox of an agent with a lease is read again after this time at the latest, because a lease can end early. */
const LEASE_MS = 15_000

/** An occurrence, and the position of its subscription after it. */
export interface Reported {
  readonly occurrence: Occurrence
  readonly after: Position
}

/** The result of a look into an inbox. */
export interface Look {
  /** Oldest first. */
  readonly reported: ReadonlyArray<Reported>
  /** The position up to which every message was reported or need not be. */
  readonly position: Position
  /** Whether the next look may find more at once. */
  readonly more: boolean
  /** Whether messages were left out because they are older than `notBefore`. */
  readonly skipped: boolean
  /** Milliseconds until a look can report what this one held back, for a lease or for `quiet_seconds`; undefined if nothing is held back. */
  readonly heldMs: number | undefined
}

/** The beginning of a subscription. */
export interface Start {
  readonly position: Position
  /** Whether messages after the client's cursor may be missing. */
  readonly truncated: boolean
}

/**
 * Reads what a subscription reports from the inbox of its owner (wire.md Q). Nothing is stored for a subscription here, so any node can do
 * any look. A message is reported if it is still `stored` when it is read; so a message that another process of the agent has handled is
 * not reported. Only envelopes after the position are read, in the order of their numbers, which is the order of their commits.
 */
export class EventFeed extends Context.Service<EventFeed, {
  /** `subscription` identifies the subscription for its owner. Messages from before `notBefore` (milliseconds) are left out. */
  readonly look: (
    owner: Owner,
    type: EventType,
    subscription: string,
    position: Position,
    limit: number,
    notBefore?: number
  ) => Effect.Effect<Look, Unavailable>
  /**
   * Reads again what a look has reported between two inbox numbers, the first one exclusive. Returns the occurrence of the messages that
   * still wait, undefined if none does, or the time for which a lease holds it back.
   */
  readonly again: (
    owner: Owner,
    type: EventType,
    subscription: string,
    from: number,
    through: number
  ) => Effect.Effect<Occurrence | { readonly heldMs: number } | undefined, Unavailable>
  /** The position of a cursor, or of now if there is none; undefined if the text is not a cursor of this agent. */
  readonly start: (owner: Owner, type: EventType, cursor: string | null) => Effect.Effect<Start | undefined, Unavailable>
  readonly cursorOf: (owner: Owner, position: Position) => string
}>()("parley/mcp/EventFeed") {
  static readonly layer = Layer.effect(
    EventFeed,
    Effect.gen(function*() {
      const activeMutes = yield* ActiveMutes
      const agents = yield* Agents
      const clock = yield* Clock.Clock
      const deliveries = yield* Deliveries
      const replies = yield* Replies
      const now = () => clock.currentTimeMillisUnsafe()

      const mutesOf = Effect.fnUntraced(function*(agentId: string) {
        const mutes = new MuteSet(now)
        for (const { muted_until, target_id } of yield* activeMutes.all(agentId, now())) mutes.add(target_id, muted_until)
        return mutes
      })

      /** Up to `limit` messages to report after a number and up to another. */
      const read = Effect.fnUntraced(function*(
        owner: Owner,
        type: EventType,
        from: number,
        limit: number,
        { notBefore = 0, through = Number.POSITIVE_INFINITY }: { readonly notBefore?: number; readonly through?: number }
      ) {
        const found: Array<Candidate> = []
        const mutes = yield* mutesOf(owner.id)
        let [no, skipped] = [from, false]
        const size = Math.min(Math.max(limit, PAGE.least), PAGE.most)
        for (let most = MAX_READ; most > 0; most -= size) {
          const page = yield* deliveries.page(owner.id, no, size)
          if (page === undefined) return { found, no, skipped, more: false }
          const senders = yield* agents.byIds([...new Set(page.rows.map(({ message }) => message.senderId))])
          for (const { inboxNo, message } of page.rows) {
            if (found.length === limit || inboxNo > through) return { found, no, skipped, more: true }
            no = inboxNo
            const candidate = { inboxNo, message, senderHandle: senders.get(message.senderId)?.handle ?? "" }
            if (!isReported(type.arguments, owner, (...of) => mutes.covers(...of), candidate)) continue
            if (message.createdAt < notBefore) skipped = true
            else found.push(candidate)
          }
          if (page.isLast) return { found, no: Math.max(no, page.lastInboxNo), skipped, more: false }
        }
        return { found, no, skipped, more: true }
      })

      /** Milliseconds for which an event is held back because a process of the agent holds a lease. */
      const leaseOf = Effect.fnUntraced(function*(owner: Owner, { arguments: { deferIfActive } }: EventType) {
        if (!deferIfActive) return undefined
        const { expiresIn, sessions } = yield* replies.leases(owner.id)
        return sessions === 0 ? undefined : Math.min(Math.max(expiresIn * 1_000, 1_000), LEASE_MS)
      })

      const quietFor = ({ arguments: { quietSeconds }, name }: EventType, { reportedAt }: Position): number => {
        if (name !== "inbox.waiting" || reportedAt === null) return 0
        const since = now() - reportedAt
        // A time ahead of the clock is from before the clock was set back.
        return since < 0 ? 0 : Math.max(0, quietSeconds * 1_000 - since)
      }

      /** The newest number of an agent's inbox. */
      const headOf = (agentId: string) => Effect.map(deliveries.heads([agentId]), (heads) => heads.get(agentId) ?? 0)

      const one = (owner: Owner, type: EventType, candidate: Candidate) => received(type.arguments, owner, deliveries.ids, candidate)

      return EventFeed.of({
        again: Effect.fn("EventFeed.again")(function*(owner, type, subscription, from, through) {
          const isEdge = type.name === "inbox.waiting"
          const { found: [first, ...rest] } = yield* read(owner, type, from, isEdge ? MAX_READ : 1, { through })
          if (first === undefined) return undefined
          const heldMs = yield* leaseOf(owner, type)
          if (heldMs !== undefined) return { heldMs }
          return isEdge ? waiting(subscription, owner, [first, ...rest]) : one(owner, type, first)
        }),
        look: Effect.fn("EventFeed.look")(function*(owner, type, subscription, position, limit, notBefore = 0) {
          const held = (heldMs: number): Look => ({ reported: [], position, more: false, skipped: false, heldMs })
          const quiet = quietFor(type, position)
          if (quiet > 0) return (yield* headOf(owner.id)) > position.no ? held(quiet) : { ...held(quiet), heldMs: undefined }
          const isEdge = type.name === "inbox.waiting"
          const { found, more, no, skipped } = yield* read(owner, type, position.no, isEdge ? MAX_READ : limit, { notBefore })
          const [first, ...rest] = found
          const { reportedAt } = position
          if (first === undefined) return { reported: [], position: { no, reportedAt }, more, skipped, heldMs: undefined }
          const lease = yield* leaseOf(owner, type)
          if (lease !== undefined) return held(lease)
          const after = { no, reportedAt: isEdge ? now() : null }
          return {
            reported: isEdge
              ? [{ occurrence: waiting(subscription, owner, [first, ...rest]), after }]
              : found.map((candidate) => ({ occurrence: one(owner, type, candidate), after: { no: candidate.inboxNo, reportedAt: null } })),
            position: after,
            // The next `inbox.waiting` has to wait for `quiet_seconds`.
            more: more && !isEdge,
            skipped,
            heldMs: more && isEdge ? type.arguments.quietSeconds * 1_000 : undefined
          }
        }),
        start: Effect.fn("EventFeed.start")(function*(owner, { arguments: { includeWaiting } }, cursor) {
          const head = yield* headOf(owner.id)
          if (cursor === null) return { position: { no: includeWaiting ? 0 : head, reportedAt: null }, truncated: false }
          const position = decodeCursor(deliveries.ids, owner.id, cursor)
          if (position === undefined || position.no === head) return position && { position, truncated: false }
          // A number above the newest was assigned before a backup was restored.
          if (position.no > head) return { position: { no: 0, reportedAt: null }, truncated: true }
          return { position, truncated: !(yield* deliveries.has(owner.id, position.no + 1)) }
        }),
        cursorOf: (owner, position) => encodeCursor(deliveries.ids, owner.id, position)
      })
    })
  )
}

import { Agents } from "#domain/agents/Agents"
import { Deliveries } from "#domain/deliveries/Deliveries"
import type { UndeliveredMessage } from "#domain/deliveries/DeliveriesRepo"
import { ActiveMutes } from "#domain/push/ActiveMutes"
import { MuteSet } from "#domain/push/MuteSet"
import { Replies } from "#domain/replies/Replies"
import type { LargeAnswer } from "#infrastructure/concurrency/LargeReads"
import { nextTick } from "#infrastructure/platform/EventLoop"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { decodeCursor, encodeCursor, type Position } from "./EventCursor.ts"
import type { EventType } from "./EventTypes.ts"
import {
  type Candidate,
  isRead,
  isSelected,
  mentions,
  type Occurrence,
  type Owner,
  type ReadCandidate,
  received,
  waiting
} from "./Occurrence.ts"

/** How many messages one call of `look` goes through. A longer inbox is reported by the following calls. */
const MAX_READ = 1_000
/**
 * How many messages the first statement of a look, and each later statement, goes through. These statements do not read
 * the texts of messages.
 */
const PAGE = { first: 100, later: 250 }
/** Out of how many messages one statement reads texts. */
const MAX_CHOSEN = 100
/** How many statements of one look may read texts. Each reads at most 256 kB. */
const MAX_TEXT_READS = 4
/** The memory that a look may take. A caller of `look` or `again` must run it in a large-read slot of the owner. */
export const POLL_READ: LargeAnswer = { usual: 1, max: 1, bytes: 2_097_152 }
/**
 * How long an event waits at most, in milliseconds, before a lease of the agent is checked again. A lease can end
 * early.
 */
const LEASE_MS = 15_000

/** An occurrence, and the position of its subscription after the occurrence. */
export interface Reported {
  readonly occurrence: Occurrence
  readonly after: Position
}

/** The result of `look`, which reads an inbox. */
export interface Look {
  /** The occurrences, oldest first. */
  readonly reported: ReadonlyArray<Reported>
  /** The position up to which every message was reported or did not need a report. */
  readonly position: Position
  /** Whether another look may find more messages immediately. */
  readonly more: boolean
  /** Whether the look left out messages because they are older than `notBefore`. */
  readonly skipped: boolean
  /**
   * After how many milliseconds another look can report the messages that this look held back because of a lease or
   * `quiet_seconds`. Undefined if it held back nothing.
   */
  readonly heldMs: number | undefined
}

/** Where a subscription begins. */
export interface Start {
  readonly position: Position
  /** Whether messages after the client's cursor may be missing. */
  readonly truncated: boolean
}

/**
 * Reads from the inbox of a subscription's owner what the subscription reports (wire.md Q). The service stores nothing
 * for a subscription, so any node can call it for any subscription. A message is reported only if its status is still
 * `stored` when the inbox is read. So a message that another process of the agent has already handled is not reported.
 * Only envelopes after the position are read, in the order of their numbers, which is the order of their commits.
 */
export class EventFeed extends Context.Service<EventFeed, {
  /**
   * Reads what a subscription has to report after a position. `subscription` identifies the subscription among those of
   * its owner. Messages from before `notBefore` (in milliseconds) are left out.
   */
  readonly look: (
    owner: Owner,
    type: EventType,
    subscription: string,
    position: Position,
    limit: number,
    notBefore?: number
  ) => Effect.Effect<Look, Unavailable>
  /**
   * Reads again what a look has reported: the messages with inbox numbers above `from` and up to `through`. Returns the
   * occurrence for those messages that still wait, or undefined if none of them waits. If a lease holds the occurrence
   * back, returns for how long.
   */
  readonly again: (
    owner: Owner,
    type: EventType,
    subscription: string,
    from: number,
    through: number
  ) => Effect.Effect<Occurrence | { readonly heldMs: number } | undefined, Unavailable>
  /**
   * Returns where a subscription begins: at the cursor or, if there is none, at the present time. Returns undefined if
   * the text is not a cursor of this agent.
   */
  readonly start: (
    owner: Owner,
    type: EventType,
    cursor: string | null
  ) => Effect.Effect<Start | undefined, Unavailable>
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
        for (const { muted_until, target_id } of yield* activeMutes.all(agentId, now()))
          mutes.add(target_id, muted_until)
        return mutes
      })

      /**
       * Returns those of the messages that a subscription can report. `skipped` says whether some were left out because
       * of their age.
       */
      const select = Effect.fnUntraced(function*(
        owner: Owner,
        { arguments: args }: EventType,
        mutes: MuteSet,
        rows: ReadonlyArray<UndeliveredMessage>,
        notBefore: number
      ) {
        const senders = yield* agents.byIds([...new Set(rows.map(({ message }) => message.senderId))])
        const all = rows.map((row): Candidate => ({
          ...row,
          senderHandle: senders.get(row.message.senderId)?.handle ?? ""
        }))
          .filter((candidate) => isSelected(args, owner, (...of) => mutes.covers(...of), candidate))
        // With `mentions_only`, the text of an old message decides whether the subscription would report it. So old
        // messages are left out later, when the texts have been read.
        const selected = args.mentionsOnly ? all : all.filter(({ message }) => message.createdAt >= notBefore)
        return { selected, skipped: selected.length < all.length }
      })

      /**
       * Reads the texts of as many of these messages as one statement may read. Drops messages that have been delivered
       * in the meantime.
       */
      const withTexts = (owner: Owner, some: ReadonlyArray<Candidate>) =>
        Effect.map(deliveries.chosen(owner.id, some.map(({ inboxNo }) => inboxNo)), ({ isLast, rows }) => {
          const messages = new Map(rows.map(({ inboxNo, message }) => [inboxNo, message]))
          return {
            through: (isLast ? some : rows).at(-1)?.inboxNo ?? 0,
            whole: some.flatMap((candidate): ReadonlyArray<ReadCandidate> => {
              const message = messages.get(candidate.inboxNo)
              return message === undefined ? [] : [{ ...candidate, message }]
            })
          }
        })

      /**
       * Returns up to `limit` messages to report, with inbox numbers above `from` and up to `through`. First goes
       * through the inbox without the texts of its messages. Then reads the texts of the selected messages if the event
       * needs them. `more` is set if the result ends at a bound.
       */
      const read = Effect.fnUntraced(function*(
        owner: Owner,
        type: EventType,
        from: number,
        limit: number,
        { notBefore = 0, through = Number.POSITIVE_INFINITY }: {
          readonly notBefore?: number
          readonly through?: number
        }
      ) {
        const { arguments: { mentionsOnly }, name } = type
        const needsTexts = mentionsOnly || name === "message.received"
        const mutes = yield* mutesOf(owner.id)
        const found: Array<Candidate> = []
        let [no, skipped, textReads] = [from, false, 0]
        for (
          let [most, size] = [MAX_READ, PAGE.first];
          most > 0;
          [most, size] = [most - size, Math.min(PAGE.later, most - size)]
        ) {
          const page = yield* deliveries.waiting(owner.id, no, size)
          if (page === undefined) return { found, no, skipped, more: false }
          const rows = page.rows.filter(({ inboxNo }) => inboxNo <= through)
          const { selected, skipped: some } = yield* select(owner, type, mutes, rows, notBefore)
          skipped ||= some
          let rest = selected
          while (rest.length > 0) {
            const next = rest[0]!.inboxNo
            if (found.length === limit || textReads === MAX_TEXT_READS)
              return { found, no: next - 1, skipped, more: true }
            const few = rest.slice(0, mentionsOnly ? MAX_CHOSEN : limit - found.length)
            if (!needsTexts) {
              found.push(...few)
              rest = rest.slice(few.length)
              continue
            }
            textReads++
            const { through: readThrough, whole } = yield* withTexts(owner, few)
            for (const candidate of mentionsOnly ? whole.filter(({ message }) => mentions(owner, message)) : whole) {
              if (candidate.message.createdAt < notBefore) skipped = true
              else if (found.length === limit) return { found, no: candidate.inboxNo - 1, skipped, more: true }
              else found.push(candidate)
            }
            rest = rest.filter(({ inboxNo }) => inboxNo > readThrough)
          }
          no = page.rows.at(-1)?.inboxNo ?? no
          if (rows.length < page.rows.length) return { found, no: through, skipped, more: true }
          if (page.isLast) return { found, no: Math.max(no, page.lastInboxNo), skipped, more: false }
          yield* nextTick
        }
        return { found, no, skipped, more: true }
      })

      /**
       * Returns for how many milliseconds an event is held back because a process of the agent holds a lease. Returns
       * undefined if it is not held back.
       */
      const leaseOf = Effect.fnUntraced(function*(owner: Owner, { arguments: { deferIfActive } }: EventType) {
        if (!deferIfActive) return undefined
        const { expiresIn, sessions } = yield* replies.leases(owner.id)
        return sessions === 0 ? undefined : Math.min(Math.max(expiresIn * 1_000, 1_000), LEASE_MS)
      })

      const quietFor = ({ arguments: { quietSeconds }, name }: EventType, { reportedAt }: Position): number => {
        if (name !== "inbox.waiting" || reportedAt === null) return 0
        const since = now() - reportedAt
        // A time ahead of the clock was stored before the clock was set back.
        return since < 0 ? 0 : Math.max(0, quietSeconds * 1_000 - since)
      }

      /** Returns the newest number in an agent's inbox. */
      const headOf = (agentId: string) => Effect.map(deliveries.heads([agentId]), (heads) => heads.get(agentId) ?? 0)

      const one = (owner: Owner, type: EventType, candidate: ReadCandidate) =>
        received(type.arguments, owner, deliveries.ids, candidate)

      return EventFeed.of({
        again: Effect.fn("EventFeed.again")(function*(owner, type, subscription, from, through) {
          const isEdge = type.name === "inbox.waiting"
          const { found: [first, ...rest] } = yield* read(owner, type, from, isEdge ? MAX_READ : 1, { through })
          if (first === undefined) return undefined
          const heldMs = yield* leaseOf(owner, type)
          if (heldMs !== undefined) return { heldMs }
          return isEdge
            ? waiting(subscription, owner, [first, ...rest])
            : isRead(first)
            ? one(owner, type, first)
            : undefined
        }),
        look: Effect.fn("EventFeed.look")(function*(owner, type, subscription, position, limit, notBefore = 0) {
          const held = (heldMs: number): Look => ({ reported: [], position, more: false, skipped: false, heldMs })
          const quiet = quietFor(type, position)
          if (quiet > 0)
            return (yield* headOf(owner.id)) > position.no
              ? held(quiet)
              : { ...held(quiet), heldMs: undefined }
          const isEdge = type.name === "inbox.waiting"
          const { found, more, no, skipped } = yield* read(owner, type, position.no, isEdge ? MAX_READ : limit, {
            notBefore
          })
          const [first, ...rest] = found
          const { reportedAt } = position
          if (first === undefined)
            return { reported: [], position: { no, reportedAt }, more, skipped, heldMs: undefined }
          const lease = yield* leaseOf(owner, type)
          if (lease !== undefined) return held(lease)
          const after = { no, reportedAt: isEdge ? now() : null }
          return {
            reported: isEdge
              ? [{ occurrence: waiting(subscription, owner, [first, ...rest]), after }]
              : found.filter(isRead).map((candidate) => ({
                occurrence: one(owner, type, candidate),
                after: { no: candidate.inboxNo, reportedAt: null }
              })),
            position: after,
            // The next `inbox.waiting` must wait for `quiet_seconds`.
            more: more && !isEdge,
            skipped,
            heldMs: more && isEdge ? type.arguments.quietSeconds * 1_000 : undefined
          }
        }),
        start: Effect.fn("EventFeed.start")(function*(owner, { arguments: { includeWaiting } }, cursor) {
          const head = yield* headOf(owner.id)
          if (cursor === null)
            return { position: { no: includeWaiting ? 0 : head, reportedAt: null }, truncated: false }
          const position = decodeCursor(deliveries.ids, owner.id, cursor)
          if (position === undefined || position.no === head) return position && { position, truncated: false }
          // A number above the newest one was assigned before the database was restored from a backup.
          if (position.no > head) return { position: { no: 0, reportedAt: null }, truncated: true }
          return { position, truncated: !(yield* deliveries.has(owner.id, position.no + 1)) }
        }),
        cursorOf: (owner, position) => encodeCursor(deliveries.ids, owner.id, position)
      })
    })
  )
}

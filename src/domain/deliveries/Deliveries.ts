import { Agents } from "#domain/agents/Agents"
import { GroupReads } from "#domain/memberships/GroupReads"
import { messageJson, MessageNotFound, type Rendered, renderMessage } from "#domain/messages/Message"
import { decideReport, decideUnchanged, type OutcomeFinal, type Report } from "#domain/messages/Outcome"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import type { LiveAgent } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { makeCommitQueue } from "#infrastructure/database/CommitQueue"
import { Secrets } from "#infrastructure/database/Secrets"
import { Database } from "#infrastructure/database/Sql"
import { nextTick } from "#infrastructure/platform/EventLoop"
import { requestIdOf } from "#infrastructure/platform/RequestId"
import { Forbidden, Unavailable, type ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { makeAcknowledgements, RETRY_DELAY } from "./Acknowledgements.ts"
import {
  DeliveriesRepo,
  type FoundMessage,
  type InboxPage,
  type ReadChange,
  type ReadMark,
  type ReadSlice,
  SLICE_ROWS,
  type WaitingPage
} from "./DeliveriesRepo.ts"
import { type DeliveryIds, makeDeliveryIds } from "./Delivery.ts"
import { Outcomes } from "./Outcomes.ts"
import { toReadReceipt } from "./ReadReceipt.ts"

const READ_LANES = 1
/** How many marks one statement executes. They share SLICE_ROWS, so each mark gets at least 100 rows. */
const READ_MARKS = 20
/**
 * How often the look-up of an acknowledged message is tried while the database is unavailable. The socket waits for the
 * look-up.
 */
const MAX_LOOK_UP_TRIES = 3
/** How long a shutdown waits until accepted acknowledgements and reads are committed. */
export const LAST_COMMITS = "5 seconds"

/** After how many bytes of contents a page of an inbox ends. While the process renders a page, it does nothing else. */
const PAGE_BYTES = 262_144

/** Wraps the query for a page. */
export type Within = (
  query: Effect.Effect<InboxPage | undefined, Unavailable>
) => Effect.Effect<InboxPage | undefined, Unavailable>

/**
 * Reads inboxes, and stores acknowledgements and reads. An envelope is identified by its number in the recipient's
 * inbox.
 */
export class Deliveries extends Context.Service<Deliveries, {
  readonly ids: DeliveryIds
  /**
   * Reads undelivered envelopes above a number, up to `limit` envelopes or 256 kB. Returns undefined for an unknown
   * agent. `within` wraps the query, but not the wait for acknowledgements before the query.
   */
  readonly page: (
    agentId: string,
    after: number,
    limit: number,
    within?: Within
  ) => Effect.Effect<InboxPage | undefined, Unavailable>
  /**
   * Reads up to `limit` undelivered envelopes above a number, without the texts of their messages. Returns undefined
   * for an unknown agent.
   */
  readonly waiting: (
    agentId: string,
    after: number,
    limit: number
  ) => Effect.Effect<WaitingPage | undefined, Unavailable>
  /** Reads those of these envelopes that are still undelivered, in order, with their texts, up to 256 kB. */
  readonly chosen: (
    agentId: string,
    numbers: ReadonlyArray<number>
  ) => Effect.Effect<Pick<InboxPage, "isLast" | "rows">, Unavailable>
  /** Reads the pull inbox: SyncRows as JSON texts, oldest first (wire.md C.6). */
  readonly sync: (
    agentId: string,
    after: string | undefined,
    limit: number
  ) => Effect.Effect<ReadonlyArray<string>, Unavailable>
  /** Renders each undelivered envelope of a page as the JSON text of its SyncRow, split at the delivery id. */
  readonly render: (page: Pick<InboxPage, "rows">) => Effect.Effect<ReadonlyArray<RenderedPending>, Unavailable>
  /**
   * Marks all envelopes up to and including this one as delivered, and returns how many changed. This can take several
   * statements. After a failure, a repeated call continues after the last successful statement.
   */
  readonly acknowledgeThrough: (agentId: string, deliveryId: string) => Effect.Effect<number, Unavailable>
  /**
   * Marks one envelope as delivered. The call returns before the commit and reports no result. While the database is
   * unavailable, the mark is retried for ten seconds. If the acknowledgement is still lost, the envelope is shown
   * again.
   */
  readonly acknowledge: (agentId: string, inboxNo: number) => void
  /** Like `acknowledge`, for a message whose inbox number the caller does not know. */
  readonly acknowledgeMessage: (agent: LiveAgent, messageId: string) => Effect.Effect<void, Unavailable>
  /**
   * Marks one received message as read, records the reader's outcome if there is a report, and returns the message as
   * the reader sees it, as JSON text. If the message cannot have the reported outcome, nothing is marked.
   */
  readonly read: (
    agentId: string,
    handle: string,
    messageId: string,
    report?: Report
  ) => Effect.Effect<string, MessageNotFound | Forbidden | ValidationFailed | OutcomeFinal | Unavailable>
  /** Marks all messages of a conversation that the agent received up to a seq as read (wire.md E.6). */
  readonly readThrough: (
    agentId: string,
    handle: string,
    conversationId: string,
    through: number
  ) => Effect.Effect<void, Unavailable>
  readonly find: (agentId: string, messageId: string) => Effect.Effect<FoundMessage | undefined, Unavailable>
  /** The newest inbox number of each of these agents. */
  readonly heads: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, number>, Unavailable>
  /**
   * Whether the agent's inbox still contains the envelope with this number, delivered or not. Retention removes old
   * envelopes.
   */
  readonly has: (agentId: string, inboxNo: number) => Effect.Effect<boolean, Unavailable>
  /** Marks every undelivered envelope of an agent as delivered at that time (wire.md G.12). Idempotent. */
  readonly closeAll: (agentId: string, at: number) => Effect.Effect<void, Unavailable>
  /** Completes when every accepted acknowledgement and read is committed. */
  readonly settled: Effect.Effect<void>
}>()("parley/deliveries/Deliveries") {
  static readonly layer = Layer.effect(
    Deliveries,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const repo = yield* DeliveriesRepo
      const agents = yield* Agents
      const liveAgents = yield* LiveAgents
      const outcomes = yield* Outcomes
      const groupReads = yield* GroupReads
      const { driver } = yield* Database
      const signals = yield* WebhookSignals
      const ids = makeDeliveryIds((yield* Secrets).deliveryIds)
      const batchPerTick = driver === "pglite"

      const acks = yield* makeAcknowledgements(repo.acknowledge, repo.locks)
      const reads = yield* makeCommitQueue<ReadMark, ReadSlice>({
        name: "read",
        lanes: READ_LANES,
        laneOf: () => 0,
        rowsOf: () => 1,
        bytesOf: () => 0,
        maxRows: READ_MARKS,
        maxBytes: Number.MAX_SAFE_INTEGER,
        capacity: 20_000,
        batchPerTick,
        commit: repo.read,
        locks: repo.locks
      })

      const settled = Effect.andThen(acks.idle, reads.idle)
      yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(settled, LAST_COMMITS)))

      const pageOf = (
        agentId: string,
        after: number,
        limit: number,
        maxBytes: number,
        within: Within = (query) => query
      ) => {
        const read = within(repo.page(agentId, after, limit, maxBytes))
        return after === 0 ? Effect.andThen(acks.underWay(agentId), read) : read
      }

      const waiting = (agentId: string, after: number, limit: number) => {
        const read = repo.waiting(agentId, after, limit)
        return after === 0 ? Effect.andThen(acks.underWay(agentId), read) : read
      }

      const mark = (read: Mark, handle: string): Effect.Effect<void, Unavailable> =>
        Effect.withFiber((fiber) =>
          Effect.callback((resume) => {
            const whole = { ...read, requestId: requestIdOf(fiber) ?? null }
            const goOn = (from: number): void =>
              reads.submit({ ...whole, from }, (settled) => {
                if (settled._tag === "Failed") return resume(settled.exit)
                const { changes, next } = settled.value
                for (const change of changes) {
                  if (!change.blocked) tellSender(read, handle, change)
                  if (change.hooked) signals.raise(change.senderId)
                }
                if (next === undefined) resume(Effect.void)
                else goOn(next)
              })
            goOn(read.from)
          })
        )

      const acknowledgeThrough = Effect.fnUntraced(function*(agentId: string, inboxNo: number, at: number) {
        let acked = 0
        while (true) {
          const slice = yield* repo.acknowledgeThrough(agentId, inboxNo, at, SLICE_ROWS)
          acked += slice.acked
          if (slice.isLast) return acked
          yield* nextTick
        }
      })

      const tellSender = (read: Mark, handle: string, change: ReadChange): void => {
        const payload = toReadReceipt({ ...change, conversationId: read.conversationId, at: read.at }, handle)
        liveAgents.push(change.senderId, { _tag: "Event", frame: JSON.stringify({ type: "message.read", payload }) })
      }

      const find = (agentId: string, messageId: string) => repo.find(agentId, messageId)

      const render = Effect.fnUntraced(function*(page: Pick<InboxPage, "rows">) {
        const senders = yield* agents.byIds([...new Set(page.rows.map((row) => row.message.senderId))])
        const contextOf = yield* groupReads.contexts(page.rows.map((row) => row.message))
        return page.rows.map((row): RenderedPending => ({
          inboxNo: row.inboxNo,
          messageId: row.message.id,
          senderId: row.message.senderId,
          rendered: renderMessage(
            row.message,
            contextOf(row.message, senders.get(row.message.senderId))
          )
        }))
      })

      return Deliveries.of({
        ids,
        page: (agentId, after, limit, within) => pageOf(agentId, after, limit, PAGE_BYTES, within),
        waiting,
        chosen: (agentId, numbers) =>
          numbers.length === 0 ? Effect.succeed({ rows: [], isLast: true }) : repo.chosen(agentId, numbers, PAGE_BYTES),
        render,
        sync: Effect.fn("Deliveries.sync")(function*(agentId, after, limit) {
          const from = after === undefined ? 0 : ids.decode(agentId, after)
          if (from === undefined) return []
          // Clients treat a page that is shorter than requested as the last one, so this page has no bound in bytes.
          let page = yield* pageOf(agentId, from, limit, Number.MAX_SAFE_INTEGER)
          // A number above the newest one was assigned before a backup was restored. In this case, list every
          // undelivered envelope again.
          if (page !== undefined && from > page.lastInboxNo)
            page = yield* pageOf(agentId, 0, limit, Number.MAX_SAFE_INTEGER)
          if (page === undefined) return []
          const rows = yield* render(page)
          return rows.map((row) => messageJson(row.rendered, ids.encode(agentId, row.inboxNo)))
        }),
        acknowledge: acks.acknowledge,
        acknowledgeMessage: Effect.fnUntraced(function*(agent, messageId) {
          if (agent.isOwn(messageId)) return
          const found = yield* Effect.retry(find(agent.id, messageId), {
            times: MAX_LOOK_UP_TRIES - 1,
            schedule: Schedule.spaced(RETRY_DELAY)
          })
          if (found !== undefined && found.inboxNo !== null && found.deliveredAt === null)
            acks.acknowledge(agent.id, found.inboxNo)
        }),
        acknowledgeThrough: Effect.fn("Deliveries.acknowledgeThrough")(function*(agentId, deliveryId) {
          const inboxNo = ids.decode(agentId, deliveryId)
          if (inboxNo === undefined) return 0
          return yield* acknowledgeThrough(agentId, inboxNo, clock.currentTimeMillisUnsafe())
        }),
        find,
        heads: repo.heads,
        has: repo.has,
        read: Effect.fn("Deliveries.read")(function*(agentId, handle, messageId, report) {
          const found = yield* find(agentId, messageId)
          if (found === undefined) return yield* new MessageNotFound()
          if (found.inboxNo === null) {
            return yield* new Forbidden({ message: "Only a recipient can mark a message as read, not its sender." })
          }
          const { message } = found
          const refused = report && decideReport(message, report)
          if (refused !== undefined) return yield* refused
          if (found.readAt === null) {
            const at = clock.currentTimeMillisUnsafe()
            yield* mark(
              {
                agentId,
                conversationId: message.conversationId,
                from: message.seq,
                through: message.seq,
                isClear: false,
                at
              },
              handle
            )
          }
          const isNew = report !== undefined && (yield* outcomes.record({ id: agentId, handle }, message, report))
          const now = yield* find(agentId, messageId)
          if (now === undefined) return yield* new MessageNotFound()
          const final = report === undefined || isNew ? undefined : decideUnchanged(now.outcome, report)
          if (final !== undefined) return yield* final
          const senders = yield* agents.byIds([message.senderId])
          const contextOf = yield* groupReads.contexts([message])
          const rendered = renderMessage(message, contextOf(message, senders.get(message.senderId)), now)
          return messageJson(rendered, ids.encode(agentId, found.inboxNo))
        }),
        readThrough: (agentId, handle, conversationId, through) =>
          mark(
            { agentId, conversationId, from: 1, through, isClear: true, at: clock.currentTimeMillisUnsafe() },
            handle
          ),
        closeAll: (agentId, at) => Effect.asVoid(acknowledgeThrough(agentId, Number.MAX_SAFE_INTEGER, at)),
        settled
      })
    })
  )
}

export interface RenderedPending {
  readonly inboxNo: number
  readonly messageId: string
  readonly senderId: string
  readonly rendered: Rendered
}

type Mark = Omit<ReadMark, "requestId">

import { type MessageRow, type Progress, type StoredMessage, storedMessage } from "#domain/messages/Message"
import { blockedBetween, intoOutbox, mayHook } from "#domain/messages/Outbox"
import { joinOutcome, type OutcomeColumns, outcomeColumns, storedOutcome } from "#domain/messages/OutcomeColumns"
import { heldIn, holdersOf, inputOf, type LockHolder } from "#domain/sending/BatchStatement"
import type { Locks } from "#infrastructure/database/LockWaiters"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"

/** An undelivered envelope with its message. */
export interface Pending {
  readonly inboxNo: number
  readonly message: StoredMessage
}

/** An undelivered envelope and its message, without the message's content and metadata. */
export interface UndeliveredMessage {
  readonly inboxNo: number
  readonly message: Pick<StoredMessage, "conversationId" | "createdAt" | "seq" | "senderId" | "type">
}

export interface WaitingPage {
  /**
   * The newest number when the page was read. This page and later ones contain every undelivered envelope up to that
   * number.
   */
  readonly lastInboxNo: number
  readonly rows: ReadonlyArray<UndeliveredMessage>
  /** Whether there was no undelivered envelope above the page. */
  readonly isLast: boolean
}

export interface InboxPage {
  /**
   * The newest number when the page was read. This page and later ones contain every undelivered envelope up to that
   * number.
   */
  readonly lastInboxNo: number
  readonly undelivered: number
  readonly rows: ReadonlyArray<Pending>
  /** Whether there was no undelivered envelope above the page. */
  readonly isLast: boolean
}

export interface Ack {
  readonly agentId: string
  readonly inboxNo: number
  readonly at: number
}

export interface ReadMark {
  readonly agentId: string
  readonly conversationId: string
  /** The first and the last seq to mark. */
  readonly from: number
  readonly through: number
  /** Whether it is known that there is no unread message before `from`. The statement then skips that part. */
  readonly isClear: boolean
  readonly at: number
  /** The id of the request that caused the read. It is stored with the webhook events. */
  readonly requestId: string | null
}

/** The change that a read makes for one sender. */
export interface ReadChange {
  readonly senderId: string
  /** The sender's newest message that changed. */
  readonly messageId: string
  readonly seq: number
  /** The largest seq up to which the reader has nothing unread. */
  readonly throughSeq: number
  /** Whether one of the two has blocked the other. In that case the sender is not notified. */
  readonly blocked: boolean
  /** Whether the sender may have webhooks for the event. */
  readonly hooked: boolean
}

/** The part of a mark that one statement has executed. */
export interface ReadSlice {
  readonly changes: ReadonlyArray<ReadChange>
  /** The seq at which the mark continues, or undefined if it is complete. */
  readonly next: number | undefined
}

/**
 * How many envelopes one statement marks as delivered or read. Further statements mark the rest, and the event loop
 * runs other work between them. On PGlite, 2,000 envelopes take 15 to 45 ms, during which the process does nothing
 * else.
 */
export const SLICE_ROWS = 2_000

/**
 * How many of the next unread envelopes a statement searches for messages of a sender before it creates the sender's
 * receipt.
 */
const AHEAD_ROWS = 500

/** How many delivered envelopes a page may skip before `delivered_through` is moved past them. */
const CATCH_UP_SIZE = 100

/** The first `$3` undelivered envelopes above `$2` in the inbox of `$1`, each with its message. */
const UNDELIVERED = `LEFT JOIN LATERAL (
  SELECT no, conversation_id, seq FROM envelopes
  WHERE recipient_id = b.agent_id AND no > GREATEST($2, b.delivered_through) AND delivered_at IS NULL
  ORDER BY no LIMIT $3
) e ON true
LEFT JOIN messages m ON m.conversation_id = e.conversation_id AND m.seq = e.seq
WHERE b.agent_id = $1`

/**
 * `octet_length` is cheap, because PostgreSQL knows the length of a text that is stored outside its row without reading
 * the text.
 */
const PAGE = `
SELECT p.*
FROM (
  SELECT b.last_no, b.undelivered, b.delivered_through, e.no, m.*, count(*) OVER () AS found,
    sum(octet_length(m.content) + octet_length(m.metadata)) OVER (ORDER BY e.no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
  FROM inboxes b
  ${UNDELIVERED}
) p
WHERE p.bytes_before IS NULL OR p.bytes_before < $4
ORDER BY p.no`

/** Reads as few bytes of each envelope as possible, so that one statement can read many envelopes. */
const WAITING = `
SELECT b.last_no, b.delivered_through, e.no, e.conversation_id, e.seq, m.sender_id, m.type, m.created_at
FROM inboxes b
${UNDELIVERED}
ORDER BY e.no`

const CHOSEN = `
SELECT p.*
FROM (
  SELECT e.no, m.*, count(*) OVER () AS found,
    sum(octet_length(m.content) + octet_length(m.metadata)) OVER (ORDER BY e.no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
  FROM envelopes e
  JOIN LATERAL (
    SELECT * FROM messages WHERE conversation_id = e.conversation_id AND seq = e.seq OFFSET 0
  ) m ON true
  WHERE e.recipient_id = $1 AND e.no = ANY ($2::bigint[]) AND e.delivered_at IS NULL
) p
WHERE p.bytes_before IS NULL OR p.bytes_before < $3
ORDER BY p.no`

/**
 * Locks the inbox rows first, as every statement does, so that the counters and the envelopes that they count change
 * under one lock. `delivered_through` is raised only if the acknowledged numbers follow it without a gap. If
 * acknowledgements out of order leave gaps, a read of a page raises it later.
 */
const ACKNOWLEDGE = `
WITH input AS MATERIALIZED (${inputOf("agent text, no bigint, at bigint", "$2")}
), held AS MATERIALIZED (
  SELECT n.agent_id
  FROM inboxes n WHERE n.agent_id = ANY (ARRAY(SELECT DISTINCT agent FROM input))
  ORDER BY n.agent_id
  FOR NO KEY UPDATE OF n
), done AS (
  UPDATE envelopes e SET delivered_at = i.at
  FROM input i JOIN held h ON h.agent_id = i.agent
  WHERE e.recipient_id = i.agent AND e.no = i.no AND e.delivered_at IS NULL
  RETURNING e.recipient_id, e.no
)
UPDATE inboxes n SET
  undelivered = n.undelivered - w.n,
  delivered_through = CASE
    WHEN w.first = n.delivered_through + 1 AND w.last - w.first + 1 = w.n THEN w.last ELSE n.delivered_through
  END
FROM (SELECT recipient_id, count(*) AS n, min(no) AS first, max(no) AS last FROM done GROUP BY recipient_id) w
WHERE n.agent_id = w.recipient_id`

/** Records the number up to which a page found all envelopes delivered, so that the next page begins there. */
const DELIVERED_THROUGH = `UPDATE inboxes SET delivered_through = GREATEST(delivered_through, $2) WHERE agent_id = $1`

/**
 * Marks those of the next $4 + 1 envelopes that are undelivered as delivered. `edge` is the number of the last of these
 * envelopes, or null if there are fewer. Envelopes outside the snapshot have higher numbers than `last_no`, because
 * numbers are assigned under the lock of the inbox row.
 */
const ACKNOWLEDGE_THROUGH = `
WITH held AS MATERIALIZED (
  SELECT agent_id FROM inboxes WHERE agent_id = $1 FOR NO KEY UPDATE
), seen AS MATERIALIZED (
  SELECT last_no, delivered_through FROM inboxes WHERE agent_id = $1
), slice AS MATERIALIZED (
  SELECT s.last_no, s.delivered_through, (
    SELECT no FROM envelopes
    WHERE recipient_id = $1 AND no > s.delivered_through AND no <= $2
    ORDER BY no OFFSET $4 LIMIT 1
  ) AS edge
  FROM seen s
), done AS (
  UPDATE envelopes e SET delivered_at = $3
  FROM held h, slice s
  WHERE h.agent_id = $1 AND e.recipient_id = $1 AND e.no > s.delivered_through AND e.no <= COALESCE(s.edge, $2)
    AND e.delivered_at IS NULL
  RETURNING e.no
), counted AS (
  UPDATE inboxes n SET
    undelivered = n.undelivered - (SELECT count(*) FROM done),
    delivered_through = GREATEST(n.delivered_through, COALESCE(s.edge, LEAST($2, s.last_no)))
  FROM held h, slice s WHERE n.agent_id = h.agent_id
)
SELECT count(*) AS acked, (SELECT edge FROM slice) AS edge FROM done`

/** The first unread envelopes of a recipient in a conversation, with the senders of their messages. */
const unread = (which: string, most: "$3" | "$4"): string => `
    SELECT e.recipient_id, e.no, e.conversation_id, e.seq, e.delivered_at, m.sender_id
    FROM envelopes e
    JOIN LATERAL (
      SELECT sender_id FROM messages WHERE conversation_id = e.conversation_id AND seq = e.seq OFFSET 0
    ) m ON true
    WHERE ${which} AND e.read_at IS NULL
    ORDER BY e.seq LIMIT ${most}`

/**
 * Marks the first $3 unread envelopes of each mark as read. `edge` is the seq of the last of these, if there may be
 * more. If one of the next $4 envelopes has a message of the same sender, the statement that marks that envelope
 * creates the sender's receipt. If that statement fails, the repeated mark creates the receipt.
 */
const READ = `
WITH input AS MATERIALIZED (${
  inputOf("i integer, agent text, conv text, lo bigint, hi bigint, clear boolean, at bigint, request text", "$2")
}
), held AS MATERIALIZED (
  SELECT n.agent_id
  FROM inboxes n WHERE n.agent_id = ANY (ARRAY(SELECT DISTINCT agent FROM input))
  ORDER BY n.agent_id
  FOR NO KEY UPDATE OF n
), target AS MATERIALIZED (
  SELECT x.i, x.at, x.clear, t.*
  FROM input x
  JOIN held h ON h.agent_id = x.agent
  JOIN LATERAL (
    ${unread("e.recipient_id = h.agent_id AND e.conversation_id = x.conv AND e.seq BETWEEN x.lo AND x.hi", "$3")}
    FOR NO KEY UPDATE OF e
  ) t ON true
), edges AS MATERIALIZED (
  SELECT i, max(seq) AS edge FROM target GROUP BY i HAVING count(*) = $3
), ahead AS MATERIALIZED (
  SELECT DISTINCT x.i, t.sender_id
  FROM edges d
  JOIN input x ON x.i = d.i
  JOIN LATERAL (
    ${unread("e.recipient_id = x.agent AND e.conversation_id = x.conv AND e.seq > d.edge AND e.seq <= x.hi", "$4")}
  ) t ON true
), first AS MATERIALIZED (
  SELECT DISTINCT ON (recipient_id, no) * FROM target ORDER BY recipient_id, no, i
), marked AS (
  UPDATE envelopes e SET read_at = t.at, delivered_at = COALESCE(e.delivered_at, t.at)
  FROM first t
  WHERE e.recipient_id = t.recipient_id AND e.no = t.no
), counted AS (
  UPDATE inboxes n SET undelivered = n.undelivered - w.n
  FROM (
    SELECT recipient_id, count(*) AS n FROM first WHERE delivered_at IS NULL GROUP BY recipient_id
  ) w
  WHERE n.agent_id = w.recipient_id
), changed AS (
  SELECT i, recipient_id, conversation_id, sender_id, bool_and(clear) AS clear, max(seq) AS seq FROM first
  GROUP BY i, recipient_id, conversation_id, sender_id
  HAVING ((i, sender_id) IN (SELECT i, sender_id FROM ahead)) IS NOT TRUE
), told AS MATERIALIZED (
SELECT c.i, c.recipient_id, c.conversation_id, c.sender_id, c.seq, m.id AS message_id,
  ${blockedBetween("c.sender_id", "c.recipient_id", "c.conversation_id")} AS blocked,
  COALESCE(
    (
      SELECT e.seq - 1 FROM envelopes e
      WHERE e.recipient_id = c.recipient_id AND e.conversation_id = c.conversation_id AND e.read_at IS NULL
        AND e.seq > CASE WHEN c.clear THEN c.seq ELSE 0 END
        AND ((e.recipient_id, e.no) IN (SELECT recipient_id, no FROM target)) IS NOT TRUE
      ORDER BY e.seq LIMIT 1
    ),
    (
      SELECT max(e.seq) FROM envelopes e
      WHERE e.recipient_id = c.recipient_id AND e.conversation_id = c.conversation_id
    )
  ) AS through_seq
FROM changed c
JOIN messages m ON m.conversation_id = c.conversation_id AND m.seq = c.seq
), hooked AS MATERIALIZED (
  SELECT t.*, x.at, x.request FROM told t
  JOIN input x ON x.i = t.i
  JOIN LATERAL (SELECT * FROM agents WHERE id = t.sender_id OFFSET 0) a ON ${mayHook("a", "message.read")}
  WHERE NOT t.blocked
), posted AS (${
  intoOutbox(
    "message.read",
    `SELECT sender_id AS agent_id, at, request, json_build_object(
      'message_id', message_id, 'conversation_id', conversation_id, 'seq', seq, 'reader', recipient_id, 'at', at,
      'through_seq', through_seq
    )::text AS subject FROM hooked`
  )
}
)
SELECT t.i, t.sender_id, t.seq, t.message_id, t.blocked, t.through_seq,
  EXISTS (SELECT FROM hooked h WHERE h.i = t.i AND h.sender_id = t.sender_id) AS hooked, NULL AS edge
FROM told t
UNION ALL
SELECT d.i, NULL, NULL, NULL, NULL, NULL, NULL, d.edge FROM edges d
ORDER BY i, seq`

export interface Head {
  readonly agent_id: string
  readonly last_no: number
}

/** The newest number of each of these inboxes. */
export const HEADS = `SELECT agent_id, last_no FROM inboxes WHERE agent_id = ANY($1::text[])`

const HAS = `SELECT FROM envelopes WHERE recipient_id = $1 AND no = $2`

const FIND = `
SELECT e.no, e.delivered_at, e.read_at, ${outcomeColumns}, m.*
FROM messages m
LEFT JOIN LATERAL (
  SELECT * FROM envelopes WHERE recipient_id = $1 AND conversation_id = m.conversation_id AND seq = m.seq OFFSET 0
) e ON true
${joinOutcome("e")}
WHERE m.id = $2 AND (e.no IS NOT NULL OR m.sender_id = $1)`

/**
 * A message, its number in the inbox of the agent that looked it up, and the progress of the agent's envelope.
 * `inboxNo` is `null` if the agent is the sender.
 */
export interface FoundMessage extends Progress {
  readonly message: StoredMessage
  readonly inboxNo: number | null
}

/** All SQL of inbox numbers, envelopes and acknowledgements. */
export class DeliveriesRepo extends Context.Service<DeliveriesRepo, {
  /**
   * Reads undelivered envelopes above a number, in order. The page ends with the message that reaches `maxBytes` of
   * contents and metadata. Returns undefined for an unknown agent.
   */
  readonly page: (
    agentId: string,
    after: number,
    limit: number,
    maxBytes: number
  ) => Effect.Effect<InboxPage | undefined, Unavailable>
  /**
   * Reads undelivered envelopes above a number, in order, without their texts. Returns undefined for an unknown agent.
   */
  readonly waiting: (
    agentId: string,
    after: number,
    limit: number
  ) => Effect.Effect<WaitingPage | undefined, Unavailable>
  /**
   * Reads those of these envelopes that are still undelivered, in order. The result ends with the message that reaches
   * `maxBytes` of contents and metadata.
   */
  readonly chosen: (
    agentId: string,
    numbers: ReadonlyArray<number>,
    maxBytes: number
  ) => Effect.Effect<Pick<InboxPage, "isLast" | "rows">, Unavailable>
  readonly acknowledge: (batch: ReadonlyArray<Ack>, lockMs: number) => Effect.Effect<void, SqlError.SqlError>
  /**
   * Marks those of the next `most` envelopes that are undelivered as delivered, up to and including a number. Returns
   * how many changed, and whether none are left.
   */
  readonly acknowledgeThrough: (
    agentId: string,
    inboxNo: number,
    at: number,
    most: number
  ) => Effect.Effect<{ readonly acked: number; readonly isLast: boolean }, Unavailable>
  /**
   * Marks at most SLICE_ROWS envelopes, divided evenly among the marks. Returns one slice for each mark, in the order
   * of the batch.
   */
  readonly read: (
    batch: ReadonlyArray<ReadMark>,
    lockMs: number
  ) => Effect.Effect<ReadonlyArray<ReadSlice>, SqlError.SqlError>
  /** The locks of `acknowledge` and `read`. */
  readonly locks: Locks<{ readonly agentId: string }>
  readonly heads: (agentIds: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, number>, Unavailable>
  /** Whether an envelope exists, delivered or not. */
  readonly has: (agentId: string, inboxNo: number) => Effect.Effect<boolean, Unavailable>
  /** Finds a message by its id, if this agent has sent or received it. */
  readonly find: (agentId: string, messageId: string) => Effect.Effect<FoundMessage | undefined, Unavailable>
}>()("parley/deliveries/DeliveriesRepo") {
  static readonly layer = Layer.effect(
    DeliveriesRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const page = database.prepared<
        MessageRow & {
          last_no: number
          undelivered: number
          delivered_through: number
          no: number | null
          found: number
        }
      >("inbox_page", PAGE)
      const waiting = database.prepared<
        & { last_no: number; delivered_through: number }
        & ({ no: null } | {
          no: number
          conversation_id: string
          seq: number
          sender_id: string
          type: StoredMessage["type"]
          created_at: number
        })
      >("inbox_waiting", WAITING)
      const chosen = database.prepared<MessageRow & { no: number; found: number }>("inbox_chosen", CHOSEN)
      const deliveredThrough = database.prepared("delivered_through", DELIVERED_THROUGH)
      /**
       * Raises `delivered_through` to the envelope before the first undelivered one, if a read had to skip many
       * delivered envelopes.
       */
      const catchUp = (
        agentId: string,
        after: number,
        first: { delivered_through: number; last_no: number; no: number | null }
      ) => {
        const clear = (first.no ?? first.last_no + 1) - 1
        return after <= first.delivered_through && clear - first.delivered_through > CATCH_UP_SIZE
          ? deliveredThrough([agentId, clear])
          : Effect.void
      }
      const acknowledge = database.raw("acknowledge", ACKNOWLEDGE)
      const through = database.prepared<{ acked: number; edge: number | null }>(
        "acknowledge_through",
        ACKNOWLEDGE_THROUGH
      )
      const read = database.raw<
        & { i: number }
        & (
          | {
            sender_id: string
            seq: number
            message_id: string
            blocked: boolean
            through_seq: number
            hooked: boolean
            edge: null
          }
          | { edge: number }
        )
      >("read", READ)
      const held = database.raw<LockHolder>("inbox_held", heldIn("inboxes", "agent_id", "$1::text[]"))
      const heads = database.prepared<Head>("inbox_heads", HEADS)
      const has = database.prepared("has_envelope", HAS)
      const find = database.prepared<
        MessageRow & OutcomeColumns & { no: number | null; delivered_at: number | null; read_at: number | null }
      >("find_message", FIND)
      return DeliveriesRepo.of({
        page: Effect.fnUntraced(function*(agentId, after, limit, maxBytes) {
          const rows = yield* page([agentId, after, limit, maxBytes])
          const [first] = rows
          if (first === undefined) return undefined
          const pending: Array<Pending> = []
          for (const row of rows) if (row.no !== null) pending.push({ inboxNo: row.no, message: storedMessage(row) })
          yield* catchUp(agentId, after, first)
          const isLast = pending.length < limit && pending.length === (first.no === null ? 0 : first.found)
          return { lastInboxNo: first.last_no, undelivered: first.undelivered, rows: pending, isLast }
        }),
        waiting: Effect.fnUntraced(function*(agentId, after, limit) {
          const rows = yield* waiting([agentId, after, limit])
          const [first] = rows
          if (first === undefined) return undefined
          yield* catchUp(agentId, after, first)
          const found = rows.flatMap((row): ReadonlyArray<UndeliveredMessage> =>
            row.no === null ? [] : [{
              inboxNo: row.no,
              message: {
                conversationId: row.conversation_id,
                createdAt: row.created_at,
                seq: row.seq,
                senderId: row.sender_id,
                type: row.type
              }
            }]
          )
          return { lastInboxNo: first.last_no, rows: found, isLast: found.length < limit }
        }),
        chosen: (agentId, numbers, maxBytes) =>
          Effect.map(chosen([agentId, numbers, maxBytes]), (rows) => ({
            rows: rows.map((row) => ({ inboxNo: row.no, message: storedMessage(row) })),
            isLast: rows.length === (rows[0]?.found ?? 0)
          })),
        acknowledge: (batch, lockMs) =>
          Effect.asVoid(
            acknowledge([
              JSON.stringify(batch.map(({ agentId, at, inboxNo }) => ({ agent: agentId, no: inboxNo, at }))),
              lockMs
            ])
          ),
        acknowledgeThrough: (agentId, inboxNo, at, most) =>
          Effect.map(
            through([agentId, inboxNo, at, most - 1]),
            ([row]) => ({ acked: row?.acked ?? 0, isLast: (row?.edge ?? null) === null })
          ),
        read: (batch, lockMs) => {
          const most = Math.max(1, Math.floor(SLICE_ROWS / batch.length))
          return Effect.map(
            read([
              JSON.stringify(batch.map((mark, i) => ({
                i,
                agent: mark.agentId,
                conv: mark.conversationId,
                lo: mark.from,
                hi: mark.through,
                clear: mark.isClear,
                at: mark.at,
                request: mark.requestId
              }))),
              lockMs,
              most,
              Math.max(most, AHEAD_ROWS)
            ]),
            (rows) => {
              const slices = batch.map((): { changes: Array<ReadChange>; next: number | undefined } => ({
                changes: [],
                next: undefined
              }))
              for (const row of rows) {
                const slice = slices[row.i]!
                if (row.edge !== null) slice.next = row.edge + 1
                else slice.changes.push({
                    senderId: row.sender_id,
                    messageId: row.message_id,
                    seq: row.seq,
                    throughSeq: row.through_seq,
                    blocked: row.blocked,
                    hooked: row.hooked
                  })
              }
              return slices
            }
          )
        },
        locks: {
          of: ({ agentId }) => [agentId],
          held: (batch) => Effect.map(held([[...new Set(batch.map(({ agentId }) => agentId))]]), holdersOf)
        },
        heads: (agentIds) =>
          Effect.map(heads([agentIds]), (rows) => new Map(rows.map((row) => [row.agent_id, row.last_no]))),
        has: (agentId, inboxNo) => Effect.map(has([agentId, inboxNo]), (rows) => rows.length > 0),
        find: (agentId, messageId) =>
          Effect.map(find([agentId, messageId]), (rows) => {
            const [row] = rows
            return row === undefined
              ? undefined
              : {
                message: storedMessage(row),
                inboxNo: row.no,
                deliveredAt: row.delivered_at,
                readAt: row.read_at,
                outcome: storedOutcome(row)
              }
          })
      })
    })
  )
}

import { type Head, HEADS } from "#domain/deliveries/DeliveriesRepo"
import { intoOutbox, mayHook, unmuted } from "#domain/messages/Outbox"
import {
  heldIn,
  holdersOf,
  inputOf,
  isKnown,
  type LockHolder,
  MESSAGE_COLUMNS,
  messageColumns,
  onceEach,
  storing
} from "#domain/sending/BatchStatement"
import type { Locks } from "#infrastructure/database/LockWaiters"
import { Database } from "#infrastructure/database/Sql"
import { countStored } from "#infrastructure/platform/Metrics"
import { Effect } from "effect"
import type { DirectAppend, DirectAppended } from "./DirectConversation.ts"
import { makePlainAppend, type PlainStored } from "./PlainAppend.ts"

/**
 * The batch statement: stores any number of sends to any conversations, all or nothing.
 *
 * All statements take locks in the same order, so batches cannot deadlock: conversation rows by id, then cold slots,
 * then inboxes by id. Epoch and version are tested on the locked rows, because the statement's snapshot may be older
 * than the lock. A key that is in the snapshot is a replay. If another conversation stores the same key after the
 * snapshot, the index `messages_once` refuses the statement, and the batch is retried with a newer snapshot. Inbox
 * numbers are assigned under the inbox's lock. Under the same lock, `inboxes.undelivered` decides about the recipient's
 * backlog: `fresh` contains the sends that are stored, without those above the bound (wire.md G.4).
 *
 * Tables are read with `= ANY (ARRAY(…))` and laterals, for which the planner can only use indexes. The statement is
 * planned once, often while the tables are empty. A plan with joins would scan whole tables from then on.
 */
const appendStatement = (kinds: "continuing" | "any"): string => {
  // These parts are needed only for first messages and first replies. Without them, the statement costs half as much to
  // start.
  const also = (part: string): string => kinds === "any" ? part : ""
  return `
WITH input AS MATERIALIZED (${
    inputOf(
      `${MESSAGE_COLUMNS}, recipient text, ` +
        "epoch bigint, next_epoch bigint, version bigint, opens boolean, establishes boolean",
      "$3"
    )
  }
), held AS MATERIALIZED (
  SELECT c.id, c.last_seq, c.epoch, c.version,
    c.last_seq <> (SELECT s.last_seq FROM conversations s WHERE s.id = c.id) AS overtaken
  FROM conversations c WHERE c.id = ANY (ARRAY(SELECT DISTINCT conv FROM input))
  ORDER BY c.id
  FOR NO KEY UPDATE OF c
${
    also(`), slots AS MATERIALIZED (
  SELECT s.conversation_id
  FROM cold_slots s
  JOIN (SELECT DISTINCT conv, sender FROM input WHERE opens) w ON s.conversation_id = w.conv AND s.agent_id = w.sender
  ORDER BY s.conversation_id
  FOR NO KEY UPDATE OF s
`)
  }), checked AS MATERIALIZED (
  SELECT
    x.*,
    COALESCE(h.last_seq, 0) AS base,
    COALESCE(h.overtaken, false) AS overtaken,
    b.status = 'suspended' AS uncapped,
    ${mayHook("b", "message.new")} AS hooked,
    COALESCE(h.epoch = x.epoch AND h.version = x.version, ${
    kinds === "any" ? "s.conversation_id IS NOT NULL" : "false"
  }) AS holds,
    COALESCE(a.deleted_at IS NULL AND a.status <> 'suspended', false) AS may_send,
    COALESCE(b.id IS NOT NULL AND b.deleted_at IS NULL, false) AS may_receive,
    ${isKnown("x")} AS known
  FROM input x
  LEFT JOIN held h ON h.id = x.conv
  ${also("LEFT JOIN slots s ON s.conversation_id = x.conv")}
  LEFT JOIN LATERAL (SELECT * FROM agents WHERE id = x.sender OFFSET 0) a ON true
  LEFT JOIN LATERAL (SELECT * FROM agents WHERE id = x.recipient OFFSET 0) b ON true
), numbers AS MATERIALIZED (
  SELECT n.agent_id, n.last_no, n.undelivered
  FROM inboxes n
  WHERE n.agent_id = ANY (ARRAY(SELECT DISTINCT recipient FROM checked WHERE holds AND may_send AND may_receive AND NOT known))
  ORDER BY n.agent_id
  FOR NO KEY UPDATE OF n
), backlogs AS MATERIALIZED (
  SELECT
    j.*, n.last_no, n.undelivered,
    n.undelivered + row_number() OVER (PARTITION BY j.recipient ORDER BY j.i) AS after
  FROM checked j
  JOIN numbers n ON n.agent_id = j.recipient
  WHERE j.holds AND j.may_send AND j.may_receive AND NOT j.known
), fresh AS MATERIALIZED (
  SELECT
    w.*,
    w.base + row_number() OVER (PARTITION BY w.conv ORDER BY w.i) AS seq,
    w.last_no + w.after - w.undelivered AS no
  FROM backlogs w
  WHERE w.uncapped OR w.after <= $2
${
    also(`), opened AS (
  INSERT INTO conversations (id, kind, epoch, last_seq, last_message_at, created_at, initiator_id)
  SELECT conv, 'direct', next_epoch, seq, at, at, sender FROM fresh WHERE opens
), joined AS (
  INSERT INTO participants (agent_id, conversation_id, counterparty_id)
  SELECT sender, conv, recipient FROM fresh WHERE opens
  UNION ALL
  SELECT recipient, conv, sender FROM fresh WHERE opens
), claimed AS (
  UPDATE cold_slots s SET claimed_at = f.at FROM fresh f WHERE f.opens AND s.conversation_id = f.conv
`)
  }), advanced AS (
  UPDATE conversations c
  SET epoch = w.next_epoch, last_seq = w.seq, last_message_at = w.at,
    established_at = COALESCE(c.established_at, w.established_at)
  FROM (
    SELECT conv, max(next_epoch) AS next_epoch, max(seq) AS seq, max(at) AS at,
      min(at) FILTER (WHERE establishes) AS established_at
    FROM fresh WHERE NOT opens GROUP BY conv
  ) w
  WHERE c.id = w.conv
${
    also(`), freed AS (
  DELETE FROM cold_slots s USING fresh f WHERE f.establishes AND s.conversation_id = f.conv
), acquainted AS (
  INSERT INTO contacts (agent_id, contact_id, added_at)
  SELECT sender, recipient, min(at) FROM fresh WHERE establishes GROUP BY sender, recipient
  UNION ALL
  SELECT recipient, sender, min(at) FROM fresh WHERE establishes GROUP BY sender, recipient
  ON CONFLICT DO NOTHING
`)
  }), ${storing("fresh")}, posted AS (${
    intoOutbox(
      "message.new",
      `SELECT f.recipient AS agent_id, f.id AS subject, f.at, f.request FROM fresh f WHERE f.hooked AND ${
        unmuted("f.recipient", "f.sender", "f.conv", "f.at")
      }`
    )
  }
)
SELECT
  j.i, j.holds, j.may_send, j.known, f.seq, f.no, w.undelivered AS waiting, f.no - f.last_no AS position,
  (w.after > $2 AND NOT w.uncapped) AS backlogged,
  own.last_no AS sender_last_no, j.overtaken, j.hooked
FROM checked j
LEFT JOIN backlogs w ON w.i = j.i
LEFT JOIN fresh f ON f.i = j.i
LEFT JOIN LATERAL (SELECT * FROM inboxes WHERE agent_id = j.sender OFFSET 0) own ON true
ORDER BY j.i`
}

interface Row {
  readonly i: number
  readonly holds: boolean
  readonly may_send: boolean
  readonly known: boolean
  readonly seq: number | null
  readonly no: number | null
  /**
   * How many undelivered envelopes the recipient had before the batch, or `null` if the send was refused for another
   * reason than the backlog.
   */
  readonly waiting: number | null
  /** The position of this envelope among the recipient's new ones in the batch, from 1. */
  readonly position: number | null
  readonly backlogged: boolean | null
  /**
   * The newest number in the sender's inbox in the statement's snapshot, which does not contain the messages of this
   * batch.
   */
  readonly sender_last_no: number | null
  /**
   * Whether another transaction wrote to the conversation while the statement waited for its lock, so that the snapshot
   * is too old.
   */
  readonly overtaken: boolean
  /** Whether the recipient may have webhooks for the message. */
  readonly hooked: boolean | null
}

const outcome = (
  row: Row,
  stored: number,
  senderLastInboxNo: number | null,
  senderNextInboxNo: number | null
): DirectAppended => {
  if (!row.holds) return { _tag: "Fenced" }
  if (!row.may_send) return { _tag: "SenderGone" }
  if (row.known) return { _tag: "Replayed" }
  if (row.waiting === null || row.seq === null || row.no === null || row.position === null) {
    return row.waiting !== null && row.backlogged === true
      ? { _tag: "Backlogged", undelivered: row.waiting + stored }
      : { _tag: "RecipientGone" }
  }
  return {
    _tag: "Stored",
    seq: row.seq,
    inboxNo: row.no,
    undelivered: row.waiting + row.position,
    senderLastInboxNo,
    senderNextInboxNo
  }
}

/** How many recipients with webhooks are cached. Sends to them skip the statement for plain sends. */
const MAX_CACHED_HOOKED = 10_000

/**
 * Makes the function that commits a batch of appends. It runs the statement for plain sends and, if that declines the
 * batch, the general statement. Results are in the order of the batch. The function calls `onHooked` with each agent
 * that got new rows in the outbox.
 */
export const makeDirectAppend = Effect.fnUntraced(function*(backlogHard: number, onHooked: (agentId: string) => void) {
  const database = yield* Database
  const plain = yield* makePlainAppend(backlogHard)
  const continuing = database.raw<Row>("append_continuing", appendStatement("continuing"))
  const any = database.raw<Row>("append", appendStatement("any"))
  const heads = database.raw<Head>("inbox_heads", HEADS)
  const hooked = new Set<string>()

  const outcomes = (
    batch: ReadonlyArray<DirectAppend>,
    rows: ReadonlyArray<Row>,
    lastInboxNos: ReadonlyMap<string, number>
  ) => {
    const next = nextInConversation(batch, rows)
    // For each recipient, the newest inbox number after the sends of this batch that the loop has visited.
    const reached = new Map<string, number>()
    const stored = new Map<string, number>()
    for (const { i, position } of rows) if (position !== null) stored.set(batch[i]!.recipientId, position)
    const told = rows.map((row) => {
      const { recipientId, senderId } = batch[row.i]!
      if (row.no !== null) reached.set(recipientId, row.no)
      if (row.hooked === true && row.no !== null) {
        if (hooked.size >= MAX_CACHED_HOOKED) hooked.clear()
        hooked.add(recipientId)
        onHooked(recipientId)
      }
      const before = row.overtaken ? lastInboxNos.get(senderId) : row.sender_last_no ?? 0
      const senderLastInboxNo = before === undefined ? null : Math.max(before, reached.get(senderId) ?? 0)
      return outcome(row, stored.get(recipientId) ?? 0, senderLastInboxNo, next[row.i] ?? null)
    })
    countStored("direct", told)
    return told
  }

  const general = (batch: ReadonlyArray<DirectAppend>, lockMs: number) => {
    const statement = batch.some((append) => append.opens || append.establishes) ? any : continuing
    return Effect.flatMap(statement([JSON.stringify(batch.map(encode)), backlogHard, lockMs]), (rows) => {
      const overtaken = rows.flatMap((row) => (row.overtaken ? [batch[row.i]!.senderId] : []))
      if (overtaken.length === 0) return Effect.succeed(outcomes(batch, rows, NONE))
      // The batch is committed, whether or not this read succeeds.
      return Effect.map(
        Effect.orElseSucceed(heads([overtaken]), () => []),
        (found) => outcomes(batch, rows, new Map(found.map(({ agent_id, last_no }) => [agent_id, last_no])))
      )
    })
  }

  const commit = (batch: ReadonlyArray<DirectAppend>, lockMs: number) => {
    const stored = batch.every(({ recipientId }) => !hooked.has(recipientId)) ? plain(batch, lockMs) : undefined
    if (stored === undefined) return general(batch, lockMs)
    return Effect.flatMap(
      stored,
      (rows) => rows === undefined ? general(batch, lockMs) : Effect.succeed(outcomes(batch, rows.map(asRow), NONE))
    )
  }

  return (batch: ReadonlyArray<DirectAppend>, lockMs: number) => onceEach(batch, (once) => commit(once, lockMs))
})

const asRow = ({ no, position, senderLastNo, seq, waiting }: PlainStored, i: number): Row => ({
  i,
  holds: true,
  may_send: true,
  known: false,
  seq,
  no,
  waiting,
  position,
  backlogged: false,
  sender_last_no: senderLastNo,
  overtaken: false,
  hooked: false
})

const NONE: ReadonlyMap<string, number> = new Map()

const HELD = [
  heldIn("conversations", "id", "$1::text[]"),
  heldIn("cold_slots", "conversation_id", "$1::text[]"),
  heldIn("inboxes", "agent_id", "$2::text[]")
].join("\nUNION ALL")

/**
 * The locks of the batch statement: the rows of the conversation and of its cold slot, and the
 * recipient's inbox.
 */
export const makeDirectAppendLocks = Effect.map(Database, (database): Locks<DirectAppend> => {
  const held = database.raw<LockHolder>("append_held", HELD)
  return {
    of: ({ conversationId, recipientId }) => [conversationId, recipientId],
    held: (batch) =>
      Effect.map(
        held([[...new Set(batch.map((one) => one.conversationId))], [...new Set(batch.map((one) => one.recipientId))]]),
        holdersOf
      )
  }
})

/**
 * For each append, finds the next message from the other side in the same conversation and batch, and returns that
 * message's number in the sender's inbox.
 */
const nextInConversation = (
  batch: ReadonlyArray<DirectAppend>,
  rows: ReadonlyArray<Row>
): ReadonlyArray<number | null> => {
  const latest = new Map<string, Row>()
  const next = new Array<number | null>(batch.length).fill(null)
  for (let at = rows.length - 1; at >= 0; at--) {
    const row = rows[at]!
    const { conversationId, senderId } = batch[row.i]!
    const later = latest.get(conversationId)
    if (later !== undefined) {
      next[row.i] = batch[later.i]!.recipientId === senderId ? later.no : next[later.i] ?? null
    }
    if (row.no !== null) latest.set(conversationId, row)
  }
  return next
}

const encode = (append: DirectAppend, i: number) => ({
  ...messageColumns(i, append.conversationId, append),
  recipient: append.recipientId,
  epoch: append.epoch,
  next_epoch: append.nextEpoch,
  version: append.version,
  opens: append.opens,
  establishes: append.establishes
})

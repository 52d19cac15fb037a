import type { Draft } from "#domain/messages/Message"
import { hookedAmong, intoOutbox, unmuted } from "#domain/messages/Outbox"
import type { Numbered } from "#domain/messages/Published"
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

/** A send to a group that the group's actor has accepted, based on the cached members. */
export interface GroupAppend {
  readonly groupId: string
  /** The version that the row must have. If it has this version, the cached members are the current ones. */
  readonly version: number
  /** About how many envelopes the message gets. */
  readonly size: number
  readonly senderId: string
  readonly messageId: string
  readonly at: number
  readonly draft: Draft
  /** The id and the trace of the request that caused the send (`joinOrigin`), for webhooks. */
  readonly requestId: string | null
}

export type GroupAppended =
  | {
    readonly _tag: "Stored"
    readonly seq: number
    readonly envelopes: ReadonlyArray<Numbered>
    /** The highest number in the sender's own inbox. The sender's echo is shown after that number. */
    readonly senderLastInboxNo: number
    /**
     * The number that the next message of this group has in the sender's inbox, if the same batch stored that message;
     * otherwise `null`.
     */
    readonly senderNextInboxNo: number | null
  }
  | { readonly _tag: "Replayed" }
  /** The members have changed since the decision. */
  | { readonly _tag: "Fenced" }
  | { readonly _tag: "SenderGone" }

/**
 * The batch statement of group sends. Like the statement of direct sends (DirectAppend.ts), it locks conversations
 * first, then inboxes by agent. The recipients are the active members in the snapshot. The version on the locked row
 * proves that these are the current members. The members of each group are read as one array, because for a join of
 * messages with members the planner would expect few rows and choose a nested loop.
 */
const APPEND = `
WITH input AS MATERIALIZED (${inputOf(`${MESSAGE_COLUMNS}, version bigint`, "$2")}
), held AS MATERIALIZED (
  SELECT c.id, c.last_seq, c.version
  FROM conversations c WHERE c.id = ANY (ARRAY(SELECT DISTINCT conv FROM input))
  ORDER BY c.id
  FOR NO KEY UPDATE OF c
), checked AS MATERIALIZED (
  SELECT
    x.*,
    COALESCE(h.last_seq, 0) AS base,
    COALESCE(h.version = x.version, false) AS holds,
    COALESCE(a.deleted_at IS NULL AND a.status <> 'suspended', false) AS may_send,
    ${isKnown("x")} AS known
  FROM input x
  LEFT JOIN held h ON h.id = x.conv
  LEFT JOIN LATERAL (SELECT * FROM agents WHERE id = x.sender OFFSET 0) a ON true
), numbers AS MATERIALIZED (
  SELECT n.agent_id, n.last_no
  FROM inboxes n
  WHERE n.agent_id = ANY (ARRAY(
    SELECT p.agent_id FROM participants p
    WHERE p.conversation_id = ANY (ARRAY(SELECT DISTINCT conv FROM checked WHERE holds AND may_send))
  ))
  ORDER BY n.agent_id
  FOR NO KEY UPDATE OF n
), members AS MATERIALIZED (
  SELECT p.conversation_id AS conv, array_agg(n.agent_id) AS agents, array_agg(n.last_no) AS reached
  FROM numbers n
  CROSS JOIN LATERAL (
    SELECT conversation_id FROM participants
    WHERE agent_id = n.agent_id
      AND conversation_id = ANY (ARRAY(SELECT DISTINCT conv FROM checked WHERE holds AND may_send))
    OFFSET 0
  ) p
  GROUP BY p.conversation_id
), fresh AS MATERIALIZED (
  SELECT j.*, j.base + row_number() OVER (PARTITION BY j.conv ORDER BY j.i) AS seq
  FROM checked j
  WHERE j.holds AND j.may_send AND NOT j.known AND (SELECT count(*) FROM members) > 0
), fan AS MATERIALIZED (
  SELECT f.i, f.id, f.at, f.request, f.conv, f.seq, f.sender, m.agent AS recipient,
    m.reached + row_number() OVER (PARTITION BY m.agent ORDER BY f.i) AS no
  FROM fresh f
  JOIN members g ON g.conv = f.conv
  CROSS JOIN LATERAL unnest(g.agents, g.reached) AS m(agent, reached)
  WHERE m.agent <> f.sender
), advanced AS (
  UPDATE conversations c SET last_seq = w.seq, last_message_at = w.at
  FROM (SELECT conv, max(seq) AS seq, max(at) AS at FROM fresh GROUP BY conv) w
  WHERE c.id = w.conv
), ${storing("fan")}, hooks AS MATERIALIZED (${hookedAmong("message.new", "SELECT agent_id FROM numbers")}
), posted AS (${
  intoOutbox(
    "message.new",
    `SELECT f.recipient AS agent_id, f.id AS subject, f.at, f.request FROM fan f
    WHERE (f.recipient IN (SELECT agent_id FROM hooks)) IS TRUE AND ${
      unmuted("f.recipient", "f.sender", "f.conv", "f.at")
    }`
  )
}
)
SELECT
  (SELECT json_agg(json_build_array(i, holds, may_send) ORDER BY i) FROM checked) AS checked,
  (SELECT json_agg(json_build_array(i, seq)) FROM fresh) AS stored,
  (SELECT json_agg(json_build_array(i, recipient, no) ORDER BY i, no) FROM fan) AS fan,
  (SELECT json_agg(json_build_array(agent_id, last_no)) FROM numbers) AS reached,
  (SELECT json_agg(DISTINCT agent_id) FROM hooks) AS hooked`

interface Row {
  readonly checked: ReadonlyArray<readonly [number, boolean, boolean]> | null
  readonly stored: ReadonlyArray<readonly [number, number]> | null
  readonly fan: ReadonlyArray<readonly [number, string, number]> | null
  /** The newest inbox number of each agent before the batch. */
  readonly reached: ReadonlyArray<readonly [string, number]> | null
  /** Members that may have webhooks for the message. */
  readonly hooked: ReadonlyArray<string> | null
}

/**
 * Makes the function that commits a batch of group sends in one statement. Results are in the order of the batch. The
 * function calls `onHooked` with each agent that may have new rows in the outbox.
 */
export const makeGroupAppend = (onHooked: (agentId: string) => void) =>
  Effect.map(Database, (database) => {
    const statement = database.raw<Row>("append_group", APPEND)
    const commit = (batch: ReadonlyArray<GroupAppend>, lockMs: number) =>
      Effect.map(statement([JSON.stringify(batch.map(encode)), lockMs]), ([row]) => {
        for (const agentId of row?.hooked ?? []) onHooked(agentId)
        const told = outcomes(batch, row)
        countStored("group", told)
        return told
      })
    return (batch: ReadonlyArray<GroupAppend>, lockMs: number) => onceEach(batch, (once) => commit(once, lockMs))
  })

/**
 * Finds the locks for which sends of groups wait. A send waits while the group's row or the inbox of any member is
 * locked.
 */
const HELD = `
WITH members AS MATERIALIZED (
  SELECT conversation_id, agent_id FROM participants WHERE conversation_id = ANY ($1::text[])
), inbox AS MATERIALIZED (${heldIn("inboxes", "agent_id", "ARRAY(SELECT agent_id FROM members)")}
)
${heldIn("conversations", "id", "$1::text[]")}
UNION ALL
SELECT m.conversation_id AS name, min(i.holder) AS holder
FROM inbox i JOIN members m ON m.agent_id = i.name
GROUP BY m.conversation_id`

/** The locks of the batch statement. A locked inbox is reported with the ids of the groups whose sends wait for it. */
export const makeGroupAppendLocks = Effect.map(Database, (database): Locks<GroupAppend> => {
  const held = database.raw<LockHolder>("append_group_held", HELD)
  return {
    of: ({ groupId }) => [groupId],
    held: (batch) => Effect.map(held([[...new Set(batch.map(({ groupId }) => groupId))]]), holdersOf)
  }
})

const outcomes = (batch: ReadonlyArray<GroupAppend>, row: Row | undefined): ReadonlyArray<GroupAppended> => {
  const seqs = new Map(row?.stored ?? [])
  const reached = new Map(row?.reached ?? [])
  const envelopes = batch.map((): Array<Numbered> => [])
  for (const [i, recipientId, inboxNo] of row?.fan ?? []) envelopes[i]!.push({ recipientId, inboxNo })
  const lastInboxNos = batch.map(({ senderId }, i) => {
    const before = reached.get(senderId) ?? 0
    for (const { inboxNo, recipientId } of envelopes[i]!) reached.set(recipientId, inboxNo)
    return before
  })
  return batch.map((append, i): GroupAppended => {
    const [, holds, maySend] = row?.checked?.[i] ?? [i, false, false]
    if (!holds) return { _tag: "Fenced" }
    if (!maySend) return { _tag: "SenderGone" }
    const seq = seqs.get(i)
    if (seq === undefined) return { _tag: "Replayed" }
    return {
      _tag: "Stored",
      seq,
      envelopes: envelopes[i]!,
      senderLastInboxNo: lastInboxNos[i]!,
      senderNextInboxNo: nextFor(append, i, batch, envelopes)
    }
  })
}

const nextFor = (
  { groupId, senderId }: GroupAppend,
  i: number,
  batch: ReadonlyArray<GroupAppend>,
  envelopes: ReadonlyArray<ReadonlyArray<Numbered>>
): number | null => {
  for (let later = i + 1; later < batch.length; later++) {
    if (batch[later]!.groupId !== groupId) continue
    const own = envelopes[later]!.find(({ recipientId }) => recipientId === senderId)
    if (own !== undefined) return own.inboxNo
  }
  return null
}

const encode = (append: GroupAppend, i: number) => ({
  ...messageColumns(i, append.groupId, append),
  version: append.version
})

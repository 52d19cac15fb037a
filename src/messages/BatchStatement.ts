import type { Draft } from "./Message.ts"

/** What every batch statement gets of a message, as JSON; `i` is its place in the batch. */
export const MESSAGE_COLUMNS =
  "i integer, conv text, sender text, key text, id text, type text, content text, metadata text, at bigint, " +
  "request text"

/**
 * The rows of a batch's JSON, `$1`. Reading them limits, for this statement alone, how long it waits for a lock (SQLSTATE
 * 55P03 after that), which costs no round trip. It comes first, as all locks depend on these rows.
 */
export const inputOf = (columns: string): string => `
  SELECT x.*
  FROM (SELECT set_config('lock_timeout', '300ms', true)) AS patience, json_to_recordset($1::json) AS x(${columns})`

/** The rows of a table that somebody else has locked, and the transaction that did. The table's rows are tried, never waited for. */
export const heldIn = (table: "conversations" | "cold_slots" | "inboxes", key: string, keys: string): string => `
  SELECT r.${key} AS name, r.xmax::text AS holder
  FROM ${table} r
  WHERE r.${key} = ANY (${keys}) AND r.${key} <> ALL (ARRAY(
    SELECT f.${key} FROM ${table} f WHERE f.${key} = ANY (${keys}) FOR NO KEY UPDATE SKIP LOCKED
  ))`

/** Who holds each of these rows, by name. */
export const holdersOf = (rows: ReadonlyArray<Held>): ReadonlyMap<string, string> =>
  new Map(rows.map(({ holder, name }) => [name, holder]))

export interface Held {
  readonly name: string
  readonly holder: string
}

/** A message as these columns. */
export const messageColumns = (i: number, conversationId: string, message: {
  readonly senderId: string
  readonly messageId: string
  readonly at: number
  readonly draft: Draft
  readonly requestId: string | null
}) => ({
  i,
  conv: conversationId,
  sender: message.senderId,
  key: message.draft.clientMsgId,
  id: message.messageId,
  type: message.draft.type,
  content: message.draft.content,
  metadata: message.draft.metadata,
  at: message.at,
  request: message.requestId
})

/**
 * The end of every batch statement: messages are stored as `fresh` has them, envelopes as
 * `envelopes` has them, and the counters of the inboxes, which are locked, go up by these.
 */
export const storing = (envelopes: "fresh" | "fan"): string => `
stored AS (
  INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
  SELECT conv, seq, id, sender, key, type, content, metadata, at FROM fresh
), counted AS (
  UPDATE inboxes n
  SET last_no = n.last_no + w.n, undelivered = n.undelivered + w.n
  FROM (SELECT recipient, count(*) AS n FROM ${envelopes} GROUP BY recipient) w
  WHERE n.agent_id = w.recipient
), enveloped AS (
  INSERT INTO envelopes (recipient_id, no, conversation_id, seq, sender_id)
  SELECT recipient, no, conv, seq, sender FROM ${envelopes}
)`

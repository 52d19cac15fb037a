import type { Draft } from "#domain/messages/Message"
import { Effect } from "effect"

/** The columns of a message in the JSON input of every batch statement; `i` is its index in the batch. */
export const MESSAGE_COLUMNS =
  "i integer, conv text, sender text, key text, id text, type text, content text, metadata text, at bigint, " +
  "request text"

/**
 * Reads the rows of the batch from the JSON in `$1`. Also sets the lock timeout for this statement alone, in
 * milliseconds and without a round trip. When it expires, the SQLSTATE is 55P03. The timeout is in force before any
 * lock is taken, because every lock is taken for one of these rows.
 */
export const inputOf = (columns: string, lockMs: "$2" | "$3"): string => `
  SELECT x.*
  FROM (SELECT set_config('lock_timeout', ${lockMs}, true)) AS patience, json_to_recordset($1::json) AS x(${columns})`

/**
 * Selects the rows of a table that another transaction has locked, with the id of that transaction. The statement
 * itself locks the other rows until its commit. So it must not wait for a lock, the disk or a replica.
 */
export const heldIn = (table: "conversations" | "cold_slots" | "inboxes", key: string, keys: string): string => `
  SELECT r.${key} AS name, r.xmax::text AS holder
  FROM ${table} r
  WHERE r.${key} = ANY (${keys}) AND r.${key} <> ALL (ARRAY(
    SELECT f.${key}
    FROM (SELECT set_config('synchronous_commit', 'off', true)) AS haste, ${table} f
    WHERE f.${key} = ANY (${keys})
    FOR NO KEY UPDATE OF f SKIP LOCKED
  ))`

/** The id of the transaction that holds each of these rows, by the row's name. */
export const holdersOf = (rows: ReadonlyArray<LockHolder>): ReadonlyMap<string, string> =>
  new Map(rows.map(({ holder, name }) => [name, holder]))

export interface LockHolder {
  readonly name: string
  readonly holder: string
}

/** A message as a row of MESSAGE_COLUMNS. */
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

/** SQL condition on a row of the input: whether its sender has already stored a message with this key. */
export const isKnown = (input: string): string =>
  // In this form the planner looks the key up in the index. It would turn an EXISTS into a join.
  `(SELECT true FROM messages k
      WHERE k.sender_id = ${input}.sender AND k.client_msg_id = ${input}.key AND k.type <> 'system') IS TRUE`

/**
 * Commits a batch without its repeats. A send is a repeat if an earlier send of the batch has the same sender and key.
 * This happens only if one sender uses a key in several conversations. If the earlier send is stored, its repeat is a
 * replay. Otherwise the repeat is decided again.
 */
export const onceEach = <
  In extends { readonly senderId: string; readonly draft: Draft },
  Out extends { readonly _tag: string },
  E,
  R
>(
  batch: ReadonlyArray<In>,
  commit: (batch: ReadonlyArray<In>) => Effect.Effect<ReadonlyArray<Out>, E, R>
): Effect.Effect<ReadonlyArray<Out | Repeated>, E, R> => {
  if (batch.length === 1) return commit(batch)
  const places = new Map<string, number>()
  const first: Array<In> = []
  const placeOf = batch.map((item) => {
    const key = `${item.senderId} ${item.draft.clientMsgId}`
    const place = places.get(key)
    if (place !== undefined) return ~place
    places.set(key, first.length)
    return first.push(item) - 1
  })
  if (first.length === batch.length) return commit(batch)
  return Effect.map(commit(first), (outcomes) =>
    placeOf.map((place) => {
      if (place >= 0) return outcomes[place]!
      const earlier = outcomes[~place]!._tag
      return earlier === "Stored" || earlier === "Replayed" ? REPLAYED : FENCED
    }))
}

type Repeated = { readonly _tag: "Replayed" } | { readonly _tag: "Fenced" }
const REPLAYED: Repeated = { _tag: "Replayed" }
const FENCED: Repeated = { _tag: "Fenced" }

/**
 * The order in which every batch stores its messages. An insert waits for another transaction that stores the same key.
 * With one order everywhere, two batches cannot wait for each other.
 */
export const BY_KEY = `ORDER BY sender COLLATE "C", key COLLATE "C"`

/**
 * The end of every batch statement. It stores the messages of `fresh` and the envelopes of `envelopes`, and raises the
 * counters of the recipients' inboxes, which are already locked.
 */
export const storing = (envelopes: "fresh" | "fan"): string => `
stored AS (
  INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
  SELECT conv, seq, id, sender, key, type, content, metadata, at FROM fresh
  ${BY_KEY}
), counted AS (
  UPDATE inboxes n
  SET last_no = n.last_no + w.n, undelivered = n.undelivered + w.n
  FROM (SELECT recipient, count(*) AS n FROM ${envelopes} GROUP BY recipient) w
  WHERE n.agent_id = w.recipient
), enveloped AS (
  INSERT INTO envelopes (recipient_id, no, conversation_id, seq)
  SELECT recipient, no, conv, seq FROM ${envelopes}
)`

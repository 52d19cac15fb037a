import { mayHook } from "#domain/messages/Outbox"
import { BY_KEY, inputOf, isKnown } from "#domain/sending/BatchStatement"
import { Database } from "#infrastructure/database/Sql"
import { Effect } from "effect"
import type { DirectAppend } from "./DirectConversation.ts"

/**
 * A plain send goes to an established conversation whose owner has written before. Nearly all sends are plain. The
 * statements here make the same tests as the general statement, on the same locked rows and in the same order of locks,
 * but they store either all sends of a batch or none. They decline if they find, for any send, another owner, a block,
 * a replay, a suspended or deleted agent, a full inbox, a webhook of the recipient, or a write to the conversation
 * while the statement waited for its lock. Then the general statement decides the batch.
 */
const isPlain = (append: DirectAppend): boolean =>
  !append.opens && !append.establishes && append.epoch === append.nextEpoch

/** The result of a plain send that was stored. */
export interface PlainStored {
  readonly seq: number
  readonly no: number
  /**
   * How many undelivered envelopes the recipient had before the batch. `position` counts the recipient's new envelopes
   * up to this one, from 1.
   */
  readonly waiting: number
  readonly position: number
  /** The newest number in the sender's own inbox before the batch. */
  readonly senderLastNo: number
}

/** SQL condition on a row of `agents`: the agent may send and receive. */
const active = (agents: string): string => `${agents}.deleted_at IS NULL AND ${agents}.status <> 'suspended'`

/** Stores one send. The statement consists of few parts, because the start of a part costs more than its execution. */
const ONE = `
WITH held AS MATERIALIZED (
  SELECT c.last_seq
  FROM (SELECT set_config('lock_timeout', $1, true)) AS patience, conversations c
  WHERE c.id = $2 AND c.epoch = $3 AND c.version = $4
    AND c.last_seq = (SELECT s.last_seq FROM conversations s WHERE s.id = $2)
  FOR NO KEY UPDATE OF c
), inbox AS MATERIALIZED (
  SELECT n.last_no, n.undelivered
  FROM held, inboxes n WHERE n.agent_id = $5
  FOR NO KEY UPDATE OF n
), stored AS (
  INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
  SELECT $2, h.last_seq + 1, $6, $7, $8, $9, $10, $11, $12::bigint
  FROM held h, inbox n
  WHERE n.undelivered < $13::bigint
    AND (SELECT ${active("a")} FROM agents a WHERE a.id = $7)
    AND (SELECT ${active("b")} AND NOT ${mayHook("b", "message.new")} FROM agents b WHERE b.id = $5)
  ON CONFLICT (sender_id, client_msg_id) WHERE type <> 'system' DO NOTHING
  RETURNING seq
), enveloped AS (
  INSERT INTO envelopes (recipient_id, no, conversation_id, seq) SELECT $5, n.last_no + 1, $2, s.seq FROM stored s, inbox n
), counted AS (
  UPDATE inboxes n SET last_no = n.last_no + 1, undelivered = n.undelivered + 1 FROM stored WHERE n.agent_id = $5
), advanced AS (
  UPDATE conversations c SET last_seq = s.seq, last_message_at = $12::bigint FROM stored s WHERE c.id = $2
)
SELECT ARRAY[s.seq, n.last_no, n.undelivered, (SELECT own.last_no FROM inboxes own WHERE own.agent_id = $7)] AS found
FROM stored s, inbox n`

/**
 * Stores many sends, all or none. Therefore the caller can number the sends of each conversation (`s`) and of each
 * recipient (`n`). `c` and `r` are positions in the caller's arrays, which have the same order as those of the
 * statement.
 */
const MANY = `
WITH input AS MATERIALIZED (${
  inputOf(
    "c integer, s bigint, r integer, n bigint, sender text, key text, id text, type text, content text, metadata text, at bigint",
    "$2"
  )
}), held AS MATERIALIZED (
  SELECT c.id, c.last_seq, c.epoch, c.version,
    c.last_seq = (SELECT s.last_seq FROM conversations s WHERE s.id = c.id) AS newest
  FROM conversations c WHERE (SELECT count(*) FROM input) > 0 AND c.id = ANY ($3::text[])
  ORDER BY c.id
  FOR NO KEY UPDATE OF c
), ordered AS MATERIALIZED (
  SELECT array_agg(last_seq ORDER BY id) AS bases,
    array_agg(epoch ORDER BY id) = $4::bigint[] AND array_agg(version ORDER BY id) = $5::bigint[] AND bool_and(newest) AS holds
  FROM held
), locked AS MATERIALIZED (
  SELECT n.agent_id, n.last_no, n.undelivered
  FROM inboxes n WHERE (SELECT holds FROM ordered) AND n.agent_id = ANY ($6::text[])
  ORDER BY n.agent_id
  FOR NO KEY UPDATE OF n
), reached AS MATERIALIZED (
  SELECT array_agg(last_no ORDER BY agent_id) AS numbers, array_agg(undelivered ORDER BY agent_id) AS waiting,
    count(*) = cardinality($6::text[]) AND max(undelivered) + $8::bigint <= $9::bigint
    AND (
      SELECT count(*) = cardinality($10::text[]) AND bool_and(${active("a")} AND (NOT ${
  mayHook("a", "message.new")
} OR a.id <> ALL ($6::text[])))
      FROM agents a WHERE a.id = ANY ($10::text[])
    )
    AND NOT EXISTS (SELECT FROM input x WHERE ${isKnown("x")}) AS fits
  FROM locked
), stored AS (
  INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
  SELECT ($3::text[])[x.c], (SELECT bases FROM ordered)[x.c] + x.s, x.id, x.sender, x.key, x.type, x.content, x.metadata, x.at
  FROM input x WHERE (SELECT fits FROM reached)
  ${BY_KEY}
), enveloped AS (
  INSERT INTO envelopes (recipient_id, no, conversation_id, seq)
  SELECT ($6::text[])[x.r], (SELECT numbers FROM reached)[x.r] + x.n, ($3::text[])[x.c], (SELECT bases FROM ordered)[x.c] + x.s
  FROM input x WHERE (SELECT fits FROM reached)
), counted AS (
  UPDATE inboxes n SET last_no = n.last_no + w.n, undelivered = n.undelivered + w.n
  FROM unnest($6::text[], $7::bigint[]) AS w(agent, n)
  WHERE (SELECT fits FROM reached) AND n.agent_id = w.agent
), advanced AS (
  UPDATE conversations c SET last_seq = c.last_seq + w.n, last_message_at = w.at
  FROM unnest($3::text[], $11::bigint[], $12::bigint[]) AS w(id, n, at)
  WHERE (SELECT fits FROM reached) AND c.id = w.id
)
SELECT o.bases, r.numbers, r.waiting,
  (SELECT array_agg(n.last_no ORDER BY n.agent_id) FROM inboxes n WHERE n.agent_id = ANY ($13::text[])) AS own
FROM ordered o, reached r WHERE r.fits`

/** Unique names in sorted order, with the position of each name and a counter for it. */
class Tally {
  readonly names: ReadonlyArray<string>
  readonly counts: Array<number>
  readonly #places: Map<string, number>

  constructor(names: Iterable<string>) {
    const unique = [...new Set(names)]
    // The names are sorted by code unit, as in the database.
    this.names = unique.length === 1 ? unique : unique.sort()
    this.#places = new Map(this.names.map((name, place) => [name, place]))
    this.counts = new Array<number>(this.names.length).fill(0)
  }

  /** Returns the position of a name, or undefined for an unknown name. */
  placeOf(name: string): number | undefined {
    return this.#places.get(name)
  }
}

/**
 * Makes the function that commits a batch of plain sends and returns them as stored, in the order of the batch. If a
 * send is not plain, or the statement declines, the result is undefined and nothing is stored.
 */
export const makePlainAppend = (backlogHard: number) =>
  Effect.map(Database, (database) => {
    const one = database.raw<{ readonly found: ReadonlyArray<number | null> }>("append_one", ONE)
    const many = database.raw<{
      readonly bases: ReadonlyArray<number>
      readonly numbers: ReadonlyArray<number>
      readonly waiting: ReadonlyArray<number>
      readonly own: ReadonlyArray<number> | null
    }>("append_many", MANY)

    const storeOne = (append: DirectAppend, lockMs: number) =>
      Effect.map(
        one([
          lockMs,
          append.conversationId,
          append.epoch,
          append.version,
          append.recipientId,
          append.messageId,
          append.senderId,
          append.draft.clientMsgId,
          append.draft.type,
          append.draft.content,
          append.draft.metadata,
          append.at,
          backlogHard
        ]),
        ([row]): ReadonlyArray<PlainStored> | undefined => {
          if (row === undefined) return undefined
          const [seq, lastNo, waiting, senderLastNo] = row.found as ReadonlyArray<number>
          return [{ seq: seq!, no: lastNo! + 1, waiting: waiting!, position: 1, senderLastNo: senderLastNo ?? 0 }]
        }
      )

    const storeMany = (batch: ReadonlyArray<DirectAppend>, lockMs: number) => {
      const conversations = new Tally(batch.map((append) => append.conversationId))
      const recipients = new Tally(batch.map((append) => append.recipientId))
      const others = new Tally(
        batch.flatMap(({ senderId }) => recipients.placeOf(senderId) === undefined ? [senderId] : [])
      )
      const epochs = new Array<number | undefined>(conversations.names.length)
      const versions = new Array<number | undefined>(conversations.names.length)
      let alike = true
      const latest = new Array<number>(conversations.names.length).fill(0)
      const rows = batch.map(({ at, conversationId, draft, epoch, messageId, recipientId, senderId, version }) => {
        const c = conversations.placeOf(conversationId)!
        const r = recipients.placeOf(recipientId)!
        alike &&= (epochs[c] ??= epoch) === epoch && (versions[c] ??= version) === version
        latest[c] = Math.max(latest[c]!, at)
        const s = ++conversations.counts[c]!
        const n = ++recipients.counts[r]!
        return {
          c: c + 1,
          s,
          r: r + 1,
          n,
          sender: senderId,
          key: draft.clientMsgId,
          id: messageId,
          type: draft.type,
          content: draft.content,
          metadata: draft.metadata,
          at
        }
      })
      // The sends to one conversation were decided on different states of it.
      if (!alike) return undefined
      return Effect.map(
        many([
          JSON.stringify(rows),
          lockMs,
          conversations.names,
          epochs,
          versions,
          recipients.names,
          recipients.counts,
          Math.max(...recipients.counts),
          backlogHard,
          [...recipients.names, ...others.names],
          conversations.counts,
          latest,
          others.names
        ]),
        ([found]): ReadonlyArray<PlainStored> | undefined =>
          found === undefined ? undefined : rows.map(({ c, n, r, s, sender }) => {
            const recipient = recipients.placeOf(sender)
            return {
              seq: found.bases[c - 1]! + s,
              no: found.numbers[r - 1]! + n,
              waiting: found.waiting[r - 1]!,
              position: n,
              senderLastNo:
                (recipient === undefined ? found.own?.[others.placeOf(sender)!] : found.numbers[recipient]) ?? 0
            }
          })
      )
    }

    return (batch: ReadonlyArray<DirectAppend>, lockMs: number): ReturnType<typeof storeOne> | undefined => {
      if (!batch.every(isPlain)) return undefined
      return batch.length === 1 ? storeOne(batch[0]!, lockMs) : storeMany(batch, lockMs)
    }
  })

import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** The indexed messages of a conversation: `from` < seq <= `through`. */
export interface Range {
  readonly from: number
  readonly through: number
}

/** A conversation of the caller, and the range of its messages that is indexed. */
export interface Searched {
  readonly conversationId: string
  readonly counterpartyId: string | null
  readonly hiddenThrough: number
  readonly lastSeq: number
  readonly lastMessageAt: number
  readonly createdAt: number
  /** `null` if no message of the conversation is indexed. */
  readonly range: Range | null
}

/** Messages of a conversation to index: `after` < seq <= `through`. */
export interface Piece {
  readonly conversationId: string
  readonly after: number
  readonly through: number
}

/** A message to index. */
export interface Unindexed {
  readonly conversationId: string
  readonly seq: number
  readonly senderId: string
  /** `null` in a group. */
  readonly recipientId: string | null
  /** The content as JSON text. */
  readonly content: string
  readonly createdAt: number
}

/** The words of a message. `words` is the text of a `tsvector`. */
export interface WordsRow {
  readonly conversationId: string
  readonly seq: number
  readonly createdAt: number
  readonly words: string
}

/** The new range of a conversation, and the range that it replaces. */
export interface Move {
  readonly conversationId: string
  readonly was: Range | null
  readonly range: Range
}

/**
 * The position of a message in the order of the results: by time, then by conversation, then by seq, all descending.
 */
export interface Position {
  readonly at: number
  readonly conversationId: string
  readonly seq: number
}

const SEARCHED_FROM = (participants: string) => `
SELECT p.conversation_id, p.counterparty_id, p.hidden_through, c.last_seq, c.last_message_at, c.created_at, r.from_seq, r.through_seq
FROM (${participants}) p
JOIN LATERAL (SELECT * FROM conversations WHERE id = p.conversation_id OFFSET 0) c ON true
LEFT JOIN LATERAL (SELECT * FROM message_word_ranges WHERE conversation_id = p.conversation_id OFFSET 0) r ON true
ORDER BY p.conversation_id`

const SEARCHED = SEARCHED_FROM(`
SELECT * FROM participants WHERE agent_id = $1 AND conversation_id > $2 ORDER BY conversation_id LIMIT $3`)

const SEARCHED_ONE = SEARCHED_FROM(`SELECT * FROM participants WHERE agent_id = $1 AND conversation_id = $2`)

/**
 * Derives the recipient of a direct message from the row of either participant, because one of the two rows can be
 * missing.
 */
const READ = `
SELECT m.conversation_id, m.seq, m.sender_id, m.content, m.created_at,
  CASE WHEN m.sender_id = p.agent_id THEN p.counterparty_id ELSE p.agent_id END AS recipient_id
FROM json_to_recordset($1::json) AS x(conv text, direct boolean, after bigint, through bigint)
JOIN LATERAL (
  SELECT * FROM messages WHERE conversation_id = x.conv AND seq > x.after AND seq <= x.through OFFSET 0
) m ON true
LEFT JOIN LATERAL (
  SELECT agent_id, counterparty_id FROM participants WHERE x.direct AND conversation_id = x.conv LIMIT 1
) p ON true`

const ADD = `
INSERT INTO message_words (conversation_id, seq, created_at, words)
SELECT conv, seq, at, words FROM json_to_recordset($1::json) AS x(conv text, seq bigint, at bigint, words tsvector)
ON CONFLICT DO NOTHING`

/**
 * Changes a range only if it is still the range that was read, so that ranges have no gaps although several processes
 * index.
 */
const MOVE = `
WITH input AS MATERIALIZED (
  SELECT * FROM json_to_recordset($1::json) AS x(conv text, first bigint, through bigint, was_first bigint, was_through bigint)
), moved AS (
  UPDATE message_word_ranges r SET from_seq = x.first, through_seq = x.through
  FROM input x WHERE r.conversation_id = x.conv AND r.from_seq = x.was_first AND r.through_seq = x.was_through
)
INSERT INTO message_word_ranges (conversation_id, from_seq, through_seq)
SELECT conv, first, through FROM input WHERE was_first IS NULL
ON CONFLICT DO NOTHING`

const PENDING = `
SELECT conversation_id, from_seq, through_seq FROM message_word_ranges
WHERE from_seq > 0 AND conversation_id > $1 ORDER BY conversation_id LIMIT $2`

const MATCHING = `
SELECT conversation_id, seq, created_at FROM message_words
WHERE words @@ $1::tsquery AND created_at >= $2 AND (created_at, conversation_id, seq) < ($3::bigint, $4::text, $5::bigint)`
const NEWEST_FIRST = `ORDER BY created_at DESC, conversation_id DESC, seq DESC`

/** Finds any `$6` matches, and sorts them. */
const FIND_SOME = `SELECT * FROM (${MATCHING} LIMIT $6) m ${NEWEST_FIRST}`

const FIND_NEWEST = `${MATCHING} ${NEWEST_FIRST} LIMIT $6`

/** Removes the words of removed messages. Messages are removed only at the beginning of a conversation. */
const SWEEP = `
WITH slice AS MATERIALIZED (
  SELECT conversation_id FROM message_word_ranges WHERE conversation_id > $1 ORDER BY conversation_id LIMIT $2
), gone AS MATERIALIZED (
  SELECT w.conversation_id, w.seq FROM slice s
  JOIN LATERAL (SELECT (SELECT seq FROM messages WHERE conversation_id = s.conversation_id ORDER BY seq LIMIT 1) AS seq OFFSET 0) f ON true
  JOIN LATERAL (
    SELECT conversation_id, seq FROM message_words
    WHERE conversation_id = s.conversation_id AND seq < COALESCE(f.seq, ${Number.MAX_SAFE_INTEGER})
    ORDER BY seq LIMIT $3
  ) w ON true
), removed AS (
  DELETE FROM message_words w USING gone g WHERE w.conversation_id = g.conversation_id AND w.seq = g.seq RETURNING w.seq
)
SELECT (SELECT max(conversation_id) FROM slice) AS last, (SELECT count(*) FROM slice) AS slice, (SELECT count(*) FROM removed) AS removed`

interface SearchedRow {
  readonly conversation_id: string
  readonly counterparty_id: string | null
  readonly hidden_through: number
  readonly last_seq: number
  readonly last_message_at: number | null
  readonly created_at: number
  readonly from_seq: number | null
  readonly through_seq: number | null
}

const searched = (row: SearchedRow): Searched => ({
  conversationId: row.conversation_id,
  counterpartyId: row.counterparty_id,
  hiddenThrough: row.hidden_through,
  lastSeq: row.last_seq,
  lastMessageAt: row.last_message_at ?? row.created_at,
  createdAt: row.created_at,
  range: row.from_seq === null || row.through_seq === null ? null : { from: row.from_seq, through: row.through_seq }
})

/** All SQL on the words of messages. */
export class SearchRepo extends Context.Service<SearchRepo, {
  /** The next slice of the conversations in which an agent takes part, in the order of ids. */
  readonly searched: (
    agentId: string,
    above: string,
    limit: number
  ) => Effect.Effect<ReadonlyArray<Searched>, Unavailable>
  /** Returns undefined if the agent does not take part in this conversation. */
  readonly searchedOne: (agentId: string, conversationId: string) => Effect.Effect<Searched | undefined, Unavailable>
  readonly read: (
    pieces: ReadonlyArray<Piece & { readonly direct: boolean }>
  ) => Effect.Effect<ReadonlyArray<Unindexed>, Unavailable>
  /** Adds the words of messages. Skips messages whose words are already stored. */
  readonly add: (rows: ReadonlyArray<WordsRow>) => Effect.Effect<void, Unavailable>
  /** Stores new ranges. Skips conversations whose range has changed since it was read. */
  readonly move: (moves: ReadonlyArray<Move>) => Effect.Effect<void, Unavailable>
  /** The next slice of the conversations whose first messages are not indexed yet, in the order of ids. */
  readonly pending: (
    above: string,
    limit: number
  ) => Effect.Effect<ReadonlyArray<{ readonly conversationId: string; readonly range: Range }>, Unavailable>
  /**
   * Returns messages that match the text of a `tsquery`, newest first: those from `since` on that come after a position
   * in the results. If there are more than `limit`, `newest` returns the newest ones. `some` returns any of them, which
   * is cheaper.
   */
  readonly find: Record<
    "newest" | "some",
    (
      query: string,
      since: number,
      below: Position,
      limit: number
    ) => Effect.Effect<ReadonlyArray<Position>, Unavailable>
  >
  /**
   * Removes words of messages that no longer exist, up to `most` from each conversation of a slice. `last` is the
   * conversation at which the slice ends, or null after the last slice.
   */
  readonly sweep: (
    above: string,
    limit: number,
    most: number
  ) => Effect.Effect<{ readonly last: string | null; readonly slice: number; readonly removed: number }, Unavailable>
}>()("parley/search/SearchRepo") {
  static readonly layer = Layer.effect(
    SearchRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const slice = database.prepared<SearchedRow>("searched_conversations", SEARCHED)
      const one = database.prepared<SearchedRow>("searched_conversation", SEARCHED_ONE)
      const read = database.prepared<{
        conversation_id: string
        seq: number
        sender_id: string
        recipient_id: string | null
        content: string
        created_at: number
      }>("read_unindexed", READ)
      const add = database.prepared("add_message_words", ADD)
      const move = database.prepared("move_message_word_ranges", MOVE)
      const pending = database.prepared<{ conversation_id: string; from_seq: number; through_seq: number }>(
        "pending_word_ranges",
        PENDING
      )
      const find = (name: string, text: string) => {
        const run = database.prepared<{ conversation_id: string; seq: number; created_at: number }>(name, text)
        return (query: string, since: number, below: Position, limit: number) =>
          Effect.map(
            run([query, since, below.at, below.conversationId, below.seq, limit]),
            (rows) => rows.map((row) => ({ at: row.created_at, conversationId: row.conversation_id, seq: row.seq }))
          )
      }
      const sweep = database.prepared<{ last: string | null; slice: number; removed: number }>(
        "sweep_message_words",
        SWEEP
      )
      return SearchRepo.of({
        searched: (agentId, above, limit) => Effect.map(slice([agentId, above, limit]), (rows) => rows.map(searched)),
        searchedOne: (agentId, conversationId) =>
          Effect.map(one([agentId, conversationId]), ([row]) => row === undefined ? undefined : searched(row)),
        read: (pieces) =>
          Effect.map(
            read([
              JSON.stringify(
                pieces.map(({ after, conversationId, direct, through }) => ({
                  conv: conversationId,
                  direct,
                  after,
                  through
                }))
              )
            ]),
            (rows) =>
              rows.map((row) => ({
                conversationId: row.conversation_id,
                seq: row.seq,
                senderId: row.sender_id,
                recipientId: row.recipient_id,
                content: row.content,
                createdAt: row.created_at
              }))
          ),
        add: (rows) =>
          Effect.asVoid(add([
            JSON.stringify(
              rows.map(({ conversationId, createdAt, seq, words }) => ({
                conv: conversationId,
                seq,
                at: createdAt,
                words
              }))
            )
          ])),
        move: (moves) =>
          Effect.asVoid(move([
            JSON.stringify(moves.map(({ conversationId, range, was }) => ({
              conv: conversationId,
              first: range.from,
              through: range.through,
              was_first: was?.from ?? null,
              was_through: was?.through ?? null
            })))
          ])),
        pending: (above, limit) =>
          Effect.map(
            pending([above, limit]),
            (rows) =>
              rows.map((row) => ({
                conversationId: row.conversation_id,
                range: { from: row.from_seq, through: row.through_seq }
              }))
          ),
        find: { some: find("find_some_messages", FIND_SOME), newest: find("find_newest_messages", FIND_NEWEST) },
        sweep: (above, limit, most) =>
          Effect.map(sweep([above, limit, most]), ([row]) => row ?? { last: null, slice: 0, removed: 0 })
      })
    })
  )
}

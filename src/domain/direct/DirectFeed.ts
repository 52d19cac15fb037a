import { type MessageRow, type StoredMessage, storedMessage } from "#domain/messages/Message"
import { Secrets } from "#infrastructure/database/Secrets"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { makeDirectIds } from "./DirectConversation.ts"

/** A conversation whose progress is requested, and optionally one of its messages. */
export interface Place {
  readonly conversationId: string
  readonly recipientId: string
  /** The message whose delivery time is requested, or `null` for none. */
  readonly seq: number | null
}

export interface PlaceProgress {
  /** The seq of the newest message, or 0 if there is none. */
  readonly lastSeq: number
  /** When the requested message was delivered, in milliseconds, or `null` if it is not delivered yet. */
  readonly deliveredAt: number | null
}

/** After how much metadata a statement returns no further messages, in bytes. */
const FOLLOWING_BYTES = 262_144

const FOLLOWING = `
SELECT p.*
FROM (
  SELECT m.id, m.seq, m.sender_id, m.metadata, m.created_at, count(*) OVER () AS found,
    sum(octet_length(m.metadata)) OVER (ORDER BY m.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
  FROM (
    SELECT id, seq, sender_id, metadata, created_at FROM messages WHERE conversation_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
  ) m
) p
WHERE p.bytes_before IS NULL OR p.bytes_before < $4
ORDER BY p.seq`

const NEXT_WITH_KEY = `
SELECT c.last_seq, (
  SELECT m.seq FROM messages m
  WHERE m.conversation_id = c.id AND m.seq > $2 AND starts_with(m.client_msg_id, $3)
  ORDER BY m.seq LIMIT 1
) AS seq
FROM conversations c WHERE c.id = $1`

const AT = `SELECT * FROM messages WHERE conversation_id = $1 AND seq = ANY ($2::bigint[]) ORDER BY seq`

const PROGRESS = `
SELECT x.i, c.last_seq, e.delivered_at
FROM json_to_recordset($1::json) AS x(i integer, conv text, recipient text, seq bigint)
LEFT JOIN LATERAL (SELECT last_seq FROM conversations WHERE id = x.conv OFFSET 0) c ON true
LEFT JOIN LATERAL (
  SELECT delivered_at FROM envelopes WHERE recipient_id = x.recipient AND conversation_id = x.conv AND seq = x.seq OFFSET 0
) e ON true`

/** Like a send, tests the newest seq on the locked row. */
const AMEND = `
WITH held AS MATERIALIZED (
  SELECT id FROM conversations WHERE id = $1 AND last_seq = $2 FOR NO KEY UPDATE
)
UPDATE messages m SET metadata = $4 FROM held
WHERE m.conversation_id = held.id AND m.seq = $3 AND m.content <> '{}'
RETURNING m.seq`

export type FollowingMessage = Pick<StoredMessage, "createdAt" | "id" | "metadata" | "senderId" | "seq">

export interface Following {
  readonly messages: ReadonlyArray<FollowingMessage>
  /** Whether there may be more messages. */
  readonly more: boolean
}

/**
 * Reads the committed messages of direct conversations in order, for modules that derive something from them. The
 * caller must check access.
 */
export class DirectFeed extends Context.Service<DirectFeed, {
  /** Returns the id of the direct conversation of two agents, whether or not the conversation exists. */
  readonly direct: (one: string, other: string) => string
  /**
   * Returns up to `limit` messages above a seq, in order, without their contents. Returns fewer after 256 kB of
   * metadata.
   */
  readonly following: (conversationId: string, after: number, limit: number) => Effect.Effect<Following, Unavailable>
  /**
   * Returns the seq of the first message above `after` whose client_msg_id begins with `prefix`, and the newest seq in
   * the same snapshot.
   */
  readonly nextWithKey: (
    conversationId: string,
    after: number,
    prefix: string
  ) => Effect.Effect<{ readonly lastSeq: number; readonly seq: number | null }, Unavailable>
  /** Returns the messages with these seqs that still exist, in order. */
  readonly at: (
    conversationId: string,
    seqs: ReadonlyArray<number>
  ) => Effect.Effect<ReadonlyArray<StoredMessage>, Unavailable>
  /** Returns the progress of each place, in the order of `places`. */
  readonly progress: (places: ReadonlyArray<Place>) => Effect.Effect<ReadonlyArray<PlaceProgress>, Unavailable>
  /**
   * Replaces a message's metadata, and locks the conversation until the transaction ends. Changes nothing and returns
   * false if `lastSeq` is no longer the newest seq or the message no longer exists.
   */
  readonly amend: (
    conversationId: string,
    lastSeq: number,
    seq: number,
    metadata: string
  ) => Effect.Effect<boolean, Unavailable>
}>()("parley/direct/DirectFeed") {
  static readonly layer = Layer.effect(
    DirectFeed,
    Effect.gen(function*() {
      const database = yield* Database
      const following = database.prepared<
        Pick<MessageRow, "created_at" | "id" | "metadata" | "sender_id" | "seq"> & { found: number }
      >(
        "feed_following",
        FOLLOWING
      )
      const nextWithKey = database.prepared<{ last_seq: number; seq: number | null }>(
        "feed_next_with_key",
        NEXT_WITH_KEY
      )
      const at = database.prepared<MessageRow>("feed_at", AT)
      const progress = database.prepared<{ i: number; last_seq: number | null; delivered_at: number | null }>(
        "feed_progress",
        PROGRESS
      )
      const amend = database.prepared("feed_amend", AMEND)
      return DirectFeed.of({
        direct: makeDirectIds((yield* Secrets).conversationIds),
        following: (conversationId, after, limit) =>
          Effect.map(following([conversationId, after, limit, FOLLOWING_BYTES]), (rows) => ({
            messages: rows.map(({ created_at, id, metadata, sender_id, seq }) => ({
              id,
              seq,
              senderId: sender_id,
              metadata,
              createdAt: created_at
            })),
            more: rows.length === limit || rows.length < (rows[0]?.found ?? 0)
          })),
        nextWithKey: (conversationId, after, prefix) =>
          Effect.map(nextWithKey([conversationId, after, prefix]), ([row]) => ({
            lastSeq: row?.last_seq ?? 0,
            seq: row?.seq ?? null
          })),
        at: (conversationId, seqs) => Effect.map(at([conversationId, seqs]), (rows) => rows.map(storedMessage)),
        progress: (places) => {
          if (places.length === 0) return Effect.succeed([])
          const input = places.map(({ conversationId, recipientId, seq }, i) => ({
            i,
            conv: conversationId,
            recipient: recipientId,
            seq
          }))
          return Effect.map(progress([JSON.stringify(input)]), (rows) => {
            const found = places.map((): PlaceProgress => ({ lastSeq: 0, deliveredAt: null }))
            for (const row of rows) found[row.i] = { lastSeq: row.last_seq ?? 0, deliveredAt: row.delivered_at }
            return found
          })
        },
        amend: (conversationId, lastSeq, seq, metadata) =>
          Effect.map(amend([conversationId, lastSeq, seq, metadata]), (rows) => rows.length > 0)
      })
    })
  )
}

import type { Batch } from "#infrastructure/cluster/Job"
import { Database } from "#infrastructure/database/Sql"
import { type OwnedTable, Tables } from "#infrastructure/database/Tables"
import { Config } from "#infrastructure/platform/Config"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"

const DAY_MS = 86_400_000
/** How many conversations a batch contains, and about how many envelopes it removes from each. */
const BATCH_CONVERSATIONS = 20
const BATCH_ENVELOPES = 100

/** The parts of the statement for the tables that declare `withMessage`. */
const alsoRemoved = (tables: ReadonlyArray<OwnedTable>): string =>
  tables.flatMap(({ retention, table }) =>
    "kept" in retention || retention.withMessage === undefined
      ? []
      : `, of_${table} AS (
  DELETE FROM ${table} t USING about m WHERE ${retention.withMessage}
)`
  ).join("")

/**
 * Removes the oldest messages of some conversations, with their envelopes, their reply claims and the rows of tables
 * that declare `withMessage`. Messages are removed only at the beginning of a conversation. `last_seq` does not change,
 * so the numbering continues.
 *
 * The statement takes locks in the order of a send: conversations, then inboxes, then envelopes. It skips conversations
 * that are locked. It reduces counters by the number of envelopes that were actually deleted. So two concurrent
 * processes, or a process with an old snapshot, count no envelope twice. Each pass raises `oldest_at` or removes
 * messages, so the job ends.
 */
export const removeStatement = (tables: ReadonlyArray<OwnedTable>): string => `
WITH held AS MATERIALIZED (
  SELECT id FROM conversations
  WHERE COALESCE(oldest_at, created_at) <= $1
  ORDER BY COALESCE(oldest_at, created_at) LIMIT $3
  FOR NO KEY UPDATE SKIP LOCKED
), recipients AS MATERIALIZED (
  SELECT h.id AS conv, p.agent_id FROM held h
  JOIN LATERAL (SELECT agent_id FROM participants WHERE conversation_id = h.id OFFSET 0) p ON true
  UNION
  SELECT h.id, m.agent_id FROM held h
  JOIN LATERAL (SELECT agent_id FROM group_members WHERE group_id = h.id OFFSET 0) m ON true
), first AS MATERIALIZED (
  SELECT h.id AS conv, m.seq, m.id, m.created_at
  FROM held h
  JOIN LATERAL (
    SELECT seq, id, created_at FROM messages
    WHERE conversation_id = h.id
    ORDER BY seq
    LIMIT 1 + GREATEST(1, $4::bigint / GREATEST(1, (SELECT count(*) FROM recipients r WHERE r.conv = h.id)))
  ) m ON true
), stays AS MATERIALIZED (
  -- the last row that was read stays: it only shows how old the rest is
  SELECT h.id AS conv, COALESCE(
    (SELECT min(f.seq) FROM first f WHERE f.conv = h.id AND f.created_at > $1),
    (
      SELECT max(f.seq) FROM first f WHERE f.conv = h.id
      HAVING count(*) > GREATEST(1, $4::bigint / GREATEST(1, (SELECT count(*) FROM recipients r WHERE r.conv = h.id)))
    )
  ) AS seq FROM held h
), old AS MATERIALIZED (
  SELECT f.* FROM first f WHERE f.seq < COALESCE((SELECT s.seq FROM stays s WHERE s.conv = f.conv), f.seq + 1)
), locked AS MATERIALIZED (
  SELECT n.agent_id FROM inboxes n
  WHERE n.agent_id = ANY (ARRAY(SELECT DISTINCT r.agent_id FROM recipients r WHERE r.conv = ANY (ARRAY(SELECT conv FROM old))))
  ORDER BY n.agent_id
  FOR NO KEY UPDATE OF n
), gone AS MATERIALIZED (
  -- counts, so that every inbox is locked before anything is removed
  SELECT o.*, (SELECT count(*) FROM locked) FROM old o
), about AS MATERIALIZED (
  SELECT o.conv AS conversation_id, o.seq, o.id, r.agent_id FROM gone o
  JOIN recipients r ON r.conv = o.conv
  JOIN locked l ON l.agent_id = r.agent_id
), enveloped AS (
  DELETE FROM envelopes e USING about a
  WHERE e.conversation_id = a.conversation_id AND e.recipient_id = a.agent_id AND e.seq = a.seq
  RETURNING e.recipient_id, e.delivered_at
), counted AS (
  UPDATE inboxes n SET undelivered = n.undelivered - w.n
  FROM (SELECT recipient_id, count(*) AS n FROM enveloped WHERE delivered_at IS NULL GROUP BY recipient_id) w
  WHERE n.agent_id = w.recipient_id
)${alsoRemoved(tables)}, claimed AS MATERIALIZED (
  -- a claim that is being renewed is skipped and expires by itself
  SELECT c.agent_id, c.message_id FROM about a
  JOIN reply_claims c ON c.agent_id = a.agent_id AND c.message_id = a.id
  FOR UPDATE OF c SKIP LOCKED
), unclaimed AS (
  DELETE FROM reply_claims c USING claimed x WHERE c.agent_id = x.agent_id AND c.message_id = x.message_id
), removed AS (
  DELETE FROM messages m USING gone o WHERE m.conversation_id = o.conv AND m.seq = o.seq
  RETURNING m.seq
), looked AS (
  UPDATE conversations c SET oldest_at = COALESCE(
    (SELECT f.created_at FROM stays s JOIN first f ON f.conv = s.conv AND f.seq = s.seq WHERE s.conv = c.id),
    $2::bigint
  )
  WHERE c.id = ANY (ARRAY(SELECT id FROM held))
)
SELECT (SELECT count(*) FROM removed) AS removed, (SELECT count(*) FROM held) AS looked`

/**
 * Deletes messages that are older than RETENTION_MESSAGES_DAYS (wire.md G.17a). Without this setting, messages are kept
 * for ever. After that, the message does not exist for any agent. Its `client_msg_id` is free again, so a repeat after
 * the deletion is a new message. The conversation stays in the list.
 */
export class MessageRetention extends Context.Service<MessageRetention, {
  /** Removes one batch of messages that are old enough. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
}>()("parley/conversations/MessageRetention") {
  static readonly layer = Layer.effect(
    MessageRetention,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const days = (yield* Config).RETENTION_MESSAGES_DAYS
      const database = yield* Database
      const remove = database.prepared<{ removed: number; looked: number }>(
        "remove_old_messages",
        removeStatement(yield* Tables)
      )
      return MessageRetention.of({
        sweep: Effect.suspend(() => {
          if (days === undefined) return Effect.succeed({ rows: 0, more: false })
          const now = clock.currentTimeMillisUnsafe()
          return Effect.map(remove([now - days * DAY_MS, now, BATCH_CONVERSATIONS, BATCH_ENVELOPES]), ([row]) => ({
            rows: row?.removed ?? 0,
            more: (row?.looked ?? 0) > 0
          }))
        })
      })
    })
  )
}

import * as Migrations from "#infrastructure/database/Migrations"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { readdir } from "node:fs/promises"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { layerPgliteEmpty, layerPostgresTest } from "../../test/support/Databases.ts"
import { UNSOUND } from "../../test/support/Invariants.ts"

const MESSAGES = 100_000
/** The schema of commit fd33616, before keys were folded into messages. */
const OLD = 19

/** Agents in a ring, each pair with its conversation, every message with its key and its envelope. */
const FILL = `
WITH agent AS (
  INSERT INTO agents (id, handle, email, created_at, updated_at)
  SELECT 'agt_' || lpad(i::text, 16, '0'), 'agent-' || i, i || '@example.com', 0, 0 FROM generate_series(0, 99) i
  RETURNING id
), inbox AS (
  INSERT INTO inboxes (agent_id, last_no, undelivered, delivered_through)
  SELECT id, ${MESSAGES / 100}, ${MESSAGES / 1_000}, ${MESSAGES * 9 / 1_000} FROM agent
), conversation AS (
  INSERT INTO conversations (id, kind, epoch, last_seq, last_message_at, created_at, initiator_id, established_at)
  SELECT 'conv_' || lpad(i::text, 16, '0'), 'direct', 1, ${MESSAGES / 100}, 0, 0, 'agt_' || lpad(i::text, 16, '0'), 0
  FROM generate_series(0, 99) i
), message AS MATERIALIZED (
  SELECT 'conv_' || lpad((g % 100)::text, 16, '0') AS conv, g / 100 + 1 AS seq, 'msg_' || lpad(g::text, 16, '0') AS id,
    'agt_' || lpad((g % 100)::text, 16, '0') AS sender, 'agt_' || lpad(((g + 1) % 100)::text, 16, '0') AS recipient,
    md5(g::text)::uuid::text AS key, g AS at
  FROM generate_series(0, ${MESSAGES - 1}) g
), key AS (
  INSERT INTO message_keys (sender_id, client_msg_id, message_id) SELECT sender, key, id FROM message
), stored AS (
  INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
  SELECT conv, seq, id, sender, key, 'text', json_build_object('text', repeat('x', 160))::text, '{}', at FROM message
)
INSERT INTO envelopes (recipient_id, no, conversation_id, seq, sender_id, delivered_at)
SELECT recipient, seq, conv, seq, sender, CASE WHEN seq <= ${MESSAGES * 9 / 1_000} THEN at END FROM message`

const sizes = `
SELECT relname AS name, pg_total_relation_size(oid) AS bytes FROM pg_class
WHERE relname IN ('messages', 'message_keys', 'envelopes') ORDER BY relname`

const suites = [
  ["PGlite", true, layerPgliteEmpty],
  ["PostgreSQL 15", isInstalled(15), layerPostgresTest(15, { kind: "empty" })],
  ["PostgreSQL 18", isInstalled(18), layerPostgresTest(18, { kind: "empty" })]
] as const

for (const [name, installed, database] of suites) {
  describe.skipIf(!installed)(name, () => {
    it.live(
      `a database of before with ${MESSAGES} messages is brought up to this version in less than a minute`,
      () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const all = yield* Migrations.read(new URL("../../schema/", import.meta.url))
          assert.isAbove((yield* Effect.promise(() => readdir(new URL("../../schema/", import.meta.url)))).length, OLD)
          yield* Migrations.run(all.slice(0, OLD))
          yield* sql.unsafe(FILL).unprepared
          const before = yield* sql.unsafe<{ readonly name: string; readonly bytes: number }>(sizes)
          const began = performance.now()
          yield* Migrations.run(all)
          const took = performance.now() - began
          yield* Migrations.verify()
          const after = yield* sql.unsafe<{ readonly name: string; readonly bytes: number }>(sizes)
          const told = (rows: typeof before) =>
            rows.map((row) => `${row.name} ${(Number(row.bytes) / MESSAGES).toFixed(0)}`).join(", ")
          console.log(
            `${name}: ${MESSAGES} messages migrated in ${(took / 1_000).toFixed(2)} s; bytes a message before: ${
              told(before)
            }; after: ${told(after)}`
          )
          assert.isBelow(took, 60_000)
          assert.deepStrictEqual(yield* sql.unsafe(UNSOUND), [])
          const [counts] = yield* sql<{ readonly messages: number; readonly envelopes: number }>`
          SELECT (SELECT count(*) FROM messages) AS messages, (SELECT count(*) FROM envelopes) AS envelopes`
          assert.deepStrictEqual(counts, { messages: MESSAGES, envelopes: MESSAGES })
          // A key that was used before is still used.
          const refused = yield* Effect.flip(sql`
          INSERT INTO messages (conversation_id, seq, id, sender_id, client_msg_id, type, content, metadata, created_at)
          SELECT conversation_id, 1000000, 'msg_again', sender_id, client_msg_id, type, content, metadata, created_at
          FROM messages LIMIT 1`)
          assert.strictEqual(refused.reason._tag, "UniqueViolation")
        }).pipe(Effect.provide(database)),
      300_000
    )
  })
}

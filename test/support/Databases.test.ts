import { Database } from "#infrastructure/database/Sql"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest } from "./Databases.ts"

/** Uses a database as one test does, from the building of the layer to its release. */
const using = <A, E>(use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
  Effect.flatMap(SqlClient.SqlClient, use).pipe(Effect.provide(layerPgliteTest))

const began = using((sql) => sql`SELECT pg_postmaster_start_time() AS began`)

describe("PGlite for a room's tests", () => {
  it.effect("has no rows, and counts from 1, whatever the test before did", () =>
    Effect.gen(function*() {
      for (let i = 0; i < 3; i++) {
        const [row] = yield* using((sql) =>
          Effect.gen(function*() {
            assert.deepStrictEqual(yield* sql`SELECT 1 FROM agents UNION ALL SELECT 1 FROM inboxes`, [])
            yield* sql`INSERT INTO agents (id, handle, email, created_at, updated_at) VALUES ('agt_1', 'ada', 'a@b.c', 0, 0)`
            yield* sql`INSERT INTO inboxes (agent_id) VALUES ('agt_1')`
            yield* sql`SET enable_indexscan = off`
            yield* sql`CREATE TEMP TABLE leftover (n integer)`
            return yield* sql`INSERT INTO audit_log (at, operator, action) VALUES (0, 'o', 'show') RETURNING no`
          })
        )
        assert.deepStrictEqual(row, { no: 1 })
      }
      const [setting] = yield* using((sql) => sql`SHOW enable_indexscan`)
      assert.deepStrictEqual(setting, { enable_indexscan: "on" })
    }))

  for (
    const change of [
      "ALTER TABLE agents RENAME TO away",
      "DELETE FROM migrations"
    ]
  ) {
    it.effect(`is another one after ${change}`, () =>
      Effect.gen(function*() {
        const before = yield* began
        assert.deepStrictEqual(yield* began, before)
        yield* using((sql) => Effect.asVoid(sql.unsafe(change).unprepared))
        assert.notDeepEqual(yield* began, before)
      }))
  }

  it.effect("knows no statement of the test before, though it had the same name", () =>
    Effect.gen(function*() {
      for (const text of ["SELECT 1 AS n", "SELECT 2 AS n"]) {
        const rows = yield* Effect.flatMap(Database, (database) =>
          database.prepared<{ n: number }>("same_name", text)([]))
          .pipe(Effect.provide(layerPgliteTest))
        assert.deepStrictEqual(rows, [{ n: Number(text[7]) }])
      }
    }))

  it.effect("is closed to whoever still has it", () =>
    Effect.gen(function*() {
      const kept = yield* Effect.all([SqlClient.SqlClient, Database]).pipe(Effect.provide(layerPgliteTest))
      const exit = yield* Effect.exit(kept[0]`SELECT 1`)
      assert.strictEqual(exit._tag, "Failure")
    }))
})

import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import * as Maintenance from "../../src/database/Maintenance.ts"
import { layerPgliteTest } from "../support/Databases.ts"

layer(Maintenance.layer.pipe(Layer.provideMerge(layerPgliteTest)))((it) => {
  it.effect("a table that has grown is analysed, and a small one left alone", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const rows = (table: string) =>
        Effect.map(
          sql<{ readonly n: number }>`SELECT reltuples::int8 AS n FROM pg_class WHERE relname = ${table}`,
          ([row]) => row?.n
        )
      yield* sql`INSERT INTO inboxes (agent_id) SELECT 'agt_' || n FROM generate_series(1, 5000) n`
      yield* sql`INSERT INTO secrets (name, value) VALUES ('one', ${Buffer.from([1])})`
      assert.strictEqual(yield* rows("inboxes"), -1)
      yield* TestClock.adjust("31 seconds")
      assert.strictEqual(yield* rows("inboxes"), 5000)
      assert.strictEqual(yield* rows("secrets"), -1)
    }))
})

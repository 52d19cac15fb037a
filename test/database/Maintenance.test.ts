import * as Maintenance from "#infrastructure/database/Maintenance"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { assert, it, layer } from "@effect/vitest"
import { Effect, Layer, Logger, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { freshDatabase, layerPgliteTest } from "../support/Databases.ts"

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

it.effect("a PostgreSQL without autovacuum is named at startup, with what to do; one with it is not", () => {
  const lines: Array<string> = []
  const start = (url: string) =>
    Layer.build(Maintenance.layer.pipe(Layer.provide(layerPg({ url: Redacted.make(url), poolSize: 2 })))).pipe(
      Effect.scoped,
      Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
    )
  return Effect.gen(function*() {
    const url = yield* Effect.promise(() => freshDatabase())
    yield* start(url)
    assert.deepStrictEqual(lines, [])
    yield* Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* sql`ALTER TABLE inboxes SET (autovacuum_enabled = false)`
      // The settings belong to the whole server, which other tests use, so this database shows others.
      yield* sql`
        CREATE VIEW public.pg_settings AS SELECT name, CASE WHEN name IN ('autovacuum', 'track_counts') THEN 'off' ELSE setting END AS setting
        FROM pg_catalog.pg_settings`
      const [row] = yield* sql<{ readonly name: string }>`SELECT quote_ident(current_database()) AS name`
      yield* sql`ALTER DATABASE ${sql.literal(row?.name ?? "")} SET search_path = public, pg_catalog`
    }).pipe(Effect.provide(layerPg({ url: Redacted.make(url), poolSize: 2 })))
    yield* start(url)
    assert.deepStrictEqual(lines.map((line) => line.slice(0, 48)), [
      "PostgreSQL's setting autovacuum is off: the tabl",
      "PostgreSQL's setting track_counts is off: the ta",
      "PostgreSQL does not vacuum inboxes: run ALTER TA"
    ])
  })
})

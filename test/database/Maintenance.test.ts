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

it.effect("settings with which PostgreSQL does not vacuum or loses commits are named at startup, with what to do", () => {
  const lines: Array<string> = []
  const start = (url: string) =>
    Layer.build(Maintenance.layer.pipe(Layer.provide(layerPg({ url: Redacted.make(url), poolSize: 2 })))).pipe(
      Effect.scoped,
      Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
    )
  return Effect.gen(function*() {
    const url = yield* Effect.promise(() => freshDatabase())
    const using = <A, E>(run: (sql: SqlClient.SqlClient) => Effect.Effect<A, E>) =>
      Effect.provide(Effect.flatMap(SqlClient.SqlClient, run), layerPg({ url: Redacted.make(url), poolSize: 2 }))
    yield* using((sql) =>
      Effect.gen(function*() {
        // The settings belong to the whole server, which other tests use, so this database shows others.
        yield* sql`CREATE TABLE shown_settings AS SELECT name, 'on' AS setting FROM pg_catalog.pg_settings`
        yield* sql`CREATE VIEW public.pg_settings AS SELECT * FROM public.shown_settings`
        const [row] = yield* sql<{ readonly name: string }>`SELECT quote_ident(current_database()) AS name`
        yield* sql`ALTER DATABASE ${sql.literal(row?.name ?? "")} SET search_path = public, pg_catalog`
      })
    )
    yield* start(url)
    assert.deepStrictEqual(lines, [])
    yield* using((sql) =>
      Effect.andThen(
        sql`ALTER TABLE inboxes SET (autovacuum_enabled = false)`,
        sql`UPDATE shown_settings SET setting = CASE name WHEN 'synchronous_commit' THEN 'local' ELSE 'off' END`
      )
    )
    yield* start(url)
    assert.deepStrictEqual(lines.map((line) => line.slice(0, 56)), [
      "PostgreSQL's setting autovacuum is off: the tables grow,",
      "PostgreSQL's setting fsync is off: a crash of PostgreSQL",
      "PostgreSQL's setting full_page_writes is off: a crash of",
      "PostgreSQL's setting track_counts is off: the tables gro",
      "PostgreSQL does not vacuum inboxes: run ALTER TABLE … RE"
    ])
    lines.length = 0
    yield* using((sql) => sql`UPDATE shown_settings SET setting = 'off' WHERE name = 'synchronous_commit'`)
    yield* start(url)
    assert.include(lines.join("\n"), "PostgreSQL's setting synchronous_commit is off: a crash")
  })
})

import { Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Database } from "./Sql.ts"

/** A table is looked at again when it has twice the size it had, and this many bytes more. */
const GROWTH_BYTES = 65_536

/**
 * What PostgreSQL's autovacuum does for the planner and PGlite has nobody for: tables
 * that have grown are analysed, so that plans made when they were empty are made
 * again. A small sample bounds it to some ten milliseconds a table.
 */
export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const { driver } = yield* Database
  if (driver !== "pglite") return
  const sql = yield* SqlClient.SqlClient
  yield* sql`SET default_statistics_target = 10`
  const known = new Map<string, number>()
  const analyse = Effect.gen(function*() {
    const tables = yield* sql<{ readonly name: string; readonly bytes: number }>`
      SELECT relname AS name, pg_relation_size(oid) AS bytes FROM pg_class
      WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`
    for (const { bytes, name } of tables) {
      if (bytes < 2 * (known.get(name) ?? 0) + GROWTH_BYTES) continue
      yield* sql`ANALYZE ${sql(name)}`
      known.set(name, bytes)
    }
  })
  yield* Effect.forkScoped(
    Effect.repeat(
      Effect.catchCause(analyse, (cause) => Effect.logWarning("Tables could not be analysed", cause)),
      Schedule.spaced("30 seconds")
    )
  )
}))

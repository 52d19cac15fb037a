import { Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Database } from "./Sql.ts"

/** A table is analysed again when it has twice its size at the last analysis plus this many bytes. */
const GROWTH_BYTES = 65_536

/**
 * Analyses tables that have grown, so that plans made when they were empty are made again. Only for PGlite, which has
 * no autovacuum. A small sample limits this to about ten milliseconds per table.
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

import { Effect, Layer, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Database } from "./Sql.ts"

/** A table is analysed again when it has twice its size at the last analysis plus this many bytes. */
const GROWTH_BYTES = 65_536

const GROWS = "the tables grow, and after 2 billion transactions PostgreSQL refuses writes"
const LOSES = "a crash of PostgreSQL or of its machine can lose acknowledged messages"
/** The settings of PostgreSQL that must be on, and what happens otherwise. */
const MUST_BE_ON: Readonly<Record<string, string>> = {
  autovacuum: GROWS,
  fsync: LOSES,
  full_page_writes: LOSES,
  synchronous_commit: LOSES,
  track_counts: GROWS
}

/** Warns of settings with which PostgreSQL does not vacuum its tables, or loses commits in a crash. */
const settingsAreOn = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const settings = yield* sql<{ readonly name: string }>`
    SELECT name FROM pg_settings WHERE name = ANY(${Object.keys(MUST_BE_ON)}::text[]) AND setting = 'off' ORDER BY name`
  const tables = yield* sql<{ readonly name: string }>`
    SELECT relname AS name FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND lower(reloptions::text) ~ 'autovacuum_enabled=(f|off|n|0)' ORDER BY relname`
  for (const { name } of settings) {
    yield* Effect.logWarning(
      `PostgreSQL's setting ${name} is off: ${
        MUST_BE_ON[name]
      }. Set ${name} = on where it is set (postgresql.conf, ALTER DATABASE or ALTER ROLE) and reload PostgreSQL.`
    )
  }
  if (tables.length > 0) {
    yield* Effect.logWarning(
      `PostgreSQL does not vacuum ${
        tables.map(({ name }) => name).join(", ")
      }: run ALTER TABLE … RESET (autovacuum_enabled) for each of these tables.`
    )
  }
})

/**
 * Warns if settings of PostgreSQL are off that must be on. In PGlite, which has no autovacuum, analyses tables that have
 * grown, so that plans that were made while the tables were empty are replaced. Because the sample is small, this takes
 * about ten milliseconds per table. (`Vacuum.ts` vacuums the tables.)
 */
export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const { driver } = yield* Database
  if (driver !== "pglite") return yield* settingsAreOn
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
      Effect.catchCause(
        analyse,
        (cause) => Effect.logWarning("The planner's statistics of tables could not be updated", cause)
      ),
      Schedule.spaced("30 seconds")
    )
  )
}))

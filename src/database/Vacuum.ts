import { Clock, Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { Config } from "../platform/Config.ts"
import { databaseTimes, transactionAge, vacuumSkipped } from "../platform/Metrics.ts"
import { Database } from "./Sql.ts"

/** The age in transactions from which a table is vacuumed although nothing in it has changed. */
export const FreezeAge = Context.Reference<number>("parley/database/Vacuum/FreezeAge", { defaultValue: () => 10_000_000 })
/** At so many times that age, a billion, a table is vacuumed however large it is: PostgreSQL takes no writes at about twice a billion. */
const OVERDUE = 100
/** The share of a second in which statements run, up to which little is under way. */
const QUIET = 0.1
/** For how long a vacuum waits until little is under way. After that it runs, and the next one waits again. */
const PATIENCE_MS = 600_000
/** `VACUUM FULL` takes up to four times as long for each byte as `VACUUM`. */
const FULL_COSTS = 4

interface Table {
  readonly name: string
  /** How many bytes a vacuum of it reads at most. */
  readonly bytes: number
  readonly overdue: boolean
}

/**
 * The tables that are due, by autovacuum's rules: dead rows, new rows or age. PGlite forgets its statistics at each start, so every
 * table of more than a few pages is due once after it. Pages that are all-visible are not read unless rows are dead.
 */
const DUE = `
SELECT c.oid::regclass::text AS name, GREATEST(age(c.relfrozenxid), age(t.relfrozenxid)) > $2::bigint AS overdue,
  CASE WHEN pg_stat_get_dead_tuples(c.oid) > 0 THEN pg_total_relation_size(c.oid)
    ELSE GREATEST(pg_relation_size(c.oid) - c.relallvisible::bigint * current_setting('block_size')::bigint, 0) END AS bytes
FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't' AND (
  GREATEST(age(c.relfrozenxid), age(t.relfrozenxid)) > $1::bigint
  OR pg_stat_get_dead_tuples(c.oid) > 50 + LEAST(0.2 * pg_stat_get_live_tuples(c.oid), 100000)
  OR pg_stat_get_ins_since_vacuum(c.oid) > 1000 + LEAST(0.2 * pg_stat_get_live_tuples(c.oid), 100000)
  OR (c.relnamespace = 'public'::regnamespace AND pg_stat_get_last_vacuum_time(c.oid) IS NULL AND pg_relation_size(c.oid) > 65536)
)
ORDER BY overdue DESC, bytes`

const AGE = "SELECT max(age(datfrozenxid))::bigint AS age FROM pg_database"

/**
 * Vacuums PGlite, which has no autovacuum: space of deleted rows is used again, and old transaction ids are frozen. PGlite runs a
 * statement on the event loop's thread, so everything else waits while a table is vacuumed. Therefore a statement vacuums one table, when
 * little is under way, and larger tables than `VACUUM_TABLE_MB` are left out. PostgreSQL has autovacuum; of it only the age is read.
 */
export class Vacuum extends Context.Service<Vacuum, {
  /** Vacuums the next table that is due. */
  readonly step: Effect.Effect<{ readonly rows: number; readonly more: boolean }, SqlError.SqlError>
  /** Waits a second; true: little was under way in it, or nothing was allowed for ten minutes. */
  readonly turn: Effect.Effect<boolean>
  /**
   * Writes a table anew with `VACUUM FULL`, so that its old files with all their bytes are removed. False: it is too large, and was
   * left as it is.
   */
  readonly rewrite: (table: string) => Effect.Effect<boolean, SqlError.SqlError>
}>()("parley/database/Vacuum") {
  static readonly layer = Layer.effect(
    Vacuum,
    Effect.gen(function*() {
      const database = yield* Database
      const sql = yield* SqlClient.SqlClient
      const mb = (yield* Config).VACUUM_TABLE_MB
      const freezeAge = yield* FreezeAge
      const clock = yield* Clock.Clock
      const due = database.prepared<Table>("vacuum_due", DUE)
      const readAge = database.prepared<{ readonly age: number }>("transaction_age", AGE)
      let measured: { readonly age: number; readonly skipped: number | undefined; readonly at: number } | undefined
      const recent = () => measured !== undefined && clock.currentTimeMillisUnsafe() - measured.at < 180_000 ? measured : undefined
      yield* transactionAge.readsIn(() => recent()?.age)
      yield* vacuumSkipped.readsIn(() => recent()?.skipped)
      const told = new Set<string>()
      let waitsSince: number | undefined

      const turn = Effect.gen(function*() {
        const before = databaseTimes.totals.sum
        waitsSince ??= clock.currentTimeMillisUnsafe()
        yield* Effect.sleep("1 second")
        const isQuiet = databaseTimes.totals.sum - before <= QUIET
        const now = clock.currentTimeMillisUnsafe()
        if (!isQuiet && now - waitsSince < PATIENCE_MS) return false
        waitsSince = isQuiet ? undefined : now
        return true
      })

      const tables = Effect.gen(function*() {
        if (database.driver !== "pglite") return undefined
        const found = yield* due([freezeAge, OVERDUE * freezeAge])
        const fits = found.filter(({ bytes, overdue }) => overdue || bytes <= mb * 1_000_000)
        const large = found.filter((table) => !fits.includes(table))
        for (const { bytes, name } of large) {
          if (told.has(name)) continue
          told.add(name)
          yield* Effect.logWarning(
            `The table ${name} is not vacuumed while the server runs: ${Math.ceil(bytes / 1e6)} MB would be read, and VACUUM_TABLE_MB is ${mb}. ` +
              "Its space is not used again. Stop the server and run npm run admin -- compact, or raise VACUUM_TABLE_MB."
          )
        }
        return { fits, large }
      })

      return Vacuum.of({
        turn,
        step: Effect.gen(function*() {
          const found = yield* tables
          const [row] = yield* readAge([])
          if (row !== undefined) measured = { age: row.age, skipped: found?.large.length, at: clock.currentTimeMillisUnsafe() }
          const next = found?.fits[0]
          if (next === undefined || !(yield* turn)) return { rows: 0, more: false }
          if (next.overdue) yield* Effect.logWarning(`The table ${next.name} has very old transaction ids and is vacuumed now, whatever its size`)
          yield* sql`VACUUM (FREEZE) ${sql.literal(next.name)}`
          return { rows: 1, more: true }
        }),
        rewrite: Effect.fnUntraced(function*(table) {
          const [row] = yield* sql<{ readonly bytes: number }>`SELECT pg_total_relation_size(${table}::regclass) AS bytes`
          if (row === undefined || row.bytes > mb * 1_000_000 / FULL_COSTS) return false
          yield* sql`VACUUM (FULL, FREEZE, ANALYZE) ${sql.literal(table)}`
          return true
        })
      })
    })
  )
}

/** What `compact` says while it works. */
export interface Compacted {
  readonly table: string
  readonly before: number
  readonly after: number
}

/**
 * Writes every table and index of a stopped server's PGlite anew, and removes the write-ahead log. Each table is one transaction of
 * PostgreSQL: the new files are written beside the old ones, and the commit exchanges them. So a process that is killed at any moment
 * leaves a database that starts; the next opening removes files that were not finished.
 */
export const compact = Effect.fnUntraced(function*<E, R>(say: (done: Compacted) => Effect.Effect<void, E, R>) {
  const sql = yield* SqlClient.SqlClient
  const { backup } = yield* Database
  const size = (name: string) =>
    Effect.map(sql<{ readonly bytes: number }>`SELECT pg_total_relation_size(${name}::regclass) AS bytes`, ([row]) => row?.bytes ?? 0)
  // The statistics come last: until every table is analysed they may hold values of rows that were deleted.
  const tables = yield* sql<{ readonly name: string }>`
    SELECT oid::regclass::text AS name FROM pg_class WHERE relkind IN ('r', 'm') AND relpersistence <> 't'
    ORDER BY relname LIKE 'pg_statistic%', pg_total_relation_size(oid)`
  for (const { name } of tables) {
    const before = yield* size(name)
    yield* sql`VACUUM (FULL, FREEZE, ANALYZE) ${sql.literal(name)}`
    yield* say({ table: name, before, after: yield* size(name) })
  }
  if (backup !== undefined) yield* backup.clearLog
})

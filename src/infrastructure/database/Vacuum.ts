import { Config } from "#infrastructure/platform/Config"
import { FreeDisk } from "#infrastructure/platform/disk/DiskSpace"
import {
  connectionsAllowed,
  connectionsUsed,
  databaseTimes,
  transactionAge,
  vacuumSkipped
} from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Clock, Context, Data, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { Database } from "./Sql.ts"

/** The age in transactions from which a table is vacuumed even if nothing in it has changed. */
export const FreezeAge = Context.Reference<number>("parley/database/Vacuum/FreezeAge", {
  defaultValue: () => 10_000_000
})
/**
 * The multiple of `FreezeAge` from which a table is vacuumed whatever its size is. By default this is an age of a
 * billion transactions. At two billion, PostgreSQL refuses writes.
 */
const OVERDUE_FACTOR = 100
/** A second counts as quiet if statements run for at most this share of it. */
const MAX_LOAD_SHARE = 0.1
/**
 * How long a vacuum waits for a quiet second, in milliseconds. After this time the vacuum runs anyway, and the next
 * vacuum waits again.
 */
const MAX_TURN_WAIT_MS = 600_000
/** `VACUUM FULL` takes at most this many times as long as `VACUUM` for each byte. */
const FULL_COST_FACTOR = 4
/**
 * The free space that `VACUUM FULL` needs, as a multiple of the table's bytes. It writes a new table and its log, and
 * sorts the indexes.
 */
const FULL_ROOM_FACTOR = 3
/**
 * How many free bytes a vacuum leaves for the write-ahead log of other statements. This is room for four files of the
 * log. PGlite crashes if a file of the log does not fit on the disk.
 */
const RESERVE_BYTES = 64_000_000

/** The disk has too little free space for a piece of work, which was not started. */
export class DiskSpaceShort extends Data.TaggedError("DiskSpaceShort")<{
  /** For example "Vacuuming the table agents". */
  readonly work: string
  readonly free: number
  readonly needed: number
}> {
  override get message(): string {
    return `${this.work} needs up to ${Math.ceil(this.needed / 1e6)} MB of free disk, and ${
      Math.floor(this.free / 1e6)
    } MB are free.`
  }
}

/** Fails if a piece of work that writes `bytes` would leave less than the reserve. */
const roomFor = Effect.fnUntraced(function*(work: string, bytes: number) {
  const { backup } = yield* Database
  const free = (yield* FreeDisk)(backup?.folder)
  const needed = bytes + RESERVE_BYTES
  if (free < needed) return yield* new DiskSpaceShort({ work, free, needed })
})

const CLEARING = "Clearing the write-ahead log"
const rewriting = (table: string) => `Rewriting the table ${table}`

/**
 * Clears the write-ahead log. This may write as many bytes as the files of the log have now. Returns `false` while a
 * backup needs the log.
 */
const clearLog = Effect.gen(function*() {
  const { backup } = yield* Database
  if (backup === undefined) return true
  const sql = yield* SqlClient.SqlClient
  const [row] = yield* sql<
    { readonly bytes: number }
  >`SELECT COALESCE(sum(size), 0)::bigint AS bytes FROM pg_ls_waldir()`
  yield* roomFor(CLEARING, row?.bytes ?? 0)
  return yield* backup.clearLog
})

/**
 * When a job began to wait for a quiet second (`Vacuum.turn`), in monotonic milliseconds; `undefined` while the job
 * does not wait. Each job has a `TurnWait` of its own.
 */
export interface TurnWait {
  waitsSince: number | undefined
}

interface Table {
  readonly name: string
  /** How many bytes a vacuum of the table reads at most. */
  readonly bytes: number
  readonly overdue: boolean
}

/**
 * Selects the tables that are due according to autovacuum's rules: dead rows, new rows or age. PGlite loses its
 * statistics at each restart, so every table of more than a few pages is due once after a start. A vacuum does not read
 * all-visible pages unless the table has dead rows.
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

/**
 * The age of the oldest transaction in all databases of the server, and how many connections are open and allowed.
 * PostgreSQL does not show ordinary roles the type of other roles' sessions.
 */
const USAGE = `SELECT (SELECT max(age(datfrozenxid))::bigint FROM pg_database) AS age,
  (SELECT count(*)::int FROM pg_stat_activity
    WHERE backend_type = 'client backend' OR (backend_type IS NULL AND usesysid IS NOT NULL)) AS used,
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true), '0')::int AS allowed`

interface Usage {
  readonly age: number
  readonly used: number
  readonly allowed: number
}

/**
 * Vacuums PGlite, which has no autovacuum. A vacuum frees the space of deleted rows for new ones, and freezes old
 * transaction ids. PGlite runs a statement on the event loop's thread, so everything else waits while a table is
 * vacuumed. Therefore each statement vacuums one table and runs at a time when few other statements run. Tables larger
 * than `VACUUM_TABLE_MB` are skipped. On PostgreSQL this service vacuums nothing and only reads the transaction age and the
 * number of connections.
 */
export class Vacuum extends Context.Service<Vacuum, {
  /** Vacuums the next table that is due. */
  readonly step: Effect.Effect<{ readonly rows: number; readonly more: boolean }, SqlError.SqlError>
  /**
   * Waits a second. Returns `true` if the second was quiet, or if the job has waited for ten minutes. A job that has no
   * more work must set `waitsSince` to undefined.
   */
  readonly turn: (wait: TurnWait) => Effect.Effect<boolean>
  /**
   * Rewrites a table with `VACUUM FULL`, which deletes the old files of the table. Does nothing if the table is too
   * large, or if the disk has too little free space now.
   */
  readonly rewrite: (table: string) => Effect.Effect<"done" | "too large" | "no room", SqlError.SqlError>
  /**
   * Removes all records from the write-ahead log. Returns `false` while a backup needs the log or the disk has too
   * little free space.
   */
  readonly clearLog: Effect.Effect<boolean, SqlError.SqlError>
}>()("parley/database/Vacuum") {
  static readonly layer = Layer.effect(
    Vacuum,
    Effect.gen(function*() {
      const database = yield* Database
      const sql = yield* SqlClient.SqlClient
      const mb = (yield* Config).VACUUM_TABLE_MB
      const freezeAge = yield* FreezeAge
      const freeDisk = yield* FreeDisk
      const clock = yield* Clock.Clock
      const due = database.raw<Table>("vacuum_due", DUE)
      const readUsage = database.raw<Usage>("database_usage", USAGE)
      let measured: Usage & { readonly skipped: number | undefined; readonly at: number } | undefined
      const recent = () =>
        measured !== undefined && clock.currentTimeMillisUnsafe() - measured.at < 180_000 ? measured : undefined
      yield* transactionAge.readsIn(() => recent()?.age)
      yield* vacuumSkipped.readsIn(() => recent()?.skipped)
      if (database.driver === "pg") {
        yield* connectionsUsed.readsIn(() => recent()?.used)
        yield* connectionsAllowed.readsIn(() => recent()?.allowed)
      }
      const told = new Set<string>()
      const monotonic = monotonicMillis(clock)
      const wait: TurnWait = { waitsSince: undefined }

      const turn = Effect.fnUntraced(function*(wait: TurnWait) {
        const before = databaseTimes.totals.sum
        const since = wait.waitsSince ??= monotonic()
        yield* Effect.sleep("1 second")
        const isQuiet = databaseTimes.totals.sum - before <= MAX_LOAD_SHARE
        const now = monotonic()
        if (!isQuiet && now - since < MAX_TURN_WAIT_MS) return false
        wait.waitsSince = isQuiet ? undefined : now
        return true
      })

      /**
       * The pieces of work for which the disk had too little free space at the last attempt. For each of them a warning
       * has been logged.
       */
      const short = new Set<string>()
      const noRoom = ({ message, work }: DiskSpaceShort) => {
        if (short.has(work)) return Effect.void
        short.add(work)
        return Effect.logWarning(`${message} The server leaves this out until there is enough free space.`)
      }
      const hasRoom = (work: string, bytes: number) =>
        roomFor(work, bytes).pipe(
          Effect.map(() => {
            short.delete(work)
            return true
          }),
          Effect.catchTag("DiskSpaceShort", (error) => Effect.as(noRoom(error), false)),
          Effect.provideService(Database, database),
          Effect.provideService(FreeDisk, freeDisk)
        )
      /**
       * The next table to vacuum. Overdue tables come before the other tables that are due, and smaller tables before
       * larger ones.
       */
      const nextOf = Effect.fnUntraced(function*(due: ReadonlyArray<Table>) {
        for (const table of due) {
          if (yield* hasRoom(`Vacuuming the table ${table.name}`, table.bytes)) return table
          if (!table.overdue) return undefined
        }
        return undefined
      })

      const tables = Effect.gen(function*() {
        if (database.driver !== "pglite") return undefined
        const found = yield* due([freezeAge, OVERDUE_FACTOR * freezeAge])
        const fits = found.filter(({ bytes, overdue }) => overdue || bytes <= mb * 1_000_000)
        const large = found.filter((table) => !fits.includes(table))
        for (const { bytes, name } of large) {
          if (told.has(name)) continue
          told.add(name)
          yield* Effect.logWarning(
            `The table ${name} is not vacuumed while the server runs: a vacuum would read ${
              Math.ceil(bytes / 1e6)
            } MB, and VACUUM_TABLE_MB is ${mb}. ` +
              "The space of its deleted rows is not reused. Stop the server and run npm run admin -- compact, or raise VACUUM_TABLE_MB."
          )
        }
        return { fits, large }
      })

      return Vacuum.of({
        turn,
        step: Effect.gen(function*() {
          const found = yield* tables
          const [row] = yield* readUsage([])
          if (row !== undefined)
            measured = { ...row, skipped: found?.large.length, at: clock.currentTimeMillisUnsafe() }
          const next = yield* nextOf(found?.fits ?? [])
          if (next === undefined) {
            wait.waitsSince = undefined
            return { rows: 0, more: false }
          }
          if (!(yield* turn(wait))) return { rows: 0, more: false }
          if (next.overdue)
            yield* Effect.logWarning(
              `The table ${next.name} has very old transaction ids and is vacuumed now, whatever its size`
            )
          yield* sql`VACUUM (FREEZE) ${sql.literal(next.name)}`
          return { rows: 1, more: true }
        }),
        rewrite: Effect.fnUntraced(function*(table) {
          const [row] = yield* sql<
            { readonly bytes: number }
          >`SELECT pg_total_relation_size(${table}::regclass) AS bytes`
          if (row === undefined || row.bytes > mb * 1_000_000 / FULL_COST_FACTOR) return "too large"
          if (!(yield* hasRoom(rewriting(table), FULL_ROOM_FACTOR * row.bytes))) return "no room"
          yield* sql`VACUUM (FULL, FREEZE, ANALYZE) ${sql.literal(table)}`
          return "done"
        }),
        clearLog: clearLog.pipe(
          Effect.tap(Effect.sync(() => short.delete(CLEARING))),
          Effect.catchTag("DiskSpaceShort", (error) => Effect.as(noRoom(error), false)),
          Effect.provideService(Database, database),
          Effect.provideService(FreeDisk, freeDisk),
          Effect.provideService(SqlClient.SqlClient, sql)
        )
      })
    })
  )
}

/** What `compact` reports after each table. The sizes are in bytes. */
export interface Compacted {
  readonly table: string
  readonly before: number
  readonly after: number
}

/**
 * Rewrites every table and index in the PGlite database of a stopped server, and clears the write-ahead log. Each table
 * is rewritten in one transaction: new files are written beside the old files, and the commit replaces the old files.
 * If the process is killed at any moment, the database can still be opened, and the next opening deletes unfinished
 * files. The tables are rewritten from the smallest to the largest. Fails at the first table for which the disk has too
 * little free space.
 */
export const compact = Effect.fnUntraced(function*<E, R>(say: (done: Compacted) => Effect.Effect<void, E, R>) {
  const sql = yield* SqlClient.SqlClient
  const size = (name: string) =>
    Effect.map(
      sql<{ readonly bytes: number }>`SELECT pg_total_relation_size(${name}::regclass) AS bytes`,
      ([row]) => row?.bytes ?? 0
    )
  // The tables of statistics come last, because they may contain values of deleted rows until every other table is
  // analysed.
  const tables = yield* sql<{ readonly name: string }>`
    SELECT oid::regclass::text AS name FROM pg_class WHERE relkind IN ('r', 'm') AND relpersistence <> 't'
    ORDER BY relname LIKE 'pg_statistic%', pg_total_relation_size(oid)`
  for (const { name } of tables) {
    const before = yield* size(name)
    yield* roomFor(rewriting(name), FULL_ROOM_FACTOR * before)
    yield* sql`VACUUM (FULL, FREEZE, ANALYZE) ${sql.literal(name)}`
    yield* say({ table: name, before, after: yield* size(name) })
  }
  yield* clearLog
})

import * as Migrations from "#infrastructure/database/Migrations"
import { makeDatabase, PgliteDatabase } from "#infrastructure/database/Pglite"
import type { PgliteSession } from "#infrastructure/database/PgliteSession"
import { type Database } from "#infrastructure/database/Sql"
import { layerPglite, layerPgliteOf } from "#infrastructure/database/SqlPglite"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { describe, inject } from "@effect/vitest"
import { Effect, Layer, Redacted, References } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { execFileSync } from "node:child_process"
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { isInstalled, type PostgresVersion } from "../../runners/local/Postgres.ts"
import { eventually } from "./Eventually.ts"

export type TestDatabase = Layer.Layer<SqlClient.SqlClient | Database, SqlError.SqlError>

/** The URL of a new database that only the caller uses, with the schema applied unless `kind` is `empty`. */
export const freshDatabase = async (
  version: PostgresVersion = 18,
  kind: "migrated" | "empty" = "migrated"
): Promise<string> => {
  const response = await fetch(`${inject("databases")}/${version}/${kind}`)
  const text = await response.text()
  if (!response.ok) throw new Error(text)
  return text
}

/** The database's own settings with these names, as `name=value` in the order of their names. */
export const databaseSettings = (names: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const rows = yield* sql<{ readonly line: string }>`
      SELECT name || '=' || setting AS line FROM pg_settings WHERE ${sql.in("name", names)} ORDER BY name COLLATE "C"`
    return rows.map(({ line }) => line)
  })

const modules = fileURLToPath(new URL("../../node_modules", import.meta.url))

/** An empty database, made once per version of PGlite: making one takes 3 s, starting from this one 0.25 s. */
const emptyPglite = async (): Promise<Blob> => {
  const about: unknown = JSON.parse(await readFile(`${modules}/@electric-sql/pglite/package.json`, "utf8"))
  const version = (about as { readonly version: string }).version
  const file = path.join(modules, ".cache", "parley", `pglite-${version}.tar`)
  const lock = `${file}.lock`
  await mkdir(path.dirname(file), { recursive: true })
  const read = () => readFile(file).then((bytes) => new Blob([bytes]), () => undefined)
  const kept = await read()
  if (kept !== undefined) return kept
  if (!await writeFile(lock, "", { flag: "wx" }).then(() => true, () => false)) {
    // Another worker makes it; if that one has died, this one does.
    const made = await eventually("the empty database of another worker", read).catch(() => undefined)
    if (made !== undefined) return made
  }
  try {
    const database = await PgliteDatabase.open({ dataDir: undefined })
    database.session.query("CHECKPOINT", [])
    const dump = await database.session.snapshot()
    await database.close()
    await writeFile(`${file}.${process.pid}`, Buffer.from(await dump.arrayBuffer()))
    await rename(`${file}.${process.pid}`, file)
    return dump
  } finally {
    await rm(lock, { force: true })
  }
}

/** Makes a database with no schema in this DATA_DIR: in a tenth of the time that PostgreSQL's initdb takes. */
export const makeEmptyDataDir = async (dataDir: string): Promise<void> => {
  const packed = await emptyPglite()
  await makeDatabase(dataDir, async (folder) => {
    const file = `${folder}.tar`
    await writeFile(file, Buffer.from(await packed.arrayBuffer()))
    execFileSync("tar", ["-xf", file, "-C", folder], { stdio: ["ignore", "ignore", "inherit"] })
    await rm(file)
  })
}

/** PGlite in memory with no schema. */
export const layerPgliteEmpty: TestDatabase = Layer.unwrap(
  Effect.map(Effect.promise(emptyPglite), (snapshot) => layerPglite({ dataDir: undefined, snapshot }))
)

/** A hash of everything beside rows that a test may change: if it has changed, the database is not used again. */
const SHAPE = `
  SELECT md5(string_agg(entry, ' ' ORDER BY entry)) AS shape FROM (
    SELECT concat_ws(',', 'class', oid, relnamespace, relname, relkind, reloptions, relrowsecurity) AS entry FROM pg_class
      WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(',', 'column', attrelid, attnum, attname, atttypid, attnotnull, attisdropped) FROM pg_attribute
      WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    UNION ALL SELECT concat_ws(',', 'default', adrelid, adnum, pg_get_expr(adbin, adrelid)) FROM pg_attrdef
    UNION ALL SELECT concat_ws(',', 'index', indexrelid, indisvalid, indisunique) FROM pg_index
      WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    UNION ALL SELECT concat_ws(',', 'trigger', oid, tgrelid, tgname, tgenabled) FROM pg_trigger
    UNION ALL SELECT concat_ws(',', 'constraint', oid, conrelid, conname, convalidated, pg_get_constraintdef(oid))
      FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(',', 'function', oid, proname, md5(prosrc)) FROM pg_proc
      WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(',', 'schema', oid, nspname) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'
    UNION ALL SELECT concat_ws(',', 'extension', oid, extname) FROM pg_extension
    UNION ALL SELECT concat_ws(',', 'migration', id, name, sha256, applied_at) FROM migrations
    UNION ALL SELECT concat_ws(',', 'setting', setdatabase, setrole, setconfig) FROM pg_db_role_setting
  ) entries`

/** A migrated database, its shape, and the statement that empties it. */
interface Kept {
  readonly session: PgliteSession
  readonly shape: string
  readonly clear: string
}

const valuesOf = (session: PgliteSession, text: string): ReadonlyArray<unknown> =>
  session.query(text, []).rows.map(([value]) => value)

/** Migrated sessions that no test uses now. A worker keeps them between test files: making one takes half a second. */
const idle: Array<Kept> = []
const lent = new Map<PgliteDatabase, Kept>()

const makeMigrated = async (): Promise<Kept> => {
  const database = await PgliteDatabase.open({ dataDir: undefined, snapshot: await emptyPglite() })
  const session = database.session
  const layer = layerPgliteOf({ open: () => Promise.resolve(database), close: () => Promise.resolve() })
  await Effect.runPromise(
    Migrations.run().pipe(
      Effect.provideService(References.MinimumLogLevel, "Warn"),
      Effect.provide(layer)
    )
  )
  const tables = valuesOf(session, "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'").map(
    String
  )
  // Truncating would also remove rows that a migration inserts, so there must be none.
  const full = tables.filter((table) => valuesOf(session, `SELECT 1 FROM ${table} LIMIT 1`).length > 0)
  if (full.join() !== "migrations") throw new Error(`the schema comes with rows in ${full.join()}`)
  const emptied = tables.filter((table) => table !== "migrations")
  return {
    session,
    shape: String(valuesOf(session, SHAPE)[0]),
    clear: `TRUNCATE ${emptied.join(", ")} RESTART IDENTITY`
  }
}

const borrow = async (): Promise<PgliteDatabase> => {
  const kept = idle.pop() ?? await makeMigrated()
  const database = PgliteDatabase.lend(kept.session)
  lent.set(database, kept)
  return database
}

const giveBack = async (database: PgliteDatabase): Promise<void> => {
  const kept = lent.get(database)
  lent.delete(database)
  // A fiber that outlives its test and still uses the database finds it closed.
  const session = database.takeBack()
  if (kept === undefined || session.hasCrashed) return
  if (idle.length < 2 && isCleared(kept)) idle.push(kept)
  else await session.close()
}

const isCleared = ({ clear, session, shape }: Kept): boolean => {
  try {
    if (session.inTransaction) session.query("ROLLBACK", [])
    session.query("SELECT pg_advisory_unlock_all()", [])
    session.query("RESET ALL", [])
    session.query("DISCARD TEMP", [])
    session.deallocate()
    if (String(valuesOf(session, SHAPE)[0]) !== shape) return false
    session.query(clear, [])
    return true
  } catch {
    return false
  }
}

/**
 * PGlite in memory with the schema applied and no rows, for the tests of a module. The session may have been used by an
 * earlier test, and was emptied after it; one whose test changed more than rows is not used again.
 */
export const layerPgliteTest: TestDatabase = layerPgliteOf({ open: borrow, close: giveBack })

/** A new database on the PostgreSQL server that all test files share. */
export const layerPostgresTest = (
  version: PostgresVersion = 18,
  options: { readonly poolSize?: number; readonly kind?: "migrated" | "empty" } = {}
): TestDatabase =>
  Layer.unwrap(Effect.map(
    Effect.promise(() => freshDatabase(version, options.kind)),
    (url) => layerPg({ url: Redacted.make(url), poolSize: options.poolSize ?? 10 })
  ))

/** Whether all suites run on all databases, which takes twice as long. */
const EVERY = process.env["EVERY_DATABASE"] !== undefined

/**
 * The releases of PostgreSQL that a suite runs on; the oldest supported one only if `oldest` or EVERY_DATABASE is set.
 */
export const postgresVersions = (oldest: boolean): ReadonlyArray<PostgresVersion> => oldest || EVERY ? [15, 18] : [18]

/**
 * Runs a suite on PostgreSQL 18, and with EVERY_DATABASE on PostgreSQL 15 and on PGlite, which is PostgreSQL 18 in this
 * process. Each build of the layer gives a database of its own.
 */
export const eachDatabase = (
  suite: (database: TestDatabase, about: {
    /** The version of PostgreSQL; undefined for PGlite. */
    readonly version: PostgresVersion | undefined
    /** The same kind of database without the schema. */
    readonly empty: TestDatabase
  }) => void,
  options: {
    /**
     * Whether it always runs on PostgreSQL 15 too: for statements that an older planner may plan or lock differently.
     */
    readonly oldest?: boolean
    /** Whether it always runs on PGlite too: for behaviour that depends on PGlite's single session. */
    readonly pglite?: boolean
  } = {}
): void => {
  if (options.pglite === true || EVERY)
    describe("PGlite", () => suite(layerPgliteTest, { version: undefined, empty: layerPgliteEmpty }))
  for (const version of postgresVersions(options.oldest ?? false)) {
    const missing = isInstalled(version) ? "" : ` (not found: apt-get install postgresql-${version})`
    describe.skipIf(!isInstalled(version))(
      `PostgreSQL ${version}${missing}`,
      () => suite(layerPostgresTest(version), { version, empty: layerPostgresTest(version, { kind: "empty" }) })
    )
  }
}

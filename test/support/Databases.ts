import { describe, inject } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { mkdir, readFile, rename, writeFile } from "node:fs/promises"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { isInstalled, type PostgresVersion } from "../../runners/local/Postgres.ts"
import * as Migrations from "../../src/platform/Migrations.ts"
import { PgliteDatabase } from "../../src/platform/Pglite.ts"
import { type Database, layerPg, layerPglite } from "../../src/platform/Sql.ts"

export type TestDatabase = Layer.Layer<SqlClient.SqlClient | Database, SqlError.SqlError>

/** The URL of a database that only the caller uses, with the schema applied unless told otherwise. */
export const freshDatabase = async (version: PostgresVersion = 18, kind: "migrated" | "empty" = "migrated"): Promise<string> => {
  const response = await fetch(`${inject("databases")}/${version}/${kind}`)
  const text = await response.text()
  if (!response.ok) throw new Error(text)
  return text
}

const modules = fileURLToPath(new URL("../../node_modules", import.meta.url))

/** An empty database made once per version of PGlite: making one takes 3 s, beginning from this a quarter of one. */
const emptyPglite = async (): Promise<Blob> => {
  const about: unknown = JSON.parse(await readFile(`${modules}/@electric-sql/pglite/package.json`, "utf8"))
  const version = (about as { readonly version: string }).version
  const file = path.join(modules, ".cache", "parley", `pglite-${version}.tar`)
  const kept = await readFile(file).catch(() => undefined)
  if (kept !== undefined) return new Blob([kept])
  const database = await PgliteDatabase.open({ dataDir: undefined })
  database.session.query("CHECKPOINT", [])
  const dump = await database.session.snapshot()
  await database.close()
  await mkdir(path.dirname(file), { recursive: true })
  await writeFile(`${file}.${process.pid}`, Buffer.from(await dump.arrayBuffer()))
  await rename(`${file}.${process.pid}`, file)
  return dump
}

/** PGlite in memory with no schema. */
export const layerPgliteEmpty: TestDatabase = Layer.unwrap(
  Effect.map(Effect.promise(emptyPglite), (snapshot) => layerPglite({ dataDir: undefined, snapshot }))
)

/** PGlite in memory with the schema applied: what a room's tests run on. */
export const layerPgliteTest: TestDatabase = Layer.provideMerge(Layer.orDie(Migrations.layer), layerPgliteEmpty)

/** A database of its own on the PostgreSQL server that all test files share. */
export const layerPostgresTest = (
  version: PostgresVersion = 18,
  options: { readonly poolSize?: number; readonly kind?: "migrated" | "empty" } = {}
): TestDatabase =>
  Layer.unwrap(Effect.map(
    Effect.promise(() => freshDatabase(version, options.kind)),
    (url) => layerPg({ url: Redacted.make(url), poolSize: options.poolSize ?? 10 })
  ))

/** All suites on all databases, which takes half as long again. */
const EVERY = process.env["EVERY_DATABASE"] !== undefined

/** The releases of PostgreSQL that a suite runs on: the oldest that is served too if asked for, or if everything is. */
export const postgresVersions = (oldest: boolean): ReadonlyArray<PostgresVersion> => oldest || EVERY ? [15, 18] : [18]

/**
 * The same suite on PGlite, which is PostgreSQL 18 in the process, and on PostgreSQL;
 * each building of the layer gives a database that nobody else uses.
 */
export const eachDatabase = (
  suite: (database: TestDatabase, about: {
    /** Undefined: PGlite. */
    readonly version: PostgresVersion | undefined
    /** The same without the schema. */
    readonly empty: TestDatabase
  }) => void,
  options: {
    /** On PostgreSQL 15 by default too: for the statements that an older planner or lock may treat otherwise. */
    readonly oldest?: boolean
  } = {}
): void => {
  describe("PGlite", () => suite(layerPgliteTest, { version: undefined, empty: layerPgliteEmpty }))
  for (const version of postgresVersions(options.oldest ?? false)) {
    const missing = isInstalled(version) ? "" : ` (not found: apt-get install postgresql-${version})`
    describe.skipIf(!isInstalled(version))(`PostgreSQL ${version}${missing}`, () =>
      suite(layerPostgresTest(version), { version, empty: layerPostgresTest(version, { kind: "empty" }) }))
  }
}

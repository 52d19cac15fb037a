import { VERSION } from "#infrastructure/platform/Version"
import { Clock, Data, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { createHash } from "node:crypto"
import { readdir, readFile } from "node:fs/promises"
import { AnswerTimeout } from "./Sql.ts"
import type { OwnedTable } from "./Tables.ts"

/** The table of the migrations that were applied. */
export const migrationsTables: ReadonlyArray<OwnedTable> = [
  { table: "migrations", retention: { kept: "each migration is applied once" }, notExported: "the schema's history" }
]

/** The database does not match this version's schema files. Nothing was changed. */
export class SchemaMismatch extends Data.TaggedError("SchemaMismatch")<{
  readonly file: string
  readonly problem: string
  readonly remedy: string
}> {
  override get message(): string {
    return `${this.file} ${this.problem}: ${this.remedy}`
  }
}

export interface Migration {
  readonly id: number
  readonly name: string
  readonly text: string
  readonly sha256: string
}

interface Applied {
  readonly id: number
  readonly name: string
  readonly sha256: string
}

const FILE = /^(\d{4})_[a-z0-9_]+\.sql$/

/** Reads the schema files of a folder in order. Their numbers must start at 0001 and have no gaps. */
export const read = Effect.fnUntraced(function*(folder: URL) {
  const names = (yield* Effect.promise(() => readdir(folder))).filter((name) => name.endsWith(".sql")).sort()
  const migrations: Array<Migration> = []
  for (const [index, name] of names.entries()) {
    const id = Number(FILE.exec(name)?.[1])
    if (id !== index + 1) {
      return yield* new SchemaMismatch({
        file: name,
        problem: `is not number ${String(index + 1).padStart(4, "0")}`,
        remedy: "schema files are numbered NNNN_verb_object.sql without a gap or a repetition"
      })
    }
    const bytes = yield* Effect.promise(() => readFile(new URL(name, folder)))
    migrations.push({
      id,
      name,
      text: bytes.toString("utf8"),
      sha256: createHash("sha256").update(bytes).digest("hex")
    })
  }
  return migrations
})

/** The schema files of this version. */
export const schema = read(new URL("../../../schema/", import.meta.url))

/** The name of the last migration of this version. */
export const latest = Effect.map(Effect.orDie(schema), (migrations) => migrations.at(-1)?.name ?? "")

const mismatch = (
  migrations: ReadonlyArray<Migration>,
  applied: ReadonlyArray<Applied>
): SchemaMismatch | undefined => {
  for (const [index, row] of applied.entries()) {
    const known = migrations[row.id - 1]
    if (known === undefined) {
      return new SchemaMismatch({
        file: row.name,
        problem: "was applied to this database and is unknown here",
        remedy:
          `a newer version of Parley migrated it; run that version or a newer one, or restore a backup of schema ${migrations.length} with this version, which is ${VERSION}`
      })
    }
    if (row.id !== index + 1) {
      return new SchemaMismatch({
        file: migrations[index]?.name ?? row.name,
        problem: `was not applied, though ${row.name} was`,
        remedy: "restore the database from a backup; its table migrations was changed by hand"
      })
    }
    if (row.name !== known.name || row.sha256 !== known.sha256) {
      return new SchemaMismatch({
        file: known.name,
        problem: row.name === known.name ? "was edited since it was applied" : `is not ${row.name}, which was applied`,
        remedy: "restore the file as it was and put the change into a new one"
      })
    }
  }
  return undefined
}

const applied = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  // `to_regclass` may read a catalog cache that is older than the migration lock.
  const tables = yield* sql`SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'migrations'`
  return tables.length > 0 ? yield* sql<Applied>`SELECT id, name, sha256 FROM migrations ORDER BY id` : []
})

const pendingOf = Effect.fnUntraced(function*(migrations: ReadonlyArray<Migration>) {
  const rows = yield* applied
  const problem = mismatch(migrations, rows)
  return problem === undefined ? migrations.slice(rows.length) : yield* problem
})

/** The key of the advisory lock under which the schema is changed. It is an arbitrary number. */
const MIGRATION_LOCK_KEY = 7_217_536_001
const LOCK_TIMEOUT = "120s"
const MIGRATION_TIMEOUT_MS = 3_600_000

/** The migration of an existing database. The number of a schema is that of its last file. */
export interface Upgrade {
  readonly from: number
  readonly to: number
  /** The name of the last file that was applied. */
  readonly schema: string
}

/** Logs that the database of a cluster will be migrated. */
export const announce = ({ from, to }: Upgrade): Effect.Effect<void> =>
  Effect.logWarning(
    `Parley ${VERSION} migrates the database from schema ${from} to ${to}; it cannot go back, except to a backup from before`
  )

/**
 * Brings the schema up to this version. Each file is applied in one transaction with its row in `migrations`, under a
 * lock. If several nodes start together, one of them migrates and the others wait. An interrupted migration leaves
 * nothing behind and is applied again. `before` runs first if there is something to migrate and the database is not new.
 * If `before` fails, the database is not changed.
 */
export const runAfter = <E>(
  before: (upgrade: Upgrade) => Effect.Effect<void, E>,
  migrations?: ReadonlyArray<Migration>
): Effect.Effect<void, SchemaMismatch | SqlError.SqlError | E, SqlClient.SqlClient> =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const files = migrations ?? (yield* schema)
    const pending = yield* pendingOf(files)
    const from = files.length - pending.length
    const last = files[from - 1]
    if (pending.length > 0 && last !== undefined) yield* before({ from, to: files.length, schema: last.name })
    if (pending.length === files.length && sql.driver === "pg") yield* Effect.logInfo("Creating the database…")
    for (const migration of pending) {
      yield* sql.withTransaction(Effect.gen(function*() {
        yield* sql`SELECT set_config('lock_timeout', ${LOCK_TIMEOUT}, true), set_config('statement_timeout', '0', true)`
        yield* sql`SELECT pg_advisory_xact_lock(${MIGRATION_LOCK_KEY})`
        const next = (yield* pendingOf(files))[0]
        if (next?.id !== migration.id) return
        if (migration.id === 1) {
          yield* sql`CREATE TABLE migrations (
            id integer PRIMARY KEY,
            name text COLLATE "C" NOT NULL,
            sha256 text COLLATE "C" NOT NULL,
            applied_at bigint NOT NULL
          )`
        } else if (pending.length !== files.length) {
          yield* Effect.logInfo(`Applying ${migration.name}…`)
        }
        yield* sql.unsafe(migration.text).unprepared
        const row = { ...migration, applied_at: yield* Clock.currentTimeMillis }
        yield* sql`INSERT INTO migrations (id, name, sha256, applied_at)
          VALUES (${row.id}, ${row.name}, ${row.sha256}, ${row.applied_at})`
      }))
    }
  }).pipe(Effect.provideService(AnswerTimeout, MIGRATION_TIMEOUT_MS), Effect.withSpan("Migrations.run"))

/** Brings the schema up to this version, and logs before if the database is not new. */
export const run = (migrations?: ReadonlyArray<Migration>) => runAfter(announce, migrations)

/** Fails unless the database has exactly this version's schema. Changes nothing. */
export const verify = (
  migrations?: ReadonlyArray<Migration>
): Effect.Effect<void, SchemaMismatch | SqlError.SqlError, SqlClient.SqlClient> =>
  Effect.gen(function*() {
    const [missing] = yield* pendingOf(migrations ?? (yield* schema))
    if (missing !== undefined) {
      return yield* new SchemaMismatch({
        file: missing.name,
        problem: "has not been applied to this database",
        remedy: "start one node of this version, or migrate, first"
      })
    }
  })

/** Migrates the database, without a backup, before the layers above it are built. */
export const layer = Layer.effectDiscard(run())

import { exportAgent } from "#domain/archives/AgentExport"
import * as BackedUpMigrations from "#domain/archives/BackedUpMigrations"
import { unpack } from "#domain/archives/Backup"
import * as DatabaseClock from "#infrastructure/database/DatabaseClock"
import * as Migrations from "#infrastructure/database/Migrations"
import { databaseIsNew } from "#infrastructure/database/Pglite"
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { compact } from "#infrastructure/database/Vacuum"
import { Config, effective, type Settings } from "#infrastructure/platform/Config"
import { DataDir, DataDirInUse } from "#infrastructure/platform/disk/DataDir"
import { closedTo, foreignTo } from "#infrastructure/platform/disk/Folder"
import { Ids } from "#infrastructure/platform/Ids"
import { layerLogger } from "#infrastructure/platform/Telemetry"
import { movedShown } from "#interfaces/admin/AdminCli"
import { AdminClient, understood } from "#interfaces/admin/AdminClient"
import { callServer, callsOf } from "#interfaces/admin/AdminSocket"
import { answers } from "#interfaces/admin/Answers"
import {
  answerOf,
  type ApiCall,
  OperatorRefused,
  OTHER_VERSION,
  path,
  post,
  requestOf
} from "#interfaces/admin/ApiCall"
import { CommandToken, EffectiveSettings, MovedCounters } from "#interfaces/console/CommandsApi"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { Console, Effect, Layer } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { existsSync, readdirSync, rmSync, statSync } from "node:fs"
import { userInfo } from "node:os"
import { join, resolve } from "node:path"
import { routes } from "../src/Admin.ts"
import * as Tables from "../src/Tables.ts"

/** The name of the operating system's user, or the user's number if it has no name, as in containers. */
const whoAmI = (): string => {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`
  }
}
const operator = whoAmI()

/** The database of the servers. PostgreSQL can be used while servers run, PGlite only while no server runs. */
const database = (config: Settings, migrations: typeof BackedUpMigrations.layer | typeof Migrations.layer) =>
  config.DATABASE_URL !== undefined
    ? Layer.provideMerge(Layer.effectDiscard(Migrations.verify()), DatabaseClock.layer).pipe(
      Layer.provideMerge(layerPg({ url: config.DATABASE_URL, poolSize: 4 }))
    )
    : Layer.provideMerge(migrations, layerPglite({ dataDir: resolve(config.DATA_DIR) })).pipe(
      Layer.provide(DataDir.layer)
    )

/** The services for commands that run in this process. They are released when the scope ends. */
const services = Effect.fnUntraced(function*(
  config: Settings,
  migrations: typeof BackedUpMigrations.layer | typeof Migrations.layer = BackedUpMigrations.layer
) {
  const closed = config.DATABASE_URL === undefined ? closedTo(config.DATA_DIR) : undefined
  if (closed !== undefined)
    return yield* new OperatorRefused({ message: `DATA_DIR ${resolve(config.DATA_DIR)} cannot be used: ${closed}` })
  if (config.DATABASE_URL === undefined && databaseIsNew({ dataDir: config.DATA_DIR })) {
    return yield* new OperatorRefused({
      message: `There is no database in ${
        resolve(config.DATA_DIR)
      }: set DATA_DIR or DATABASE_URL as for the server, or start the server once.`
    })
  }
  return yield* Layer.build(
    AuditLog.layer.pipe(
      Layer.provideMerge(database(config, migrations)),
      Layer.provideMerge(Ids.layer),
      // Commands that run here log in the same format as the servers.
      Layer.provideMerge(layerLogger),
      Layer.provideMerge(Layer.succeed(Config, config))
    )
  )
})

/** Makes a function that calls the operators' API in this process until the scope ends. */
const here = Effect.fnUntraced(function*(config: Settings, migrations?: typeof Migrations.layer) {
  const context = yield* services(config, migrations)
  const callHere = yield* Effect.provideContext(callsOf(routes), context)
  // Provide the context to the call too, so that it uses the database's clock.
  return (call: ApiCall) =>
    callHere(operator, call).pipe(
      Effect.flatMap((response) => answerOf(response, OTHER_VERSION)),
      Effect.provideContext(context)
    )
})

/** Calls the server that runs on DATA_DIR. Returns undefined if there is no such server. */
const callRunning = Effect.fnUntraced(function*(config: Settings, call: ApiCall) {
  if (config.DATABASE_URL !== undefined) return undefined
  const response = yield* callServer(config.DATA_DIR, operator, call)
  return response === undefined ? undefined : { answer: yield* answerOf(response, OTHER_VERSION) }
})

const call = Effect.fnUntraced(function*(config: Settings, given: ApiCall) {
  const called = yield* callRunning(config, given)
  return called === undefined
    ? yield* Effect.scoped(Effect.flatMap(here(config), (run) => run(given)))
    : called.answer
})

const SETTINGS: ApiCall = { method: "POST", path: "/config" }

/**
 * Makes a function for several calls. All calls go to the server that is running now or, if there is none, run in this
 * process until the scope ends.
 */
const connect = Effect.fnUntraced(function*(config: Settings) {
  if ((yield* callRunning(config, SETTINGS)) === undefined) return yield* here(config)
  return Effect.fnUntraced(function*(given: ApiCall) {
    const called = yield* callRunning(config, given)
    return called === undefined
      ? yield* new OperatorRefused({ message: "The server has stopped: give the command again." })
      : called.answer
  })
})

/**
 * Unpacks a backup into a folder below the target, advances the counters of its database there, and then moves it to
 * the target.
 */
const restore = Effect.fnUntraced(function*(config: Settings, file: string, folder: string) {
  if (config.DATABASE_URL !== undefined) {
    return yield* new OperatorRefused({
      message:
        "DATABASE_URL is set: a PostgreSQL is restored with pg_restore (docs/operations.md). Without DATABASE_URL this restores a server with a database of its own."
    })
  }
  const foreign = closedTo(folder) ?? foreignTo(resolve(folder), process.geteuid?.() ?? 0)
  if (foreign !== undefined)
    return yield* new OperatorRefused({ message: `${resolve(folder)} cannot be used: ${foreign}` })
  const unpacked = yield* file.startsWith("s3://")
    ? Effect.flatMap(
      Effect.promise(() => import("#domain/archives/BackupStoreS3")),
      ({ bytesAt }) => unpack(file, folder, { open: () => bytesAt(config, file) })
    )
    : unpack(file, folder)
  const { data, text } = yield* Effect.scoped(
    // The restored database has a backup, so it is migrated without another one.
    Effect.flatMap(
      here({ ...config, DATA_DIR: unpacked.dataDir }, Migrations.layer),
      (run) => run({ method: "POST", path: "/counters" })
    )
  ).pipe(Effect.flatMap(understood(MovedCounters)), Effect.map(movedShown))
  yield* unpacked.finish
  const elsewhere = unpacked.files
    ? ""
    : " The backup does not contain the files. Restore the file store separately, with its own tools."
  return {
    text: `${resolve(folder)} is as the server was at ${unpacked.madeAt}: start it with DATA_DIR=${
      resolve(folder)
    }.${elsewhere}\n${text}`,
    data: { folder: resolve(folder), made_at: unpacked.madeAt, files: unpacked.files, moved: data }
  }
})

/** Restores a backup below itself and reads each table, as `pg_dump` would. */
const check = Effect.fnUntraced(function*(file: string) {
  if (!existsSync(file)) return yield* new OperatorRefused({ message: `There is no file ${resolve(file)}.` })
  const folder = `${resolve(file)}.check`
  const removed = Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
  return yield* Effect.acquireUseRelease(
    removed,
    Effect.fnUntraced(function*() {
      const unpacked = yield* unpack(file, folder, { onlyDatabase: true })
      const found = yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const [last] = yield* sql<{ readonly name: string }>`SELECT name FROM migrations ORDER BY id DESC LIMIT 1`
        const tables = yield* sql<{ readonly name: string }>`
          SELECT relname AS name FROM pg_class
          WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname`
        let rows = 0
        for (const { name } of tables) {
          // The text of each row is made, so that values that PostgreSQL has stored elsewhere are read, too.
          const [row] = yield* sql<{ readonly n: number }>`
            SELECT count(*)::int AS n FROM ${sql(name)} AS t WHERE length(t::text) > 0`
          rows += row?.n ?? 0
        }
        return { schema: last?.name ?? "", tables: tables.length, rows }
      }).pipe(Effect.provide(layerPglite({ dataDir: unpacked.dataDir })))
      return {
        text: `${resolve(file)} can be restored: it is of ${unpacked.madeAt}, and its database has ${
          found.rows.toLocaleString("en")
        } rows in ${found.tables} tables.`,
        data: { file: resolve(file), made_at: unpacked.madeAt, files: unpacked.files, ...found }
      }
    }),
    () => removed
  )
})

const bytesOf = (folder: string): number =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).reduce(
    (sum, name) => sum + statSync(join(folder, name)).size,
    0
  )

const megabytes = (bytes: number): string => `${(bytes / 1_000_000).toFixed(1)} MB`

/** How many bytes a table must have to get its own line in the output. */
const TOLD_FROM = 1_000_000

/** Compacts the database of a stopped server. Prints its progress on standard error. */
const compactHere = Effect.fnUntraced(function*(config: Settings) {
  if (config.DATABASE_URL !== undefined) {
    return yield* new OperatorRefused({
      message:
        "DATABASE_URL is set, and compact is for PGlite. In PostgreSQL, run VACUUM FULL for each table, which locks the table meanwhile (docs/operations.md)."
    })
  }
  const folder = join(resolve(config.DATA_DIR), "database")
  const before = existsSync(folder) ? bytesOf(folder) : 0
  const unfinished = yield* Effect.scoped(Effect.gen(function*() {
    const context = yield* Effect.catchTag(services(config), "DataDirInUse", ({ holder, path }) =>
      new OperatorRefused({
        message: `A server runs on ${path}${
          holder === undefined ? "" : ` (${holder})`
        }: stop the server, and run the command again.`
      }))
    return yield* Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* compact(({ after, before, table }) =>
        before < TOLD_FROM ? Effect.void : Console.error(`${table}: ${megabytes(before)} → ${megabytes(after)}`)
      )
      yield* Effect.flatMap(
        AuditLog,
        (audit) => audit.note({ operator, action: "compact", handle: null, detail: null })
      )
      const [row] = yield* sql<{ readonly n: number }>`SELECT count(*) AS n FROM deletions WHERE erase`
      return row?.n ?? 0
    }).pipe(Effect.provideContext(context))
  }))
  const after = bytesOf(folder)
  const rest = unfinished === 0
    ? ""
    : ` ${unfinished} ${
      unfinished === 1 ? "erasure is" : "erasures are"
    } not finished: start the server for five minutes, stop it, and run this command again.`
  return {
    text: `${folder} had ${megabytes(before)} and has ${megabytes(after)}.${rest}`,
    data: { folder, bytes_before: before, bytes_after: after, unfinished_erasures: unfinished }
  }
})

/** The time-out of a call of the operators' API, in milliseconds. */
const REQUEST_TIMEOUT_MS = 30_000

/** The codes of failures in which the request was not sent. Such a request may be sent to another server. */
const NOT_SENT = new Set([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "UND_ERR_CONNECT_TIMEOUT"
])

/** Sends a request to the first of these servers that accepts a connection. */
const sendToOne = async (bases: ReadonlyArray<string>, path: string, request: RequestInit) => {
  for (const [i, base] of bases.entries()) {
    try {
      return { base, response: await fetch(base.replace(/\/$/, "") + path, request) }
    } catch (error) {
      const code: unknown = Object(Object(error).cause).code
      if (i === bases.length - 1 || typeof code !== "string" || !NOT_SENT.has(code)) throw error
    }
  }
  throw new Error("no server")
}

/**
 * Calls a running server. `server` is its URL. If `server` is null, calls the server that runs on DATA_DIR. If there is
 * none, calls the server at the URL of this environment or, if that server is unreachable, one of the live nodes. A
 * call to a URL carries a token, which is created in the servers' database and is valid for a minute.
 */
const ask = Effect.fnUntraced(function*(config: Settings, given: ApiCall, server: string | null) {
  const called = server === null ? yield* callRunning(config, given) : undefined
  if (called !== undefined) return called.answer
  const made = yield* call(config, { method: "POST", path: "/command-tokens" })
  const { others, token, url } = yield* understood(CommandToken)(made)
  const bases = server === null ? [...new Set([url, ...others])] : [server]
  const { path, ...request } = requestOf(given, { authorization: `Bearer ${token}` })
  const { base, response } = yield* Effect.tryPromise({
    try: () =>
      sendToOne(bases, path, {
        ...request,
        signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS)
      }),
    catch: () =>
      new OperatorRefused({
        message: `No server answers at ${
          bases.join(", ")
        }: start one, or give the address of a server that uses this database with --server.`
      })
  })
  const body = yield* Effect.promise(() => response.text())
  return yield* answerOf(
    { status: response.status, body },
    `The program that answers at ${base} is not Parley, or is another version of it.`
  )
})

const inWords = (error: unknown): string => {
  if (SqlError.isSqlError(error)) {
    const why = error.reason.cause instanceof Error ? error.reason.cause.message : error.message
    return `The database cannot be used: ${why}`
  }
  if (error instanceof DataDirInUse) {
    return `${error.path} is in use by a server${
      error.holder === undefined ? "" : ` (${error.holder})`
    } that cannot be asked: wait until it has started, or stop it.`
  }
  return error instanceof Error ? error.message : String(error)
}

/** Turns every failure into a refusal with a message for the operator. */
const mended = Effect.mapError((error: unknown) =>
  error instanceof OperatorRefused ? error : new OperatorRefused({ message: inWords(error) })
)

/** Exports an agent. Even if a server is called, the names of the files come from the tables of this process. */
const exportHere = (config: Settings, handle: string, target: string) =>
  Effect.gen(function*() {
    const connected = yield* connect(config)
    const run = (given: ApiCall) => mended(connected(given))
    return yield* exportAgent(target, {
      begin: run(post("/exports", { handle })),
      page: (agent, file, after) => run(post(path`/exports/${agent}/${file}`, { after })),
      part: (agent, file, from) => run(post(path`/exports/${agent}/${file}/bytes`, { from }))
    })
  }).pipe(Effect.scoped, Effect.provide(Tables.layer))

/**
 * Runs operators' commands in the server that runs on DATA_DIR. If there is none, runs them in this process on the
 * database.
 */
export const layer = Layer.effect(
  AdminClient,
  Effect.gen(function*() {
    const config = yield* Config.load
    for (const warning of yield* Config.warnings) yield* Console.error(`parley: ${warning}`)
    return AdminClient.of({
      call: (given) => mended(call(config, given)),
      answers,
      ask: (given, server) => mended(ask(config, given, server)),
      config: mended(
        Effect.flatMap(callRunning(config, SETTINGS), (called) =>
          called === undefined
            ? Effect.map(Config.origins, (origins) => effective(config, origins))
            : understood(EffectiveSettings)(called.answer))
      ),
      exportAgent: (handle, target) => mended(exportHere(config, handle, target)),
      checkBackup: (file) => mended(check(file)),
      restore: (file, folder) => mended(restore(config, file, folder)),
      compact: mended(compactHere(config))
    })
  })
)

import { Cause, Effect, Exit, Layer } from "effect"
import { SqlError } from "effect/sql"
import { join, resolve } from "node:path"
import * as Entities from "../src/Entities.ts"
import * as Http from "../src/Http.ts"
import * as Cluster from "../src/platform/Cluster.ts"
import { Config, ConfigInvalid, settings, type Settings } from "../src/platform/Config.ts"
import { DataDir } from "../src/platform/DataDir.ts"
import { addressIsFree, HttpServer } from "../src/platform/HttpServer.ts"
import { Ids } from "../src/platform/Ids.ts"
import * as Maintenance from "../src/platform/Maintenance.ts"
import * as Migrations from "../src/platform/Migrations.ts"
import { DoorLive } from "../src/operator/Door.ts"
import { Operator } from "../src/operator/Operator.ts"
import { databaseIsNew } from "../src/platform/Pglite.ts"
import { layerPg, layerPglite } from "../src/platform/Sql.ts"
import { layerLogger } from "../src/platform/Telemetry.ts"
import { VERSION } from "../src/service/Version.ts"

const say = (text: string): void => void process.stdout.write(`${text}\n`)
const complain = (text: string): void => void process.stderr.write(`${text}\n`)

const help = (): string => {
  const rows = Object.entries(settings).map(([name, setting]) => [name, setting.shown, setting.about] as const)
  const widths = [0, 1].map((i) => Math.max(...rows.map((row) => (row[i] ?? "").length)))
  const table = rows.map(([name, shown, about]) => `  ${name.padEnd(widths[0] ?? 0)}  ${shown.padEnd(widths[1] ?? 0)}  ${about}`)
  return [
    `Parley ${VERSION}: a standalone server for messages between agents.`,
    "",
    "It is set by environment variables; their defaults are in the middle:",
    "",
    ...table
  ].join("\n")
}

/** PostgreSQL if it is set, else PGlite in the folder that this process alone has. */
const database = (config: Settings) =>
  Layer.unwrap(Effect.map(DataDir, (dataDir) => {
    if (config.DATABASE_URL !== undefined) {
      return layerPg({ url: config.DATABASE_URL, poolSize: config.DATABASE_POOL })
    }
    if (databaseIsNew({ dataDir: dataDir.path })) say("Making the database, once; this takes a few seconds…")
    return layerPglite({ dataDir: dataDir.path })
  }))

const welcome = (config: Settings, server: HttpServer["Service"]): string => {
  const outbox = resolve(config.MAIL_OUTBOX ?? join(config.DATA_DIR, "outbox"))
  return [
    "",
    `Parley ${VERSION} listens on ${server.url}`,
    `Documentation: ${server.url}/docs`,
    "",
    "Register an agent:",
    "",
    `  curl -s ${server.url}/v1/register -d '{"email":"ada@example.com","handle":"ada"}'`,
    "",
    config.SMTP_URL === undefined
      ? `Its code is shown here, and the mail with it is a file in ${outbox}`
      : "Its code comes by mail.",
    "Stop with Ctrl-C.",
    ""
  ].join("\n")
}

const program = Effect.gen(function*() {
  const config = yield* Config.load
  // PostgreSQL lets operators' commands in by itself.
  const door = config.DATABASE_URL === undefined ? Layer.provide(DoorLive, Operator.layer) : Layer.empty
  const layer = Layer.merge(Http.layer, door).pipe(
    Layer.provide(Layer.effectDiscard(Cluster.awaitShards)),
    Layer.provide(Entities.layer),
    Layer.provide(Cluster.layerStandalone),
    Layer.provide(Maintenance.layer),
    Layer.provide(Migrations.layer),
    Layer.provide(database(config)),
    Layer.provide(Layer.effectDiscard(addressIsFree)),
    Layer.provide(DataDir.layer),
    Layer.provide(Ids.layer),
    Layer.provide(layerLogger),
    Layer.provide(Layer.succeed(Config, config))
  )
  yield* HttpServer.pipe(
    Effect.tap((server) => Effect.sync(() => say(welcome(config, server)))),
    Effect.andThen(Effect.never),
    Effect.provide(layer)
  )
})

/** What is wrong, a line each, for what a person can mend; the whole story for what nobody expected. */
const problems = (cause: Cause.Cause<unknown>): ReadonlyArray<string> =>
  cause.reasons.flatMap((reason) => {
    if (!Cause.isFailReason(reason)) return Cause.isDieReason(reason) ? [Cause.pretty(Cause.fromReasons([reason]))] : []
    const error = reason.error
    if (error instanceof ConfigInvalid) return error.problems
    if (SqlError.isSqlError(error)) {
      const why = error.reason.cause instanceof Error ? error.reason.cause.message : error.message
      return [`The database cannot be used: ${why}`]
    }
    return [error instanceof Error ? error.message : String(error)]
  })

const run = () => {
  let stopping: number | undefined
  const fiber = Effect.runFork(program)
  fiber.addObserver((exit) => {
    if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) process.exit(0)
    for (const problem of problems(exit.cause)) complain(`parley: ${problem}`)
    process.exit(1)
  })
  const stop = () => {
    // Ctrl-C under npm comes twice at once: from the terminal, and passed on by npm.
    if (stopping !== undefined && performance.now() - stopping < 500) return
    if (stopping !== undefined) process.exit(130)
    stopping = performance.now()
    say("Finishing what is under way; once more stops at once.")
    fiber.interruptUnsafe()
  }
  process.on("SIGINT", stop)
  process.on("SIGTERM", stop)
}

const [argument] = process.argv.slice(2)
if (argument === undefined) {
  run()
} else if (argument === "--help" || argument === "-h") {
  say(help())
} else {
  complain(`parley: ${argument} is not known; --help shows the settings.`)
  process.exitCode = 1
}

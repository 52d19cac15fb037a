import * as BackedUpMigrations from "#domain/archives/BackedUpMigrations"
import type { Budgets } from "#domain/auth/Budgets"
import type { Members } from "#infrastructure/cluster/Members"
import type { NodeCalls } from "#infrastructure/cluster/NodeCalls"
import type { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import type { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import type { Shards } from "#infrastructure/cluster/Shards"
import * as DatabaseClock from "#infrastructure/database/DatabaseClock"
import * as Maintenance from "#infrastructure/database/Maintenance"
import type { Database } from "#infrastructure/database/Sql"
import { HttpServer } from "#infrastructure/http/HttpServer"
import { addressIsFree } from "#infrastructure/http/Listening"
import { Config, ConfigInvalid, Origins, type Settings } from "#infrastructure/platform/Config"
import { sharedDirIsUsable } from "#infrastructure/platform/disk/DataDir"
import * as DiskSpace from "#infrastructure/platform/disk/DiskSpace"
import { Ids } from "#infrastructure/platform/Ids"
import { Readiness } from "#infrastructure/platform/Readiness"
import { StallGuard } from "#infrastructure/platform/StallGuard"
import { layerLogger } from "#infrastructure/platform/Telemetry"
import * as TraceExport from "#infrastructure/platform/TraceExport"
import { VERSION } from "#infrastructure/platform/Version"
import { Unavailable } from "#infrastructure/wire/WireError"
import type { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { Backups } from "#interfaces/operator/Backups"
import { Cause, Effect, Exit, Layer } from "effect"
import type { Sharding } from "effect/cluster"
import { SqlError } from "effect/sql"
import type { SqlClient } from "effect/sql"
import type * as Console from "./Console.ts"
import * as Http from "./Http.ts"
import * as Jobs from "./Jobs.ts"
import * as Entities from "./Services.ts"

export const say = (text: string): void => void process.stdout.write(`${text}\n`)
const complain = (text: string): void => void process.stderr.write(`${text}\n`)

type Databases = SqlClient.SqlClient | Database
type Base = Config | Ids | Readiness
type Services = Layer.Success<typeof Entities.services>
type ConsoleServices = Layer.Success<typeof Console.services> | Budgets

/** The parts that differ between the kinds of servers. `Own` stands for the services that only this kind has. */
export interface Kind<Own> {
  /** Adapts the settings to this kind of server. Fails if the settings are invalid for it. */
  readonly settle: (config: Settings) => Effect.Effect<Settings, ConfigInvalid>
  readonly own: Layer.Layer<Own, unknown, Base>
  readonly database: (config: Settings) => Layer.Layer<Databases, unknown, Base | Own>
  readonly cluster: (
    config: Settings
  ) => Layer.Layer<
    Sharding.Sharding | Shards | Members | NodeCalls | PeerConnections | NodeRpc,
    unknown,
    Databases | Base
  >
  /** Whether this process runs entities and jobs, or only calls the processes that do. */
  readonly owns: (config: Settings) => boolean
  /** Runs after all services are built, and completes when the server can serve requests. */
  readonly ready: (config: Settings) => Effect.Effect<void, never, Sharding.Sharding | Shards | Members | Services>
  /** Runs in addition to the routes. It is built after `ready` has completed. */
  readonly beside: (
    config: Settings
  ) => Layer.Layer<never, unknown, Services | ConsoleServices | Databases | Base | Own>
  /** The text to print when the server has begun to listen. */
  readonly welcome: (config: Settings, url: string) => Effect.Effect<string, never, AgentAdmin>
}

/** The database's clock, and ids made from its time. */
const timed = Layer.provideMerge(Layer.fresh(Ids.layer), DatabaseClock.layer)

/** Logs the warnings about settings. */
export const warnings = Layer.effectDiscard(
  Effect.flatMap(Config.warnings, Effect.forEach((warning) => Effect.logWarning(warning), { discard: true }))
)

const program = <Own>(kind: Kind<Own>) =>
  Effect.gen(function*() {
    const config = yield* Effect.flatMap(Config.load, kind.settle)
    const origins = yield* Config.origins
    // The routes take the longest to build, so they are built before `ready`. After `ready`, work already waits for
    // this node.
    const listening = Http.layerOnce(Effect.andThen(kind.ready(config), Layer.build(kind.beside(config))))
    const welcome = Layer.effectDiscard(
      Effect.map(Effect.flatMap(HttpServer, (server) => kind.welcome(config, server.url)), say)
    )
    // The jobs begin when the server listens, so that no client waits for them.
    const layer = (kind.owns(config) ? Layer.merge(Jobs.layer, Backups.layerRunning) : Layer.empty).pipe(
      Layer.provide(welcome),
      Layer.provide(listening),
      Layer.provide(Entities.services),
      Layer.provide(kind.cluster(config)),
      Layer.provide(Maintenance.layer),
      Layer.provide(BackedUpMigrations.layer),
      Layer.provide(config.DATABASE_URL === undefined ? Layer.empty : timed),
      Layer.provide(kind.database(config)),
      Layer.provide(DiskSpace.layer),
      Layer.provide(Layer.effectDiscard(Effect.andThen(addressIsFree, sharedDirIsUsable))),
      Layer.provide(kind.own),
      Layer.provide([Readiness.layer, StallGuard.layer]),
      Layer.provide(Ids.layer),
      Layer.provide(warnings),
      Layer.provide(TraceExport.layer(VERSION)),
      Layer.provide(layerLogger),
      Layer.provide([Layer.succeed(Config, config), Layer.succeed(Origins, origins)])
    )
    yield* Layer.launch(layer)
  })

/** The problems to print. A problem that an operator can fix has one line. A defect is printed with its full cause. */
const problems = (cause: Cause.Cause<unknown>): ReadonlyArray<string> =>
  cause.reasons.flatMap((reason) => {
    if (!Cause.isFailReason(reason)) return Cause.isDieReason(reason) ? [Cause.pretty(Cause.fromReasons([reason]))] : []
    // The cause of `Unavailable` is the SQL error.
    const error = reason.error instanceof Unavailable ? reason.error.cause ?? reason.error : reason.error
    if (error instanceof ConfigInvalid) return error.problems
    if (SqlError.isSqlError(error)) {
      const why = error.reason.cause instanceof Error ? error.reason.cause.message : error.message
      return [`The database cannot be used: ${why}`]
    }
    return [error instanceof Error ? error.message : String(error)]
  })

/**
 * How long a shutdown may take, in milliseconds. Everything acknowledged is already on disk. Only an unresponsive
 * database makes a shutdown take so long. The database itself releases the locks of a process that has ended.
 */
const END_WITHIN_MS = 14_500

/**
 * Runs a program until it ends or a signal stops it, and then exits with 0. If the program fails, or has not stopped
 * within `endWithinMs` milliseconds after the signal, writes the problem to standard error and exits with 1.
 */
export const runToEnd = (effect: Effect.Effect<void, unknown>, endWithinMs?: number): void => {
  let stopping: number | undefined
  const fiber = Effect.runFork(effect)
  fiber.addObserver((exit) => {
    if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) process.exit(0)
    for (const problem of problems(exit.cause)) complain(`parley: ${problem}`)
    process.exit(1)
  })
  const stop = () => {
    // Under npm, Ctrl-C sends two signals at once: one from the terminal and one that npm forwards.
    if (stopping !== undefined && performance.now() - stopping < 500) return
    if (stopping !== undefined) process.exit(130)
    stopping = performance.now()
    say("Finishing what is under way; a second signal stops at once.")
    fiber.interruptUnsafe()
    if (endWithinMs === undefined) return
    setTimeout(() => {
      complain(`parley: not everything could be finished within ${endWithinMs / 1_000} s; the rest is abandoned.`)
      process.exit(1)
    }, endWithinMs)
  }
  process.on("SIGINT", stop)
  process.on("SIGTERM", stop)
}

/**
 * Runs a server process: loads its settings, builds its layers in order, and serves requests until a signal arrives.
 */
export const serve = <Own>(kind: Kind<Own>): void => runToEnd(program(kind), END_WITHIN_MS)

import { Cause, Effect, Exit, Layer } from "effect"
import type { MessageStorage, Sharding } from "effect/cluster"
import { SqlError } from "effect/sql"
import type { SqlClient } from "effect/sql"
import * as Entities from "./Services.ts"
import * as Http from "./Http.ts"
import { Config, ConfigInvalid, type Settings } from "./platform/Config.ts"
import * as DatabaseClock from "./database/DatabaseClock.ts"
import { sharedDirIsUsable } from "./platform/DataDir.ts"
import { HttpServer } from "./http/HttpServer.ts"
import { addressIsFree } from "./http/Listening.ts"
import { Ids } from "./platform/Ids.ts"
import * as Maintenance from "./database/Maintenance.ts"
import * as Migrations from "./database/Migrations.ts"
import type { Peers } from "./cluster/Peers.ts"
import { StallGuard } from "./platform/StallGuard.ts"
import { Readiness } from "./platform/Readiness.ts"
import type { RemoteCalls } from "./cluster/RemoteCalls.ts"
import type { Database } from "./database/Sql.ts"
import { layerLogger } from "./platform/Telemetry.ts"

export const say = (text: string): void => void process.stdout.write(`${text}\n`)
const complain = (text: string): void => void process.stderr.write(`${text}\n`)

type Databases = SqlClient.SqlClient | Database
type Base = Config | Ids | Readiness
type Services = Layer.Success<typeof Entities.layer>

/** In what one kind of server differs from another; `Own` is what it alone has, from the very start. */
export interface Kind<Own> {
  /** The settings as this kind takes them, or what is wrong with them. */
  readonly settle: (config: Settings) => Effect.Effect<Settings, ConfigInvalid>
  readonly own: Layer.Layer<Own, unknown, Base>
  readonly database: (config: Settings) => Layer.Layer<Databases, unknown, Base | Own>
  readonly cluster: (
    config: Settings
  ) => Layer.Layer<Sharding.Sharding | MessageStorage.MessageStorage | Peers | RemoteCalls, unknown, Databases | Base>
  /** Whether it works on what entities own, or only asks those that do. */
  readonly owns: (config: Settings) => boolean
  /** Completes when requests can be served; run once all is built. */
  readonly ready: (config: Settings) => Effect.Effect<void, never, Sharding.Sharding | Peers | Services>
  /** What else it does, beside serving. */
  readonly beside: (
    config: Settings
  ) => Layer.Layer<never, unknown, Services | Databases | Base | Own>
  readonly welcome: (config: Settings, url: string) => string
}

/** The database's time, and ids that begin with it. */
const timed = Layer.provideMerge(Layer.fresh(Ids.layer), DatabaseClock.layer)

/** Says in the log which variables look like settings and are none. */
export const warnings = Layer.effectDiscard(
  Effect.flatMap(Config.warnings, Effect.forEach((warning) => Effect.logWarning(warning), { discard: true }))
)

const program = <Own>(kind: Kind<Own>) =>
  Effect.gen(function*() {
    const config = yield* Effect.flatMap(Config.load, kind.settle)
    // The routes take the most time to build and come before `ready`, for from then on a node has work that waits for it.
    const layer = Http.layerOnce(Effect.andThen(kind.ready(config), Layer.build(kind.beside(config)))).pipe(
      Layer.provide(kind.owns(config) ? Entities.layer : Entities.services),
      Layer.provide(kind.cluster(config)),
      Layer.provide(Maintenance.layer),
      Layer.provide(Migrations.layer),
      Layer.provide(config.DATABASE_URL === undefined ? Layer.empty : timed),
      Layer.provide(kind.database(config)),
      Layer.provide(Layer.effectDiscard(Effect.andThen(addressIsFree, sharedDirIsUsable))),
      Layer.provide(kind.own),
      Layer.provide([Readiness.layer, StallGuard.layer]),
      Layer.provide(Ids.layer),
      Layer.provide(warnings),
      Layer.provide(layerLogger),
      Layer.provide(Layer.succeed(Config, config))
    )
    yield* HttpServer.pipe(
      Effect.tap((server) => Effect.sync(() => say(kind.welcome(config, server.url)))),
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

/**
 * In which a server ends once it is asked to. What is acknowledged is on disk by then, what is not is nobody's;
 * only a database that hangs makes it last so long, and ends the locks of whoever is gone by itself.
 */
const END_WITHIN_MS = 14_500

/**
 * Runs a program to its end or to a signal: 0 when it was asked to stop, 1 with what went wrong on standard error,
 * as when it has not ended so many milliseconds after it was asked.
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
    // Ctrl-C under npm comes twice at once: from the terminal, and passed on by npm.
    if (stopping !== undefined && performance.now() - stopping < 500) return
    if (stopping !== undefined) process.exit(130)
    stopping = performance.now()
    say("Finishing what is under way; once more stops at once.")
    fiber.interruptUnsafe()
    if (endWithinMs === undefined) return
    setTimeout(() => {
      complain(`parley: not everything could be finished within ${endWithinMs / 1_000} s, and is left as it is.`)
      process.exit(1)
    }, endWithinMs)
  }
  process.on("SIGINT", stop)
  process.on("SIGTERM", stop)
}

/** The process of a server: its settings, its layers in their order, its life up to a signal. */
export const serve = <Own>(kind: Kind<Own>): void => runToEnd(program(kind), END_WITHIN_MS)

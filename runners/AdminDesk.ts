import { Console, Effect, Layer } from "effect"
import { SqlError } from "effect/sql"
import { resolve } from "node:path"
import * as Admin from "../src/Admin.ts"
import { Desk } from "../src/operator/AdminCli.ts"
import { askServer } from "../src/operator/AdminSocket.ts"
import { Operator, OperatorRefused, showConfig } from "../src/operator/Operator.ts"
import type { OperatorCommand } from "../src/operator/OperatorCommand.ts"
import { Config, type Settings } from "../src/platform/Config.ts"
import * as DatabaseClock from "../src/database/DatabaseClock.ts"
import { DataDir, DataDirInUse } from "../src/platform/DataDir.ts"
import { Ids } from "../src/platform/Ids.ts"
import * as Migrations from "../src/database/Migrations.ts"
import { databaseIsNew } from "../src/database/Pglite.ts"
import { layerPglite } from "../src/database/SqlPglite.ts"
import { layerPg } from "../src/database/SqlPostgres.ts"
import { layerLogger } from "../src/platform/Telemetry.ts"

/** The servers' database: PostgreSQL, used alongside running servers, or PGlite, only while no server runs. */
const database = (config: Settings) =>
  config.DATABASE_URL !== undefined
    ? Layer.provideMerge(Layer.effectDiscard(Migrations.verify()), DatabaseClock.layer).pipe(
      Layer.provideMerge(layerPg({ url: config.DATABASE_URL, poolSize: 4 }))
    )
    : Layer.provideMerge(Migrations.layer, layerPglite({ dataDir: resolve(config.DATA_DIR) })).pipe(
      Layer.provide(DataDir.layer)
    )

const perform = Effect.fnUntraced(function*(config: Settings, given: OperatorCommand) {
  const command = yield* Admin.checked(given)
  if (config.DATABASE_URL === undefined) {
    const answer = yield* askServer(config.DATA_DIR, command)
    if (answer !== undefined) return answer
  }
  if (command._tag === "Config") return showConfig(config)
  if (config.DATABASE_URL === undefined && databaseIsNew({ dataDir: config.DATA_DIR })) {
    return yield* new OperatorRefused({
      message: `There is no database in ${resolve(config.DATA_DIR)}: set DATA_DIR or DATABASE_URL as for the server, or start the server once.`
    })
  }
  return yield* Effect.flatMap(Operator, (operator) => operator.run(command)).pipe(
    // Provided around the command too, so that it runs on the database's clock.
    Effect.provide(Admin.layer.pipe(
      Layer.provideMerge(database(config)),
      Layer.provide(Layer.mergeAll(Ids.layer, layerLogger)),
      Layer.provide(Layer.succeed(Config, config))
    ))
  )
})

const inWords = (error: unknown): string => {
  if (SqlError.isSqlError(error)) {
    const why = error.reason.cause instanceof Error ? error.reason.cause.message : error.message
    return `The database cannot be used: ${why}`
  }
  if (error instanceof DataDirInUse) {
    return `${error.path} is in use by a server${error.holder === undefined ? "" : ` (${error.holder})`} that cannot be asked: wait until it has started, or stop it.`
  }
  return error instanceof Error ? error.message : String(error)
}

/** Runs operators' commands: in the server that runs on DATA_DIR, if there is one, otherwise here on the database. */
export const layer = Layer.effect(
  Desk,
  Effect.gen(function*() {
    const config = yield* Config.load
    for (const warning of yield* Config.warnings) yield* Console.error(`parley: ${warning}`)
    return Desk.of({ perform: (command) => Effect.mapError(perform(config, command), (error) => ({ message: inWords(error) })) })
  })
)

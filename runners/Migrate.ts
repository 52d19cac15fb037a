import { Effect, Layer } from "effect"
import * as ClusterNode from "../src/cluster/ClusterNode.ts"
import { Config, ConfigInvalid } from "../src/platform/Config.ts"
import * as Migrations from "../src/database/Migrations.ts"
import { layerPg } from "../src/database/SqlPostgres.ts"
import { layerLogger } from "../src/platform/Telemetry.ts"
import { runToEnd, say, warnings } from "../src/Server.ts"

/** `parley migrate`: brings the database of a cluster up to this version, before any node of this version starts. */
export const migrate = (): void => runToEnd(Effect.gen(function*() {
  const config = yield* Config.load
  if (config.DATABASE_URL === undefined) {
    return yield* new ConfigInvalid({ problems: ["DATABASE_URL: the PostgreSQL that is to be brought up to this version"] })
  }
  yield* Effect.andThen(Migrations.run(), ClusterNode.migrate).pipe(
    Effect.provide(layerPg({ url: config.DATABASE_URL, poolSize: 2 }).pipe(
      Layer.provide(warnings),
      Layer.provide(layerLogger),
      Layer.provide(Layer.succeed(Config, config))
    ))
  )
  say("The database is up to date.")
}))

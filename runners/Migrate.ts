import * as ClusterNode from "#infrastructure/cluster/ClusterNode"
import * as Migrations from "#infrastructure/database/Migrations"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Config, ConfigInvalid } from "#infrastructure/platform/Config"
import { layerLogger } from "#infrastructure/platform/Telemetry"
import { Effect, Layer } from "effect"
import { runToEnd, say, warnings } from "../src/Server.ts"

/** `parley migrate`: migrates the database of a cluster to this version before any node of this version starts. */
export const migrate = (): void =>
  runToEnd(Effect.gen(function*() {
    const config = yield* Config.load
    if (config.DATABASE_URL === undefined) {
      return yield* new ConfigInvalid({
        problems: ["DATABASE_URL: the PostgreSQL that is to be brought up to this version"]
      })
    }
    yield* Effect.andThen(Migrations.run(), ClusterNode.migrate).pipe(
      Effect.provide(
        layerPg({ url: config.DATABASE_URL, poolSize: 2 }).pipe(
          Layer.provide(warnings),
          // The migrations log too, in the same format as the servers.
          Layer.provideMerge(layerLogger),
          Layer.provide(Layer.succeed(Config, config))
        )
      )
    )
    say("The database is up to date.")
  }))

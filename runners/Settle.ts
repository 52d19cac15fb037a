import { ConfigInvalid, type Settings } from "#infrastructure/platform/Config"
import { Effect } from "effect"

const DRAIN_SECONDS = 2

/** Adapts the settings to a standalone server. Fails if they are those of a gateway. */
export const settleStandalone = (config: Settings): Effect.Effect<Settings, ConfigInvalid> =>
  config.ROLE === "gateway"
    ? Effect.fail(
      new ConfigInvalid({
        problems: [
          "ROLE: a gateway is a node of a cluster: start it with npm run runner, or with the subcommand runner"
        ]
      })
    )
    : Effect.succeed({ ...config, RUNNER_CONNECTIONS: 0 })

/** Checks that all settings of a node are set. Reports all missing settings together. */
export const settleNode = (config: Settings): Effect.Effect<Settings, ConfigInvalid> => {
  const problems: Array<string> = []
  if (config.DATABASE_URL === undefined)
    problems.push("DATABASE_URL: a node needs PostgreSQL, the same as the other nodes")
  if (config.REDIS_URL === undefined) problems.push("REDIS_URL: a node needs Redis, the same as the other nodes")
  if (config.S3_BUCKET === undefined && config.SHARED_DIR === undefined) {
    problems.push(
      "S3_BUCKET: a node needs a store for files that all nodes share: a bucket (S3_*), or a folder (SHARED_DIR)"
    )
  }
  return problems.length > 0
    ? Effect.fail(new ConfigInvalid({ problems }))
    : Effect.succeed({ ...config, DRAIN_SECONDS: config.DRAIN_SECONDS ?? DRAIN_SECONDS })
}

import { PushRouter } from "#domain/push/PushRouter"
import { awaitOwners, awaitShare } from "#infrastructure/cluster/Cluster"
import * as ClusterNode from "#infrastructure/cluster/ClusterNode"
import type { Members } from "#infrastructure/cluster/Members"
import { nameOf } from "#infrastructure/cluster/NodeAddress"
import { complete } from "#infrastructure/cluster/NodeDuty"
import { lockKeyOf } from "#infrastructure/cluster/NodeTable"
import type { Shards } from "#infrastructure/cluster/Shards"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import type { Settings } from "#infrastructure/platform/Config"
import { listeningUrl } from "#infrastructure/platform/PublicUrl"
import { VERSION } from "#infrastructure/platform/Version"
import { Effect, Layer, type Redacted } from "effect"
import type { Sharding } from "effect/cluster"
import { serve } from "../src/Server.ts"
import { settleNode } from "./Settle.ts"

/** How many connections of the pool the lock of the node's address takes. */
const ADDRESS_CONNECTIONS = 1

const warning = ({ RUNNER_HOST, RUNNER_SECRET }: Settings) =>
  RUNNER_SECRET !== undefined || RUNNER_HOST === "127.0.0.1" || RUNNER_HOST === "localhost" || RUNNER_HOST === "::1"
    ? Effect.void
    : Effect.logWarning(`RUNNER_SECRET is not set: any program that reaches ${RUNNER_HOST} can act as a node`)

const withoutDatabase = Layer.effectContext(Effect.die("a node without DATABASE_URL"))

const hasDatabase = (config: Settings): config is Settings & { readonly DATABASE_URL: Redacted.Redacted<string> } =>
  config.DATABASE_URL !== undefined

/** `parley runner`: one of several equal nodes on PostgreSQL, Redis and a shared file store. */
export const runner = (): void =>
  serve({
    settle: settleNode,
    own: Layer.empty,
    database: ({ DATABASE_POOL, DATABASE_URL, RUNNER_HOST, RUNNER_PORT }) =>
      DATABASE_URL === undefined ? withoutDatabase : layerPg({
        url: DATABASE_URL,
        poolSize: DATABASE_POOL + ADDRESS_CONNECTIONS,
        mark: lockKeyOf(nameOf({ host: RUNNER_HOST, port: RUNNER_PORT }))
      }),
    // Pass the same settings object as the server's, because the server's port is recorded by object (PublicUrl.ts).
    cluster: (config) => hasDatabase(config) ? ClusterNode.layer(config) : withoutDatabase,
    owns: ({ ROLE }) => ROLE === "runner",
    ready: ({ ROLE }) =>
      complete.pipe(
        Effect.andThen(
          Effect.suspend((): Effect.Effect<void, never, Sharding.Sharding | Shards | Members> =>
            ROLE === "runner" ? awaitShare : awaitOwners
          )
        ),
        Effect.andThen(Effect.flatMap(PushRouter, ({ introduced }) => introduced))
      ),
    beside: (config) => Layer.effectDiscard(warning(config)),
    // Show the node's own address, because PUBLIC_URL is the load balancer's and is the same for all nodes.
    welcome: (config) =>
      Effect.succeed(
        `Parley ${VERSION} listens on ${listeningUrl(config)}, and as a ${
          config.ROLE === "runner" ? "node" : "gateway"
        } `
          + `on ${config.RUNNER_HOST}:${config.RUNNER_PORT}`
          + (config.PUBLIC_URL === undefined ? "" : `; clients reach it at ${config.PUBLIC_URL}`)
      )
  })

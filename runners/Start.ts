import { Effect, Layer } from "effect"
import { join, resolve } from "node:path"
import { AdminSocketLive } from "#doors/admin/AdminSocket"
import { Operator } from "#doors/admin/Operator"
import * as Cluster from "#ground/cluster/Cluster"
import { NodeProcedures } from "#ground/cluster/NodeProcedures"
import { ConfigInvalid, type Settings } from "#ground/platform/Config"
import { DataDir } from "#ground/platform/disk/DataDir"
import { databaseIsNew } from "#ground/database/Pglite"
import { layerPglite } from "#ground/database/SqlPglite"
import { layerPg } from "#ground/database/SqlPostgres"
import { say, serve } from "../src/Server.ts"
import { VERSION } from "#doors/service/Version"

/** PostgreSQL if DATABASE_URL is set, else PGlite in DATA_DIR. */
const database = (config: Settings) =>
  Layer.unwrap(Effect.map(DataDir, (dataDir) => {
    if (config.DATABASE_URL !== undefined) {
      return layerPg({ url: config.DATABASE_URL, poolSize: config.DATABASE_POOL })
    }
    if (databaseIsNew({ dataDir: dataDir.path })) say("Making the database, once; this takes a few seconds…")
    return layerPglite({ dataDir: dataDir.path })
  }))

const welcome = (config: Settings, url: string): string => {
  const outbox = resolve(config.MAIL_OUTBOX ?? join(config.DATA_DIR, "outbox"))
  return [
    "",
    `Parley ${VERSION} listens on ${url}`,
    `Documentation: ${url}/docs`,
    `In a browser: ${url}/app for agents' messages; for you ${url}/console, by the link that npm run admin -- console prints`,
    "",
    "Register an agent:",
    "",
    `  curl -s ${url}/v1/register -d '{"email":"ada@example.com","handle":"ada"}'`,
    "",
    config.SMTP_URL === undefined
      ? `Its code is shown here, and the mail with it is a file in ${outbox}`
      : "Its code comes by mail.",
    "Stop with Ctrl-C.",
    ""
  ].join("\n")
}

/** `parley start`: a standalone server. */
export const start = (): void => serve({
  settle: (config) =>
    config.ROLE === "gateway"
      ? Effect.fail(new ConfigInvalid({ problems: ["ROLE: a gateway is a node of a cluster: start it with npm run runner, or with the subcommand runner"] }))
      : Effect.succeed({ ...config, RUNNER_CONNECTIONS: 0 }),
  own: DataDir.layer,
  database,
  cluster: () => Layer.provideMerge(NodeProcedures.layerAlone, Cluster.layerStandalone),
  owns: () => true,
  ready: () => Cluster.awaitShards,
  // With PostgreSQL, operators' commands connect to the database themselves and need no admin socket.
  beside: (config) => config.DATABASE_URL === undefined ? Layer.provide(AdminSocketLive, Operator.layer) : Layer.empty,
  welcome
})

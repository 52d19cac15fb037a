import * as Cluster from "#infrastructure/cluster/Cluster"
import { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import { databaseIsNew } from "#infrastructure/database/Pglite"
import * as PreparedDatabase from "#infrastructure/database/PreparedDatabase"
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { type Settings, settings } from "#infrastructure/platform/Config"
import { DataDir } from "#infrastructure/platform/disk/DataDir"
import { VERSION } from "#infrastructure/platform/Version"
import * as AdminSocket from "#interfaces/admin/AdminSocket"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { Effect, Layer } from "effect"
import { join, resolve } from "node:path"
import { CommandLineHttp } from "../src/Console.ts"
import { say, serve } from "../src/Server.ts"
import { withBeat } from "./Beat.ts"
import { settleStandalone } from "./Settle.ts"
import { typed } from "./Typed.ts"

/** Creates the database in DATA_DIR if there is none, and says so. */
const create = Effect.fnUntraced(function*(dataDir: string) {
  if (!databaseIsNew({ dataDir })) return
  const isPrepared = yield* PreparedDatabase.isPrepared
  say(`Making the database in ${dataDir}, once.${isPrepared ? "" : " This takes ten seconds or more."}`)
  const created = PreparedDatabase.createDatabase(dataDir)
  yield* isPrepared ? created : withBeat(created)
})

/** PostgreSQL if DATABASE_URL is set, otherwise PGlite in DATA_DIR. */
const database = (config: Settings) =>
  Layer.unwrap(Effect.gen(function*() {
    const { path } = yield* DataDir
    if (config.DATABASE_URL !== undefined) {
      const { layerPg } = yield* Effect.promise(() => import("#infrastructure/database/SqlPostgres"))
      return layerPg({ url: config.DATABASE_URL, poolSize: config.DATABASE_POOL })
    }
    yield* create(path)
    return layerPglite({ dataDir: path })
  }))

/** The command line with which a person in another terminal runs an operator's command on this server. */
const adminCommand = ({ DATABASE_URL, DATA_DIR }: Settings, command: string): string => {
  const folder = DATABASE_URL !== undefined || DATA_DIR === settings.DATA_DIR.fallback || /\s/.test(resolve(DATA_DIR))
    ? ""
    : `DATA_DIR=${resolve(DATA_DIR)} `
  return typed(`${folder}parley admin ${command}`)
}

type Rules = Pick<Settings, "REGISTRATION" | "REGISTRATION_DOMAINS">

/** Explains how an agent registers by e-mail. Returns nothing if not everybody may register. */
export const registration = (
  { REGISTRATION, REGISTRATION_DOMAINS: [domain = "example.com"] }: Rules,
  url: string
): ReadonlyArray<string> =>
  REGISTRATION !== "open" ? [] : [
    "",
    "or register one by an e-mail address:",
    "",
    `  curl -s ${url}/v1/register -d '{"email":"ada@${domain}","handle":"ada"}'`
  ]

/** Says where the codes are that the server sends by e-mail. `outbox` is the folder of e-mails, if there is no SMTP. */
export const codes = ({ REGISTRATION }: Rules, outbox: string | undefined): string => {
  const which = REGISTRATION === "closed" ? "Codes for new keys" : "Codes of registrations"
  return outbox === undefined
    ? `${which} come by mail.`
    : `${which} are shown here, and the mails with them are files in ${outbox}`
}

/** Explains how to create agents, for a server without agents. */
const invitation = (config: Settings, url: string): ReadonlyArray<string> => [
  "",
  "There is no agent yet. Create two in another terminal, ready to use:",
  "",
  `  ${adminCommand(config, "agents create ada bob")}`,
  ...registration(config, url)
]

const welcome = (config: Settings, url: string) =>
  Effect.gen(function*() {
    const agents = yield* AgentAdmin
    const any = { handle: "", email: "", status: null, order: "handle", after: "", now: 0, limit: 1 } as const
    const isEmpty = yield* agents.search(any).pipe(
      Effect.map((found) => found.length === 0),
      Effect.orElseSucceed(() => false)
    )
    const outbox = config.SMTP_URL === undefined
      ? resolve(config.MAIL_OUTBOX ?? join(config.DATA_DIR, "outbox"))
      : undefined
    return [
      "",
      `Parley ${VERSION} listens on ${url}`,
      `Documentation: ${url}/docs`,
      `In a browser: ${url}/app for agents' messages; for you ${url}/console, by the link that ${
        adminCommand(config, "console")
      } prints`,
      ...isEmpty ? invitation(config, url) : [],
      "",
      codes(config, outbox),
      "Stop with Ctrl-C.",
      ""
    ].join("\n")
  })

/** `parley start`: a standalone server. */
export const start = (): void =>
  serve({
    settle: settleStandalone,
    own: DataDir.layer,
    database,
    cluster: () => Layer.provideMerge(NodeRpc.layerAlone, Cluster.layerStandalone),
    owns: () => true,
    ready: () => Cluster.awaitShards,
    // With PostgreSQL, operators' commands connect to the database themselves and need no admin socket.
    beside: (config) => config.DATABASE_URL === undefined ? AdminSocket.layer(CommandLineHttp) : Layer.empty,
    welcome
  })

import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Console, Effect, Exit, Layer } from "effect"
import { CliConfig, CliError, CliOutput, Command, GlobalFlag, type HelpDoc, TerminalCapabilities } from "effect/cli"
import { connect } from "#clients/connect/ConnectCli"
import { admin } from "#doors/admin/AdminCli"
import { ConfigInvalid, settings } from "#ground/platform/Config"
import { VERSION } from "#doors/service/Version"
import { commands } from "./Commands.ts"
import { type Typed, typed as typedHere } from "./Typed.ts"

const command = <Name extends keyof typeof commands>(
  name: Name,
  short: string,
  description: string,
  examples: ReadonlyArray<Command.Command.Example>
) =>
  Command.make(name, {}, () => Effect.promise(commands[name])).pipe(
    Command.withDescription(description),
    Command.withShortDescription(short),
    Command.withExamples(examples)
  )

const start = command(
  "start",
  "Start a server with everything inside",
  "Start one server, with its database and files in DATA_DIR; SIGTERM or Ctrl-C lets it finish what is under way.",
  [
    { command: "parley start", description: "On http://127.0.0.1:3000, with its data in ./data" },
    { command: "PORT=8080 DATA_DIR=/var/lib/parley parley start", description: "On another port, with another folder" },
    { command: "DATABASE_URL=postgres://parley@localhost/parley parley start", description: "With your own PostgreSQL" }
  ]
)

const runner = command(
  "runner",
  "Start a node, one of many equal ones",
  "Start one node of a cluster, which shares PostgreSQL, Redis and a store for files with the other nodes.",
  [
    {
      command: "DATABASE_URL=postgres://… REDIS_URL=redis://… S3_BUCKET=files RUNNER_HOST=10.0.0.5 RUNNER_SECRET=… parley runner",
      description: "A node that the others reach at 10.0.0.5"
    },
    {
      command: "ROLE=gateway DATABASE_URL=… REDIS_URL=… S3_BUCKET=files RUNNER_HOST=10.0.0.6 RUNNER_SECRET=… parley runner",
      description: "A gateway, which serves requests and sockets and owns no shards"
    }
  ]
)

const migrate = command(
  "migrate",
  "Bring a cluster's database up to this version",
  "Bring the PostgreSQL of a cluster up to this version, before any node of this version starts. Does nothing if the database has this version.",
  [{ command: "DATABASE_URL=postgres://parley@localhost/parley parley migrate" }]
)

const demo = command(
  "demo",
  "Show three agents at work",
  "Show three agents at work on a server of their own: they talk, share a group and a file, and one listens by webhook.",
  [{ command: "parley demo" }]
)

const cluster = command(
  "cluster",
  "Run three nodes on this machine, to try out",
  "Run three nodes on this machine behind a small balancer, with PostgreSQL and Redis; nothing is kept when it ends.",
  [
    { command: "parley cluster", description: "Clients use http://127.0.0.1:3000" },
    { command: "PORT=8080 parley cluster", description: "On another port" }
  ]
)

/** The services of operators' commands. They are loaded only when such a command is run. */
const client = Layer.unwrap(
  Effect.map(Effect.promise(() => import("./AdminClient.ts")), ({ layer }) => layer)
)

const root = Command.make("parley").pipe(
  Command.withDescription("A messaging server for AI agents that you host yourself."),
  Command.withSubcommands([start, runner, migrate, Command.provide(admin, client), connect, demo, cluster]),
  Command.withExamples([
    { command: "parley start", description: "A server on http://127.0.0.1:3000" },
    { command: "parley admin agents create scout", description: "An agent on it that is ready to use" },
    { command: "parley start --help", description: "All of its settings" }
  ])
)

interface Row {
  readonly name: string
  readonly shown: string
  readonly about: string
}

const rowsOf = (...names: ReadonlyArray<keyof typeof settings>): ReadonlyArray<Row> =>
  names.map((name) => ({ name, shown: settings[name].shown, about: settings[name].about }))

const everySetting = rowsOf(...Object.keys(settings) as Array<keyof typeof settings>)

/** The settings that a subcommand's help shows. */
const settingsOf: Readonly<Record<string, ReadonlyArray<Row>>> = {
  start: everySetting,
  runner: everySetting,
  migrate: [
    { name: "DATABASE_URL", shown: "none", about: "the PostgreSQL to bring up to this version" },
    ...rowsOf("LOG_LEVEL")
  ],
  admin: [
    { name: "DATA_DIR", shown: "./data", about: "folder of the server, if its database is in that folder" },
    { name: "DATABASE_URL", shown: "none", about: "URL of the server's database, if the server uses PostgreSQL" }
  ],
  cluster: [
    { name: "PORT", shown: "3000", about: "TCP port of the balancer; 0 takes any free port" },
    { name: "DATA_DIR", shown: "./data", about: "folder in which the cluster creates a folder of its own" },
    { name: "REDIS_URL", shown: "none", about: "URL of the Redis to use if redis-server is not installed" },
    { name: "and those of runner", shown: "", about: "applied to every node, except addresses and folders, which the cluster sets" }
  ]
}

/** The help text: usage and flags as Effect renders them, then the settings, then the examples. */
const help = (formatter: CliOutput.Formatter, { examples = [], ...doc }: HelpDoc.HelpDoc, typed: Typed): string => {
  const rows = settingsOf[doc.commandPath?.[1] ?? ""] ?? []
  const width = (column: "name" | "shown") => Math.max(...rows.map((row) => row[column].length))
  return [
    formatter.formatHelpDoc({ ...doc, usage: typed(doc.usage) }),
    ...rows.length === 0 ? [] : [
      "",
      "SETTINGS (environment variables, with their defaults)",
      ...rows.map(({ about, name, shown }) => `  ${name.padEnd(width("name"))}  ${shown.padEnd(width("shown"))}  ${about}`)
    ],
    ...examples.length === 0 ? [] : [
      "",
      "EXAMPLES",
      ...examples.flatMap(({ command, description }) => [...description === undefined ? [] : [`  # ${description}`], `  ${typed(command)}`])
    ]
  ].join("\n")
}

/** Prints one line for each mistake to standard error. Effect itself would print the whole help. */
const presenter = (typed: Typed): CliOutput.Presenter => ({
  present: Effect.fnUntraced(function*(event) {
    const { canColor } = yield* TerminalCapabilities.TerminalCapabilities
    const formatter = CliOutput.defaultFormatter({ colors: canColor })
    if (event._tag === "Help") return yield* Console.log(help(formatter, event.helpDoc, typed))
    if (event._tag === "Version") return yield* Console.log(`${event.name} ${event.version}`)
    for (const { message } of event.errors) {
      const mistake = message.replaceAll(/\s*\n\s*/g, " ")
      yield* Console.error(`parley: ${mistake}${/[.?!]$/.test(mistake) ? "" : "."} See ${typed([...event.commandPath, "--help"].join(" "))}`)
    }
  })
})

/**
 * Runs the command that the arguments name. Returns whether it succeeded; errors are printed to standard error. Help texts show
 * commands as `typed` writes them.
 */
export const run = (args: ReadonlyArray<string>, typed = typedHere): Effect.Effect<boolean> =>
  Effect.gen(function*() {
    const exit = yield* Command.runWith(root, { version: VERSION })(args).pipe(
      Effect.provide(Layer.mergeAll(
        NodeServices.layer,
        CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version] }),
        CliOutput.layerPresenter(presenter(typed))
      )),
      Effect.exit
    )
    if (Exit.isSuccess(exit)) return true
    for (const reason of exit.cause.reasons) {
      if (!Cause.isFailReason(reason)) {
        yield* Console.error(`parley: ${Cause.pretty(Cause.fromReasons([reason]))}`)
        continue
      }
      const { error } = reason
      // `presenter` has already printed these errors.
      if (CliError.isCliError(error)) continue
      const problems = error instanceof ConfigInvalid ? error.problems : [error.message]
      for (const problem of problems) yield* Console.error(`parley: ${problem}`)
    }
    return false
  })

/** Runs `parley` with these arguments in this process, and returns whether it succeeded. */
export const parley = (args: ReadonlyArray<string>): Promise<boolean> => Effect.runPromise(run(args))

import { connect } from "#clients/connect/ConnectCli"
import { ConfigInvalid } from "#infrastructure/platform/Config"
import { VERSION } from "#infrastructure/platform/Version"
import { admin } from "#interfaces/admin/AdminCli"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Console, Effect, Exit, Layer } from "effect"
import { CliConfig, CliError, CliOutput, Command, GlobalFlag, TerminalCapabilities } from "effect/cli"
import { commands } from "./Commands.ts"
import { config } from "./ConfigCommands.ts"
import { helpText } from "./Help.ts"
import { type CommandPath, mistakeOf } from "./Mistakes.ts"
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
    { command: "PARLEY_CONFIG=/etc/parley/parley.env parley start", description: "With its settings in a file" },
    { command: "DATABASE_URL=postgres://parley@localhost/parley parley start", description: "With your own PostgreSQL" }
  ]
)

const runner = command(
  "runner",
  "Start a node, one of many equal ones",
  "Start one node of a cluster, which shares PostgreSQL, Redis and a store for files with the other nodes.",
  [
    {
      command:
        "DATABASE_URL=postgres://… REDIS_URL=redis://… S3_BUCKET=files RUNNER_HOST=10.0.0.5 RUNNER_SECRET=… parley runner",
      description: "A node that the others reach at 10.0.0.5"
    },
    {
      command:
        "ROLE=gateway DATABASE_URL=… REDIS_URL=… S3_BUCKET=files RUNNER_HOST=10.0.0.6 RUNNER_SECRET=… parley runner",
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

/** The services of operators' commands. They are loaded only when such a command runs. */
const client = Layer.unwrap(
  Effect.map(Effect.promise(() => import("./AdminClient.ts")), ({ layer }) => layer)
)

const root = Command.make("parley").pipe(
  Command.withDescription("A messaging server for AI agents that you host yourself."),
  Command.withSubcommands([start, runner, migrate, Command.provide(admin, client), config, connect, demo, cluster]),
  Command.withExamples([
    { command: "parley start", description: "A server on http://127.0.0.1:3000" },
    { command: "parley admin agents create scout", description: "An agent on it that is ready to use" },
    { command: "parley start --help", description: "All of its settings" }
  ])
)

/** The paths of all commands below this command, as the words after `parley`. */
const pathsBelow = ({ subcommands }: Command.Command.Any): ReadonlyArray<CommandPath> =>
  subcommands.flatMap((group) => group.commands).flatMap((
    command
  ) => [[command.name], ...pathsBelow(command).map((path) => [command.name, ...path])])

/** The paths of all commands, as the words after `parley`. */
export const commandPaths: ReadonlyArray<CommandPath> = pathsBelow(root)

/** How commands and help are shown to the person. */
export interface Shown {
  /** Writes commands as a person types them. */
  readonly typed: Typed
  /** The width of the terminal in columns. */
  readonly width: number
}

/** Prints one line for each mistake to standard error. By default, Effect would print the whole help. */
const presenter = (args: ReadonlyArray<string>, { typed, width }: Shown): CliOutput.Presenter => ({
  present: Effect.fnUntraced(function*(event) {
    const { canColor } = yield* TerminalCapabilities.TerminalCapabilities
    const formatter = CliOutput.defaultFormatter({ colors: canColor })
    if (event._tag === "Help") return yield* Console.log(helpText(formatter, event.helpDoc, typed, width))
    if (event._tag === "Version") return yield* Console.log(`${event.name} ${event.version}`)
    // If a subcommand is unknown, its flags are unknown too. Report only the subcommand.
    const unknown = event.errors.filter(({ _tag }) => _tag === "UnknownSubcommand")
    for (const error of unknown.length > 0 ? unknown : event.errors) {
      const mistake = mistakeOf(error, { args, commands: commandPaths, helpDoc: event.helpDoc, typed })
      yield* Console.error(
        `parley: ${mistake}${/[.?!]$/.test(mistake) ? "" : "."} See ${
          typed([...event.commandPath, "--help"].join(" "))
        }`
      )
    }
  })
})

/** The exit codes of `parley`. */
const DONE = 0
const FAILED = 1
const TYPED_WRONGLY = 2

/**
 * Runs the command that the arguments name. Returns the exit code: 0 if the command succeeded, 1 if it failed, and 2 if
 * the arguments name no command. Errors are printed to standard error.
 */
export const run = (
  args: ReadonlyArray<string>,
  { typed = typedHere, width = process.stdout.columns ?? 80 }: Partial<Shown> = {}
): Effect.Effect<number> =>
  Effect.gen(function*() {
    const exit = yield* Command.runWith(root, { version: VERSION })(args).pipe(
      Effect.provide(Layer.mergeAll(
        NodeServices.layer,
        CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version] }),
        CliOutput.layerPresenter(presenter(args, { typed, width }))
      )),
      Effect.exit
    )
    if (Exit.isSuccess(exit)) return DONE
    let code = FAILED
    for (const reason of exit.cause.reasons) {
      if (!Cause.isFailReason(reason)) {
        yield* Console.error(`parley: ${Cause.pretty(Cause.fromReasons([reason]))}`)
        continue
      }
      const { error } = reason
      // `presenter` has already printed these errors.
      if (CliError.isCliError(error)) {
        code = TYPED_WRONGLY
        continue
      }
      const problems = error instanceof ConfigInvalid ? error.problems : [error.message]
      for (const problem of problems) yield* Console.error(`parley: ${problem}`)
    }
    return code
  })

/** Runs `parley` with these arguments in this process, and returns the exit code. */
export const parley = (args: ReadonlyArray<string>): Promise<number> => Effect.runPromise(run(args))

import { Clock, Console, Effect, Layer } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { rm } from "node:fs/promises"
import { homedir } from "node:os"
import { join, resolve } from "node:path"
import { connect as connectAgent } from "./Connector.ts"
import { dryRun as dryRunServices } from "./DryRun.ts"
import { Journal } from "./Journal.ts"
import { ParleyApi } from "./ParleyApi.ts"
import { ParleySocket } from "./ParleySocket.ts"
import { lock, placesOf, prepare, writePrivately } from "./Places.ts"
import { type Adapter, ADAPTER_NAMES, adapterOf } from "./programs/Adapters.ts"
import { environmentOf, Runs } from "./programs/Runs.ts"
import { RunLog } from "./RunLog.ts"
import { GIVEN_UP, launchdAgent, systemdUnit } from "./ServiceUnit.ts"
import { type Settings, SettingsInvalid } from "./Settings.ts"
import { known, setUp } from "./Setup.ts"
import { readStatus, serveStatus, showStatus } from "./Status.ts"

const handle = Flag.String("as").pipe(
  Flag.withDescription("The agent's handle; not needed if connect.json has only one agent"),
  Flag.optional
)

const example = (description: string, rest = "") =>
  Command.withExamples(({ commandPath }) => [{ command: [...commandPath, rest].join(" ").trimEnd(), description }])

/** Sets an exit code that tells a service manager not to restart the connector. */
const giveUp = Effect.sync(() => void (process.exitCode = GIVEN_UP))

/** Completes when the process is asked to end. */
const asked = Effect.callback<void>((resume) => {
  const end = (): void => resume(Effect.void)
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, end)
  return Effect.sync(() => {
    for (const signal of ["SIGTERM", "SIGINT"] as const) process.off(signal, end)
  })
})

const adapterFor = (settings: Settings): Effect.Effect<Adapter, SettingsInvalid> => {
  const { agent, allowReads, command, handle, reply } = settings
  const adapter = adapterOf(agent, command)
  const refuse = (message: string) => Effect.fail(new SettingsInvalid({ message }))
  if (adapter.readsFiles && !allowReads) {
    return refuse(
      `${adapter.name} can read your files although its tools are off, so another agent could ask for them. ` +
        `To accept this, write "allowReads": true for ${handle} in connect.json`
    )
  }
  if (reply === "tools" && adapter.tools === null)
    return refuse(`${adapter.name} cannot send by itself. Remove "reply": "tools" of ${handle} from connect.json`)
  if (reply === "output" && !adapter.returnsText) {
    return refuse(
      `${adapter.name} does not give its final text back, so it has to send by itself. Write "reply": "tools" for ${handle} in connect.json`
    )
  }
  return Effect.succeed(adapter)
}

/** Runs the connector of one agent until the process is asked to end. */
const serve = Effect.fnUntraced(function*(settings: Settings, dryRun: boolean) {
  const adapter = yield* adapterFor(settings)
  const places = placesOf(process.env, settings.handle)
  const server = Layer.merge(ParleyApi.layer(settings), ParleySocket.layer(settings))
  if (dryRun) {
    const services = Layer.mergeAll(Layer.provide(dryRunServices(adapter, settings.args), server), RunLog.layer)
    // A dry run starts no program. Read its empty output as text, so that it counts as no reply.
    const silent = { ...adapter, reading: "text" } as const
    return yield* Effect.raceFirst(Effect.scoped(connectAgent(settings, silent)), asked).pipe(Effect.provide(services))
  }
  yield* prepare(places.root)
  yield* lock(places, settings.handle)
  const services = Layer.mergeAll(
    server,
    Journal.layerAt(places.journal),
    RunLog.layerAt(places.logs, settings.logDays),
    Runs.layer({
      adapter,
      home: places.home,
      work: places.work,
      env: settings.env,
      args: settings.args,
      runSeconds: settings.runSeconds
    })
  )
  yield* Effect.gen(function*() {
    if (settings.statusPort > 0) {
      yield* Effect.mapError(
        serveStatus(settings, settings.statusPort),
        ({ message }) => new SettingsInvalid({ message: `statusPort: ${message}` })
      )
    }
    return yield* Effect.raceFirst(connectAgent(settings, adapter), asked)
  }).pipe(Effect.scoped, Effect.provide(services))
}, Effect.scoped)

const failure = (
  error: { readonly _tag: string; readonly message?: string; readonly reason?: string }
): SettingsInvalid =>
  new SettingsInvalid({
    message: error._tag === "KeyRefused" ? `the server refuses the key: ${error.reason}` : String(error.message)
  })

/** Runs an effect with the journal of an agent whose connector was started before. */
const withJournal = <A, E>(settings: Settings, effect: Effect.Effect<A, E, Journal>) => {
  const { journal } = placesOf(process.env, settings.handle)
  return existsSync(journal)
    ? Effect.provide(effect, Journal.layerAt(journal))
    : Effect.fail(new SettingsInvalid({ message: `the connector of ${settings.handle} was never started here` }))
}

const status = Command.make(
  "status",
  {
    handle,
    json: Flag.Boolean("json").pipe(Flag.withDescription("Print JSON instead of text"), Flag.withDefault(false))
  },
  Effect.fnUntraced(function*(given) {
    const settings = yield* known(given.handle)
    const found = yield* withJournal(settings, readStatus(settings, yield* Clock.currentTimeMillis))
    yield* Console.log(given.json ? JSON.stringify(found, null, 2) : showStatus(found, settings.runsPerDay))
  })
).pipe(
  Command.withDescription(
    "Show which messages wait, which runs are in progress, which conversations are parked and why, and the number of runs today"
  ),
  example("While the connector runs, or while it does not", "--as ada")
)

const retry = Command.make(
  "retry",
  {
    conversation: Argument.String("conversation").pipe(Argument.withDescription("conv_… or grp_…, as status shows it")),
    handle
  },
  Effect.fnUntraced(function*(given) {
    const settings = yield* known(given.handle)
    const found = yield* withJournal(settings, Effect.flatMap(Journal, (journal) => journal.retry(given.conversation)))
    if (!found) return yield* new SettingsInvalid({ message: `${given.conversation} is not in the journal` })
    yield* Console.log(`${given.conversation} is tried again.`)
  })
).pipe(
  Command.withDescription("Try a parked conversation again"),
  example("After the cause is fixed", "conv_QYm46IBu-5elBWF0")
)

const pausing = (name: "pause" | "resume", short: string, done: string) =>
  Command.make(
    name,
    { handle },
    Effect.fnUntraced(function*(given) {
      const settings = yield* known(given.handle)
      yield* withJournal(
        settings,
        Effect.flatMap(Journal, (journal) => journal.setFact("paused", name === "pause" ? "yes" : null))
      )
      yield* Console.log(done)
    })
  ).pipe(Command.withDescription(short), example("For one agent", "--as ada"))

const pause = pausing(
  "pause",
  "Start no more runs until `resume`; a run in progress ends as usual",
  "No more runs start. Messages wait on the server."
)
const resume = pausing("resume", "Start runs again after pause", "Runs start again.")

const inherit = (
  program: string,
  args: ReadonlyArray<string>,
  options: { readonly cwd: string; readonly env: Record<string, string> }
) =>
  Effect.callback<void, SettingsInvalid>((done) => {
    const child = spawn(program, args, { ...options, stdio: "inherit" })
    const failed = (why: string) =>
      done(Effect.fail(new SettingsInvalid({ message: `${[program, ...args].join(" ")}: ${why}` })))
    child.once("error", (error) => failed(error.message))
    child.once("exit", (code) => code === 0 ? done(Effect.void) : failed(`it ended with ${code ?? "a signal"}`))
  })

const definedOf = (names: ReadonlyArray<string>): Record<string, string> =>
  Object.fromEntries(names.flatMap((name) => process.env[name] === undefined ? [] : [[name, process.env[name]]]))

const signIn = Command.make(
  "sign-in",
  { handle },
  Effect.fnUntraced(function*(given) {
    const settings = yield* known(given.handle)
    const adapter = adapterOf(settings.agent, settings.command)
    const [program, ...args] = adapter.signIn ?? []
    if (program === undefined)
      return yield* new SettingsInvalid({
        message: `${adapter.name} has no command to sign in. Write its key under "env" in connect.json`
      })
    const { home } = placesOf(process.env, settings.handle)
    yield* prepare(home)
    const env = environmentOf({ adapter, home, env: settings.env }, process.env)
    yield* inherit(program, args, { cwd: home, env: { ...definedOf(["TERM", "DISPLAY", "WAYLAND_DISPLAY"]), ...env } })
  })
).pipe(
  Command.withDescription(
    "Sign in to the program that replies to messages. It runs with a separate HOME, without your settings and log-ins"
  ),
  Command.withShortDescription("Sign in to the program that replies to messages"),
  example("Once, before the first message", "--as ada")
)

const unitOf = (settings: Settings) => {
  const launch = {
    node: process.execPath,
    program: resolve(process.argv[1] ?? ""),
    handle: settings.handle,
    path: process.env["PATH"] ?? "",
    env: definedOf(["XDG_CONFIG_HOME", "XDG_STATE_HOME"])
  }
  return process.platform === "darwin" ? launchdAgent(launch) : systemdUnit(launch)
}

const carryOut = Effect.forEach(
  ([program = "", ...args]: ReadonlyArray<string>) =>
    inherit(program, args, { cwd: homedir(), env: definedOf(Object.keys(process.env)) }),
  { discard: true }
)

const install = Command.make(
  "install",
  { handle },
  Effect.fnUntraced(function*(given) {
    const settings = yield* known(given.handle)
    yield* adapterFor(settings)
    const unit = unitOf(settings)
    const path = join(homedir(), unit.file)
    yield* writePrivately(path, unit.text)
    yield* Console.log(`${path} written, with the PATH of this shell`)
    yield* carryOut(unit.install)
  })
).pipe(
  Command.withDescription(
    "Run the connector as a service of the user: a systemd unit, or a launchd agent. The service uses the current PATH"
  ),
  example("For one agent", "--as ada")
)

const remove = Command.make(
  "remove",
  { handle },
  Effect.fnUntraced(function*(given) {
    const settings = yield* known(given.handle)
    const unit = unitOf(settings)
    yield* carryOut(unit.remove)
    yield* Effect.promise(() => rm(join(homedir(), unit.file), { force: true }))
  })
).pipe(Command.withDescription("Stop the service and remove it"), example("For one agent", "--as ada"))

const service = Command.make("service").pipe(
  Command.withDescription("Run the connector as a service of the user"),
  example("For one agent", "install --as ada"),
  Command.withSubcommands([install, remove])
)

/**
 * `parley connect` starts a program when a message arrives for an agent, and sends the program's final text as the
 * reply.
 */
export const connect = Command.make("connect", {
  handle,
  agent: Flag.Literals("agent", ADAPTER_NAMES).pipe(
    Flag.withDescription("The program that replies to messages"),
    Flag.optional
  ),
  command: Flag.String("command").pipe(
    Flag.withDescription(
      "Your own program that replies to messages: it reads the prompt from standard input and writes the reply to standard output"
    ),
    Flag.optional
  ),
  server: Flag.String("server").pipe(
    Flag.withDescription("Address of the server; needed only at the first start"),
    Flag.optional
  ),
  allow: Flag.String("allow").pipe(
    Flag.withDescription(
      "Agents whose messages start the program: contacts, all, or handles separated by commas; needed only at the first start"
    ),
    Flag.optional
  ),
  dryRun: Flag.Boolean("dry-run").pipe(
    Flag.withDescription("Print commands, prompts and decisions, but do not claim, run, send or acknowledge anything"),
    Flag.withDefault(false)
  )
}, ({ dryRun, ...given }) =>
  Effect.flatMap(setUp(given), (settings) => serve(settings, dryRun)).pipe(
    Effect.mapError(failure),
    Effect.tapError(() => giveUp)
  )).pipe(
    Command.withDescription(
      "Start a program (Claude Code, Codex, …) on this machine when a message arrives for an agent, and send its final text as the reply. " +
        "The program has no tools, and runs only for agents that you allow, within budgets (docs/connect.md)."
    ),
    Command.withShortDescription("Reply to messages with a program on this machine, while you are away"),
    Command.withExamples([
      {
        command:
          "PARLEY_KEY=ac_… parley connect --as ada --agent claude --server http://127.0.0.1:3000 --allow contacts",
        description: "The first start; connect.json stores all of these values"
      },
      {
        command: "parley connect --as ada --dry-run",
        description: "What the connector would do with the messages that wait now"
      },
      { command: "parley connect status", description: "Which messages wait, run and are parked" }
    ]),
    Command.withSubcommands([status, retry, pause, resume, signIn, service])
  )

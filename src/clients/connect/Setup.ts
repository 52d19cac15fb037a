import { Console, Effect, Option, Redacted, Result } from "effect"
import { Prompt } from "effect/cli"
import { resolve } from "node:path"
import { readSettings, settingsPath, writeSettings } from "./Places.ts"
import { ADAPTER_NAMES, type AdapterName } from "./programs/Adapters.ts"
import { type ConnectFile, parseFile, type Settings, SettingsInvalid, settingsOf } from "./Settings.ts"

/** The flags on the command line. The other settings are in connect.json. */
export interface Given {
  readonly handle: Option.Option<string>
  readonly agent: Option.Option<AdapterName>
  readonly server: Option.Option<string>
  readonly allow: Option.Option<string>
  /** The path of the program of `"agent": "command"`. */
  readonly command: Option.Option<string>
}

type Draft = {
  readonly server?: string
  readonly agents?: Readonly<Record<string, Partial<ConnectFile["agents"][string]>>>
}

const invalid = (message: string) => new SettingsInvalid({ message })
const wordFrom = <A>(result: Result.Result<A, string>, path: string): Effect.Effect<A, SettingsInvalid> =>
  Result.match(result, {
    onFailure: (problem) => Effect.fail(invalid(`${path}: ${problem}`)),
    onSuccess: Effect.succeed
  })

const isTerminal = (): boolean => process.stdin.isTTY && process.stdout.isTTY

/** Asks the person at the terminal. Without a terminal, fails with a message that tells what to set instead. */
const ask = <A>(prompt: Prompt.Prompt<A>, otherwise: string) => isTerminal() ? prompt : Effect.fail(invalid(otherwise))

const parseAllow = (text: string): "contacts" | "all" | ReadonlyArray<string> =>
  text === "contacts" || text === "all" ? text : text.split(",").map((handle) => handle.trim())

const askAllow = (handle: string) =>
  Effect.gen(function*() {
    const chosen = yield* ask(
      Prompt.Select({
        message:
          `Whose messages may start a program? The contacts of ${handle} include every agent to which it ever replied.`,
        choices: [
          { title: "Contacts", value: "contacts" },
          { title: "These agents only", value: "handles" },
          { title: "Everybody", value: "all" }
        ]
      }),
      `Give the agents whose messages may start a program: --allow contacts (the contacts of ${handle}, including every agent to which it ` +
        "ever replied), --allow all, or --allow with handles separated by commas"
    )
    return chosen === "handles"
      ? parseAllow(yield* Prompt.String({ message: "Their handles, separated by commas" }))
      : parseAllow(chosen)
  })

/** The given handle. Without one, the only agent in the file. */
const handleIn = (agents: Draft["agents"], given: Option.Option<string>): Effect.Effect<string, SettingsInvalid> => {
  const known = Object.keys(agents ?? {})
  const [only] = known
  if (Option.isSome(given)) return Effect.succeed(given.value.replace(/^@/, "").toLowerCase())
  return known.length === 1 && only !== undefined
    ? Effect.succeed(only)
    : Effect.fail(invalid(`Name the agent: --as and its handle${known.length === 0 ? "" : ` (${known.join(", ")})`}`))
}

/**
 * Reads connect.json, and adds the settings that the first start of an agent needs: the server's URL, the key, the
 * program, and whose messages may start the program. Asks the person at the terminal for settings that neither the
 * flags nor PARLEY_KEY contain. Without a terminal, fails with a message that names the missing settings.
 */
export const setUp = Effect.fnUntraced(function*(given: Given) {
  const path = settingsPath(process.env)
  const text = yield* readSettings(path)
  const before: Draft = text === undefined ? {} : yield* wordFrom(parseFile(text), path)
  const handle = yield* handleIn(before.agents, given.handle)
  const known = before.agents?.[handle] ?? {}

  const server = Option.getOrUndefined(given.server) ?? before.server ??
    (yield* ask(
      Prompt.String({ message: "The address of the server", default: "http://127.0.0.1:3000" }),
      "Give the address of the server: --server http://127.0.0.1:3000"
    ))
  const key = process.env["PARLEY_KEY"] ?? known.key ??
    (yield* ask(
      Prompt.map(Prompt.Hidden({ message: `The API key of ${handle} (ac_…)` }), Redacted.value),
      `Give the key of ${handle} in the variable PARLEY_KEY; connect.json keeps it`
    ))
  const command = Option.getOrUndefined(Option.map(given.command, (program) => ({ new: [resolve(program)] }))) ??
    known.command
  const agent = Option.getOrUndefined(given.agent) ?? (Option.isSome(given.command) ? "command" : known.agent) ??
    (yield* ask(
      Prompt.Select({
        message: "The program that replies to messages",
        choices: ADAPTER_NAMES.filter((name) => name !== "command").map((name) => ({ title: name, value: name }))
      }),
      `Name the program that answers: --agent (${ADAPTER_NAMES.join(", ")})`
    ))
  const allow = Option.getOrUndefined(Option.map(given.allow, parseAllow)) ?? known.allow ?? (yield* askAllow(handle))

  const draft = {
    ...before,
    server,
    agents: { ...before.agents, [handle]: { ...known, key, agent, allow, ...command === undefined ? {} : { command } } }
  }
  const file = yield* wordFrom(parseFile(JSON.stringify(draft)), path)
  if (JSON.stringify(draft) !== JSON.stringify(before)) {
    yield* writeSettings(path, draft)
    yield* Console.error(`parley connect: ${path} written`)
  }
  return yield* wordFrom(settingsOf(file, handle), path)
})

/** The settings of an agent that is already in connect.json. */
export const known = Effect.fnUntraced(function*(handle: Option.Option<string>) {
  const path = settingsPath(process.env)
  const text = yield* readSettings(path)
  if (text === undefined) return yield* invalid(`there is no ${path}: start with parley connect --as and a handle`)
  const file = yield* wordFrom(parseFile(text), path)
  const settings: Settings = yield* wordFrom(settingsOf(file, yield* handleIn(file.agents, handle)), path)
  return settings
})

import { Data, Result, Schema } from "effect"
import { ADAPTER_NAMES } from "./programs/Adapters.ts"

/** connect.json, a flag or an environment variable is invalid. The message tells what to change. */
export class SettingsInvalid extends Data.TaggedError("SettingsInvalid")<{ readonly message: string }> {}

const Argv = Schema.Array(Schema.NonEmptyString).check(Schema.isMinLength(1))
const Whole = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

/** The program for `"agent": "command"`. `resume` may contain `{session}`. Without `resume`, `new` is used. */
export const CommandSettings = Schema.Struct({
  new: Argv,
  resume: Schema.optionalKey(Argv),
  /**
   * How the reply is read. `stdout`: the reply is all of standard output. `json`: standard output contains a JSON
   * object `{"text": …, "session": …}`.
   */
  text: Schema.optionalKey(Schema.Literals(["stdout", "json"]))
})

/** Whose messages start runs: agents in the contacts, all agents, or the agents with these handles. */
export const Allow = Schema.Union([Schema.Literals(["contacts", "all"]), Schema.Array(Schema.NonEmptyString)])

/**
 * Which messages start a run if `allow` permits the sender: direct messages, or messages in a group that mention the
 * agent.
 */
export const Wake = Schema.Literals(["direct", "mentions"])

const AgentSettings = Schema.Struct({
  key: Schema.String.check(Schema.isPattern(/^ac_\S+$/)),
  agent: Schema.optionalKey(Schema.Literals(ADAPTER_NAMES)),
  allow: Schema.optionalKey(Allow),
  command: Schema.optionalKey(CommandSettings),
  wake: Schema.optionalKey(Schema.Array(Wake)),
  /**
   * Who sends the reply. `output`: the connector sends the program's final text. `tools`: the program sends messages
   * with Parley's tools.
   */
  reply: Schema.optionalKey(Schema.Literals(["output", "tools"])),
  /** Environment variables of a run besides PATH, LANG and HOME, such as the API key of the model's vendor. */
  env: Schema.optionalKey(Schema.Record(Schema.String, Schema.String)),
  /** Additional arguments of the program, for example to choose its model. */
  args: Schema.optionalKey(Schema.Array(Schema.String)),
  /** Whether the connector may run a program that it cannot prevent from reading the user's files. */
  allowReads: Schema.optionalKey(Schema.Boolean),
  settleMs: Schema.optionalKey(Whole(0, 600_000)),
  maxBatch: Schema.optionalKey(Whole(1, 100)),
  concurrency: Schema.optionalKey(Whole(1, 64)),
  runSeconds: Schema.optionalKey(Whole(1, 86_400)),
  /** How many seconds to wait after each failed run in a row. After one more failure, the conversation is parked. */
  retrySeconds: Schema.optionalKey(Schema.Array(Whole(0, 86_400))),
  outputBytes: Schema.optionalKey(Whole(1, 32_768)),
  logDays: Schema.optionalKey(Whole(1, 3_650)),
  hops: Schema.optionalKey(Whole(0, 1_000)),
  runsPerConversationHour: Schema.optionalKey(Whole(0, 1_000_000)),
  runsPerHour: Schema.optionalKey(Whole(0, 1_000_000)),
  runsPerDay: Schema.optionalKey(Whole(0, 1_000_000)),
  /** The port on 127.0.0.1 that serves the status; 0 for none. */
  statusPort: Schema.optionalKey(Whole(0, 65_535))
})

/** connect.json in the user's configuration folder. */
export const ConnectFile = Schema.Struct({
  server: Schema.String.check(Schema.isPattern(/^https?:\/\/[^\s/]+\/?$/)),
  agents: Schema.Record(Schema.String, AgentSettings)
})
export type ConnectFile = typeof ConnectFile.Type

/** The defaults of the settings. `allow` and `agent` have no default. */
export const DEFAULTS = {
  wake: ["direct", "mentions"],
  reply: "output",
  env: {},
  args: [],
  allowReads: false,
  settleMs: 1_500,
  maxBatch: 30,
  concurrency: 2,
  runSeconds: 480,
  retrySeconds: [30, 300],
  outputBytes: 32_768,
  logDays: 14,
  hops: 4,
  runsPerConversationHour: 6,
  runsPerHour: 30,
  runsPerDay: 200,
  statusPort: 0
} as const satisfies Partial<typeof AgentSettings.Type>

/** The settings of one agent, including the defaults. */
export type Settings =
  & { readonly server: string; readonly handle: string }
  & Required<Omit<typeof AgentSettings.Type, "command">>
  & Pick<typeof AgentSettings.Type, "command">

const decode = Schema.decodeUnknownResult(ConnectFile, { onExcessProperty: "error", errors: "all" })

/**
 * Reads the text of connect.json. Refuses a setting with an unknown name, because the name may be a misspelled limit.
 */
export const parseFile = (text: string): Result.Result<ConnectFile, string> => {
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch (error) {
    return Result.fail(`it is not JSON: ${error instanceof Error ? error.message : String(error)}`)
  }
  return Result.mapError(decode(json), (error) => error.message.replaceAll(/\s*\n\s*/g, " "))
}

/** The settings of the agent `handle`, or a message that tells what is missing. */
export const settingsOf = (file: ConnectFile, handle: string): Result.Result<Settings, string> => {
  const found = file.agents[handle]
  if (found === undefined) return Result.fail(`connect.json has no agent ${handle}`)
  const { agent, allow } = found
  if (allow === undefined) {
    return Result.fail(
      `"allow" is missing, which says whose messages may start runs. Write it for ${handle} in connect.json: "contacts" (agents in its contacts, ` +
        `among them every agent that it ever answered), "all", or a list of handles`
    )
  }
  if (agent === undefined)
    return Result.fail(
      `no program is named. Write "agent" for ${handle} in connect.json, or pass --agent (${ADAPTER_NAMES.join(", ")})`
    )
  if (agent === "command" && found.command === undefined)
    return Result.fail(
      `"agent": "command" needs --command and a program, or "command": {"new": ["program", "argument", …]} in connect.json`
    )
  if (found.reply === "tools" && allow === "all") {
    return Result.fail(
      `with "reply": "tools", an agent that starts a run can make it read and send as ${handle}. Write "allow": "contacts", or a list of handles`
    )
  }
  return Result.succeed({ ...DEFAULTS, ...found, agent, allow, handle, server: file.server.replace(/\/$/, "") })
}

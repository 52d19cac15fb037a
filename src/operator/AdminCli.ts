import { Console, Context, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { userInfo } from "node:os"
import type { OperatorAnswer, OperatorCommand } from "./OperatorCommand.ts"

/** Carries out commands: through the running server, or in this process. */
export class Desk extends Context.Service<Desk, {
  readonly perform: (command: OperatorCommand) => Effect.Effect<OperatorAnswer, { readonly message: string }>
}>()("parley/operator/AdminCli/Desk") {}

/** The name of the operating system's user; its number if it has none, as in containers. */
const whoAmI = (): string => {
  try {
    return userInfo().username
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`
  }
}

const json = Flag.Boolean("json").pipe(Flag.withDescription("Print JSON instead of text"), Flag.withDefault(false))
const reason = Flag.String("reason").pipe(Flag.withDescription("Why, for the audit log"), Flag.optional)
const limit = Flag.Int("limit").pipe(Flag.withDescription("How many at most, the newest first (up to 1000)"), Flag.withDefault(50))
const handle = Argument.String("handle").pipe(Argument.withDescription("The agent's handle"))

/** Adds an example to a command; `rest` is what is typed after its name. */
const example = (description: string, rest = "") =>
  Command.withExamples(({ commandPath }) => [{ command: [...commandPath, rest].join(" ").trimEnd(), description }])

const perform = (command: OperatorCommand, asJson: boolean) =>
  Effect.flatMap(Desk, (desk) => desk.perform(command)).pipe(
    Effect.flatMap(({ data, text }) => Console.log(asJson ? JSON.stringify(data, null, 2) : text))
  )

const show = Command.make("show", { handle, json }, (given) =>
  perform({ _tag: "Show", handle: given.handle, operator: whoAmI() }, given.json)).pipe(
  Command.withDescription("Show an agent's state and the reasons for it: what counts against it, until when, and what operators did"),
  example("How things are with ada", "ada")
)

const suspend = Command.make("suspend", { handle, reason, json }, (given) =>
  perform(
    { _tag: "Suspend", handle: given.handle, operator: whoAmI(), reason: Option.getOrNull(given.reason) },
    given.json
  )).pipe(
    Command.withDescription("Suspend an agent: its sends are refused from now on, its sockets closed within a second"),
    example("Suspend ada, and say why in the audit log", "ada --reason \"sends advertisements\"")
  )

const restore = Command.make("restore", { handle, reason, json }, (given) =>
  perform(
    { _tag: "Restore", handle: given.handle, operator: whoAmI(), reason: Option.getOrNull(given.reason) },
    given.json
  )).pipe(
    Command.withDescription("End an agent's suspension or restriction; no block or report up to now counts any more"),
    example("Let ada send again", "ada")
  )

const create = Command.make("create", {
  handles: Argument.String("handle").pipe(
    Argument.withDescription("One handle or several"),
    Argument.variadic({ min: 1 })
  ),
  email: Flag.String("email").pipe(
    Flag.withDescription("Its address, to recover by; without one it has none that works"),
    Flag.optional
  ),
  displayName: Flag.String("display-name").pipe(Flag.withDescription("The name to show"), Flag.optional),
  json
}, (given) =>
  perform({
    _tag: "Create",
    handles: given.handles,
    email: Option.getOrNull(given.email),
    displayName: Option.getOrNull(given.displayName),
    operator: whoAmI()
  }, given.json)).pipe(
    Command.withDescription("Make agents that are ready to use, all or none; each key is printed once and kept nowhere"),
    example("Two agents at once", "scout planner")
  )

const agents = Command.make("agents").pipe(
  Command.withDescription("Look at, suspend, restore and make agents"),
  example("A new agent", "create scout"),
  Command.withSubcommands([show, suspend, restore, create])
)

const reports = Command.make("reports").pipe(
  Command.withDescription("Look at what agents have reported"),
  example("The newest ten", "list --limit 10"),
  Command.withSubcommands([
    Command.make("list", { limit, json }, (given) =>
      perform({ _tag: "Reports", limit: given.limit, operator: whoAmI() }, given.json)).pipe(
      Command.withDescription("List the newest reports, and whether each counts: only those by agents it wrote to first do"),
      example("The newest ten", "--limit 10")
    )
  ])
)

const webhooks = Command.make("webhooks").pipe(
  Command.withDescription("Look at what could not be delivered"),
  example("The newest ten", "dead --limit 10"),
  Command.withSubcommands([
    Command.make("dead", { limit, json }, (given) =>
      perform({ _tag: "DeadWebhooks", limit: given.limit, operator: whoAmI() }, given.json)).pipe(
      Command.withDescription("List webhook deliveries that were given up, the newest first"),
      example("The newest ten", "--limit 10")
    )
  ])
)

const audit = Command.make("audit").pipe(
  Command.withDescription("Look at what operators, and enforcement, did"),
  example("What concerns ada", "list --agent ada"),
  Command.withSubcommands([
    Command.make("list", {
      agent: Flag.String("agent").pipe(Flag.withDescription("Only what concerns this handle"), Flag.optional),
      limit,
      json
    }, (given) => perform({ _tag: "Audit", limit: given.limit, handle: Option.getOrNull(given.agent) }, given.json)).pipe(
      Command.withDescription("List the newest entries of the audit log"),
      example("What concerns ada", "--agent ada")
    )
  ])
)

const restored = Command.make("restored", { json }, (given) =>
  perform({ _tag: "Restored", operator: whoAmI() }, given.json)).pipe(
    Command.withDescription("Run once after the database was restored from a backup: no number that was given out since is given out again"),
    Command.withShortDescription("Run once after the database was restored from a backup"),
    example("After the restore, before the server starts")
  )

const config = Command.make("config", { json }, (given) => perform({ _tag: "Config" }, given.json)).pipe(
  Command.withDescription("Show every setting in effect, secrets redacted: of the server that runs on DATA_DIR, else of this environment"),
  Command.withShortDescription("Show every setting in effect, secrets redacted"),
  example("As JSON", "--json")
)

/** The command `parley admin`. */
export const admin = Command.make("admin").pipe(
  Command.withDescription("Give an operator's command, with the DATA_DIR or DATABASE_URL of the server, which may run meanwhile."),
  Command.withShortDescription("Give an operator's command"),
  Command.withExamples(({ commandPath }) => [
    { command: `${commandPath.join(" ")} agents create scout`, description: "An agent that is ready to use" },
    { command: `${commandPath.join(" ")} config`, description: "Every setting of the server that runs on ./data" }
  ]),
  Command.withSubcommands([agents, reports, webhooks, audit, restored, config])
)

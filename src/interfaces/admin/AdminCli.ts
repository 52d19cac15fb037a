import { AccountStatus } from "#interfaces/operator/AgentAdmin"
import { ReportState } from "#interfaces/operator/Reports"
import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { AdminClient, cursor, example, handle, json, reason, whoAmI } from "./AdminClient.ts"
import { backup, compact, erase, exportCommand, restore as restoreBackup } from "./DataCli.ts"
import type { OperatorCommand } from "./OperatorCommand.ts"
import { agentCommands, connections, groups, limits, nodes, reportCommands, webhookCommands } from "./ServerCli.ts"

const limit = Flag.Int("limit").pipe(
  Flag.withDescription("The most entries to show, the newest first (up to 1000)"),
  Flag.withDefault(50)
)

const perform = (command: OperatorCommand, asJson: boolean) =>
  Effect.flatMap(AdminClient, (client) => client.perform(command)).pipe(
    Effect.flatMap(({ data, text }) => Console.log(asJson ? JSON.stringify(data, null, 2) : text))
  )

const list = Command.make("list", {
  status: Flag.Literals("status", AccountStatus.literals).pipe(
    Flag.withDescription("Only agents with this status"),
    Flag.optional
  ),
  limit: Flag.Int("limit").pipe(Flag.withDescription("The most agents to show (up to 1000)"), Flag.withDefault(50)),
  cursor,
  json
}, (given) =>
  perform({
    _tag: "Agents",
    limit: given.limit,
    status: Option.getOrNull(given.status),
    cursor: Option.getOrNull(given.cursor),
    operator: whoAmI()
  }, given.json)).pipe(
    Command.withDescription(
      "List agents by their handles: status, when they were created, how many messages wait for them, and since when"
    ),
    example("Those that are suspended", "--status suspended")
  )

const show = Command.make(
  "show",
  { handle, json },
  (given) => perform({ _tag: "Show", handle: given.handle, operator: whoAmI() }, given.json)
).pipe(
  Command.withDescription(
    "Show an agent's state and the reasons for it: what counts against it, until when, and what operators did"
  ),
  example("The state of ada", "ada")
)

const suspend = Command.make("suspend", { handle, reason, json }, (given) =>
  perform(
    { _tag: "Suspend", handle: given.handle, operator: whoAmI(), reason: Option.getOrNull(given.reason) },
    given.json
  )).pipe(
    Command.withDescription("Suspend an agent: its sends are refused from now on, its sockets closed within a second"),
    example("Suspend ada, and say why in the audit log", 'ada --reason "sends advertisements"')
  )

const restore = Command.make("restore", { handle, reason, json }, (given) =>
  perform(
    { _tag: "Restore", handle: given.handle, operator: whoAmI(), reason: Option.getOrNull(given.reason) },
    given.json
  )).pipe(
    Command.withDescription("End an agent's suspension or restriction; earlier blocks and reports no longer count"),
    example("Let ada send again", "ada")
  )

const create = Command.make("create", {
  handles: Argument.String("handle").pipe(
    Argument.withDescription("One handle or several"),
    Argument.variadic({ min: 1 })
  ),
  email: Flag.String("email").pipe(
    Flag.withDescription("Its e-mail address, to recover the key by; without one the key cannot be recovered"),
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
    Command.withDescription(
      "Create agents that are ready to use, all or none; each key is printed once and stored nowhere"
    ),
    example("Two agents at once", "scout planner")
  )

const agents = Command.make("agents").pipe(
  Command.withDescription("List, show, suspend, restore, disconnect and create agents"),
  example("A new agent", "create scout"),
  Command.withSubcommands([list, show, suspend, restore, create, ...agentCommands])
)

const state = Flag.Literals("state", ReportState.literals).pipe(
  Flag.withDescription("Only reports in this state; open reports are not decided yet"),
  Flag.optional
)

const reports = Command.make("reports").pipe(
  Command.withDescription("List what agents have reported, and decide it"),
  example("The newest ten", "list --limit 10"),
  Command.withSubcommands([
    Command.make(
      "list",
      { state, limit, json },
      (given) =>
        perform(
          { _tag: "Reports", limit: given.limit, state: Option.getOrNull(given.state), operator: whoAmI() },
          given.json
        )
    ).pipe(
      Command.withDescription(
        "List the newest reports, and whether each counts, as it does if the reported agent wrote first"
      ),
      example("The reports that are not decided yet", "--state open")
    ),
    ...reportCommands
  ])
)

const webhooks = Command.make("webhooks").pipe(
  Command.withDescription("List what could not be delivered, and retry it"),
  example("The newest ten", "dead --limit 10"),
  Command.withSubcommands([
    Command.make(
      "dead",
      { limit, json },
      (given) => perform({ _tag: "DeadWebhooks", limit: given.limit, operator: whoAmI() }, given.json)
    ).pipe(
      Command.withDescription("List dead webhook deliveries (all attempts failed), the newest first"),
      example("The newest ten", "--limit 10")
    ),
    ...webhookCommands
  ])
)

const audit = Command.make("audit").pipe(
  Command.withDescription("Show what operators and enforcement did"),
  example("What concerns ada", "list --agent ada"),
  Command.withSubcommands([
    Command.make("list", {
      agent: Flag.String("agent").pipe(Flag.withDescription("Only what concerns this handle"), Flag.optional),
      by: Flag.String("by").pipe(Flag.withDescription("Only what this operator did"), Flag.optional),
      changes: Flag.Boolean("changes").pipe(
        Flag.withDescription("Leave out actions that only read"),
        Flag.withDefault(false)
      ),
      limit,
      json
    }, (given) =>
      perform({
        _tag: "Audit",
        limit: given.limit,
        handle: Option.getOrNull(given.agent),
        by: Option.getOrNull(given.by),
        looks: !given.changes,
        operator: whoAmI()
      }, given.json)).pipe(
        Command.withDescription("List the newest entries of the audit log"),
        example("What concerns ada", "--agent ada")
      )
  ])
)

const restored = Command.make(
  "restored",
  { json },
  (given) => perform({ _tag: "Restored", operator: whoAmI() }, given.json)
).pipe(
  Command.withDescription(
    "Run once after the database was restored from a backup: numbers that were assigned after the backup are not assigned again"
  ),
  Command.withShortDescription("Run once after the database was restored from a backup"),
  example("After the restore, before the server starts")
)

const config = Command.make("config", { json }, (given) => perform({ _tag: "Config" }, given.json)).pipe(
  Command.withDescription(
    "Show every setting in effect, secrets redacted: of the server that runs on DATA_DIR, else of this environment"
  ),
  Command.withShortDescription("Show every setting in effect, secrets redacted"),
  example("As JSON", "--json")
)

const access = Command.make(
  "console",
  { json },
  (given) => perform({ _tag: "ConsoleLink", operator: whoAmI() }, given.json)
).pipe(
  Command.withDescription("Print a link that opens the operators' console once, within 5 minutes, for 12 hours"),
  example("Sign in"),
  Command.withSubcommands([
    Command.make("token", {
      name: Argument.String("name").pipe(Argument.withDescription("What the token is for")),
      days: Flag.Int("days").pipe(
        Flag.withDescription("For how many days it is valid (up to 365)"),
        Flag.withDefault(90)
      ),
      json
    }, (given) => perform({ _tag: "ConsoleToken", name: given.name, days: given.days, operator: whoAmI() }, given.json))
      .pipe(
        Command.withDescription(
          "Make a token with which a program may use the operators' API; it is printed once and stored nowhere"
        ),
        example("For a script", "nightly-report --days 30")
      ),
    Command.make("sessions", { json }, (given) => perform({ _tag: "ConsoleSessions", operator: whoAmI() }, given.json))
      .pipe(
        Command.withDescription("List the sessions and program tokens that are valid"),
        example("Who has access")
      ),
    Command.make("end", {
      id: Argument.String("id").pipe(Argument.withDescription("Of a session or token, as `console sessions` shows it")),
      json
    }, (given) => perform({ _tag: "EndConsoleAccess", id: given.id, operator: whoAmI() }, given.json)).pipe(
      Command.withDescription("End a session or token, on every node"),
      example("A token that leaked", "opt_0f1e2d3c4b5a69788796")
    )
  ])
)

/** The command `parley admin`. */
export const admin = Command.make("admin").pipe(
  Command.withDescription(
    "Run an operator's command, with the DATA_DIR or DATABASE_URL of the server, which may run meanwhile."
  ),
  Command.withShortDescription("Run an operator's command"),
  Command.withExamples(({ commandPath }) => [
    { command: `${commandPath.join(" ")} agents create scout`, description: "An agent that is ready to use" },
    { command: `${commandPath.join(" ")} config`, description: "Every setting of the server that runs on ./data" }
  ]),
  Command.withSubcommands([
    agents,
    nodes,
    limits,
    groups,
    reports,
    webhooks,
    connections,
    audit,
    access,
    exportCommand,
    erase,
    backup,
    restoreBackup,
    restored,
    compact,
    config
  ])
)

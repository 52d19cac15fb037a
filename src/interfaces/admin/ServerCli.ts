import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { ask } from "./AdminClient.ts"
import { fieldsOf, get, path, post, withQuery } from "./ApiCall.ts"
import { example, handle, json, reason, server } from "./Flags.ts"

const address = Argument.String("node").pipe(
  Argument.withDescription("RUNNER_HOST:RUNNER_PORT of the node, as shown by `nodes list`")
)

export const nodes = Command.make("nodes").pipe(
  Command.withDescription("Show the nodes of a cluster, drain a node, or change its log level"),
  example("All nodes, and what they depend on", "list"),
  Command.withSubcommands([
    Command.make("list", { server, json }, (given) => ask(given, get("/overview")))
      .pipe(
        Command.withDescription("Show all nodes with their figures, and the state of database, Redis, files and mail"),
        example("All nodes")
      ),
    Command.make(
      "look",
      { address, server, json },
      (given) => ask(given, get(path`/nodes/${given.address}`))
    ).pipe(
      Command.withDescription(
        "Show one node with its figures; with --json also those of the last minute, hour and day"
      ),
      example("One node", "10.0.0.5:14431")
    ),
    Command.make(
      "problems",
      { address, server, json },
      (given) => ask(given, get(path`/nodes/${given.address}/problems`))
    ).pipe(
      Command.withDescription("Show the newest warnings and errors that a node has logged"),
      example("One node", "10.0.0.5:14431")
    ),
    Command.make(
      "drain",
      { address, server, json },
      (given) => ask(given, post(path`/nodes/${given.address}/drain`))
    ).pipe(
      Command.withDescription(
        "Drain a node without stopping it: the node is not ready, closes its sockets and releases its shards"
      ),
      example("Before work on its machine", "10.0.0.5:14431")
    ),
    Command.make(
      "undrain",
      { address, server, json },
      (given) => ask(given, post(path`/nodes/${given.address}/undrain`))
    ).pipe(
      Command.withDescription("Let a drained node serve again"),
      example("After the work", "10.0.0.5:14431")
    ),
    Command.make(
      "log-level",
      {
        address,
        level: Argument.String("level").pipe(Argument.withDescription("debug, info, warn or error")),
        server,
        json
      },
      (given) =>
        ask(given, { method: "PUT", path: path`/nodes/${given.address}/log-level`, body: { level: given.level } })
    ).pipe(
      Command.withDescription("Change the log level of a node until it is restarted"),
      example("Everything", "10.0.0.5:14431 debug")
    )
  ])
)

const agent = Flag.String("agent").pipe(
  Flag.withDescription("Handle of one agent; without this flag, the limit of all agents"),
  Flag.optional
)
const limitName = Argument.String("limit").pipe(
  Argument.withDescription("Setting of the limit, such as LIMITS_SENDS_PER_SECOND")
)

export const limits = Command.make("limits").pipe(
  Command.withDescription("Show limits, and change them while the servers run"),
  example("All limits", "list"),
  Command.withSubcommands([
    Command.make(
      "list",
      { agent, server, json },
      (given) => ask(given, get(withQuery("/limits", { agent: given.agent })))
    ).pipe(
      Command.withDescription("Show every limit, its value in force, and what operators changed"),
      example("The limits of ada", "--agent ada")
    ),
    Command.make("near", { server, json }, (given) => ask(given, get("/limits/near"))).pipe(
      Command.withDescription(
        "List the agents that have used at least 80 % of a rate limit, of their unanswered conversations, or of a budget"
      ),
      example("Those that have used most first")
    ),
    Command.make("set", {
      name: limitName,
      value: Argument.Int("value").pipe(Argument.withDescription("The new value")),
      agent,
      until: Flag.String("until").pipe(
        Flag.withDescription(
          "When the change ends, such as 2026-12-01T00:00:00Z; without this flag, the change does not end"
        ),
        Flag.optional
      ),
      reason,
      server,
      json
    }, (given) =>
      ask(given, {
        method: "PUT",
        path: path`/limits/${given.name}`,
        body: {
          value: given.value,
          agent: Option.getOrNull(given.agent),
          until: Option.getOrNull(given.until),
          ...fieldsOf({ reason: given.reason })
        }
      })).pipe(
        Command.withDescription(
          "Change a limit for all agents or for one; the change takes effect on every node within a second, and survives restarts"
        ),
        example("Slow one agent down", 'LIMITS_SENDS_PER_SECOND 5 --agent ada --reason "floods a group"')
      ),
    Command.make(
      "reset",
      { name: limitName, agent, server, json },
      (given) => ask(given, { method: "DELETE", path: withQuery(path`/limits/${given.name}`, { agent: given.agent }) })
    ).pipe(
      Command.withDescription("Undo a change: the limit of the configuration applies again"),
      example("Back to the configuration", "LIMITS_SENDS_PER_SECOND --agent ada")
    )
  ])
)

const refused = {
  what: Argument.Literals("what", ["client", "redirect_host"]).pipe(
    Argument.withDescription(
      "`client` for a client by its id; `redirect_host` for all clients that send people to a host after the sign-in"
    )
  ),
  value: Argument.String("value").pipe(
    Argument.withDescription("The client id; or the host, as `agents look` shows it")
  )
}

export const connections = Command.make("connections").pipe(
  Command.withDescription("Show and end OAuth connections; refuse clients, and allow them again"),
  example("The number of connections, and the refused clients", "list"),
  Command.withSubcommands([
    Command.make("list", { server, json }, (given) => ask(given, get("/connections")))
      .pipe(
        Command.withDescription(
          "Show the number of live connections, and the clients and hosts that operators refuse; `agents look` shows the connections of one agent"
        ),
        Command.withShortDescription("Show the number of live connections, and the refused clients"),
        example("The refused clients")
      ),
    Command.make(
      "end",
      { handle, reason, server, json },
      (given) => ask(given, post(path`/agents/${given.handle}/connections/end`, fieldsOf({ reason: given.reason })))
    ).pipe(
      Command.withDescription("End all connections of an agent; its key stays valid"),
      example("The connections of ada", "ada")
    ),
    Command.make("end-all", {
      yes: Flag.Boolean("yes").pipe(
        Flag.withDescription("Confirm the command: afterwards the owner of each agent must allow each program again"),
        Flag.withDefault(false)
      ),
      reason,
      server,
      json
    }, (given) =>
      given.yes
        ? ask(given, post("/connections/end", fieldsOf({ reason: given.reason })))
        : Effect.fail({
          message: "Nothing was done. Run the command with --yes to end the connections of all agents."
        })).pipe(
        Command.withDescription("End the connections of all agents; their keys stay valid"),
        example("After a leak of tokens", '--yes --reason "tokens have leaked"')
      ),
    Command.make(
      "refuse",
      { ...refused, reason, server, json },
      ({ value, what, ...given }) =>
        ask(given, post("/connections/refuse", { kind: what, value, ...fieldsOf({ reason: given.reason }) }))
    ).pipe(
      Command.withDescription("Refuse a client, or a host of redirects, from now on, and end its connections"),
      example(
        "All programs that send people to a site",
        'redirect_host evil.example --reason "imitates another program"'
      )
    ),
    Command.make(
      "allow",
      { ...refused, reason, server, json },
      ({ value, what, ...given }) =>
        ask(given, post("/connections/allow", { kind: what, value, ...fieldsOf({ reason: given.reason }) }))
    ).pipe(
      Command.withDescription("Allow a refused client or host again"),
      example("The same site", "redirect_host evil.example")
    )
  ])
)

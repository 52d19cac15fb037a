import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { AdminClient, cursor, example, handle, json, reason, whoAmI } from "./AdminClient.ts"
import type { ApiRequest } from "./AdminClient.ts"
import { lines } from "./TextTable.ts"

const server = Flag.String("server").pipe(
  Flag.withDescription(
    "Address of a running server, as http://host:port; by default the one of this environment (HOST, PORT), or any node of its database"
  ),
  Flag.optional
)
const address = Argument.String("node").pipe(
  Argument.withDescription("RUNNER_HOST:RUNNER_PORT, as `nodes list` shows it")
)

interface Given {
  readonly json: boolean
  readonly server: Option.Option<string>
}

/** Calls the operators' API of a running server, and prints the answer. */
const ask = (given: Given, asked: Pick<ApiRequest, "method" | "path" | "body">) =>
  Effect.flatMap(
    AdminClient,
    (client) => client.ask({ ...asked, operator: whoAmI(), server: Option.getOrNull(given.server) })
  ).pipe(
    Effect.flatMap((answer) => Console.log(given.json ? JSON.stringify(answer, null, 2) : lines(answer)))
  )

const path = (strings: TemplateStringsArray, ...parts: ReadonlyArray<string>): string =>
  `/console/api${strings.map((text, i) => text + encodeURIComponent(parts[i] ?? "")).join("")}`

const because = (why: Option.Option<string>) =>
  Option.match(why, { onNone: () => ({}), onSome: (reason) => ({ reason }) })

/** The fields that were given, as an object. */
const fieldsOf = (fields: Readonly<Record<string, Option.Option<string>>>): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(fields).flatMap(([name, value]) => Option.isSome(value) ? [[name, value.value]] : [])
  )

/** A path with these fields as its query. */
const withQuery = (path: string, fields: Readonly<Record<string, Option.Option<string>>>): string => {
  const query = new URLSearchParams(fieldsOf(fields)).toString()
  return query === "" ? path : `${path}?${query}`
}

/** The commands about an agent that need a running server. */
export const agentCommands = [
  Command.make("find", {
    prefix: Argument.String("prefix").pipe(
      Argument.withDescription("How the handle, or with @ inside the e-mail address, begins")
    ),
    server,
    json
  }, (given) =>
    ask(given, {
      method: "GET",
      path: given.prefix.indexOf("@") > 0 ? path`/agents?email=${given.prefix}` : path`/agents?handle=${given.prefix}`
    })).pipe(
      Command.withDescription("Find agents by the beginning of their handle or e-mail address"),
      example("All whose handle begins with sc", "sc")
    ),
  Command.make(
    "waiting",
    { server, json },
    (given) => ask(given, { method: "GET", path: "/console/api/agents?order=waiting" })
  ).pipe(
    Command.withDescription(
      "List the agents for which the most messages wait, and since when: agents that are slow, stuck or offline"
    ),
    example("Who is slow")
  ),
  Command.make(
    "look",
    { handle, server, json },
    (given) => ask(given, { method: "GET", path: path`/agents/${given.handle}` })
  ).pipe(
    Command.withDescription("Show an agent's state on the running servers: inbox, sockets, rates, webhooks"),
    example("The state of ada", "ada")
  ),
  Command.make(
    "why",
    { handle, server, json },
    (given) => ask(given, { method: "GET", path: path`/agents/${given.handle}/why` })
  ).pipe(
    Command.withDescription(
      "Show why an agent gets no messages: the chain from its inbox to its sockets, and the link that stops"
    ),
    example("Why ada gets nothing", "ada")
  ),
  Command.make(
    "disconnect",
    { handle, reason, server, json },
    (given) =>
      ask(given, { method: "POST", path: path`/agents/${given.handle}/disconnect`, body: because(given.reason) })
  ).pipe(
    Command.withDescription("Close an agent's sockets on all nodes; its clients may connect again at once"),
    example("Close ada's sockets", "ada")
  )
] as const

export const nodes = Command.make("nodes").pipe(
  Command.withDescription("Show the nodes of a cluster, drain one, change what it logs"),
  example("All nodes, and what they depend on", "list"),
  Command.withSubcommands([
    Command.make("list", { server, json }, (given) => ask(given, { method: "GET", path: "/console/api/overview" }))
      .pipe(
        Command.withDescription("Show all nodes with their figures, and the state of database, Redis, files and mail"),
        example("All nodes")
      ),
    Command.make(
      "look",
      { address, server, json },
      (given) => ask(given, { method: "GET", path: path`/nodes/${given.address}` })
    ).pipe(
      Command.withDescription("Show one node with its figures; with --json also the last minute and hour of them"),
      example("One node", "10.0.0.5:14431")
    ),
    Command.make(
      "drain",
      { address, server, json },
      (given) => ask(given, { method: "POST", path: path`/nodes/${given.address}/drain` })
    ).pipe(
      Command.withDescription(
        "Take a node out without ending it: it is not ready, closes its sockets and gives up its shards"
      ),
      example("Before work on its machine", "10.0.0.5:14431")
    ),
    Command.make(
      "undrain",
      { address, server, json },
      (given) => ask(given, { method: "POST", path: path`/nodes/${given.address}/undrain` })
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
      Command.withDescription("Change what a node logs, until it is restarted"),
      example("Everything", "10.0.0.5:14431 debug")
    )
  ])
)

const agent = Flag.String("agent").pipe(
  Flag.withDescription("Only for this handle; without it for all agents"),
  Flag.optional
)
const limitName = Argument.String("limit").pipe(Argument.withDescription("Its setting, as LIMITS_SENDS_PER_SECOND"))

export const limits = Command.make("limits").pipe(
  Command.withDescription("Show limits, and change them while the servers run"),
  example("All limits", "list"),
  Command.withSubcommands([
    Command.make(
      "list",
      { agent, server, json },
      (given) =>
        ask(given, {
          method: "GET",
          path: Option.match(given.agent, {
            onNone: () => "/console/api/limits",
            onSome: (one) => path`/limits?agent=${one}`
          })
        })
    ).pipe(
      Command.withDescription("Show every limit, its value in force, and what operators changed"),
      example("What holds for ada", "--agent ada")
    ),
    Command.make("set", {
      name: limitName,
      value: Argument.Int("value").pipe(Argument.withDescription("The new value")),
      agent,
      until: Flag.String("until").pipe(
        Flag.withDescription("When the change ends, as 2026-12-01T00:00:00Z; without it, it stays"),
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
          ...because(given.reason)
        }
      })).pipe(
        Command.withDescription(
          "Change a limit for all or for one agent; in force on every node within a second, and after restarts"
        ),
        example("Slow one agent down", 'LIMITS_SENDS_PER_SECOND 5 --agent ada --reason "floods a group"')
      ),
    Command.make("reset", { name: limitName, agent, server, json }, (given) =>
      ask(given, {
        method: "DELETE",
        path: Option.match(given.agent, {
          onNone: () => path`/limits/${given.name}`,
          onSome: (one) => path`/limits/${given.name}?agent=${one}`
        })
      })).pipe(
        Command.withDescription("Undo a change: the limit of the configuration applies again"),
        example("As before", "LIMITS_SENDS_PER_SECOND --agent ada")
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
  Command.withDescription("Show and end connections by OAuth; refuse clients, and allow them again"),
  example("How many there are, and who is refused", "list"),
  Command.withSubcommands([
    Command.make("list", { server, json }, (given) => ask(given, { method: "GET", path: "/console/api/connections" }))
      .pipe(
        Command.withDescription(
          "Show how many connections are live, and the clients and hosts that operators refuse; `agents look` shows those of an agent"
        ),
        Command.withShortDescription("Show how many connections are live, and who is refused"),
        example("Who is refused")
      ),
    Command.make(
      "end",
      { handle, reason, server, json },
      (given) =>
        ask(given, { method: "POST", path: path`/agents/${given.handle}/connections/end`, body: because(given.reason) })
    ).pipe(
      Command.withDescription("End all connections of an agent; its key stays"),
      example("Those of ada", "ada")
    ),
    Command.make("end-all", {
      yes: Flag.Boolean("yes").pipe(
        Flag.withDescription("Confirm it: the owner of each agent must allow each program again"),
        Flag.withDefault(false)
      ),
      reason,
      server,
      json
    }, (given) =>
      given.yes
        ? ask(given, { method: "POST", path: "/console/api/connections/end", body: because(given.reason) })
        : Effect.fail({
          message: "Nothing was done. Run the command with --yes to end the connections of all agents."
        })).pipe(
        Command.withDescription("End the connections of all agents; their keys stay"),
        example("After a leak of tokens", '--yes --reason "tokens have leaked"')
      ),
    Command.make(
      "refuse",
      { ...refused, reason, server, json },
      ({ value, what, ...given }) =>
        ask(given, {
          method: "POST",
          path: "/console/api/connections/refuse",
          body: { kind: what, value, ...because(given.reason) }
        })
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
        ask(given, {
          method: "POST",
          path: "/console/api/connections/allow",
          body: { kind: what, value, ...because(given.reason) }
        })
    ).pipe(
      Command.withDescription("Allow a refused client or host again"),
      example("The same site", "redirect_host evil.example")
    )
  ])
)

export const groups = Command.make("groups").pipe(
  Command.withDescription("Show groups and their members, never their messages"),
  example("All that ada is in", "find --member ada"),
  Command.withSubcommands([
    Command.make(
      "find",
      {
        name: Flag.String("name").pipe(Flag.withDescription("A part of the name"), Flag.optional),
        member: Flag.String("member").pipe(Flag.withDescription("The handle of a member"), Flag.optional),
        cursor,
        server,
        json
      },
      ({ cursor, member, name, ...given }) =>
        ask(given, { method: "GET", path: withQuery("/console/api/groups", { name, member, cursor }) })
    ).pipe(
      Command.withDescription("Find groups by a part of their name, or by a member"),
      example("All that ada is in", "--member ada")
    ),
    Command.make("look", {
      id: Argument.String("id").pipe(Argument.withDescription("Of the group, as `groups find` shows it")),
      server,
      json
    }, (given) => ask(given, { method: "GET", path: path`/groups/${given.id}` })).pipe(
      Command.withDescription("Show a group with its members and how many are invited"),
      example("One group", "grp_0f1e2d3c4b5a6978")
    )
  ])
)

const report = Argument.String("id").pipe(Argument.withDescription("Of the report, as `reports list` shows it"))
const note = Flag.String("note").pipe(Flag.withDescription("Why, for later readers of the report"), Flag.optional)

/** The commands that decide reports. */
export const reportCommands = [
  Command.make(
    "uphold",
    { id: report, note, server, json },
    ({ note, ...asked }) =>
      ask(asked, { method: "POST", path: path`/reports/${asked.id}/uphold`, body: fieldsOf({ note }) })
  ).pipe(
    Command.withDescription("Take a report out of the queue; it still counts"),
    example("A report that is right", "rpt_0f1e2d3c4b5a6978 --note seen")
  ),
  Command.make(
    "dismiss",
    { id: report, note, server, json },
    ({ note, ...asked }) =>
      ask(asked, { method: "POST", path: path`/reports/${asked.id}/dismiss`, body: fieldsOf({ note }) })
  ).pipe(
    Command.withDescription(
      "Take a report out of the queue, and stop counting it; a suspension stays until `agents restore`"
    ),
    example("A report that is wrong", 'rpt_0f1e2d3c4b5a6978 --note "a quarrel"')
  )
] as const

/** The commands for dead webhook deliveries. */
export const webhookCommands = [
  Command.make("retry", {
    no: Argument.Int("no").pipe(Argument.withDescription("Of the delivery, as `webhooks dead` shows it")),
    server,
    json
  }, (given) => ask(given, { method: "POST", path: path`/webhooks/dead/${String(given.no)}/retry` })).pipe(
    Command.withDescription(
      "Post a dead delivery again from the first attempt on; turns its webhook on again, and ends its pause"
    ),
    example("One delivery", "42")
  ),
  Command.make(
    "retry-all",
    {
      agent: Flag.String("agent").pipe(Flag.withDescription("Only those of this handle's webhooks"), Flag.optional),
      webhook: Flag.String("webhook").pipe(Flag.withDescription("Only those of this webhook (its id)"), Flag.optional),
      server,
      json
    },
    ({ agent, webhook, ...asked }) =>
      ask(asked, { method: "POST", path: "/console/api/webhooks/retry", body: fieldsOf({ agent, webhook }) })
  ).pipe(
    Command.withDescription("Post all dead deliveries again: of one webhook, of one agent, or of all agents"),
    example("After an outage of ada's host", "--agent ada")
  )
] as const

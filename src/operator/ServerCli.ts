import { Console, Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Desk, example, handle, json, reason, whoAmI } from "./AdminDesk.ts"
import type { Errand } from "./AdminDesk.ts"
import { lines } from "./Lines.ts"

const server = Flag.String("server").pipe(
  Flag.withDescription("Address of a server that runs, as http://host:port; by default the one of this environment (HOST, PORT)"),
  Flag.optional
)
const address = Argument.String("node").pipe(Argument.withDescription("RUNNER_HOST:RUNNER_PORT, as `nodes list` shows it"))

interface Given {
  readonly json: boolean
  readonly server: Option.Option<string>
}

/** Asks a running server by the operators' API, and prints the answer. */
const ask = (given: Given, asked: Pick<Errand, "method" | "path" | "body">) =>
  Effect.flatMap(Desk, (desk) => desk.ask({ ...asked, operator: whoAmI(), server: Option.getOrNull(given.server) })).pipe(
    Effect.flatMap((answer) => Console.log(given.json ? JSON.stringify(answer, null, 2) : lines(answer)))
  )

const path = (strings: TemplateStringsArray, ...parts: ReadonlyArray<string>): string =>
  `/console/api${strings.map((text, i) => text + encodeURIComponent(parts[i] ?? "")).join("")}`

const because = (why: Option.Option<string>) => Option.match(why, { onNone: () => ({}), onSome: (reason) => ({ reason }) })

/** What a server that runs is asked about an agent, beside the commands on the database. */
export const agentCommands = [
  Command.make("find", {
    prefix: Argument.String("prefix").pipe(Argument.withDescription("How the handle, or with @ inside the e-mail address, begins")),
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
  Command.make("look", { handle, server, json }, (given) => ask(given, { method: "GET", path: path`/agents/${given.handle}` })).pipe(
    Command.withDescription("Show how an agent stands on the servers that run: inbox, sockets, rates, webhooks"),
    example("How things are with ada", "ada")
  ),
  Command.make("why", { handle, server, json }, (given) => ask(given, { method: "GET", path: path`/agents/${given.handle}/why` })).pipe(
    Command.withDescription("Say why an agent gets nothing: the chain from its inbox to its sockets, and the link that stops"),
    example("Why ada gets nothing", "ada")
  ),
  Command.make("disconnect", { handle, reason, server, json }, (given) =>
    ask(given, { method: "POST", path: path`/agents/${given.handle}/disconnect`, body: because(given.reason) })).pipe(
    Command.withDescription("Close an agent's sockets on all nodes; its clients may come again at once"),
    example("Close ada's sockets", "ada")
  )
] as const

export const nodes = Command.make("nodes").pipe(
  Command.withDescription("Look at the nodes of a cluster, drain one, change what it logs"),
  example("All nodes, and what they depend on", "list"),
  Command.withSubcommands([
    Command.make("list", { server, json }, (given) => ask(given, { method: "GET", path: "/console/api/overview" })).pipe(
      Command.withDescription("Show all nodes with their figures, and the state of database, Redis, files and mail"),
      example("All nodes")
    ),
    Command.make("drain", { address, server, json }, (given) => ask(given, { method: "POST", path: path`/nodes/${given.address}/drain` })).pipe(
      Command.withDescription("Take a node out without ending it: it is not ready, closes its sockets and gives up its shards"),
      example("Before work on its machine", "10.0.0.5:14431")
    ),
    Command.make("undrain", { address, server, json }, (given) =>
      ask(given, { method: "POST", path: path`/nodes/${given.address}/undrain` })).pipe(
      Command.withDescription("Let a drained node serve again"),
      example("After it", "10.0.0.5:14431")
    ),
    Command.make("log-level", {
      address,
      level: Argument.String("level").pipe(Argument.withDescription("debug, info, warn or error")),
      server,
      json
    }, (given) => ask(given, { method: "PUT", path: path`/nodes/${given.address}/log-level`, body: { level: given.level } })).pipe(
      Command.withDescription("Change what a node logs, until it is restarted"),
      example("Everything", "10.0.0.5:14431 debug")
    )
  ])
)

const agent = Flag.String("agent").pipe(Flag.withDescription("Only for this handle; without it for all"), Flag.optional)
const limitName = Argument.String("limit").pipe(Argument.withDescription("Its setting, as LIMITS_SENDS_PER_SECOND"))

export const limits = Command.make("limits").pipe(
  Command.withDescription("Look at limits, and change them while the servers run"),
  example("All limits", "list"),
  Command.withSubcommands([
    Command.make("list", { agent, server, json }, (given) =>
      ask(given, { method: "GET", path: Option.match(given.agent, { onNone: () => "/console/api/limits", onSome: (one) => path`/limits?agent=${one}` }) })).pipe(
      Command.withDescription("Show every limit, its value in force, and what operators changed"),
      example("What holds for ada", "--agent ada")
    ),
    Command.make("set", {
      name: limitName,
      value: Argument.Int("value").pipe(Argument.withDescription("The new value")),
      agent,
      until: Flag.String("until").pipe(Flag.withDescription("When the change ends, as 2026-12-01T00:00:00Z; without it, it stays"), Flag.optional),
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
        Command.withDescription("Change a limit for all or for one agent; in force on every node within a second, and after restarts"),
        example("Slow one agent down", "LIMITS_SENDS_PER_SECOND 5 --agent ada --reason \"floods a group\"")
      ),
    Command.make("reset", { name: limitName, agent, server, json }, (given) =>
      ask(given, {
        method: "DELETE",
        path: Option.match(given.agent, { onNone: () => path`/limits/${given.name}`, onSome: (one) => path`/limits/${given.name}?agent=${one}` })
      })).pipe(
        Command.withDescription("Take a change back: the configuration holds again"),
        example("As before", "LIMITS_SENDS_PER_SECOND --agent ada")
      )
  ])
)

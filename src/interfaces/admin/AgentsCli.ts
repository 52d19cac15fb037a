import { HandleInput } from "#infrastructure/wire/Text"
import type { AgentDetail } from "#interfaces/console/AgentsApi"
import { AccountStatus, NO_AGENT } from "#interfaces/operator/AgentAccount"
import { Effect, Option, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { ask, call, picked, print } from "./AdminClient.ts"
import type { Answers } from "./Answers.ts"
import { type ApiCall, fieldsOf, get, OperatorRefused, path, post, withQuery } from "./ApiCall.ts"
import { cursor, example, handle, json, reason, server } from "./Flags.ts"
import { columns, plain, table } from "./TextTable.ts"

const DAY_MS = 86_400_000
/** How many entries of the audit log `show` prints, and which fields. */
const LOG = 10
const SHOWN = [
  "handle",
  "id",
  "email",
  "created_at",
  "status",
  "restricted_until",
  "suspended_at",
  "deleted_at",
  "counted_from",
  "counts"
] as const

const spanOf = (ms: number): string =>
  ms > DAY_MS && ms % DAY_MS === 0
    ? `${ms / DAY_MS} days`
    : ms % 3_600_000 === 0
    ? `${ms / 3_600_000} hours`
    : `${ms / 1_000} seconds`

const standing = (agent: AgentDetail): string => {
  switch (agent.status) {
    case "deleted":
      return `deleted at ${agent.deleted_at}`
    case "suspended":
      return `suspended since ${agent.suspended_at ?? "?"}`
    case "restricted":
      return `restricted until ${agent.restricted_until}`
    case "active":
      return "active"
  }
}

/** If a call fails because the agent does not exist, adds the handle to the error message. */
export const naming = (handle: string) => <A, R>(called: Effect.Effect<A, OperatorRefused, R>) =>
  Effect.mapError(called, (error) =>
    error.message === NO_AGENT
      ? new OperatorRefused({ message: `No agent has the handle ${plain(handle)}.` })
      : error)

/** Calls the API about an agent. The error for an unknown agent contains the handle. */
export const callAbout = <A>(
  handle: string,
  schemaOf: (answers: Answers) => Schema.Codec<A, unknown>,
  given: ApiCall
) => naming(handle)(call(schemaOf, given))

const list = Command.make("list", {
  status: Flag.Literals("status", AccountStatus.literals).pipe(
    Flag.withDescription("Only agents with this status"),
    Flag.optional
  ),
  limit: Flag.Int("limit").pipe(
    Flag.withDescription("Maximum number of agents to show (up to 1000)"),
    Flag.withDefault(50)
  ),
  cursor,
  json
}, ({ cursor, json, limit, status }) => {
  const page = call(
    ({ AgentsPage }) => AgentsPage,
    get(withQuery("/agents", { status, limit: Option.some(limit), cursor }))
  )
  const named = Effect.mapError(page, (error) =>
    error.message.startsWith("cursor: ")
      ? new OperatorRefused({ message: "This cursor is not one that `agents list` printed." })
      : error)
  return print(json, named, (data) => {
    const more = data.next_cursor === null ? "" : `\nThere are more: --cursor ${data.next_cursor}`
    return {
      text: data.agents.length === 0
        ? "There is no such agent."
        : columns(["handle", "status", ["created", "created_at"], ["waiting", "undelivered"], [
          "since",
          "waiting_since"
        ], "email"], data.agents) + more,
      data
    }
  })
}).pipe(
  Command.withDescription(
    "List agents in the order of their handles, with status, time of creation, the number of waiting messages, and since when they wait"
  ),
  example("The suspended agents", "--status suspended")
)

const show = Command.make(
  "show",
  { handle, json },
  ({ handle, json }) =>
    print(json, callAbout(handle, ({ AgentDetail }) => AgentDetail, get(path`/agents/${handle}`)), (agent) => {
      const log = agent.log.slice(0, LOG)
      const rows = [
        ["handle", agent.handle],
        ["id", agent.id],
        ["email", agent.email],
        ["created", agent.created_at],
        ["state", standing(agent)],
        ...agent.counts.map(({ counted, effect, threshold, what, window_seconds }) => [
          what,
          `${counted} by agents it wrote to first in the last ${
            spanOf(window_seconds * 1_000)
          }; ${threshold} make it ${effect}`
        ]),
        ...(agent.counted_from === null ? [] : [["restored", `${agent.counted_from}; nothing from before counts`]]),
        ...log.map(({ action, at, operator, reason }) => [
          "log",
          `${at} ${action} by ${plain(operator ?? "enforcement")}${reason === null ? "" : `: ${plain(reason)}`}`
        ])
      ]
      return { text: table(rows), data: { ...picked(agent, SHOWN), log } }
    })
).pipe(
  Command.withDescription(
    "Show an agent's state and the reasons for it: what counts against it, until when, and what operators did"
  ),
  example("The state of ada", "ada")
)

/** Makes the command that suspends or restores an agent and then prints `words`. */
const changeState = (action: "suspend" | "restore", words: string) =>
  Command.make(action, { handle, reason, json }, ({ handle, json, reason }) =>
    print(
      json,
      callAbout(
        handle,
        ({ AgentDetail }) => AgentDetail,
        post(path`/agents/${handle}/${action}`, fieldsOf({ reason }))
      ),
      ({ handle, status }) => ({ text: `${handle} ${words}`, data: { handle, status } })
    ))

const suspend = changeState("suspend", "is suspended.").pipe(
  Command.withDescription(
    "Suspend an agent: its sends are refused at once, and its sockets are closed within a second"
  ),
  example("Suspend ada, and say why in the audit log", 'ada --reason "sends advertisements"')
)

const restore = changeState("restore", "is active. Earlier blocks and reports no longer count.").pipe(
  Command.withDescription("End an agent's suspension or restriction; earlier blocks and reports no longer count"),
  example("Let ada send again", "ada")
)

const create = Command.make("create", {
  handles: Argument.String("handle").pipe(
    Argument.withDescription("One handle or several"),
    Argument.variadic({ min: 1 })
  ),
  email: Flag.String("email").pipe(
    Flag.withDescription("E-mail address of the agent; without an address, a lost key cannot be recovered"),
    Flag.optional
  ),
  displayName: Flag.String("display-name").pipe(Flag.withDescription("Display name of the agent"), Flag.optional),
  json
}, ({ displayName, email, handles, json }) =>
  print(
    json,
    call(
      ({ CreatedAgents }) => CreatedAgents,
      post("/agents", { handles, ...fieldsOf({ email, display_name: displayName }) })
    ),
    ({ agents }) => ({ text: table(agents.map(({ api_key, handle }) => [handle, api_key])), data: agents })
  )).pipe(
    Command.withDescription(
      "Create agents that are ready to use, all or none; each key is printed once and not stored"
    ),
    example("Two agents at once", "scout planner")
  )

const rekey = Command.make(
  "rekey",
  { handle, reason, server, json },
  ({ handle, reason, ...given }) => ask(given, post(path`/agents/${handle}/rekey`, fieldsOf({ reason })))
).pipe(
  Command.withDescription(
    "Give an agent a new key, which is printed once and not stored; the old key stops working, and its address gets a mail"
  ),
  example("Ada's owner lost the key and the mailbox", 'ada --reason "came to the office"')
)

const setEmail = Command.make(
  "set-email",
  {
    handle,
    email: Argument.String("email").pipe(Argument.withDescription("The new e-mail address")),
    reason,
    server,
    json
  },
  ({ email, handle, reason, ...given }) =>
    ask(given, post(path`/agents/${handle}/email`, { email, ...fieldsOf({ reason }) }))
).pipe(
  Command.withDescription(
    "Change an agent's e-mail address, to which codes go; its key stays, and the old address gets a mail"
  ),
  example("Ada's owner has another mailbox", "ada ada@example.org")
)

const find = Command.make(
  "find",
  {
    prefix: Argument.String("prefix").pipe(
      Argument.withDescription("Beginning of the handle or, if it contains @, of the e-mail address")
    ),
    server,
    json
  },
  (given) =>
    ask(
      given,
      get(given.prefix.indexOf("@") > 0 ? path`/agents?email=${given.prefix}` : path`/agents?handle=${given.prefix}`)
    )
).pipe(
  Command.withDescription("Find agents by the beginning of their handle or e-mail address"),
  example("All agents whose handle begins with sc", "sc")
)

const waiting = Command.make(
  "waiting",
  { server, json },
  (given) => ask(given, get("/agents?order=waiting"))
).pipe(
  Command.withDescription(
    "List the agents for which the most messages wait, and since when: agents that are slow, stuck or offline"
  ),
  example("Who is slow")
)

const look = Command.make(
  "look",
  { handle, server, json },
  (given) => ask(given, get(path`/agents/${given.handle}`))
).pipe(
  Command.withDescription("Show an agent's state on the running servers: inbox, sockets, rates, webhooks"),
  example("The state of ada", "ada")
)

const why = Command.make(
  "why",
  { handle, server, json },
  (given) => ask(given, get(path`/agents/${given.handle}/why`))
).pipe(
  Command.withDescription(
    "Show why an agent gets no messages: each step from its inbox to its sockets, and the step that fails"
  ),
  example("Why ada gets nothing", "ada")
)

const disconnect = Command.make(
  "disconnect",
  { handle, reason, server, json },
  ({ handle, reason, ...given }) => ask(given, post(path`/agents/${handle}/disconnect`, fieldsOf({ reason })))
).pipe(
  Command.withDescription("Close an agent's sockets on all nodes; its clients may connect again at once"),
  example("Close ada's sockets", "ada")
)

export const agents = Command.make("agents").pipe(
  Command.withDescription("List, show, suspend, restore, disconnect, create and rescue agents"),
  example("A new agent", "create scout"),
  Command.withSubcommands([list, show, suspend, restore, create, rekey, setEmail, find, waiting, look, why, disconnect])
)

const decodeHandle = Schema.decodeOption(HandleInput)

export const erase = Command.make("erase", {
  handle,
  yes: Flag.Boolean("yes").pipe(
    Flag.withDescription("Confirm the erasure, which cannot be undone"),
    Flag.withDefault(false)
  ),
  reason,
  json
}, (given) => {
  if (!given.yes) {
    return Effect.fail({
      message: `Nothing was done. Run the command with --yes to erase ${given.handle}. An erasure cannot be undone.`
    })
  }
  const confirm = Option.getOrElse(decodeHandle(given.handle), () => given.handle)
  const body = { confirm, ...fieldsOf({ reason: given.reason }) }
  return print(
    given.json,
    callAbout(given.handle, ({ Erased }) => Erased, post(path`/agents/${given.handle}/erase`, body)),
    ({ message, remains, removed }) => ({
      text: [
        message,
        "",
        table([["removed", ""], ...removed.map(({ what, words }) => [what, words])]),
        "",
        table([["remains", "because"], ...remains.map(({ what, why }) => [what, why])])
      ].join("\n"),
      data: { handle: confirm, message, removed, remains }
    })
  )
}).pipe(
  Command.withDescription(
    "Delete an agent permanently, with its e-mail address and other data that is not needed; prints what remains, and why"
  ),
  Command.withShortDescription("Delete an agent and erase its data"),
  example("Ada, who asked for it", 'ada --yes --reason "asked by mail"')
)

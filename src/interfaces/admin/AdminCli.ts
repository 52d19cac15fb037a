import type { MovedCounters } from "#interfaces/console/CommandsApi"
import { ReportState } from "#interfaces/operator/Report"
import { Role } from "#interfaces/operator/Role"
import { Effect, Option, Schema } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { AdminClient, ask, call, picked, print } from "./AdminClient.ts"
import { agents, callAbout, erase } from "./AgentsCli.ts"
import { announcements } from "./AnnouncementsCli.ts"
import { fieldsOf, get, OperatorRefused, path, post, withQuery } from "./ApiCall.ts"
import { backup, backups, checkBackup, compact, exportCommand, restore as restoreBackup } from "./DataCli.ts"
import { example, json, limit, server } from "./Flags.ts"
import { invitations } from "./InvitationsCli.ts"
import { content, groups } from "./ModerationCli.ts"
import { connections, limits, nodes } from "./ServerCli.ts"
import { settingsShown } from "./SettingsTable.ts"
import { columns, plain } from "./TextTable.ts"

const state = Flag.Literals("state", ReportState.literals).pipe(
  Flag.withDescription("Only reports in this state; open means not decided yet"),
  Flag.optional
)

const role = Flag.Literals("role", Role.literals).pipe(
  Flag.withDescription("viewer: only reads, without addresses; moderator: also moderates; operator: everything"),
  Flag.withDefault("operator")
)

const report = Argument.String("id").pipe(Argument.withDescription("Id of the report, as shown by `reports list`"))
const note = Flag.String("note").pipe(
  Flag.withDescription("Reason for the decision, for later readers of the report"),
  Flag.optional
)

const reportCommands = [
  Command.make(
    "uphold",
    { id: report, note, server, json },
    ({ note, ...asked }) => ask(asked, post(path`/reports/${asked.id}/uphold`, fieldsOf({ note })))
  ).pipe(
    Command.withDescription("Remove a report from the queue; the report still counts"),
    example("A justified report", "rpt_0f1e2d3c4b5a6978 --note seen")
  ),
  Command.make(
    "dismiss",
    { id: report, note, server, json },
    ({ note, ...asked }) => ask(asked, post(path`/reports/${asked.id}/dismiss`, fieldsOf({ note })))
  ).pipe(
    Command.withDescription(
      "Remove a report from the queue, so that it no longer counts; a suspension stays until `agents restore`"
    ),
    example("An unjustified report", 'rpt_0f1e2d3c4b5a6978 --note "a quarrel"')
  )
] as const

const lookAtReport = Command.make(
  "look",
  { id: report, server, json },
  ({ id, ...given }) => ask(given, get(path`/reports/${id}`))
).pipe(
  Command.withDescription("Show a report, and the last ten messages of the two agents before it"),
  example("One report", "rpt_0f1e2d3c4b5a6978")
)

const reports = Command.make("reports").pipe(
  Command.withDescription("List reports of agents, and decide them"),
  example("The newest ten", "list --limit 10"),
  Command.withSubcommands([
    Command.make(
      "list",
      { state, limit, json },
      ({ json, limit, state }) => {
        const query = { state: Option.orElseSome(state, () => "all"), limit: Option.some(limit) }
        const page = call(({ ReportsPage }) => ReportsPage, get(withQuery("/reports", query)))
        return print(json, page, ({ reports }) => ({
          text: columns(
            ["id", ["when", "created_at"], "reported", ["by", "reporter"], "state", "counts", "reason"],
            reports
          ),
          data: reports.map((row) =>
            picked(row, ["id", "created_at", "reporter", "reported", "reason", "state", "counts"])
          )
        }))
      }
    ).pipe(
      Command.withDescription(
        "List the newest reports, and whether each counts; a report counts if the reported agent wrote first"
      ),
      example("Reports that are not decided yet", "--state open")
    ),
    lookAtReport,
    ...reportCommands
  ])
)

const webhookCommands = [
  Command.make("retry", {
    no: Argument.Int("no").pipe(Argument.withDescription("Number of the delivery, as shown by `webhooks dead`")),
    server,
    json
  }, (given) => ask(given, post(path`/webhooks/dead/${String(given.no)}/retry`))).pipe(
    Command.withDescription(
      "Retry a dead delivery with all attempts; this also enables its webhook again, and ends its pause"
    ),
    example("One delivery", "42")
  ),
  Command.make(
    "retry-all",
    {
      agent: Flag.String("agent").pipe(
        Flag.withDescription("Only deliveries of the webhooks of the agent with this handle"),
        Flag.optional
      ),
      webhook: Flag.String("webhook").pipe(
        Flag.withDescription("Only deliveries of the webhook with this id"),
        Flag.optional
      ),
      server,
      json
    },
    ({ agent, webhook, ...asked }) => ask(asked, post("/webhooks/retry", fieldsOf({ agent, webhook })))
  ).pipe(
    Command.withDescription("Retry all dead deliveries of one webhook, of one agent, or of all agents"),
    example("After an outage of ada's host", "--agent ada")
  )
] as const

const webhooks = Command.make("webhooks").pipe(
  Command.withDescription("List deliveries that failed, and retry them"),
  example("The newest ten", "dead --limit 10"),
  Command.withSubcommands([
    Command.make(
      "dead",
      { limit, json },
      ({ json, limit }) =>
        print(
          json,
          call(
            ({ DeadDeliveriesPage }) => DeadDeliveriesPage,
            get(withQuery("/webhooks/dead", { limit: Option.some(limit) }))
          ),
          ({ deliveries }) => ({
            text: columns(["no", ["died", "dead_at"], "agent", ["webhook", "webhook_id"], "event", "attempts", [
              "last failure",
              "failure"
            ], "url"], deliveries),
            data: deliveries.map(({ agent: handle, created_at: _at, no, webhook_active: _active, ...row }) => ({
              no,
              handle,
              ...row
            }))
          })
        )
    ).pipe(
      Command.withDescription("List dead webhook deliveries (all attempts failed), the newest first"),
      example("The newest ten", "--limit 10")
    ),
    ...webhookCommands
  ])
)

const audit = Command.make("audit").pipe(
  Command.withDescription("Show what operators and enforcement did"),
  example("Entries about ada", "list --agent ada"),
  Command.withSubcommands([
    Command.make("list", {
      agent: Flag.String("agent").pipe(
        Flag.withDescription("Only entries about the agent with this handle"),
        Flag.optional
      ),
      by: Flag.String("by").pipe(Flag.withDescription("Only actions of this operator"), Flag.optional),
      changes: Flag.Boolean("changes").pipe(
        Flag.withDescription("Leave out actions that only read"),
        Flag.withDefault(false)
      ),
      limit,
      json
    }, ({ agent, by, changes, json, limit }) => {
      const looks = changes ? Option.some("false") : Option.none()
      const query = { agent, operator: by, looks, limit: Option.some(limit) }
      const page = Effect.tap(call(({ AuditPage }) => AuditPage, get(withQuery("/audit", query))), ({ entries }) =>
        // If there are no entries, check that the agent exists.
        entries.length === 0 && Option.isSome(agent)
          ? callAbout(agent.value, ({ AgentDetail }) => AgentDetail, get(path`/agents/${agent.value}`))
          : Effect.void)
      return print(json, page, ({ entries }) => ({
        text: columns(
          [["when", "at"], ["who", "operator"], ["what", "action"], "agent", ["reason", "detail"]],
          entries.map((row) => ({ ...row, operator: row.operator ?? "enforcement" }))
        ),
        data: entries.map(({ agent: handle, detail: reason, ...row }) => ({ ...row, handle, reason }))
      }))
    }).pipe(
      Command.withDescription("List the newest entries of the audit log"),
      example("Entries about ada", "--agent ada")
    )
  ])
)

/** What a command prints about the advanced counters of a restored database. */
export const movedShown = (moved: typeof MovedCounters.Type) => ({
  text:
    `${moved.conversations} conversations and ${moved.inboxes} inboxes now continue above every number of a lost message.`,
  data: moved
})

const restored = Command.make(
  "restored",
  { json },
  ({ json }) => print(json, call(({ MovedCounters }) => MovedCounters, post("/counters")), movedShown)
).pipe(
  Command.withDescription(
    "Run once after the database was restored from a backup, so that numbers that were assigned after the backup are not assigned again"
  ),
  Command.withShortDescription("Run once after the database was restored from a backup"),
  example("After the restore, before the server starts")
)

const config = Command.make(
  "config",
  { json },
  ({ json }) => print(json, Effect.flatMap(AdminClient, (client) => client.config), settingsShown)
).pipe(
  Command.withDescription(
    "Show every setting in effect, with secrets redacted: of the server that runs on DATA_DIR or, if none runs, of this environment"
  ),
  Command.withShortDescription("Show every setting in effect, with secrets redacted"),
  example("As JSON", "--json")
)

const token = Command.make(
  "token",
  {
    name: Argument.String("name").pipe(Argument.withDescription("Purpose of the token")),
    role,
    days: Flag.Int("days").pipe(
      Flag.withDescription("Days for which the token is valid (up to 365)"),
      Flag.withDefault(90)
    ),
    json
  },
  ({ days, json, name, role }) =>
    print(
      json,
      call(({ ProgramToken }) => ProgramToken, post("/tokens", { name, days, role })),
      ({ url, ...data }) => ({
        text:
          `${data.token}\nSend it as "Authorization: Bearer …" to ${url} until ${data.expires_at}; it is shown once. Its id is ${data.id}.`,
        data
      })
    )
).pipe(
  Command.withDescription(
    "Create a token for a program that uses the operators' API; the token is printed once and not stored"
  ),
  example("For a script", "nightly-report --days 30")
)

const sessions = Command.make(
  "sessions",
  { json },
  ({ json }) =>
    print(json, call(({ Sessions }) => Sessions, get("/sessions")), ({ sessions }) => ({
      text: columns([
        "id",
        ["what", "kind"],
        "operator",
        "role",
        "name",
        ["made", "created_at"],
        ["last used", "last_used_at"],
        ["until", "expires_at"]
      ], sessions),
      data: sessions.map(({ expires_at, is_own: _own, ...row }) => ({ ...row, expires_at }))
    }))
).pipe(
  Command.withDescription("List the sessions and program tokens that are valid"),
  example("Who has access")
)

const end = Command.make("end", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of a session or token, as shown by `console sessions`")),
  json
}, ({ id, json }) => {
  const ended = Effect.mapError(
    call(() => Schema.Unknown, { method: "DELETE", path: path`/sessions/${id}` }),
    (error) =>
      error.code === "NOT_FOUND"
        ? new OperatorRefused({ message: `No valid session or token has the id ${plain(id)}.` })
        : error
  )
  return print(json, ended, () => ({ text: `${id} is ended, on every node.`, data: { id } }))
}).pipe(
  Command.withDescription("End a session or token, on every node"),
  example("A token that leaked", "opt_0f1e2d3c4b5a69788796")
)

const access = Command.make(
  "console",
  {
    person: Flag.String("for").pipe(
      Flag.withDescription("Name of the person who opens the link, as the audit log shows it; you by default"),
      Flag.optional
    ),
    role,
    json
  },
  ({ json, person, role }) =>
    print(json, call(({ Link }) => Link, post("/links", { role, ...fieldsOf({ person }) })), (data) => ({
      text: `${data.url}\nOpen it within 5 minutes; it works once, and signs in for 12 hours.`,
      data
    }))
).pipe(
  Command.withDescription(
    "Print a link to the operators' console, which works once, within 5 minutes; its session lasts 12 hours"
  ),
  example("Sign in"),
  Command.withSubcommands([token, sessions, end])
)

/** The command `parley admin`. */
export const admin = Command.make("admin").pipe(
  Command.withDescription(
    "Run an operator's command, with the DATA_DIR or DATABASE_URL of the server. The server may run meanwhile."
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
    content,
    reports,
    webhooks,
    connections,
    invitations,
    announcements,
    audit,
    access,
    exportCommand,
    erase,
    backup,
    backups,
    checkBackup,
    restoreBackup,
    restored,
    compact,
    config
  ])
)

import { Clock, Context, Data, Effect, Layer, Option, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { backUp } from "#domain/archives/Backup"
import { Database } from "#ground/database/Sql"
import { NodeTable } from "#ground/cluster/NodeTable"
import { BlobParts } from "#ground/files/BlobParts"
import { folderOf } from "#ground/files/Blobs"
import { AgentPages } from "#domain/archives/AgentPages"
import { Accounts, type Refused } from "#domain/agents/Accounts"
import { DisplayName, isRegistrable, statusAt } from "#domain/agents/Agent"
import { publicUrl, reachableUrl } from "#ground/platform/PublicUrl"
import { Config, effective, type Settings } from "#ground/platform/Config"
import { HandleInput, iso, isoOrNull } from "#ground/wire/Text"
import type { NotFound, Unavailable } from "#ground/wire/WireError"
import { Email } from "#domain/registration/RegistrationApi"
import { type AgentAccount, AgentAdmin, countShown, statusOf } from "./AgentAdmin.ts"
import { AuditLog } from "./AuditLog.ts"
import type { Conflict } from "./Conflict.ts"
import { ConsoleAccess } from "./ConsoleAccess.ts"
import { DeadDeliveries } from "./DeadDeliveries.ts"
import { Erasure } from "./Erasure.ts"
import { plain, table } from "./Lines.ts"
import type { OperatorAnswer, OperatorCommand } from "./OperatorCommand.ts"
import { Reports } from "./Reports.ts"
import { RestoredCounters } from "./RestoredCounters.ts"

/** A command that cannot be carried out, with a message for the operator. Nothing was changed. */
export class OperatorRefused extends Data.TaggedError("OperatorRefused")<{ readonly message: string }> {}

const OBSTACLES: Readonly<Record<Refused, string>> = {
  email_taken: "its address has an account already",
  email_exhausted: "its address has had all the accounts that it may have",
  handle_taken: "the handle is, or once was, somebody's"
}

/** A domain that no mail is ever delivered to (RFC 2606), for accounts that are created without an e-mail address. */
const NO_MAILBOX = "agents.invalid"

const DAY_MS = 86_400_000
/** The entries of the audit log that `show` includes. */
const LOG = 10

const spanOf = (ms: number): string =>
  ms > DAY_MS && ms % DAY_MS === 0 ? `${ms / DAY_MS} days` : ms % 3_600_000 === 0 ? `${ms / 3_600_000} hours` : `${ms / 1_000} seconds`

/** Every setting in effect. Of a secret, it shows only whether it is set. */
export const showConfig = (config: Settings): OperatorAnswer => {
  const rows = effective(config)
  return {
    text: table([
      ["variable", "value", ""],
      ...rows.map(({ isDefault, name, value }) => [name, value, isDefault ? "(default)" : ""])
    ]),
    data: rows.map((row) => ({ ...row }))
  }
}

const decodeHandle = Schema.decodeOption(HandleInput)
const decodeEmail = Schema.decodeOption(Email)
const isDisplayName = Schema.is(DisplayName)

/**
 * The operator's commands on the database (docs/operations.md). `suspend`, `restore` and `create` write their audit row in the commit of
 * the change. `show` and the lists write their row before they read. `restored` works in slices and writes its row at its end.
 */
export class Operator extends Context.Service<Operator, {
  readonly run: (command: OperatorCommand) => Effect.Effect<OperatorAnswer, OperatorRefused | SqlError.SqlError | Unavailable>
}>()("parley/operator/Operator") {
  static readonly layer = Layer.effect(
    Operator,
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const agents = yield* AgentAdmin
      const audit = yield* AuditLog
      const config = yield* Config
      const counters = yield* RestoredCounters
      const deadDeliveries = yield* DeadDeliveries
      const reports = yield* Reports
      const access = yield* ConsoleAccess
      const nodes = yield* NodeTable
      const pages = yield* AgentPages
      const erasure = yield* Erasure
      const database = yield* Database
      const { query, transaction } = database

      const refuse = (message: string) => new OperatorRefused({ message })
      /** Refuses the command with the message of an action that was not possible. */
      const refused = (action: Effect.Effect<void, NotFound | Conflict | Unavailable>) =>
        Effect.catchTag(action, ["NotFound", "Conflict"], ({ message }) => refuse(message))

      const find = (handle: string) =>
        Effect.catchTag(agents.find(Option.getOrElse(decodeHandle(handle), () => handle)), "NotFound", () =>
          refuse(`No agent has the handle ${plain(handle)}.`))

      const standing = (agent: AgentAccount, now: number): string => {
        if (agent.deletedAt !== null) return `deleted at ${iso(agent.deletedAt)}`
        const status = statusOf(agent, now)
        if (status === "suspended") return `suspended since ${agent.suspendedAt === null ? "?" : iso(agent.suspendedAt)}`
        return status === "restricted" ? `restricted until ${isoOrNull(agent.restrictedUntil)}` : "active"
      }

      const note = (operator: string, action: string, handle: string | null) => audit.note({ operator, action, handle, detail: null })

      const show = Effect.fnUntraced(function*(handle: string, operator: string) {
        const agent = yield* find(handle)
        yield* note(operator, "show", agent.handle)
        const now = yield* Clock.currentTimeMillis
        const counts = yield* agents.counts(agent)
        const log = yield* audit.list({ handle: agent.handle, operator: null, looks: false, before: null, limit: LOG })
        const rows = [
          ["handle", agent.handle],
          ["id", agent.id],
          ["email", agent.email],
          ["created", iso(agent.createdAt)],
          ["state", standing(agent, now)],
          ...counts.map(({ counted, effect, threshold, what, windowMs }) => [
            what,
            `${counted} by agents it wrote to first in the last ${spanOf(windowMs)}; ${threshold} make it ${effect}`
          ]),
          ...(agent.countedFrom === null ? [] : [["restored", `${iso(agent.countedFrom)}; nothing from before counts`]]),
          ...log.map((row) => ["log", `${iso(row.at)} ${row.action} by ${plain(row.operator ?? "enforcement")}${row.detail === null ? "" : `: ${plain(row.detail)}`}`])
        ]
        return {
          text: table(rows),
          data: {
            handle: agent.handle,
            id: agent.id,
            email: agent.email,
            created_at: iso(agent.createdAt),
            status: statusOf(agent, now),
            restricted_until: statusAt("active", agent.restrictedUntil, now) === "restricted" ? isoOrNull(agent.restrictedUntil) : null,
            suspended_at: isoOrNull(agent.suspendedAt),
            deleted_at: isoOrNull(agent.deletedAt),
            counted_from: isoOrNull(agent.countedFrom),
            counts: counts.map(countShown),
            log: log.map((row) => ({ at: iso(row.at), operator: row.operator, action: row.action, reason: row.detail }))
          }
        }
      })

      const suspend = Effect.fnUntraced(function*({ handle, operator, reason }: Extract<OperatorCommand, { readonly _tag: "Suspend" }>) {
        const agent = yield* find(handle)
        yield* refused(agents.suspend(agent, { operator, reason }))
        return { text: `${agent.handle} is suspended.`, data: { handle: agent.handle, status: "suspended" } }
      })

      const restore = Effect.fnUntraced(function*({ handle, operator, reason }: Extract<OperatorCommand, { readonly _tag: "Restore" }>) {
        const agent = yield* find(handle)
        yield* refused(agents.restore(agent, { operator, reason }))
        return {
          text: `${agent.handle} is active; no block or report up to now counts any more.`,
          data: { handle: agent.handle, status: "active" }
        }
      })

      const create = Effect.fnUntraced(function*(command: Extract<OperatorCommand, { readonly _tag: "Create" }>) {
        const handles = [...new Set(command.handles.map((handle) => Option.getOrElse(decodeHandle(handle), () => "")))]
        const bad = command.handles.find((handle) => !isRegistrable(Option.getOrElse(decodeHandle(handle), () => "")))
        if (bad !== undefined) {
          return yield* refuse(`${plain(bad)} cannot be a handle: 3 to 30 letters, digits and single hyphens, beginning with a letter, and no reserved word.`)
        }
        if (command.email !== null && handles.length > 1) return yield* refuse("An address can have one account: give --email with one handle.")
        const email = command.email === null ? null : Option.getOrUndefined(decodeEmail(command.email))
        if (email === undefined) return yield* refuse(`${plain(command.email)} is not an e-mail address.`)
        if (command.displayName !== null && !isDisplayName(command.displayName)) {
          return yield* refuse("A display name has at most 100 characters, none of them a control character, and not blanks alone.")
        }
        const made = yield* transaction(Effect.forEach(handles, (handle) =>
          Effect.gen(function*() {
            const address = email ?? `${handle}@${NO_MAILBOX}`
            const account = yield* accounts.create({ handle, email: address, displayName: command.displayName, description: null })
            if (typeof account === "string") return yield* refuse(`${handle} was not created, nor any other: ${OBSTACLES[email === null ? "handle_taken" : account]}.`)
            yield* note(command.operator, "create", handle)
            return { handle, id: account.agent.id, email: address, api_key: account.apiKey }
          })))
        return { text: table(made.map((one) => [one.handle, one.api_key])), data: made }
      })

      const listReports = Effect.fnUntraced(function*({ limit, operator, state }: Extract<OperatorCommand, { readonly _tag: "Reports" }>) {
        yield* note(operator, "list reports", null)
        const rows = yield* reports.list({ state, agent: null, after: null, limit })
        return {
          text: table([
            ["id", "when", "reported", "by", "state", "counts", "reason"],
            ...rows.map((row) => [row.id, iso(row.createdAt), row.reported, row.reporter, row.state, row.counts ? "yes" : "no", plain(row.reason)])
          ]),
          data: rows.map(({ counts, createdAt, id, reason, reported, reporter, state }) => ({
            id,
            created_at: iso(createdAt),
            reporter,
            reported,
            reason,
            state,
            counts
          }))
        }
      })

      const deadWebhooks = Effect.fnUntraced(function*(limit: number, operator: string) {
        yield* note(operator, "list dead webhooks", null)
        const rows = yield* deadDeliveries.list({ agent: null, webhook: null, after: null, limit })
        return {
          text: table([
            ["no", "died", "agent", "webhook", "event", "attempts", "last failure", "url"],
            ...rows.map((row) => [
              String(row.no),
              iso(row.deadAt),
              row.agent,
              row.webhookId,
              row.event,
              String(row.attempts),
              plain(row.failure),
              plain(row.url)
            ])
          ]),
          data: rows.map(({ agent, attempts, deadAt, event, failure, no, url, webhookId }) => ({
            no,
            handle: agent,
            webhook_id: webhookId,
            url,
            event,
            attempts,
            failure,
            dead_at: iso(deadAt)
          }))
        }
      })

      const showAudit = Effect.fnUntraced(function*(command: Extract<OperatorCommand, { readonly _tag: "Audit" }>) {
        const handle = command.handle === null ? null : (yield* find(command.handle)).handle
        yield* note(command.operator, "show audit", handle)
        const rows = yield* audit.list({ handle, operator: command.by, looks: command.looks, before: null, limit: command.limit })
        return {
          text: table([
            ["when", "who", "what", "agent", "reason"],
            ...rows.map((row) => [iso(row.at), plain(row.operator ?? "enforcement"), row.action, row.agent ?? "", plain(row.detail)])
          ]),
          data: rows.map(({ action, agent, at, detail, no, operator }) => ({ no, at: iso(at), operator, action, handle: agent, reason: detail }))
        }
      })

      const restored = Effect.fnUntraced(function*(operator: string) {
        const moved = yield* counters.moveOn
        yield* note(operator, "restored", null)
        return {
          text: `${moved.conversations} conversations and ${moved.inboxes} inboxes now continue above every number of a lost message.`,
          data: moved
        }
      })

      const consoleLink = Effect.fnUntraced(function*(operator: string) {
        const { access: { expiresAt }, token } = yield* access.link(operator)
        // The token is in the fragment, which browsers send to no server.
        const url = `${publicUrl(config)}/console#${token}`
        return {
          text: `${url}\nOpen it within 5 minutes; it works once, and signs you in for 12 hours.`,
          data: { url, expires_at: iso(expiresAt) }
        }
      })

      const consoleToken = Effect.fnUntraced(function*(operator: string, name: string, days: number) {
        const { access: { expiresAt, id }, token } = yield* access.program(operator, name, days)
        return {
          text: `${token}\nSend it as "Authorization: Bearer …" to ${publicUrl(config)}/console/api until ${iso(expiresAt)}; it is shown once. Its id is ${id}.`,
          data: { id, token, expires_at: iso(expiresAt) }
        }
      })

      const errand = Effect.fnUntraced(function*(operator: string) {
        const { token } = yield* access.errand(operator)
        const url = reachableUrl(config, config.HOST === "::" ? "::1" : "127.0.0.1")
        return { text: url, data: { url, others: yield* nodes.urls, token } }
      })

      const consoleSessions = Effect.fnUntraced(function*(operator: string) {
        yield* note(operator, "list console sessions", null)
        const rows = yield* access.list
        return {
          text: table([
            ["id", "what", "operator", "name", "made", "last used", "until"],
            ...rows.map((row) => [
              row.id,
              row.kind,
              plain(row.operator),
              plain(row.name),
              iso(row.createdAt),
              isoOrNull(row.lastUsedAt) ?? "",
              iso(row.expiresAt)
            ])
          ]),
          data: rows.map(({ createdAt, expiresAt, lastUsedAt, ...row }) => ({
            ...row,
            created_at: iso(createdAt),
            last_used_at: isoOrNull(lastUsedAt),
            expires_at: iso(expiresAt)
          }))
        }
      })

      const endConsoleAccess = Effect.fnUntraced(function*(id: string, operator: string) {
        if (!(yield* access.end(id, operator))) return yield* refuse(`No valid session or token has the id ${plain(id)}.`)
        return { text: `${id} is ended, on every node.`, data: { id } }
      })

      const schema = Effect.map(
        query<{ readonly name: string }>`SELECT name FROM migrations ORDER BY id DESC LIMIT 1`,
        ([row]) => row?.name ?? ""
      )

      const backup = Effect.fnUntraced(function*(target: string, operator: string) {
        if (database.backup === undefined) {
          return yield* refuse(
            "The database is PostgreSQL: back it up with pg_dump while the servers run, and then the file store with its own tools (docs/operations.md)."
          )
        }
        yield* note(operator, "backup", null)
        const store = config.S3_BUCKET === undefined && config.SHARED_DIR === undefined ? folderOf(config) : undefined
        const made = yield* Effect.catchTag(
          backUp({ target, database: database.backup, schema: yield* schema, store }),
          "BackupRefused",
          ({ message }) => refuse(message)
        )
        const elsewhere = made.files ? "" : " The files are in another store: copy them now, with its own tools."
        return {
          text: `${made.file} has the database${made.files ? " and the files" : ""}, ${made.bytes.toLocaleString("en")} bytes. ` +
            `The backup held up the server for at most ${made.longest_stop_ms} ms at a time.${elsewhere}\nIt contains everything: protect it accordingly.`,
          data: { ...made }
        }
      })

      const erase = Effect.fnUntraced(function*(handle: string, operator: string, reason: string | null) {
        const agent = yield* find(handle)
        const given = { agentId: agent.id, handle: agent.handle, operator, reason }
        const { message, remains, removed } = yield* Effect.catchTag(erasure.erase(given), "Unavailable", (error) => refuse(error.message))
        return {
          text: [
            message,
            "",
            table([["removed", ""], ...removed.map(({ what, words }) => [what, words])]),
            "",
            table([["remains", "because"], ...remains.map(({ what, why }) => [what, why])])
          ].join("\n"),
          data: { handle: agent.handle, message, removed: removed.map((one) => ({ ...one })), remains: remains.map((one) => ({ ...one })) }
        }
      })

      const beginExport = Effect.fnUntraced(function*(handle: string, operator: string) {
        const agent = yield* find(handle)
        yield* note(operator, "export", agent.handle)
        return { text: agent.handle, data: { agent: agent.id, handle: agent.handle, schema: yield* schema } }
      })

      const exportPage = Effect.fnUntraced(function*(command: Extract<OperatorCommand, { readonly _tag: "ExportPage" }>) {
        const page = yield* pages.page(command.agent, command.file, command.after)
        return page === undefined
          ? yield* refuse(`An export has no such page of ${plain(command.file)}.`)
          // The rows contain only values that JSON can represent.
          : { text: command.file, data: page as unknown as Schema.Json }
      })

      const exportPart = Effect.fnUntraced(function*(command: Extract<OperatorCommand, { readonly _tag: "ExportPart" }>) {
        const part = yield* Effect.catchTag(pages.part(command.agent, command.file, command.from), "StorageUnavailable", ({ message }) => refuse(message))
        return { text: command.file, data: part === undefined ? null : { ...part, bytes: part.bytes.toString("base64") } }
      })

      const run = (command: OperatorCommand): Effect.Effect<OperatorAnswer, OperatorRefused | SqlError.SqlError | Unavailable> => {
        switch (command._tag) {
          case "Show":
            return show(command.handle, command.operator)
          case "Suspend":
            return suspend(command)
          case "Restore":
            return restore(command)
          case "Create":
            return create(command)
          case "Reports":
            return listReports(command)
          case "DeadWebhooks":
            return deadWebhooks(command.limit, command.operator)
          case "Audit":
            return showAudit(command)
          case "Restored":
            return restored(command.operator)
          case "ConsoleLink":
            return consoleLink(command.operator)
          case "ConsoleToken":
            return consoleToken(command.operator, command.name, command.days)
          case "Errand":
            return errand(command.operator)
          case "ConsoleSessions":
            return consoleSessions(command.operator)
          case "EndConsoleAccess":
            return endConsoleAccess(command.id, command.operator)
          case "Erase":
            return erase(command.handle, command.operator, command.reason)
          case "Export":
            return beginExport(command.handle, command.operator)
          case "ExportPage":
            return exportPage(command)
          case "ExportPart":
            return exportPart(command)
          case "Backup":
            return backup(command.target, command.operator)
          case "Config":
            return Effect.succeed(showConfig(config))
        }
      }

      return Operator.of({ run })
    })
  ).pipe(Layer.provide([AgentAdmin.layer, AuditLog.layer, DeadDeliveries.layer, Reports.layer, RestoredCounters.layer, NodeTable.layer, ConsoleAccess.layer, Erasure.layer, Layer.provide(AgentPages.layer, BlobParts.layer)]))
}

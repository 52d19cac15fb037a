import { Clock, Context, Data, Effect, Layer, Option, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { backUp } from "#domain/archives/Backup"
import { Database } from "#ground/database/Sql"
import { NodeTable } from "#ground/cluster/NodeTable"
import { BlobParts } from "#ground/files/BlobParts"
import { folderOf } from "#ground/files/Blobs"
import { AgentPages } from "#domain/archives/AgentPages"
import { Accounts, type Refused } from "#domain/agents/Accounts"
import { DisplayName, isRegistrable, statusAt } from "#domain/agents/Agent"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { publicUrl, reachableUrl } from "#ground/platform/PublicUrl"
import { Config, effective, type Settings } from "#ground/platform/Config"
import { HandleInput, iso, isoOrNull } from "#ground/wire/Text"
import { Email } from "#domain/registration/RegistrationApi"
import { ConsoleAccess } from "./ConsoleAccess.ts"
import { Erasure } from "./Erasure.ts"
import { plain, table } from "./Lines.ts"
import type { OperatorAnswer, OperatorCommand } from "./OperatorCommand.ts"
import { type Dossier, OperatorRepo } from "./OperatorRepo.ts"

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
  readonly run: (command: OperatorCommand) => Effect.Effect<OperatorAnswer, OperatorRefused | SqlError.SqlError>
}>()("parley/operator/Operator") {
  static readonly layer = Layer.effect(
    Operator,
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const config = yield* Config
      const enforcement = yield* Enforcement
      const repo = yield* OperatorRepo
      const sql = yield* SqlClient.SqlClient
      const access = yield* ConsoleAccess
      const nodes = yield* NodeTable
      const pages = yield* AgentPages
      const erasure = yield* Erasure
      const database = yield* Database

      const refuse = (message: string) => new OperatorRefused({ message })

      const find = Effect.fnUntraced(function*(handle: string) {
        const found = yield* repo.dossier(Option.getOrElse(decodeHandle(handle), () => handle))
        return found ?? (yield* refuse(`No agent has the handle ${plain(handle)}.`))
      })

      const findLive = Effect.fnUntraced(function*(handle: string) {
        const found = yield* find(handle)
        return found.deletedAt === null ? found : yield* refuse(`${found.handle} was deleted at ${iso(found.deletedAt)}.`)
      })

      const standing = (agent: Dossier, now: number): string => {
        if (agent.deletedAt !== null) return `deleted at ${iso(agent.deletedAt)}`
        const status = statusAt(agent.status, agent.restrictedUntil, now)
        if (status === "suspended") return `suspended since ${agent.suspendedAt === null ? "?" : iso(agent.suspendedAt)}`
        return status === "restricted" ? `restricted until ${isoOrNull(agent.restrictedUntil)}` : "active"
      }

      const look = Effect.fnUntraced(function*(operator: string, action: string, agentId: string | null) {
        yield* repo.note({ at: yield* Clock.currentTimeMillis, operator, action, agentId })
      })

      const show = Effect.fnUntraced(function*(handle: string, operator: string) {
        const agent = yield* find(handle)
        yield* look(operator, "show", agent.id)
        const now = yield* Clock.currentTimeMillis
        const tally = yield* enforcement.tally(agent.id, agent.countedFrom)
        const log = yield* repo.audit(10, agent.id, null, false)
        const { restrictBlocks, restrictWindowMs, suspendBlocks, suspendReports, suspendWindowMs } = enforcement.thresholds
        const counts = [
          { what: "blocks", counted: tally.blocksToRestrict, threshold: restrictBlocks, window: restrictWindowMs, effect: "restricted" },
          { what: "blocks", counted: tally.blocksToSuspend, threshold: suspendBlocks, window: suspendWindowMs, effect: "suspended" },
          { what: "reports", counted: tally.reportsToSuspend, threshold: suspendReports, window: suspendWindowMs, effect: "suspended" }
        ]
        const rows = [
          ["handle", agent.handle],
          ["id", agent.id],
          ["email", agent.email],
          ["created", iso(agent.createdAt)],
          ["state", standing(agent, now)],
          ...counts.map(({ counted, effect, threshold, what, window }) => [
            what,
            `${counted} by agents it wrote to first in the last ${spanOf(window)}; ${threshold} make it ${effect}`
          ]),
          ...(agent.countedFrom === null ? [] : [["restored", `${iso(agent.countedFrom)}; nothing from before counts`]]),
          ...log.map((row) => ["log", `${iso(row.at)} ${row.action} by ${plain(row.operator ?? "enforcement")}${row.reason === null ? "" : `: ${plain(row.reason)}`}`])
        ]
        return {
          text: table(rows),
          data: {
            handle: agent.handle,
            id: agent.id,
            email: agent.email,
            created_at: iso(agent.createdAt),
            status: agent.deletedAt === null ? statusAt(agent.status, agent.restrictedUntil, now) : "deleted",
            restricted_until: statusAt("active", agent.restrictedUntil, now) === "restricted" ? isoOrNull(agent.restrictedUntil) : null,
            suspended_at: isoOrNull(agent.suspendedAt),
            deleted_at: isoOrNull(agent.deletedAt),
            counted_from: isoOrNull(agent.countedFrom),
            counts: counts.map(({ counted, effect, threshold, what, window }) => ({
              what,
              counted,
              threshold,
              window_seconds: window / 1_000,
              effect
            })),
            log: log.map((row) => ({ at: iso(row.at), operator: row.operator, action: row.action, reason: row.reason }))
          }
        }
      })

      const suspend = Effect.fnUntraced(function*(handle: string, operator: string, reason: string | null) {
        const agent = yield* findLive(handle)
        const done = yield* enforcement.suspend({ agentId: agent.id, operator, reason })
        if (!done) return yield* refuse(`${agent.handle} is suspended already.`)
        return { text: `${agent.handle} is suspended.`, data: { handle: agent.handle, status: "suspended" } }
      })

      const restore = Effect.fnUntraced(function*(handle: string, operator: string, reason: string | null) {
        const agent = yield* findLive(handle)
        const done = yield* enforcement.restore({ agentId: agent.id, operator, reason })
        if (!done) return yield* refuse(`${agent.handle} was deleted meanwhile.`)
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
        const now = yield* Clock.currentTimeMillis
        const made = yield* sql.withTransaction(Effect.forEach(handles, (handle) =>
          Effect.gen(function*() {
            const address = email ?? `${handle}@${NO_MAILBOX}`
            const account = yield* accounts.create({ handle, email: address, displayName: command.displayName, description: null })
            if (typeof account === "string") return yield* refuse(`${handle} was not created, nor any other: ${OBSTACLES[email === null ? "handle_taken" : account]}.`)
            yield* repo.note({ at: now, operator: command.operator, action: "create", agentId: account.agent.id })
            return { handle, id: account.agent.id, email: address, api_key: account.apiKey }
          })))
        return { text: table(made.map((one) => [one.handle, one.api_key])), data: made }
      })

      const reports = Effect.fnUntraced(function*({ limit, operator, state }: Extract<OperatorCommand, { readonly _tag: "Reports" }>) {
        yield* look(operator, "list reports", null)
        const rows = yield* repo.reports(limit, state)
        return {
          text: table([
            ["id", "when", "reported", "by", "state", "counts", "reason"],
            ...rows.map((row) => [row.id, iso(row.created_at), row.reported, row.reporter, row.state, row.counts ? "yes" : "no", plain(row.reason)])
          ]),
          data: rows.map((row) => ({ ...row, created_at: iso(row.created_at) }))
        }
      })

      const deadWebhooks = Effect.fnUntraced(function*(limit: number, operator: string) {
        yield* look(operator, "list dead webhooks", null)
        const rows = yield* repo.deadWebhooks(limit)
        return {
          text: table([
            ["no", "died", "agent", "webhook", "event", "attempts", "last failure", "url"],
            ...rows.map((row) => [
              String(row.no),
              iso(row.dead_at),
              row.handle,
              row.webhook_id,
              row.event,
              String(row.attempts),
              plain(row.failure),
              plain(row.url)
            ])
          ]),
          data: rows.map((row) => ({ ...row, dead_at: iso(row.dead_at) }))
        }
      })

      const audit = Effect.fnUntraced(function*({ by, handle, limit, looks, operator }: Extract<OperatorCommand, { readonly _tag: "Audit" }>) {
        const agentId = handle === null ? null : (yield* find(handle)).id
        yield* look(operator, "show audit", agentId)
        const rows = yield* repo.audit(limit, agentId, by, looks)
        return {
          text: table([
            ["when", "who", "what", "agent", "reason"],
            ...rows.map((row) => [iso(row.at), plain(row.operator ?? "enforcement"), row.action, row.handle ?? "", plain(row.reason)])
          ]),
          data: rows.map((row) => ({ ...row, at: iso(row.at) }))
        }
      })

      const restored = Effect.fnUntraced(function*(operator: string) {
        const moved = yield* repo.moveOn
        yield* look(operator, "restored", null)
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
        yield* look(operator, "list console sessions", null)
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
        sql<{ readonly name: string }>`SELECT name FROM migrations ORDER BY id DESC LIMIT 1`,
        ([row]) => row?.name ?? ""
      )

      const backup = Effect.fnUntraced(function*(target: string, operator: string) {
        if (database.backup === undefined) {
          return yield* refuse(
            "The database is PostgreSQL: back it up with pg_dump while the servers run, and then the file store with its own tools (docs/operations.md)."
          )
        }
        yield* look(operator, "backup", null)
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
        yield* look(operator, "export", agent.id)
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

      const run = (command: OperatorCommand): Effect.Effect<OperatorAnswer, OperatorRefused | SqlError.SqlError> => {
        switch (command._tag) {
          case "Show":
            return show(command.handle, command.operator)
          case "Suspend":
            return suspend(command.handle, command.operator, command.reason)
          case "Restore":
            return restore(command.handle, command.operator, command.reason)
          case "Create":
            return create(command)
          case "Reports":
            return reports(command)
          case "DeadWebhooks":
            return deadWebhooks(command.limit, command.operator)
          case "Audit":
            return audit(command)
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
  ).pipe(Layer.provide([OperatorRepo.layer, NodeTable.layer, ConsoleAccess.layer, Erasure.layer, Layer.provide(AgentPages.layer, BlobParts.layer)]))
}

import { AgentPages } from "#domain/archives/AgentPages"
import { backUp } from "#domain/archives/Backup"
import { NodeTable } from "#infrastructure/cluster/NodeTable"
import { Database } from "#infrastructure/database/Sql"
import { BlobParts } from "#infrastructure/files/BlobParts"
import { folderOf } from "#infrastructure/files/Blobs"
import { Config, effective, Origins } from "#infrastructure/platform/Config"
import { publicUrl, reachableUrl } from "#infrastructure/platform/PublicUrl"
import { iso } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { AuditLog, withoutAddresses } from "#interfaces/operator/AuditLog"
import { Conflict } from "#interfaces/operator/Conflict"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { NewAgents } from "#interfaces/operator/NewAgents"
import { RestoredCounters } from "#interfaces/operator/RestoredCounters"
import { Cause, Effect, Exit, Layer } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { CommandsApi } from "./CommandsApi.ts"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"

/** How many UTF-16 units of a backup's detail the audit log stores. */
const DETAIL_LENGTH = 1_000

/** The reason why a backup has failed, as a text. */
const whyOf = (cause: Cause.Cause<{ readonly message: string }>): string => {
  if (Cause.hasInterruptsOnly(cause)) return "the command ended before the backup was complete"
  return cause.reasons.find(Cause.isFailReason)?.error.message ?? "a defect, which the log of the server has"
}

export const CommandsHttp = HttpApiBuilder.group(
  consoleApiOf(CommandsApi),
  "commands",
  (handlers) =>
    Effect.gen(function*() {
      const access = yield* ConsoleAccess
      const agents = yield* AgentAdmin
      const audit = yield* AuditLog
      const config = yield* Config
      const counters = yield* RestoredCounters
      const database = yield* Database
      const newAgents = yield* NewAgents
      const nodes = yield* NodeTable
      const origins = yield* Origins
      const pages = yield* AgentPages

      const schema = Effect.map(
        database.query<{ readonly name: string }>`SELECT name FROM migrations ORDER BY id DESC LIMIT 1`,
        ([row]) => row?.name ?? ""
      )

      const backup = Effect.fnUntraced(function*(target: string, operator: string) {
        if (database.backup === undefined) {
          return yield* new Conflict({
            message:
              "The database is PostgreSQL: back it up with pg_dump while the servers run, and then the file store with its own tools (docs/operations.md)."
          })
        }
        const noted = (action: string, detail: string) =>
          audit.note({ operator, action, handle: null, detail: withoutAddresses(detail).slice(0, DETAIL_LENGTH) })
        // This row is part of the backup. The row with the outcome is written after the end of the backup.
        yield* noted("begin backup", target)
        const store = config.S3_BUCKET === undefined && config.SHARED_DIR === undefined ? folderOf(config) : undefined
        return yield* backUp({ target, database: database.backup, schema: yield* schema, store }).pipe(
          Effect.onExit((exit) =>
            Effect.catch(
              Exit.isSuccess(exit)
                ? noted("backup", `${target}: ${exit.value.bytes} bytes`)
                : noted("refused backup", `${target}: ${whyOf(exit.cause)}`),
              (error) =>
                Effect.logWarning(`The outcome of the backup ${target} could not be written into the audit log`, error)
            )
          ),
          Effect.catchTag("BackupRefused", ({ message }) => Effect.fail(new Conflict({ message }))),
          Effect.catchTag("SqlError", Effect.die)
        )
      })

      return handlers.handleAll({
        createAgents: Effect.fnUntraced(
          function*({ payload: { display_name: displayName = null, email = null, handles } }) {
            const { operator } = yield* CurrentOperator
            const made = yield* newAgents.create({ handles, email, displayName, operator })
            return { agents: made.map(({ apiKey, ...agent }) => ({ ...agent, api_key: apiKey })) }
          }
        ),
        makeLink: Effect.fnUntraced(function*() {
          const { operator } = yield* CurrentOperator
          const { access: { expiresAt }, token } = yield* access.link(operator)
          // The token is in the URL's fragment, because browsers do not send the fragment to a server.
          return { url: `${publicUrl(config)}/console#${token}`, expires_at: iso(expiresAt) }
        }),
        makeToken: Effect.fnUntraced(function*({ payload }) {
          const { operator } = yield* CurrentOperator
          const { access: { expiresAt, id }, token } = yield* access.program(operator, payload.name, payload.days)
          return { id, token, url: `${publicUrl(config)}/console/api`, expires_at: iso(expiresAt) }
        }),
        makeCommandToken: Effect.fnUntraced(function*() {
          const { operator } = yield* CurrentOperator
          const { token } = yield* access.commandToken(operator)
          const url = reachableUrl(config, config.HOST === "::" ? "::1" : "127.0.0.1")
          return { url, others: yield* Effect.orDie(nodes.urls), token }
        }),
        config: () => Effect.succeed(effective(config, origins)),
        moveCounters: () => Effect.flatMap(CurrentOperator, ({ operator }) => counters.moveOn(operator)),
        export: Effect.fnUntraced(function*({ payload }) {
          const { operator } = yield* CurrentOperator
          const agent = yield* agents.find(payload.handle)
          yield* audit.note({ operator, action: "export", handle: agent.handle, detail: null })
          return { agent: agent.id, handle: agent.handle, schema: yield* schema }
        }),
        exportPage: Effect.fnUntraced(function*({ params, payload }) {
          const page = yield* Effect.orDie(pages.page(params.agent, params.file, payload.after))
          return page === undefined
            ? yield* new NotFound({ message: `An export has no such page of ${params.file}.` })
            : HttpServerResponse.jsonUnsafe(page)
        }),
        exportPart: Effect.fnUntraced(function*({ params, payload }) {
          const part = yield* Effect.catchTag(
            pages.part(params.agent, params.file, payload.from),
            "SqlError",
            Effect.die
          )
          return HttpServerResponse.jsonUnsafe(
            part === undefined ? null : { ...part, bytes: part.bytes.toString("base64") }
          )
        }),
        // A backup ends when its caller disconnects, because a repeated command makes another backup.
        backup: ({ payload }) =>
          Effect.flatMap(CurrentOperator, ({ operator }) => Effect.interruptible(backup(payload.target, operator)))
      })
    })
).pipe(
  Layer.provide([
    NewAgents.layer,
    NodeTable.layer,
    RestoredCounters.layer,
    Layer.provide(AgentPages.layer, BlobParts.layer)
  ])
)

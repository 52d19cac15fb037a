import { AgentPages } from "#domain/archives/AgentPages"
import { NodeTable } from "#infrastructure/cluster/NodeTable"
import { Database } from "#infrastructure/database/Sql"
import { BlobParts } from "#infrastructure/files/BlobParts"
import { Config, effective, Origins } from "#infrastructure/platform/Config"
import { publicUrl, reachableUrl } from "#infrastructure/platform/PublicUrl"
import { iso } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { AgentAdmin } from "#interfaces/operator/AgentAdmin"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { Backups } from "#interfaces/operator/Backups"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { RestoredCounters } from "#interfaces/operator/RestoredCounters"
import { Effect, Layer } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { CommandsApi } from "./CommandsApi.ts"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"

export const CommandsHttp = HttpApiBuilder.group(
  consoleApiOf(CommandsApi),
  "commands",
  (handlers) =>
    Effect.gen(function*() {
      const access = yield* ConsoleAccess
      const backups = yield* Backups
      const agents = yield* AgentAdmin
      const audit = yield* AuditLog
      const config = yield* Config
      const counters = yield* RestoredCounters
      const database = yield* Database
      const nodes = yield* NodeTable
      const origins = yield* Origins
      const pages = yield* AgentPages

      const schema = Effect.map(
        database.query<{ readonly name: string }>`SELECT name FROM migrations ORDER BY id DESC LIMIT 1`,
        ([row]) => row?.name ?? ""
      )

      return handlers.handleAll({
        makeLink: Effect.fnUntraced(function*({ payload: { person, role = "operator" } }) {
          const { operator } = yield* CurrentOperator
          const { access: { expiresAt }, token } = yield* access.link(
            operator,
            person ?? operator,
            role
          )
          // The token is in the URL's fragment, because browsers do not send the fragment to a server.
          return { url: `${publicUrl(config)}/console#${token}`, role, expires_at: iso(expiresAt) }
        }),
        makeToken: Effect.fnUntraced(function*({ payload: { days, name, role = "operator" } }) {
          const { operator } = yield* CurrentOperator
          const { access: { expiresAt, id }, token } = yield* access.program(
            operator,
            name,
            days,
            role
          )
          return { id, token, url: `${publicUrl(config)}/console/api`, role, expires_at: iso(expiresAt) }
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
          Effect.flatMap(
            CurrentOperator,
            ({ operator }) => Effect.interruptible(backups.make(payload.target, operator))
          )
      })
    })
).pipe(
  Layer.provide([
    NodeTable.layer,
    RestoredCounters.layer,
    Layer.provide(AgentPages.layer, BlobParts.layer)
  ])
)

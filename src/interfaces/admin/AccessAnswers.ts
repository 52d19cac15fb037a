import { NodeTable } from "#infrastructure/cluster/NodeTable"
import { Config } from "#infrastructure/platform/Config"
import { publicUrl, reachableUrl } from "#infrastructure/platform/PublicUrl"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { Effect } from "effect"
import { type Answers, refuse } from "./Answers.ts"
import { plain, table } from "./TextTable.ts"

/** The commands about sessions and tokens for the operators' API. */
export const accessAnswers = Effect.gen(function*() {
  const access = yield* ConsoleAccess
  const audit = yield* AuditLog
  const config = yield* Config
  const nodes = yield* NodeTable

  const answers: Answers<"ConsoleLink" | "ConsoleToken" | "Errand" | "ConsoleSessions" | "EndConsoleAccess"> = {
    ConsoleLink: Effect.fnUntraced(function*({ operator }) {
      const { access: { expiresAt }, token } = yield* access.link(operator)
      // The token is in the fragment, which browsers send to no server.
      const url = `${publicUrl(config)}/console#${token}`
      return {
        text: `${url}\nOpen it within 5 minutes; it works once, and signs you in for 12 hours.`,
        data: { url, expires_at: iso(expiresAt) }
      }
    }),
    ConsoleToken: Effect.fnUntraced(function*({ days, name, operator }) {
      const { access: { expiresAt, id }, token } = yield* access.program(operator, name, days)
      return {
        text: `${token}\nSend it as "Authorization: Bearer …" to ${publicUrl(config)}/console/api until ${
          iso(expiresAt)
        }; it is shown once. Its id is ${id}.`,
        data: { id, token, expires_at: iso(expiresAt) }
      }
    }),
    Errand: Effect.fnUntraced(function*({ operator }) {
      const { token } = yield* access.commandToken(operator)
      const url = reachableUrl(config, config.HOST === "::" ? "::1" : "127.0.0.1")
      return { text: url, data: { url, others: yield* nodes.urls, token } }
    }),
    ConsoleSessions: Effect.fnUntraced(function*({ operator }) {
      yield* audit.note({ operator, action: "list console sessions", handle: null, detail: null })
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
    }),
    EndConsoleAccess: Effect.fnUntraced(function*({ id, operator }) {
      if (!(yield* access.end(id, operator))) return yield* refuse(`No valid session or token has the id ${plain(id)}.`)
      return { text: `${id} is ended, on every node.`, data: { id } }
    })
  }
  return answers
})

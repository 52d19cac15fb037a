import type { RefusedClient } from "#domain/oauth/Refusals"
import { confirm } from "#infrastructure/wire/Confirmation"
import { iso } from "#infrastructure/wire/Text"
import { GrantAdmin } from "#interfaces/operator/GrantAdmin"
import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { endedShown, OAuthApi } from "./OAuthApi.ts"

/** Normalises a host to its spelling in redirect URIs. A client id is not changed, because ids are compared exactly. */
const normal = ({ kind, value }: RefusedClient): RefusedClient => ({
  kind,
  value: kind === "client" ? value : value.trim().toLowerCase()
})

export const OAuthHttp = HttpApiBuilder.group(consoleApiOf(OAuthApi), "oauth", (handlers) =>
  Effect.gen(function*() {
    const connections = yield* GrantAdmin
    const because = (reason: string | null = null) =>
      Effect.map(CurrentOperator, ({ operator }) => ({ operator, reason }))

    return handlers.handleAll({
      connections: () =>
        Effect.map(Effect.all([connections.count, connections.refusals]), ([live, refusals]) => ({
          live,
          refusals: refusals.map(({ at, kind, operator, reason, value }) => ({
            kind,
            value,
            by: operator,
            at: iso(at),
            reason
          }))
        })),
      endAllConnections: ({ payload }) =>
        Effect.map(Effect.flatMap(because(payload.reason), connections.endAll), endedShown),
      refuseClient: Effect.fnUntraced(function*({ payload }) {
        return endedShown(yield* connections.refuse(normal(payload), yield* because(payload.reason)))
      }),
      allowClient: Effect.fnUntraced(function*({ payload }) {
        yield* connections.allow(normal(payload), yield* because(payload.reason))
        return confirm("It is allowed again.")
      })
    })
  }))

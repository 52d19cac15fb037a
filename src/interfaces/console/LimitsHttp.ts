import { rowsOf } from "#infrastructure/wire/Page"
import { iso, isoOrNull, NO_INSTANT, parseInstant } from "#infrastructure/wire/Text"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { MAX_ROWS } from "#interfaces/operator/AgentAdmin"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { LimitChanges } from "#interfaces/operator/LimitChanges"
import type { LimitState } from "#interfaces/operator/LimitRules"
import { NearLimits } from "#interfaces/operator/NearLimits"
import { Effect, Schema } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { LimitsApi, type LimitShown } from "./LimitsApi.ts"

const shownOf = ({ canChange, changes, ...limit }: LimitState): LimitShown => ({
  ...limit,
  can_change: canChange,
  changes: changes.map(({ at, handle, operator, reason, until, value }) => ({
    agent: handle,
    value,
    until: isoOrNull(until),
    by: operator,
    at: iso(at),
    reason
  }))
})

export const LimitsHttp = HttpApiBuilder.group(consoleApiOf(LimitsApi), "limits", (handlers) =>
  Effect.gen(function*() {
    const audit = yield* AuditLog
    const changes = yield* LimitChanges
    const near = yield* NearLimits

    return handlers.handleAll({
      limits: ({ query }) =>
        Effect.map(changes.list(query.agent ?? null), (limits) => ({ limits: limits.map(shownOf) })),
      nearLimits: () =>
        Effect.map(near.list, ({ near, silent }) => ({
          near: near.map(({ handle, windowMs, ...limit }) => ({
            agent: handle,
            ...limit,
            window_seconds: windowMs / 1_000
          })),
          silent_nodes: silent
        })),
      changeLimit: Effect.fnUntraced(function*({ params, payload }) {
        const { operator } = yield* CurrentOperator
        const until = payload.until ?? null
        const at = until === null ? null : parseInstant(until)
        if (at === undefined) return yield* ValidationFailed.field("until", `${NO_INSTANT}, or null`)
        return shownOf(
          yield* changes.change({
            name: params.name,
            agent: payload.agent ?? null,
            operator,
            value: payload.value,
            until: at,
            reason: payload.reason ?? null
          })
        )
      }),
      takeBackLimit: Effect.fnUntraced(function*({ params, query }) {
        const { operator } = yield* CurrentOperator
        return shownOf(yield* changes.takeBack({ name: params.name, agent: query.agent ?? null, operator }))
      }),
      audit: Effect.fnUntraced(function*({ query }) {
        const { nextCursor, rows } = yield* rowsOf(query, {
          max: MAX_ROWS,
          position: Schema.Int,
          rows: (before, limit) =>
            audit.list({
              handle: query.agent ?? null,
              operator: query.operator ?? null,
              looks: query.looks !== "false",
              before,
              limit
            }),
          positionOf: ({ no }) => no
        })
        return { entries: rows.map(({ at, ...row }) => ({ ...row, at: iso(at) })), next_cursor: nextCursor }
      })
    })
  }))

import { Clock, Effect, Result, Schema } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { AgentAdmin } from "#doors/operator/AgentAdmin"
import { AuditLog } from "#doors/operator/AuditLog"
import { Conflict } from "#doors/operator/Conflict"
import { LimitChanges, type StoredChange } from "#doors/operator/LimitChanges"
import { Config, type Settings, settings } from "#ground/platform/Config"
import { type LimitName, RATES } from "#ground/rates/Limits"
import { decodeCursor, encodeCursor, pageSize } from "#ground/wire/Page"
import { iso, isoOrNull } from "#ground/wire/Text"
import { NotFound, ValidationFailed } from "#ground/wire/WireError"
import { consoleApiOf, CurrentOperator } from "./ConsoleAuthorization.ts"
import { LimitsApi, type LimitShown } from "./LimitsApi.ts"

const names = Object.keys(settings).filter((name): name is LimitName => name.startsWith("LIMITS_"))

/** The limits that the server reads at each use, so that a change takes effect. The others are read once, at the start. */
const CHANGEABLE: ReadonlySet<string> = new Set([...Object.values(RATES), "LIMITS_COLD_CONVERSATIONS", "LIMITS_PUSH_CONFIGS_PER_AGENT", "LIMITS_WEBHOOKS_PER_AGENT"])

/** Rates of callers without a key, or with a key that may be stolen. They count IP addresses. */
const PER_ADDRESS = /ANONYMOUS|REGISTER|RECOVER|ROTATE/

const perOf = (name: string): LimitShown["per"] =>
  PER_ADDRESS.test(name) ? "address" : /^LIMITS_GROUP_(?!INVITES)/.test(name) ? "group" : /BODY|OTP|AVATAR_(?!WRITES)/.test(name) ? "server" : "agent"

const shownOf = (name: LimitName, config: Settings, all: ReadonlyArray<StoredChange>, agentId: string | null): LimitShown => {
  const changes = all.filter((change) => change.name === name)
  const inForce = (agentId === null ? undefined : changes.find((change) => change.agentId === agentId)) ??
    changes.find((change) => change.agentId === null)
  return {
    name,
    about: settings[name].about,
    per: perOf(name),
    default: config[name],
    value: inForce?.value ?? config[name],
    can_change: CHANGEABLE.has(name),
    changes: changes.map(({ at, handle, operator, reason, until, value }) => ({
      agent: handle,
      value,
      until: isoOrNull(until),
      by: operator,
      at: iso(at),
      reason
    }))
  }
}

export const LimitsHttp = HttpApiBuilder.group(consoleApiOf(LimitsApi), "limits", (handlers) =>
  Effect.gen(function*() {
    const agents = yield* AgentAdmin
    const audit = yield* AuditLog
    const config = yield* Config
    const changes = yield* LimitChanges

    const named = (name: string): Effect.Effect<LimitName, NotFound> => {
      const known = names.find((one) => one === name)
      return known === undefined ? Effect.fail(new NotFound({ message: "There is no such limit." })) : Effect.succeed(known)
    }
    const idOf = Effect.fnUntraced(function*(handle: string | null | undefined) {
      if (handle === null || handle === undefined) return null
      const agent = yield* agents.find(handle)
      return agent.deletedAt !== null ? yield* new NotFound({ message: "No agent has this handle." }) : agent.id
    })
    const shown = (name: LimitName, agentId: string | null) =>
      Effect.map(changes.list, (all) => shownOf(name, config, all, agentId))

    return handlers.handleAll({
      limits: Effect.fnUntraced(function*({ query }) {
        const agentId = yield* idOf(query.agent)
        const all = yield* changes.list
        return { limits: names.map((name) => shownOf(name, config, all, agentId)) }
      }),
      changeLimit: Effect.fnUntraced(function*({ params, payload }) {
        const { operator } = yield* CurrentOperator
        const name = yield* named(params.name)
        if (!CHANGEABLE.has(name)) {
          return yield* new Conflict({ message: `${name} is only read when a server starts: set it in the configuration, and restart.` })
        }
        const parsed = settings[name].parse(String(payload.value))
        if (Result.isFailure(parsed)) return yield* ValidationFailed.field("value", parsed.failure)
        const agentId = yield* idOf(payload.agent)
        if (agentId !== null && perOf(name) !== "agent") {
          return yield* ValidationFailed.field("agent", `${name} does not count by agent: it can only be changed for all`)
        }
        const until = payload.until === null || payload.until === undefined ? null : Date.parse(payload.until)
        if (until !== null && !(until > (yield* Clock.currentTimeMillis))) {
          return yield* ValidationFailed.field("until", "must be a date-time in the future, or null")
        }
        const done = yield* changes.change({ name, agentId, operator, value: payload.value, until, reason: payload.reason ?? null })
        return done ? yield* shown(name, agentId) : yield* new Conflict({ message: "Too many limits are changed: reset some of them first." })
      }),
      takeBackLimit: Effect.fnUntraced(function*({ params, query }) {
        const { operator } = yield* CurrentOperator
        const name = yield* named(params.name)
        const agentId = yield* idOf(query.agent)
        const done = yield* changes.takeBack({ name, agentId, operator })
        return done ? yield* shown(name, agentId) : yield* new NotFound({ message: "This limit has not been changed." })
      }),
      audit: Effect.fnUntraced(function*({ query }) {
        const limit = pageSize(query.limit)
        const before = query.cursor === undefined ? null : yield* decodeCursor(Schema.Int)(query.cursor)
        const rows = yield* audit.list({
          handle: query.agent ?? null,
          operator: query.operator ?? null,
          looks: query.looks !== "false",
          before,
          limit
        })
        return {
          entries: rows.map(({ at, ...row }) => ({ ...row, at: iso(at) })),
          next_cursor: rows.length < limit ? null : encodeCursor(rows.at(-1)!.no)
        }
      })
    })
  }))

import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { type Rate, ruleOf, SECOND } from "#infrastructure/rates/RateRule"
import { confirm } from "#infrastructure/wire/Confirmation"
import { figuresOf } from "#infrastructure/wire/Page"
import { NO_INSTANT, parseInstant } from "#infrastructure/wire/Text"
import { ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Effect } from "effect"
import { toMute } from "./Mute.ts"
import { Mutes, type MuteTarget } from "./Mutes.ts"
import { MutesApi, NewMute } from "./MutesApi.ts"

const targetOf = (payload: typeof NewMute.Type): Effect.Effect<MuteTarget, ValidationFailed> => {
  const { target_handle, target_id, target_kind } = payload
  const id = target_id ?? ""
  if (target_kind === "conversation") {
    return id === ""
      ? Effect.fail(ValidationFailed.field("target_id", "is needed: the conversation's id"))
      : Effect.succeed({ kind: "conversation", id })
  }
  const handle = target_handle ?? ""
  if (handle !== "") return Effect.succeed({ kind: "agent", handle })
  return id === ""
    ? Effect.fail(ValidationFailed.field("target_handle", "is needed: the agent's handle, or its id as target_id"))
    : Effect.succeed({ kind: "agent", id })
}

const untilOf = Effect.fnUntraced(function*(text: string | null | undefined) {
  if (text === null || text === undefined) return null
  const at = parseInstant(text)
  if (at === undefined) {
    return yield* ValidationFailed.field("muted_until", `${NO_INSTANT}, or null`)
  }
  if (at <= (yield* Clock.currentTimeMillis))
    return yield* ValidationFailed.field("muted_until", "must be in the future")
  return at
})

/** How often an agent may set or remove mutes. */
export const MUTE_WRITES: Rate = { name: "mute_writes", setting: "LIMITS_MUTE_WRITES_PER_SECOND", ...SECOND }

export const MutesHttp = Endpoints.group(
  Endpoints.apiOf(MutesApi),
  "mutes",
  Effect.fnUntraced(function*(handlers) {
    const config = yield* Config
    const limits = yield* RateLimits
    const mutes = yield* Mutes
    const rate = ruleOf(config, MUTE_WRITES)
    const writer = Effect.tap(CurrentAgent, (agent) => limits.take(rate, agent.id))

    return handlers.handleAll({
      mute: Effect.fnUntraced(function*({ payload }) {
        const { id } = yield* writer
        const target = yield* targetOf(payload)
        return toMute(yield* mutes.mute(id, target, yield* untilOf(payload.muted_until)))
      }),
      list: Effect.fnUntraced(function*({ query }) {
        const { id } = yield* CurrentAgent
        const page = yield* mutes.list(id, query.kind, query)
        return { mutes: page.items.map(toMute), ...figuresOf(page) }
      }),
      ofAgent: Effect.fnUntraced(function*({ params }) {
        const { id } = yield* CurrentAgent
        return toMute(yield* mutes.find(id, { kind: "agent", handle: params.handle }))
      }),
      ofConversation: Effect.fnUntraced(function*({ params }) {
        const { id } = yield* CurrentAgent
        return toMute(yield* mutes.find(id, { kind: "conversation", id: params.id }))
      }),
      liftAgent: Effect.fnUntraced(function*({ params }) {
        const { id } = yield* writer
        yield* mutes.lift(id, { kind: "agent", handle: params.handle })
        return confirm("The agent is not muted any more.")
      }),
      liftConversation: Effect.fnUntraced(function*({ params }) {
        const { id } = yield* writer
        yield* mutes.lift(id, { kind: "conversation", id: params.id })
        return confirm("The conversation is not muted any more.")
      })
    })
  })
)

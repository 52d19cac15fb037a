import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { MINUTE, type Rate, ruleOf } from "#infrastructure/rates/RateRule"
import { Effect } from "effect"
import { Reactions } from "./Reactions.ts"
import { ReactionsApi } from "./ReactionsApi.ts"

/** How often an agent may give reactions or take them back. */
export const REACTION_WRITES: Rate = { name: "reactions", setting: "LIMITS_REACTIONS_PER_MINUTE", ...MINUTE }

export const ReactionsHttp = Endpoints.group(
  Endpoints.apiOf(ReactionsApi),
  "reactions",
  Effect.fnUntraced(function*(handlers) {
    const config = yield* Config
    const limits = yield* RateLimits
    const reactions = yield* Reactions
    const rate = ruleOf(config, REACTION_WRITES)
    const writer = Effect.tap(CurrentAgent, (agent) => limits.take(rate, agent.id))

    return handlers.handleAll({
      add: Effect.fnUntraced(function*({ params }) {
        return { reactions: yield* reactions.add(yield* writer, params.id, params.emoji) }
      }),
      remove: Effect.fnUntraced(function*({ params }) {
        return { reactions: yield* reactions.remove(yield* writer, params.id, params.emoji) }
      })
    })
  })
)

import { CurrentAgent } from "#domain/auth/Authorization"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { MINUTE, type Rate, ruleOf } from "#infrastructure/rates/RateRule"
import { Effect } from "effect"
import { Replies } from "./Replies.ts"
import { RepliesApi } from "./RepliesApi.ts"
import { leaseMs } from "./Reply.ts"

/** How often an agent may call reply coordination. */
export const REPLY_CALLS: Rate = { name: "reply_calls", setting: "LIMITS_REPLY_CALLS_PER_MINUTE", ...MINUTE }

export const RepliesHttp = Endpoints.group(
  Endpoints.apiOf(RepliesApi),
  "replies",
  Effect.fnUntraced(function*(handlers) {
    const config = yield* Config
    const limits = yield* RateLimits
    const replies = yield* Replies
    const rate = ruleOf(config, REPLY_CALLS)
    const caller = Effect.tap(CurrentAgent, (agent) => limits.take(rate, agent.id))

    return handlers.handleAll({
      begin: Effect.fnUntraced(function*({ payload }) {
        const { id } = yield* caller
        const ms = leaseMs(payload?.ttl_seconds)
        yield* replies.begin(id, payload?.session_id ?? null, ms)
        return { ok: true, active: true, expires_in: ms / 1_000 } as const
      }),
      end: Effect.fnUntraced(function*({ payload }) {
        const { id } = yield* caller
        return { ok: true, active: yield* replies.end(id, payload?.session_id ?? null) } as const
      }),
      active: Effect.fnUntraced(function*() {
        const { id } = yield* caller
        const { expiresIn, sessions } = yield* replies.leases(id)
        return { active: sessions > 0, sessions, expires_in: expiresIn }
      }),
      claim: Effect.fnUntraced(function*({ payload: { defer_if_active, holder, message_id } }) {
        const { id } = yield* caller
        const { claimed, deferred, expiresIn } = yield* replies.claim(id, message_id, holder, defer_if_active ?? false)
        return { claimed: claimed === 1, deferred, expires_in: expiresIn }
      }),
      claimBatch: Effect.fnUntraced(function*({ payload: { defer_if_active, holder, message_ids } }) {
        const { id } = yield* caller
        const { claimed, deferred, expiresIn } = yield* replies.claimAll(
          id,
          message_ids,
          holder,
          defer_if_active ?? false
        )
        return { claimed_count: claimed, deferred, expires_in: expiresIn }
      })
    })
  })
)

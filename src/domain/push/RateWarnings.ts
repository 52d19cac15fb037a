import { Config } from "#infrastructure/platform/Config"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateState } from "#infrastructure/rates/RateRule"
import { iso } from "#infrastructure/wire/Text"
import { Clock, Effect } from "effect"
import { LiveAgents } from "./LiveAgents.ts"

/**
 * Makes the function that sends a warning to a sender's sockets when the sender has used most of its rate of sends. All
 * nodes together send one warning to a sender in `LIMITS_WARNING_SECONDS`.
 */
export const makeRateWarnings = Effect.gen(function*() {
  const clock = yield* Clock.Clock
  const config = yield* Config
  const limits = yield* RateLimits
  const liveAgents = yield* LiveAgents
  const fork = Effect.runForkWith(yield* Effect.context<never>())
  const monotonic = monotonicMillis(clock)
  const warnEveryMs = config.LIMITS_WARNING_SECONDS * 1_000
  const warnFrom = config.LIMITS_WARNING_PERCENT / 100
  const warningRate = { name: "warnings", limit: 1, windowMs: warnEveryMs, window: "10 seconds" }
  /** When this node last warned each sender, oldest first. This avoids calls to the shared count. */
  const warned = new Map<string, number>()

  return (senderId: string, { limit, remaining, resetMs }: RateState): void => {
    if (limit - remaining < limit * warnFrom) return
    const at = monotonic()
    for (const [id, then] of warned) {
      if (at - then < warnEveryMs) break
      warned.delete(id)
    }
    if (warned.has(senderId)) return
    warned.set(senderId, at)
    const frame = JSON.stringify({
      type: "rate_limit.warning",
      payload: {
        endpoint: "POST /v1/messages",
        limit,
        remaining,
        reset_at: iso(clock.currentTimeMillisUnsafe() + resetMs),
        message: "You have used most of your sends for this second: send more slowly."
      }
    })
    // The count is shared by all nodes, because another node may have sent the warning.
    fork(Effect.match(limits.take(warningRate, senderId), {
      onFailure: () => undefined,
      onSuccess: () => liveAgents.push(senderId, { _tag: "Event", frame })
    }))
  }
})

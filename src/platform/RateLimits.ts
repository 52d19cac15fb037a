import { Context, type Effect } from "effect"
import type { RateLimited } from "./WireError.ts"

/** A true sliding window: at most `limit` accepted requests in any `windowMs` milliseconds. */
export interface RateRule {
  /** Prefix of the key and label of the metric; of bounded cardinality. */
  readonly name: string
  readonly limit: number
  readonly windowMs: number
  /** How the window is called in `details.window`: `second`, `minute`, `hour`, … */
  readonly window: string
}

export interface RateState {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds until the window holds one accepted request less. */
  readonly resetMs: number
}

/** Rates by key. Fails open: a limiter that cannot answer lets the request pass (wire.md G.17). */
export class RateLimits extends Context.Service<RateLimits, {
  /** Counts one request, or refuses it and counts nothing; `Retry-After` is exact. */
  readonly take: (rule: RateRule, key: string) => Effect.Effect<RateState, RateLimited>
}>()("parley/platform/RateLimits") {}

import { RateLimited } from "../wire/WireError.ts"

/** A true sliding window: at most `limit` accepted requests in any `windowMs` milliseconds. */
export interface RateRule {
  /** Prefix of the key and label of the metric; of bounded cardinality. */
  readonly name: string
  readonly limit: number
  readonly windowMs: number
  /** How the window is called in `details.window`: `second`, `minute`, `hour`, … */
  readonly window: string
  /** What a refusal says, where the general text does not do. */
  readonly message?: string
}

/** A place in the window that a rule gives to a key. */
export interface Charge {
  readonly rule: RateRule
  readonly key: string
}

export interface RateState {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds until the window holds one accepted request less. */
  readonly resetMs: number
  /** Which place was taken: its time in this process's own count, in milliseconds that never go back. */
  readonly at: number
  /** And its time in the count that all processes share, in that one's own time; null: that has no such place, as far as is known. */
  readonly sharedAt: number | null
}

/** How a rate is refused. */
export const rateRefusal = (rule: RateRule, waitMs: number): RateLimited =>
  new RateLimited({
    message: rule.message ?? `Too many requests: at most ${rule.limit} per ${rule.window}.`,
    details: { retry_after_ms: waitMs, limit: rule.limit, window: rule.window }
  })

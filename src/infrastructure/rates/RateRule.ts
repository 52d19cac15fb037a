import { RateLimited } from "#infrastructure/wire/WireError"

/** A true sliding window: at most `limit` accepted requests in any `windowMs` milliseconds. */
export interface RateRule {
  /** Prefix of the key and label of the metric; of bounded cardinality. */
  readonly name: string
  readonly limit: number
  readonly windowMs: number
  /** The window's name in `details.window`: `second`, `minute`, `hour`, … */
  readonly window: string
  /** The message of a refusal by this limit, in place of the general one. */
  readonly message?: (limit: number) => string
}

/** A rule and the key to count under it: together they name one window. */
export interface Charge {
  readonly rule: RateRule
  readonly key: string
}

export interface RateState {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds until the oldest accepted request leaves the window. */
  readonly resetMs: number
  /** Identifies the place in this process's own count: its time in monotonic milliseconds. */
  readonly at: number
  /**
   * Identifies the place in Redis: its time in microseconds of Redis's clock. Null unless Redis has confirmed that it
   * counted the request.
   */
  readonly sharedAt: number | null
}

/** How many requests of a key count in the window of a rule right now. */
export interface RateCount {
  readonly rule: RateRule
  readonly count: number
}

/** The refusal of a rule; `waitMs` is the time until a request would be accepted. */
export const rateRefusal = (rule: RateRule, waitMs: number): RateLimited =>
  new RateLimited({
    message: rule.message?.(rule.limit) ?? `Too many requests: at most ${rule.limit} per ${rule.window}.`,
    details: { retry_after_ms: waitMs, limit: rule.limit, window: rule.window }
  })

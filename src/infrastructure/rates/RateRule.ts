import type { Settings } from "#infrastructure/platform/Config"
import { RateLimited } from "#infrastructure/wire/WireError"

/** The names of the settings that are limits. */
export type LimitName = Extract<keyof Settings, `LIMITS_${string}`>

/** A true sliding window: at most `limit` accepted requests in any `windowMs` milliseconds. */
export interface RateRule {
  /** The prefix of the key, and the label of the metric. The set of names is bounded. */
  readonly name: string
  readonly limit: number
  readonly windowMs: number
  /** The name of the window in `details.window`: `second`, `minute`, `hour` and so on. */
  readonly window: string
  /** Makes the message of a refusal by this limit. The default is a general message. */
  readonly message?: (limit: number) => string
  /** The setting that `limit` comes from, for a limit that operators can change while servers run. */
  readonly setting?: LimitName
  /** Whether the rule is left out of the `RateLimit-*` headers and of the counts for display. */
  readonly hidden?: true
}

/**
 * A rule whose limit comes from a setting. The module that counts requests with the rule declares it, and
 * `src/Limits.ts` lists all declarations.
 */
export type Rate = Omit<RateRule, "limit"> & { readonly setting: LimitName }

/** Makes the rule of a rate, with the limit from these settings. */
export const ruleOf = (config: Settings, rate: Rate): RateRule => ({ ...rate, limit: config[rate.setting] })

/** The usual windows of rates. */
export const SECOND = { windowMs: 1_000, window: "second" }
export const MINUTE = { windowMs: 60_000, window: "minute" }
export const TEN_MINUTES = { windowMs: 600_000, window: "10 minutes" }
export const HOUR = { windowMs: 3_600_000, window: "hour" }
export const DAY = { windowMs: 86_400_000, window: "day" }

/** A rule, and the key under which a request is counted. Together they identify one window. */
export interface Charge {
  readonly rule: RateRule
  readonly key: string
}

export interface RateState {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds until the oldest accepted request leaves the window. */
  readonly resetMs: number
  /** When the place was taken, in monotonic milliseconds. It identifies the place in this process's own count. */
  readonly at: number
  /**
   * When the place was taken, in microseconds of Redis's clock. It identifies the place in Redis. Null unless Redis has
   * confirmed that it counted the request.
   */
  readonly sharedAt: number | null
}

/** How many requests of a key count in the window of a rule at present. */
export interface RateCount {
  readonly rule: RateRule
  readonly count: number
}

/** A window that is not empty. */
export interface RateWindow extends RateCount {
  readonly key: string
}

/** The refusal of a request by a rule. */
export class RateRefusal extends RateLimited {
  readonly rule: RateRule

  /** `waitMs` is the time until the rule would accept a request. */
  constructor(rule: RateRule, waitMs: number) {
    super({
      message: rule.message?.(rule.limit) ?? `Too many requests: at most ${rule.limit} per ${rule.window}.`,
      details: { retry_after_ms: waitMs, limit: rule.limit, window: rule.window }
    })
    this.rule = rule
  }
}

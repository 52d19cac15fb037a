import { Clock, Context, Effect, Layer } from "effect"
import { RateLimited } from "./WireError.ts"

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
}>()("parley/platform/RateLimits") {
  /**
   * The limits of one process, lost on restart. On the send path, so a take is one
   * synchronous step. Measured on the monotonic clock: a step of the wall clock
   * neither frees nor freezes anybody.
   */
  static readonly layerMemory = Layer.effect(
    RateLimits,
    Effect.map(Clock.Clock, (clock) => {
      const tables = new Map<string, KeyTable>()
      return RateLimits.of({
        take: (rule, key) =>
          Effect.suspend(() => {
            let table = tables.get(rule.name)
            if (table === undefined) tables.set(rule.name, table = new KeyTable())
            const now = Number(clock.monotonicTimeNanosUnsafe()) / 1e6
            const log = table.log(key, rule.windowMs, now)
            const waitMs = log.take(rule, now)
            return waitMs > 0
              ? Effect.fail(rateRefusal(rule, waitMs))
              : Effect.succeed({
                limit: rule.limit,
                remaining: rule.limit - log.count,
                resetMs: log.resetMs(rule.windowMs, now)
              })
          })
      })
    })
  )
}

/** How a rate is refused. */
export const rateRefusal = (rule: RateRule, waitMs: number): RateLimited =>
  new RateLimited({
    message: `Too many requests: at most ${rule.limit} per ${rule.window}.`,
    details: { retry_after_ms: waitMs, limit: rule.limit, window: rule.window }
  })

/** Above this many keys of one rule, the one that came first is forgotten: memory stays bounded and the limit fails open. */
const MAX_KEYS = 500_000

/**
 * The logs of one rule by key. Each new key, and each 64th request, looks at a few
 * others and drops the idle ones, so that at most about a third of all keys are idle.
 */
class KeyTable {
  private readonly logs = new Map<string, Log>()
  private cursor = this.logs.entries()
  private ticks = 0

  log(key: string, windowMs: number, now: number): Log {
    if ((++this.ticks & 63) === 0) this.sweep(4, windowMs, now)
    let log = this.logs.get(key)
    if (log === undefined) {
      this.sweep(4, windowMs, now)
      if (this.logs.size >= MAX_KEYS) this.forgetFirst()
      log = new Log()
      this.logs.set(key, log)
    }
    return log
  }

  private forgetFirst(): void {
    const first = this.logs.keys().next()
    if (first.done !== true) this.logs.delete(first.value)
  }

  private sweep(steps: number, windowMs: number, now: number): void {
    for (let i = 0; i < steps; i++) {
      const next = this.cursor.next()
      if (next.done === true) {
        this.cursor = this.logs.entries()
        return
      }
      const [key, log] = next.value
      log.prune(windowMs, now)
      if (log.count === 0) this.logs.delete(key)
      else log.shrink()
    }
  }
}

const SMALLEST = 4

/** The times of what was accepted within the window, oldest first, in a ring that grows up to the limit. */
class Log {
  count = 0
  private times = new Float64Array(SMALLEST)
  private head = 0

  /** Accepts, and returns 0; or returns the whole milliseconds until it would. */
  take(rule: RateRule, now: number): number {
    this.prune(rule.windowMs, now)
    if (this.count >= rule.limit) {
      return Math.max(1, Math.ceil(this.at(this.count - rule.limit) + rule.windowMs - now))
    }
    if (this.count === this.times.length) this.resize(Math.max(SMALLEST, Math.min(this.count * 2, rule.limit)))
    let end = this.head + this.count
    if (end >= this.times.length) end -= this.times.length
    this.times[end] = now
    this.count++
    return 0
  }

  resetMs(windowMs: number, now: number): number {
    return this.count === 0 ? 0 : Math.max(0, Math.ceil(this.at(0) + windowMs - now))
  }

  prune(windowMs: number, now: number): void {
    while (this.count > 0 && this.at(0) + windowMs <= now) {
      if (++this.head === this.times.length) this.head = 0
      this.count--
    }
  }

  shrink(): void {
    if (this.times.length > SMALLEST && this.count * 4 < this.times.length) {
      this.resize(Math.max(SMALLEST, this.count * 2))
    }
  }

  private at(i: number): number {
    const index = this.head + i
    return this.times[index >= this.times.length ? index - this.times.length : index] ?? 0
  }

  private resize(size: number): void {
    const times = new Float64Array(size)
    for (let i = 0; i < this.count; i++) times[i] = this.at(i)
    this.times = times
    this.head = 0
  }
}

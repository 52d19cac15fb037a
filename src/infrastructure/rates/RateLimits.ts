import { showLimit } from "#infrastructure/http/RateHeaders"
import { Config } from "#infrastructure/platform/Config"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Redis } from "#infrastructure/platform/Redis"
import { Clock, Context, Effect, Layer } from "effect"
import { Limits, type LimitsShape } from "./Limits.ts"
import { type Charge, type RateCount, RateRefusal, type RateRule, type RateState, type RateWindow } from "./RateRule.ts"
import { SharedWindows } from "./SharedWindows.ts"
import { SlidingWindows } from "./SlidingWindows.ts"

/**
 * Rate limits per key. They fail open: while the shared count in Redis is unavailable, a request passes if the count of
 * this process allows it (wire.md G.17). If several limits count a request, the `RateLimit-*` headers of the response
 * describe the limit with the fewest requests remaining.
 */
export class RateLimits extends Context.Service<RateLimits, {
  /** Counts one request, or refuses it without counting it. The `Retry-After` of the refusal is exact. */
  readonly take: (rule: RateRule, key: string) => Effect.Effect<RateState, RateRefusal>
  /**
   * Counts one request in the windows of several rules, or in none of them. If several rules refuse the request, the
   * refusal with the longest wait is reported.
   */
  readonly takeAll: (charges: ReadonlyArray<Charge>) => Effect.Effect<ReadonlyArray<RateState>, RateRefusal>
  /**
   * Counts `charge` together with the first take that `effect` makes. The charge is counted before the effect or, with
   * Redis, in the same round trip as that take. The charge counts even if the take is refused.
   */
  readonly takeTogether: <A, E, R>(
    charge: Charge,
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | RateRefusal, R>
  /** Frees the place of a request that should not count after all. In Redis, the place becomes free a moment later. */
  readonly refund: (rule: RateRule, key: string, state: RateState) => void
  /**
   * Returns how many requests of a key this process has accepted within the current windows, by rule. For display only.
   */
  readonly countsOf: (key: string) => ReadonlyArray<RateCount>
  /**
   * Returns the windows of the wanted keys in which this process has accepted requests, one after the other. The limit
   * of a rule in it may be one that was in force before. Now and then it returns undefined, so that the caller can let
   * other work run. For display only.
   */
  readonly windows: (isWanted: (key: string) => boolean) => Generator<RateWindow | undefined>
}>()("parley/rates/RateLimits") {
  /**
   * The limits of one process. The counts are lost on restart. A take is on the send path, so it is one synchronous
   * step. The counts use the monotonic clock, so changes of the wall clock do not affect them.
   */
  static readonly layerMemory = Layer.effect(
    RateLimits,
    Effect.gen(function*() {
      const limits = yield* Limits
      const windows = new SlidingWindows(monotonicMillis(yield* Clock.Clock))
      const takeAll = (charges: ReadonlyArray<Charge>) =>
        Effect.withFiber<ReadonlyArray<RateState>, RateRefusal>((fiber) =>
          answer(fiber.context, charges, windows.takeAll(inForce(limits, charges)))
        )
      const take = single(takeAll)
      return RateLimits.of({
        take,
        takeAll,
        takeTogether: (charge, effect) => Effect.andThen(take(charge.rule, charge.key), effect),
        refund: (rule, key, state) => windows.refund(rule, key, state),
        countsOf: (key) => windows.countsOf(key),
        windows: (isWanted) => windows.windows(isWanted)
      })
    })
  )

  /**
   * The limits that all processes on one Redis share, on top of the count of this process (SharedWindows). All takes in
   * one iteration of the event loop are sent to Redis in one command. `takeTogether` adds its charge to the first take
   * of its effect.
   */
  static readonly layerRedis = Layer.effect(
    RateLimits,
    Effect.gen(function*() {
      const config = yield* Config
      const redis = (yield* Redis).channel("rates")
      const limits = yield* Limits
      const windows = new SharedWindows(redis, monotonicMillis(yield* Clock.Clock), config.REDIS_TIMEOUT_MS)

      const takeAll = (charges: ReadonlyArray<Charge>): Effect.Effect<ReadonlyArray<RateState>, RateRefusal> =>
        Effect.withFiber((fiber) => {
          const debt = fiber.getRef(Debt)
          const owed = debt === undefined || debt.paid ? undefined : debt.charge
          if (debt !== undefined) debt.paid = true
          const all = inForce(limits, owed === undefined ? charges : [owed, ...charges])
          const decided = (outcome: ReadonlyArray<RateState> | RateRefusal) =>
            Effect.map(answer(fiber.context, all, outcome), (states) => owed === undefined ? states : states.slice(1))
          return Effect.callback<ReadonlyArray<RateState>, RateRefusal>((resume) => {
            const outcome = windows.take(all, owed === undefined ? 0 : 1, (later) => resume(decided(later)))
            if (outcome !== undefined) resume(decided(outcome))
          })
        })

      return RateLimits.of({
        take: single(takeAll),
        takeAll,
        takeTogether: (charge, effect) =>
          Effect.suspend(() => {
            const debt: Debt = { charge, paid: false }
            return Effect.flatMap(
              Effect.exit(Effect.provideService(effect, Debt, debt)),
              (exit) => debt.paid ? exit : Effect.andThen(takeAll([charge]), exit)
            )
          }),
        refund: (rule, key, state) => windows.refund(rule, key, state),
        countsOf: (key) => windows.countsOf(key),
        windows: (isWanted) => windows.windows(isWanted)
      })
    })
  )

  /** The limits are shared in Redis if REDIS_URL is set, and kept in memory otherwise. */
  static readonly layer = Layer.unwrap(
    Effect.map(
      Config,
      (config) =>
        config.REDIS_URL === undefined ? RateLimits.layerMemory : Layer.provide(RateLimits.layerRedis, Redis.layer)
    )
  )
}

/** A charge that the first take of the current request must count too (`takeTogether`). */
interface Debt {
  readonly charge: Charge
  paid: boolean
}

const Debt = Context.Reference<Debt | undefined>("parley/rates/RateLimits/Debt", { defaultValue: () => undefined })

/** Makes `take`, which counts in one window, from `takeAll`. */
const single = (takeAll: RateLimits["Service"]["takeAll"]): RateLimits["Service"]["take"] => (rule, key) =>
  Effect.map(takeAll([{ rule, key }]), ([state]) => state!)

/** Returns or fails with the outcome, and describes it in the headers of the response. */
const answer = (
  context: Context.Context<never>,
  charges: ReadonlyArray<Charge>,
  outcome: ReadonlyArray<RateState> | RateRefusal
) => {
  if (outcome instanceof RateRefusal) {
    if (outcome.rule.hidden !== true) showRefusal(context, outcome)
    return Effect.fail(outcome)
  }
  for (const [i, state] of outcome.entries()) if (charges[i]?.rule.hidden !== true) showLimit(context, state)
  return Effect.succeed(outcome)
}

/** Describes the limit that refused a request in the headers of its response. */
export const showRefusal = (context: Context.Context<never>, { details }: Pick<RateRefusal, "details">): void =>
  showLimit(context, { limit: details?.limit ?? 0, remaining: 0, resetMs: details?.retry_after_ms ?? 0 })

const inForce = (limits: LimitsShape, charges: ReadonlyArray<Charge>): ReadonlyArray<Charge> =>
  limits.any() ? charges.map(({ key, rule }) => ({ key, rule: limits.rule(rule, key) })) : charges

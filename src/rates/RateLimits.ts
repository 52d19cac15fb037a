import { Clock, Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { addAnswerHeaders, answerHeadersOf } from "../http/AnswerHeaders.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { Config } from "../platform/Config.ts"
import type { Charge, RateRule, RateState } from "./RateRule.ts"
import { Redis } from "../platform/Redis.ts"
import { SharedWindows } from "./SharedWindows.ts"
import { SlidingWindows } from "./SlidingWindows.ts"
import { RateLimited } from "../wire/WireError.ts"

/**
 * Rates by key. Fails open: where the count that processes share cannot be asked, a request
 * passes as far as this process's own count allows (wire.md G.17). Of all that a request
 * takes, the answer shows in `RateLimit-*` what will be used up first.
 */
export class RateLimits extends Context.Service<RateLimits, {
  /** Counts one request, or refuses it and counts nothing; `Retry-After` is exact. */
  readonly take: (rule: RateRule, key: string) => Effect.Effect<RateState, RateLimited>
  /** Counts one request in several windows of different rules, or in none; the longest wait refuses. */
  readonly takeAll: (charges: ReadonlyArray<Charge>) => Effect.Effect<ReadonlyArray<RateState>, RateLimited>
  /**
   * Counts a request whose own work begins with a take: before it, or, where a take
   * costs a round trip, together with that one. It is counted whatever that one says.
   */
  readonly owing: <A, E, R>(charge: Charge, effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | RateLimited, R>
  /** Frees the place of a request that turns out not to count, a moment later where the store is elsewhere. */
  readonly giveBack: (rule: RateRule, key: string, state: RateState) => void
}>()("parley/rates/RateLimits") {
  /**
   * The limits of one process, lost on restart. On the send path, so a take is one
   * synchronous step. Measured on the monotonic clock: a step of the wall clock
   * neither frees nor freezes anybody.
   */
  static readonly layerMemory = Layer.effect(
    RateLimits,
    Effect.map(Clock.Clock, (clock) => {
      const windows = new SlidingWindows(monotonicMillis(clock))
      const take = (rule: RateRule, key: string): Effect.Effect<RateState, RateLimited> =>
        Effect.withFiber((fiber) => {
          const taken = windows.take(rule, key)
          if (taken instanceof RateLimited) {
            showRefusal(fiber.context, taken)
            return Effect.fail(taken)
          }
          show(fiber.context, taken)
          return Effect.succeed(taken)
        })
      return RateLimits.of({
        take,
        takeAll: (charges) =>
          Effect.withFiber((fiber) => {
            const taken = windows.takeAll(charges)
            if (taken instanceof RateLimited) {
              showRefusal(fiber.context, taken)
              return Effect.fail(taken)
            }
            for (const state of taken) show(fiber.context, state)
            return Effect.succeed(taken)
          }),
        owing: (charge, effect) => Effect.andThen(take(charge.rule, charge.key), effect),
        giveBack: (rule, key, state) => windows.giveBack(rule, key, state)
      })
    })
  )

  /**
   * The limits of all processes that share a Redis, above this one's own count (SharedWindows): one
   * question for whatever a request takes at its beginning, and one command for all that ask in the same turn.
   */
  static readonly layerRedis = Layer.effect(
    RateLimits,
    Effect.gen(function*() {
      const config = yield* Config
      const redis = (yield* Redis).channel("rates")
      const windows = new SharedWindows(redis, monotonicMillis(yield* Clock.Clock), config.REDIS_TIMEOUT_MS)

      const takeAll = (charges: ReadonlyArray<Charge>): Effect.Effect<ReadonlyArray<RateState>, RateLimited> =>
        Effect.withFiber((fiber) => {
          const debt = fiber.getRef(Debt)
          const owed = debt === undefined || debt.paid ? undefined : debt.charge
          if (debt !== undefined) debt.paid = true
          const answer = (outcome: ReadonlyArray<RateState> | RateLimited) => {
            if (outcome instanceof RateLimited) {
              showRefusal(fiber.context, outcome)
              return Effect.fail(outcome)
            }
            for (const state of outcome) show(fiber.context, state)
            return Effect.succeed(owed === undefined ? outcome : outcome.slice(1))
          }
          const all = owed === undefined ? charges : [owed, ...charges]
          return Effect.callback<ReadonlyArray<RateState>, RateLimited>((resume) => {
            const outcome = windows.take(all, owed === undefined ? 0 : 1, (later) => resume(answer(later)))
            if (outcome !== undefined) resume(answer(outcome))
          })
        })

      return RateLimits.of({
        take: (rule, key) => Effect.map(takeAll([{ rule, key }]), ([state]) => state!),
        takeAll,
        owing: (charge, effect) =>
          Effect.suspend(() => {
            const debt: Debt = { charge, paid: false }
            return Effect.flatMap(
              Effect.exit(Effect.provideService(effect, Debt, debt)),
              (exit) => debt.paid ? exit : Effect.andThen(takeAll([charge]), exit)
            )
          }),
        giveBack: (rule, key, state) => windows.giveBack(rule, key, state)
      })
    })
  )

  /** Redis when REDIS_URL is set. */
  static readonly layer = Layer.unwrap(Effect.map(Config, (config) =>
    config.REDIS_URL === undefined ? RateLimits.layerMemory : Layer.provide(RateLimits.layerRedis, Redis.layer)))
}

/** What the request at hand has not been counted in yet. */
interface Debt {
  readonly charge: Charge
  paid: boolean
}

const Debt = Context.Reference<Debt | undefined>("parley/rates/RateLimits/Debt", { defaultValue: () => undefined })

/** Puts what is left on the answer to this fiber's request, unless less is left of something else. */
export const show = (
  context: Context.Context<never>,
  { limit, remaining, resetMs }: Pick<RateState, "limit" | "remaining" | "resetMs">
): void => {
  const request = Context.getOrUndefined(context, HttpServerRequest.HttpServerRequest)
  if (request === undefined) return
  const shown = answerHeadersOf(request.source)?.[REMAINING]
  if (shown !== undefined && Number(shown) < remaining) return
  addAnswerHeaders(context, {
    "ratelimit-limit": String(limit),
    [REMAINING]: String(remaining),
    "ratelimit-reset": String(Math.ceil(resetMs / 1000))
  })
}

const REMAINING = "ratelimit-remaining"

export const showRefusal = (context: Context.Context<never>, { details }: RateLimited): void =>
  show(context, { limit: details?.limit ?? 0, remaining: 0, resetMs: details?.retry_after_ms ?? 0 })

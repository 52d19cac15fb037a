import { Clock, Context, Effect, Layer, Metric } from "effect"
import { HttpServerRequest } from "effect/http"
import { addAnswerHeaders, answerHeadersOf } from "./AnswerHeaders.ts"
import { Config } from "./Config.ts"
import type { Charge, RateRule, RateState } from "./RateRule.ts"
import { Redis } from "./Redis.ts"
import { readTaken, TAKE, takeArguments, windowKey } from "./SlidingWindowScript.ts"
import { SlidingWindows } from "./SlidingWindows.ts"
import { RateLimited } from "./WireError.ts"

/**
 * Rates by key. Fails open: a limiter that cannot answer lets the request pass
 * (wire.md G.17). Of all that a request takes, the answer shows in `RateLimit-*`
 * what will be used up first.
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
}>()("parley/platform/RateLimits") {
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

  /** The limits of all processes that share a Redis: one round trip for whatever a request takes at its beginning. */
  static readonly layerRedis = Layer.effect(
    RateLimits,
    Effect.gen(function*() {
      const redis = yield* Redis
      const fork = Effect.runForkWith(yield* Effect.context<never>())

      const ask = (
        charges: ReadonlyArray<Charge>,
        alone: number
      ): Effect.Effect<ReadonlyArray<RateState>, RateLimited> =>
        Effect.matchEffect(redis.run(TAKE, charges.map(windowKey), takeArguments(charges, alone)), {
          onFailure: ({ reason }) => Effect.succeed(unchecked(charges, reason)),
          onSuccess: (answer) => {
            const taken = readTaken(charges, answer)
            if (taken instanceof RateLimited) return Effect.fail(taken)
            return Effect.succeed(taken ?? unchecked(charges, "nonsense"))
          }
        })

      const takeAll = (charges: ReadonlyArray<Charge>): Effect.Effect<ReadonlyArray<RateState>, RateLimited> =>
        Effect.withFiber((fiber) => {
          const debt = fiber.getRef(Debt)
          const owed = debt === undefined || debt.paid ? [] : [debt.charge]
          if (debt !== undefined) debt.paid = true
          return Effect.matchEffect(ask([...owed, ...charges], owed.length), {
            onFailure: (refusal) => {
              showRefusal(fiber.context, refusal)
              return Effect.fail(refusal)
            },
            onSuccess: (states) => {
              for (const state of states) show(fiber.context, state)
              return Effect.succeed(states.slice(owed.length))
            }
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
        giveBack: (rule, key, { at }) => {
          if (at !== null) fork(Effect.ignore(redis.command("LREM", windowKey({ rule, key }), -1, at)))
        }
      })
    })
  )

  /** Redis when REDIS_URL is set. */
  static readonly layer = Layer.unwrap(Effect.map(Config, (config) =>
    config.REDIS_URL === undefined ? RateLimits.layerMemory : Layer.provide(RateLimits.layerRedis, Redis.layer)))
}

/** Milliseconds for windows in memory. */
export const monotonicMillis = (clock: Clock.Clock) => (): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

/** What the request at hand has not been counted in yet. */
interface Debt {
  readonly charge: Charge
  paid: boolean
}

const Debt = Context.Reference<Debt | undefined>("parley/platform/RateLimits/Debt", { defaultValue: () => undefined })

const none = Context.empty()
const reasons = ["down", "slow", "open", "refused", "nonsense"] as const
const passed = Object.fromEntries(reasons.map((reason) => [
  reason,
  Metric.counter("rate_limits_unchecked_total", {
    description: "Requests that passed because the limiter gave no answer",
    incremental: true,
    attributes: { reason }
  })
]))

/** Nothing is known: the request passes as if it were the first. */
const unchecked = (charges: ReadonlyArray<Charge>, reason: typeof reasons[number]): ReadonlyArray<RateState> => {
  passed[reason]?.updateUnsafe(1, none)
  return charges.map(({ rule }) => ({ limit: rule.limit, remaining: rule.limit - 1, resetMs: rule.windowMs, at: null }))
}

/** Puts what is left on the answer to this fiber's request, unless less is left of something else. */
const show = (context: Context.Context<never>, { limit, remaining, resetMs }: Omit<RateState, "at">): void => {
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

const showRefusal = (context: Context.Context<never>, { details }: RateLimited): void =>
  show(context, { limit: details?.limit ?? 0, remaining: 0, resetMs: details?.retry_after_ms ?? 0 })

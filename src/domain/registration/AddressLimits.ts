import { addressKey, addressOf } from "#infrastructure/http/ClientAddress"
import { showLimit } from "#infrastructure/http/RateHeaders"
import { Config } from "#infrastructure/platform/Config"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Limits } from "#infrastructure/rates/Limits"
import { RateLimits, showRefusal } from "#infrastructure/rates/RateLimits"
import { HOUR, type Rate, RateRefusal, type RateRule, ruleOf, TEN_MINUTES } from "#infrastructure/rates/RateRule"
import { SlidingWindows } from "#infrastructure/rates/SlidingWindows"
import { RateLimited, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Exit, Layer, Record } from "effect"
import type { HttpServerRequest } from "effect/http"
import { AddressAttemptsRepo, type Attempted } from "./AddressAttemptsRepo.ts"

/** The rates of the routes that send a code by e-mail or check a code, by route. */
export const addressRates = {
  register: { name: "register", setting: "LIMITS_REGISTER_PER_HOUR", ...HOUR },
  register_verify: { name: "register_verify", setting: "LIMITS_REGISTER_VERIFY_PER_10_MINUTES", ...TEN_MINUTES },
  recover: { name: "recover", setting: "LIMITS_RECOVER_PER_HOUR", ...HOUR },
  recover_verify: { name: "recover_verify", setting: "LIMITS_RECOVER_VERIFY_PER_10_MINUTES", ...TEN_MINUTES },
  rotate: { name: "rotate", setting: "LIMITS_ROTATE_PER_HOUR", ...HOUR },
  rotate_verify: { name: "rotate_verify", setting: "LIMITS_ROTATE_VERIFY_PER_10_MINUTES", ...TEN_MINUTES },
  sign_in: { name: "sign_in", setting: "LIMITS_SIGN_IN_PER_HOUR", ...HOUR },
  sign_in_verify: { name: "sign_in_verify", setting: "LIMITS_SIGN_IN_VERIFY_PER_10_MINUTES", ...TEN_MINUTES }
} as const satisfies Readonly<Record<string, Rate>>

export type LimitedRoute = keyof typeof addressRates

/**
 * Limits how often an IP address may use each route that sends a code by e-mail or checks a code (wire.md G.15). No
 * address is ever banned.
 *
 * Attempts are counted in the database, in one row per address and route for all processes. These limits protect
 * mailboxes and codes, so they must hold even without Redis. If an address makes very many attempts, the process
 * refuses them according to its own count and to the refusals that it has cached. So only attempts that may be allowed
 * cost a statement.
 */
export class AddressLimits extends Context.Service<AddressLimits, {
  readonly take: (
    route: LimitedRoute,
    request: HttpServerRequest.HttpServerRequest
  ) => Effect.Effect<void, RateLimited | Unavailable>
}>()("parley/registration/AddressLimits") {
  static readonly layer = Layer.effect(
    AddressLimits,
    Effect.gen(function*() {
      const config = yield* Config
      const clock = yield* Clock.Clock
      const limits = yield* RateLimits
      const inForce = yield* Limits
      const repo = yield* AddressAttemptsRepo
      const rules = Record.map(addressRates, (rate) => ruleOf(config, rate))
      const now = monotonicMillis(clock)
      const windows = new SlidingWindows(now)
      /**
       * Cached refusals by rule and address, oldest first. The database refuses attempts over this limit until `until`,
       * a time of `now()`.
       */
      const refused = new Map<string, { readonly until: number; readonly limit: number }>()

      /**
       * Counts an attempt in the database and in the window of this process. If the database does not count the
       * attempt, it is removed from the window.
       */
      const attempt = (rule: RateRule, address: string) =>
        Effect.acquireUseRelease(
          Effect.suspend(() => {
            const held = windows.hold([{ rule, key: address }])
            return held instanceof RateLimited ? Effect.fail(held) : Effect.succeed({ held, at: now() })
          }),
          () => Effect.suspend(() => repo.attempt(rule, address, clock.currentTimeMillisUnsafe())),
          ({ at, held }, exit) =>
            Effect.sync(() => {
              for (const place of held) {
                if (Exit.isSuccess(exit) && exit.value.waitMs === 0) place.settle(at, now())
                else place.release()
              }
            })
        )

      const take = (rule: RateRule, address: string): Effect.Effect<Attempted, RateLimited | Unavailable> =>
        Effect.suspend(() => {
          const name = `${rule.name} ${address}`
          const known = refused.get(name)
          const leftMs = known === undefined || known.limit < rule.limit ? 0 : known.until - now()
          if (leftMs > 0) return Effect.fail(new RateRefusal(rule, Math.ceil(leftMs)))
          refused.delete(name)
          return Effect.flatMap(attempt(rule, address), (attempted) => {
            if (attempted.waitMs === 0) return Effect.succeed(attempted)
            if (refused.size >= MAX_REFUSED) refused.delete(refused.keys().next().value ?? "")
            refused.set(name, { until: now() + attempted.waitMs, limit: rule.limit })
            return Effect.fail(new RateRefusal(rule, attempted.waitMs))
          })
        })

      return AddressLimits.of({
        take: (route, request) => {
          const address = addressKey(addressOf(request, config.TRUST_PROXY))
          const rule = inForce.rule(rules[route], address)
          if (rule.limit > MOST_IN_A_ROW) return Effect.asVoid(limits.take(rule, address))
          return Effect.withFiber((fiber) =>
            Effect.matchEffect(take(rule, address), {
              onFailure: (failure) => {
                if (failure instanceof RateLimited) showRefusal(fiber.context, failure)
                return Effect.fail(failure)
              },
              onSuccess: ({ remaining, resetMs }) => {
                showLimit(fiber.context, { limit: rule.limit, remaining, resetMs })
                return Effect.void
              }
            })
          )
        }
      })
    })
  )
}

/**
 * How many attempt times one row of the table contains at most. Attempts of a rule with a higher limit are counted like
 * all other rates (RateLimits).
 */
const MOST_IN_A_ROW = 1_000
const MAX_REFUSED = 100_000

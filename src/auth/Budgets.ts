import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiMiddleware } from "effect/http-api"
import { addAnswerHeaders } from "../platform/AnswerHeaders.ts"
import { addressKey, addressOf } from "../platform/ClientAddress.ts"
import { Config } from "../platform/Config.ts"
import { RateLimits, type RateState } from "../platform/RateLimits.ts"
import { RateLimited } from "../platform/WireError.ts"

/** The general budgets (wire.md C.0): of an agent for whatever needs a key, of an IP address for the rest. */
export class Budgets extends Context.Service<Budgets, {
  readonly ofAgent: (agentId: string) => Effect.Effect<RateState, RateLimited>
  readonly ofAddress: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<RateState, RateLimited>
}>()("parley/auth/Budgets") {
  static readonly layer = Layer.effect(
    Budgets,
    Effect.gen(function*() {
      const config = yield* Config
      const limits = yield* RateLimits
      const perAgent = { name: "requests", limit: config.LIMITS_REQUESTS_PER_MINUTE, windowMs: 60_000, window: "minute" }
      const perAddress = {
        name: "anonymous_requests",
        limit: config.LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE,
        windowMs: 60_000,
        window: "minute"
      }
      return Budgets.of({
        ofAgent: (agentId) => limits.take(perAgent, agentId),
        ofAddress: (request) => limits.take(perAddress, addressKey(addressOf(request, config.TRUST_PROXY)))
      })
    })
  )
}

/** Puts what is left of a budget on the answer to this fiber's request, failures included. */
export const showBudget = (context: Context.Context<never>, state: RateState): void =>
  addAnswerHeaders(context, {
    "ratelimit-limit": String(state.limit),
    "ratelimit-remaining": String(state.remaining),
    "ratelimit-reset": String(Math.ceil(state.resetMs / 1000))
  })

/** What a budget that is used up looks like. */
export const emptyBudget = (error: RateLimited): RateState => ({
  limit: error.details?.limit ?? 0,
  remaining: 0,
  resetMs: error.details?.retry_after_ms ?? 0
})

/** Counts a request without a key against the budget of its IP address. */
export class AnonymousBudget extends HttpApiMiddleware.Service<AnonymousBudget>()("parley/auth/AnonymousBudget", {
  error: RateLimited
}) {
  static readonly layer = Layer.effect(
    AnonymousBudget,
    Effect.map(Budgets, (budgets) => (httpEffect) =>
      Effect.withFiber((fiber) => {
        const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
        return Effect.flatMap(
          Effect.tapError(budgets.ofAddress(request), (error) =>
            Effect.sync(() => showBudget(fiber.context, emptyBudget(error)))),
          (state) => {
            showBudget(fiber.context, state)
            return httpEffect
          }
        )
      }))
  )
}

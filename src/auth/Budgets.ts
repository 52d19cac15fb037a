import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { type HttpApiEndpoint, HttpApiMiddleware } from "effect/http-api"
import { addressKey, addressOf } from "../http/ClientAddress.ts"
import { Config } from "../platform/Config.ts"
import { RateLimits } from "../rates/RateLimits.ts"
import type { Charge, RateState } from "../rates/RateRule.ts"
import { RateLimited } from "../wire/WireError.ts"

/**
 * Annotates an endpoint whose handler begins with a rate limit of its own, so that both are counted in one round trip
 * (`RateLimits.owing`).
 */
export const OwnBudget = Context.Reference("parley/auth/Budgets/OwnBudget", { defaultValue: () => false })

/** Whether the request that a fiber works for is counted already: a call to this API from inside it is no other request. */
export const Counted = Context.Reference("parley/auth/Budgets/Counted", { defaultValue: () => false })

/** The general request budgets (wire.md C.0): per agent for requests with a key, per IP address for the others. */
export class Budgets extends Context.Service<Budgets, {
  readonly agent: (agentId: string) => Charge
  readonly address: (request: HttpServerRequest.HttpServerRequest) => Charge
  /** Counts a request to the endpoint and runs it, or refuses it. */
  readonly count: <A, E, R>(
    charge: Charge,
    endpoint: HttpApiEndpoint.Top,
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | RateLimited, R>
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
      const address = (request: HttpServerRequest.HttpServerRequest): Charge => ({
        rule: perAddress,
        key: addressKey(addressOf(request, config.TRUST_PROXY))
      })
      return Budgets.of({
        agent: (agentId) => ({ rule: perAgent, key: agentId }),
        address,
        count: (charge, endpoint, effect) =>
          Effect.withFiber((fiber) => {
            if (fiber.getRef(Counted)) return effect
            return Context.get(endpoint.annotations, OwnBudget)
              ? limits.owing(charge, effect)
              : Effect.andThen(limits.take(charge.rule, charge.key), effect)
          }),
        ofAddress: (request) => limits.take(perAddress, address(request).key)
      })
    })
  )
}

/** Counts a request without a key against the budget of its IP address. */
export class AnonymousBudget extends HttpApiMiddleware.Service<AnonymousBudget>()("parley/auth/AnonymousBudget", {
  error: RateLimited
}) {
  static readonly layer = Layer.effect(
    AnonymousBudget,
    Effect.map(Budgets, (budgets) => (httpEffect, { endpoint }) =>
      Effect.withFiber((fiber) =>
        budgets.count(
          budgets.address(Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)),
          endpoint,
          httpEffect
        )
      ))
  )
}

import { CurrentCaller } from "#domain/auth/OptionalAuthorization"
import { addressKey, addressOf } from "#infrastructure/http/ClientAddress"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { RateLimited } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiMiddleware } from "effect/http-api"

/**
 * How often an agent may search the directory per minute and per 24 hours, and how often an IP address may per minute
 * without a key. Runs before the query is decoded, so that every call counts (wire.md C.4).
 */
export class DirectoryBudget extends HttpApiMiddleware.Service<DirectoryBudget, { requires: CurrentCaller }>()(
  "parley/directory/DirectoryBudget",
  { error: RateLimited }
) {
  static readonly layer = Layer.effect(
    DirectoryBudget,
    Effect.gen(function*() {
      const config = yield* Config
      const limits = yield* RateLimits
      const rule = (name: string, limit: number, window: "minute" | "day"): RateRule => ({
        name,
        limit,
        window,
        windowMs: window === "minute" ? 60_000 : 86_400_000,
        message: (limit) =>
          `Too many searches: the ${window === "minute" ? "per-minute" : "24-hour"} limit of the directory is ${limit}.`
      })
      const perMinute = rule("directory", config.LIMITS_DIRECTORY_PER_MINUTE, "minute")
      const perDay = rule("directory_day", config.LIMITS_DIRECTORY_PER_DAY, "day")
      const anonymous = rule("anonymous_directory", config.LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE, "minute")

      return (httpEffect) =>
        Effect.withFiber((fiber) => {
          const { agent } = Context.getUnsafe(fiber.context, CurrentCaller)
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          const charges = agent === null
            ? [{ rule: anonymous, key: addressKey(addressOf(request, config.TRUST_PROXY)) }]
            : [{ rule: perMinute, key: agent.id }, { rule: perDay, key: agent.id }]
          return Effect.andThen(limits.takeAll(charges), httpEffect)
        })
    })
  )
}

import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiMiddleware } from "effect/http-api"
import { emptyBudget, showBudget } from "../auth/Budgets.ts"
import { CurrentCaller } from "../auth/OptionalAuthorization.ts"
import { addressKey, addressOf } from "../platform/ClientAddress.ts"
import { Config } from "../platform/Config.ts"
import { RateLimits, type RateRule } from "../platform/RateLimits.ts"
import { RateLimited } from "../platform/WireError.ts"

/** A rule, and what a message calls its window. */
interface Named extends RateRule {
  readonly spoken: string
}

/**
 * How often the directory may be asked: an agent per minute and per 24 hours, an IP
 * address per minute. Before the query is read, so that every call counts (wire.md C.4).
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
      const minute = { windowMs: 60_000, window: "minute", spoken: "per-minute" }
      const perMinute: Named = { name: "directory", limit: config.LIMITS_DIRECTORY_PER_MINUTE, ...minute }
      const perDay: Named = {
        name: "directory_day",
        limit: config.LIMITS_DIRECTORY_PER_DAY,
        windowMs: 86_400_000,
        window: "day",
        spoken: "24-hour"
      }
      const anonymous: Named = {
        name: "anonymous_directory",
        limit: config.LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE,
        ...minute
      }
      const take = (rule: Named, key: string) =>
        Effect.mapError(limits.take(rule, key), ({ details }) =>
          new RateLimited({
            message: `Too many searches: the ${rule.spoken} limit of the directory is ${rule.limit}.`,
            ...(details === undefined ? {} : { details })
          }))

      return (httpEffect) =>
        Effect.withFiber((fiber) => {
          const { agent } = Context.getUnsafe(fiber.context, CurrentCaller)
          const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
          const taken = agent === null
            ? take(anonymous, addressKey(addressOf(request, config.TRUST_PROXY)))
            : Effect.tap(take(perMinute, agent.id), () => take(perDay, agent.id))
          return Effect.matchEffect(taken, {
            onFailure: (error) => {
              showBudget(fiber.context, emptyBudget(error))
              return Effect.fail(error)
            },
            onSuccess: (state) => {
              showBudget(fiber.context, state)
              return httpEffect
            }
          })
        })
    })
  )
}

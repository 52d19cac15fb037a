import { CurrentCaller } from "#domain/auth/OptionalAuthorization"
import { addressKey, addressOf } from "#infrastructure/http/ClientAddress"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { DAY, MINUTE, type Rate, ruleOf } from "#infrastructure/rates/RateRule"
import { RateLimited } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiMiddleware } from "effect/http-api"

const refusal = (window: string) => (limit: number) =>
  `Too many searches: the ${window} limit of the directory is ${limit}.`

const perMinute = { ...MINUTE, message: refusal("per-minute") }
const PER_MINUTE: Rate = { name: "directory", setting: "LIMITS_DIRECTORY_PER_MINUTE", ...perMinute }
const PER_DAY: Rate = {
  name: "directory_day",
  setting: "LIMITS_DIRECTORY_PER_DAY",
  ...DAY,
  message: refusal("24-hour")
}
const ANONYMOUS: Rate = { name: "anonymous_directory", setting: "LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE", ...perMinute }
export const directoryRates = [PER_MINUTE, PER_DAY, ANONYMOUS]

/**
 * Limits how often an agent may search the directory per minute and per 24 hours, and how often an IP address may
 * search it without a key per minute. Runs before the query is decoded, so that every call counts (wire.md C.4).
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
      const perMinute = ruleOf(config, PER_MINUTE)
      const perDay = ruleOf(config, PER_DAY)
      const anonymous = ruleOf(config, ANONYMOUS)

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

import { Context, Effect, Layer } from "effect"
import type { HttpServerRequest } from "effect/http"
import { addressKey, addressOf } from "../platform/ClientAddress.ts"
import { Config } from "../platform/Config.ts"
import { RateLimits } from "../platform/RateLimits.ts"
import type { RateLimited } from "../platform/WireError.ts"

export type LimitedRoute = "register" | "register_verify" | "recover" | "recover_verify" | "rotate" | "rotate_verify"

/** How often an IP address may try each route that mails or judges a code (wire.md G.15). Nobody is ever banned. */
export class AddressLimits extends Context.Service<AddressLimits, {
  readonly take: (route: LimitedRoute, request: HttpServerRequest.HttpServerRequest) => Effect.Effect<void, RateLimited>
}>()("parley/registration/AddressLimits") {
  static readonly layer = Layer.effect(
    AddressLimits,
    Effect.gen(function*() {
      const config = yield* Config
      const limits = yield* RateLimits
      const hour = { windowMs: 3_600_000, window: "hour" }
      const tenMinutes = { windowMs: 600_000, window: "10 minutes" }
      const rules = {
        register: { name: "register", limit: config.LIMITS_REGISTER_PER_HOUR, ...hour },
        register_verify: { name: "register_verify", limit: config.LIMITS_REGISTER_VERIFY_PER_10_MINUTES, ...tenMinutes },
        recover: { name: "recover", limit: config.LIMITS_RECOVER_PER_HOUR, ...hour },
        recover_verify: { name: "recover_verify", limit: config.LIMITS_RECOVER_VERIFY_PER_10_MINUTES, ...tenMinutes },
        rotate: { name: "rotate", limit: config.LIMITS_ROTATE_PER_HOUR, ...hour },
        rotate_verify: { name: "rotate_verify", limit: config.LIMITS_ROTATE_VERIFY_PER_10_MINUTES, ...tenMinutes }
      }
      return AddressLimits.of({
        take: (route, request) =>
          Effect.asVoid(limits.take(rules[route], addressKey(addressOf(request, config.TRUST_PROXY))))
      })
    })
  )
}

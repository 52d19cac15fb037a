import { Budgets } from "#domain/auth/Budgets"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateRule } from "#infrastructure/rates/RateRule"
import type { RateLimited } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { HttpServerRequest } from "effect/http"

type Limited = "authorize" | "keys" | "registrations" | "tokens" | "documents"

/**
 * How often an IP address may do each step of a sign-in (wire.md P, Limits). Tokens and metadata have a budget of their
 * own, because hosts on the web serve many people from few addresses.
 */
export class OAuthLimits extends Context.Service<OAuthLimits, {
  readonly take: (what: Limited, request: HttpServerRequest.HttpServerRequest) => Effect.Effect<void, RateLimited>
}>()("parley/signin/OAuthLimits") {
  static readonly layer = Layer.effect(
    OAuthLimits,
    Effect.gen(function*() {
      const budgets = yield* Budgets
      const config = yield* Config
      const limits = yield* RateLimits
      const tenMinutes = { windowMs: 600_000, window: "10 minutes" }
      const rules: Readonly<Record<Limited, RateRule>> = {
        authorize: { name: "oauth_authorize", limit: config.LIMITS_OAUTH_AUTHORIZE_PER_10_MINUTES, ...tenMinutes },
        keys: { name: "oauth_keys", limit: config.LIMITS_OAUTH_KEYS_PER_10_MINUTES, ...tenMinutes },
        registrations: {
          name: "oauth_registrations",
          limit: config.LIMITS_OAUTH_REGISTRATIONS_PER_HOUR,
          windowMs: 3_600_000,
          window: "hour"
        },
        tokens: {
          name: "oauth_tokens",
          limit: config.LIMITS_OAUTH_TOKENS_PER_MINUTE,
          windowMs: 60_000,
          window: "minute"
        },
        documents: { name: "oauth_documents", limit: config.LIMITS_OAUTH_DOCUMENTS_PER_10_MINUTES, ...tenMinutes }
      }
      return OAuthLimits.of({
        take: (what, request) => Effect.asVoid(limits.take(rules[what], budgets.addressOf(request)))
      })
    })
  )
}

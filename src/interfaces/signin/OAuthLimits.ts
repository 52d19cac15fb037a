import { Budgets } from "#domain/auth/Budgets"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { HOUR, MINUTE, type Rate, ruleOf, TEN_MINUTES } from "#infrastructure/rates/RateRule"
import type { RateLimited } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, Record } from "effect"
import type { HttpServerRequest } from "effect/http"

/** The rate limits of the steps of a sign-in. */
export const oauthRates = {
  authorize: { name: "oauth_authorize", setting: "LIMITS_OAUTH_AUTHORIZE_PER_10_MINUTES", ...TEN_MINUTES },
  keys: { name: "oauth_keys", setting: "LIMITS_OAUTH_KEYS_PER_10_MINUTES", ...TEN_MINUTES },
  registrations: { name: "oauth_registrations", setting: "LIMITS_OAUTH_REGISTRATIONS_PER_HOUR", ...HOUR },
  tokens: { name: "oauth_tokens", setting: "LIMITS_OAUTH_TOKENS_PER_MINUTE", ...MINUTE },
  documents: { name: "oauth_documents", setting: "LIMITS_OAUTH_DOCUMENTS_PER_10_MINUTES", ...TEN_MINUTES }
} as const satisfies Readonly<Record<string, Rate>>

type Limited = keyof typeof oauthRates

/**
 * Limits how often an IP address may call each step of a sign-in (wire.md P, Limits). Tokens and metadata have their
 * own budget, because hosted programs serve many people from few addresses.
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
      const rules = Record.map(oauthRates, (rate) => ruleOf(config, rate))
      return OAuthLimits.of({
        take: (what, request) => Effect.asVoid(limits.take(rules[what], budgets.addressOf(request)))
      })
    })
  )
}

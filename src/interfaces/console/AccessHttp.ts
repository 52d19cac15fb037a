import { Budgets } from "#domain/auth/Budgets"
import { uncheckedText } from "#infrastructure/http/BufferedRequest"
import { addressKey, addressOf } from "#infrastructure/http/ClientAddress"
import { ownOrigin } from "#infrastructure/http/Origins"
import { Config } from "#infrastructure/platform/Config"
import { LogThrottle, MINUTE_MS } from "#infrastructure/platform/LogThrottle"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { VERSION } from "#infrastructure/platform/Version"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { confirm } from "#infrastructure/wire/Confirmation"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import { type Access, ConsoleAccess } from "#interfaces/operator/ConsoleAccess"
import { Nodes } from "#interfaces/operator/Nodes"
import { Effect, Option, Result, Schema } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { AccessApi, SignInApi } from "./AccessApi.ts"
import { consoleDocument } from "./ConsoleApi.ts"
import { consoleApiOf, COOKIE, CurrentOperator, hidden } from "./ConsoleAuthorization.ts"
import { personNamedBy } from "./ProxySignIn.ts"

/** How often an IP address may try to redeem a link. Every attempt counts. */
const REDEEM: RateRule = { name: "console_redeem", limit: 10, windowMs: 600_000, window: "10 minutes" }
/** How often a proxy may sign a person in. */
const BY_PROXY: RateRule = { name: "console_proxy", limit: 20, windowMs: 600_000, window: "10 minutes" }

const decodeToken = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Struct({ token: Schema.String })))

const shown = ({ createdAt, expiresAt, id, kind, name, operator, role }: Access) => ({
  id,
  kind,
  operator,
  role,
  name,
  created_at: iso(createdAt),
  expires_at: iso(expiresAt)
})

/** The Set-Cookie header that sets a session's cookie. With an empty token and 0 seconds, it clears the cookie. */
export const cookieOf = (url: string, token: string, seconds: number): string =>
  `${COOKIE}=${token}; Path=/console; Max-Age=${seconds}; HttpOnly; SameSite=Strict${
    url.startsWith("https:") ? "; Secure" : ""
  }`

export const DoorHttp = HttpApiBuilder.group(consoleApiOf(SignInApi), "door", (handlers) =>
  Effect.gen(function*() {
    const access = yield* ConsoleAccess
    const budgets = yield* Budgets
    const config = yield* Config
    const limits = yield* RateLimits
    const nodes = yield* Nodes
    const personOf = personNamedBy(config)
    const refusals = new LogThrottle(MINUTE_MS)
    const opened = ({ access, token }: { readonly access: Access; readonly token: string }) =>
      HttpServerResponse.jsonUnsafe(
        { ...shown(access), node: nodes.self(), version: VERSION },
        {
          headers: {
            "set-cookie": cookieOf(publicUrl(config), token, (access.expiresAt - access.createdAt) / 1_000)
          }
        }
      )
    return handlers.handleRaw(
      "redeem",
      Effect.fnUntraced(function*({ request }) {
        yield* limits.take(REDEEM, addressKey(addressOf(request, config.TRUST_PROXY)))
        // Decode the body here, so that a caller who is not an operator gets the same response for every body.
        const given = Option.getOrUndefined(decodeToken(yield* uncheckedText(request)))
        const redeemed = given === undefined ? undefined : yield* access.redeem(given.token)
        return redeemed === undefined ? yield* hidden() : opened(redeemed)
      })
    ).handleRaw(
      "signInByProxy",
      Effect.fnUntraced(function*({ request }) {
        yield* budgets.ofAddress(request)
        const named = personOf(request)
        // The proxy may sign people in without a question, so a page of another server could cause the request.
        const isOwn = request.headers["origin"] === ownOrigin(config, request.headers["host"])
        if (Result.isFailure(named) || !isOwn) {
          const why = Result.isFailure(named) ? named.failure : "its Origin is not that of PUBLIC_URL"
          // Without a proxy, the page asks too, so only requests that name a person are logged.
          if (request.headers["x-parley-person"] !== undefined)
            yield* refusals.log(Effect.logWarning(`A sign-in to the console by a proxy was refused: ${why}`), why)
          return yield* hidden()
        }
        const { person, role } = named.success
        yield* limits.take(BY_PROXY, person)
        return opened(yield* access.byProxy(person, role))
      })
    )
  }))

export const AccessHttp = HttpApiBuilder.group(consoleApiOf(AccessApi), "access", (handlers) =>
  Effect.gen(function*() {
    const access = yield* ConsoleAccess
    const config = yield* Config
    const nodes = yield* Nodes
    return handlers.handleAll({
      session: () => Effect.map(CurrentOperator, (own) => ({ ...shown(own), node: nodes.self(), version: VERSION })),
      leave: Effect.fnUntraced(function*() {
        const own = yield* CurrentOperator
        yield* access.end(own.id, own.operator)
        return HttpServerResponse.jsonUnsafe(confirm("Signed out."), {
          headers: { "set-cookie": cookieOf(publicUrl(config), "", 0) }
        })
      }),
      sessions: Effect.fnUntraced(function*() {
        const own = yield* CurrentOperator
        const all = yield* access.list
        return {
          sessions: all.map((one) => ({
            ...shown(one),
            last_used_at: isoOrNull(one.lastUsedAt),
            is_own: one.id === own.id
          }))
        }
      }),
      end: Effect.fnUntraced(function*({ params }) {
        const own = yield* CurrentOperator
        return (yield* access.end(params.id, own.operator)) ? confirm("The session is ended.") : yield* hidden()
      }),
      openapi: () => Effect.succeed(HttpServerResponse.text(consoleDocument(), { contentType: "application/json" }))
    })
  }))

import { Budgets } from "#domain/auth/Budgets"
import { readAuthorization, responseUrl } from "#domain/oauth/AuthorizationRequest"
import { AuthorizationRequests, REQUEST_MS } from "#domain/oauth/AuthorizationRequests"
import { Clients } from "#domain/oauth/Clients"
import { offersOAuth } from "#domain/oauth/Discovery"
import { Config } from "#infrastructure/platform/Config"
import { publicUrl } from "#infrastructure/platform/PublicUrl"
import { queryOf } from "#infrastructure/wire/AbsoluteUrl"
import { NO_STORE } from "#infrastructure/wire/Uncached"
import { Pages } from "#interfaces/pages/Pages"
import { addPage } from "#interfaces/pages/PagesHttp"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { OAuthLimits } from "./OAuthLimits.ts"
import { AUTHORIZE, REQUESTS, SIGN_IN } from "./OAuthProtocol.ts"

/**
 * The cookie that binds a request to the browser in which it began. The cookie's path contains the request's id, so
 * each request has its own cookie.
 */
export const COOKIE = "parley_oauth"

const cookieOf = (base: string, id: string, value: string): string =>
  `${COOKIE}=${value}; Path=${REQUESTS}${id}; Max-Age=${REQUEST_MS / 1_000}; HttpOnly; SameSite=Lax${
    base.startsWith("https:") ? "; Secure" : ""
  }`

const redirect = (location: string, headers: Readonly<Record<string, string>> = {}) =>
  HttpServerResponse.empty({ status: 303, headers: { ...NO_STORE, location, ...headers } })

/**
 * `GET /authorize`, to which a program sends a person's browser, and the sign-in page to which it redirects (wire.md
 * P).
 */
export const AuthorizeHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const clients = yield* Clients
    const config = yield* Config
    const limits = yield* OAuthLimits
    const pages = yield* Pages
    const requests = yield* AuthorizationRequests
    if (!offersOAuth(config)) return
    yield* addPage(router, yield* Budgets, SIGN_IN, pages.signIn)
    yield* router.add(
      "GET",
      AUTHORIZE,
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        yield* limits.take("authorize", request)
        const base = publicUrl(config)
        const query = queryOf(request.url)
        const ids = query.getAll("client_id")
        const [id = ""] = ids
        const reading =
          yield* (ids.length === 1 ? clients.find(id, limits.take("documents", request)) : Effect.succeed(undefined))
            .pipe(
              Effect.map((client) => readAuthorization(query, client, base, config.OAUTH_REDIRECT_SCHEMES)),
              Effect.catchTag("DocumentFailed", ({ reason }) =>
                Effect.succeed({
                  _tag: "Page" as const,
                  message:
                    `The program that sent you here describes itself at ${id}, but this server could not use the description: ${reason}. Try again later.`
                }))
            )
        switch (reading._tag) {
          case "Page":
            return yield* pages.problem(request, reading.message)
          case "Error":
            return redirect(
              responseUrl(base, reading.redirect, reading.state, {
                error: reading.error,
                error_description: reading.message
              })
            )
          case "Request": {
            const { cookie, id } = yield* requests.begin(reading.request)
            return redirect(`${SIGN_IN}?request=${id}`, { "set-cookie": cookieOf(base, id, cookie) })
          }
        }
      })
    )
  })
)

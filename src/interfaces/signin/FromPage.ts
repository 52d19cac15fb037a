import { AuthorizationRequests, type Reference } from "#domain/oauth/AuthorizationRequests"
import type { StoredRequest } from "#domain/oauth/RequestsRepo"
import { cookieOf } from "#infrastructure/http/Cookie"
import { ownOrigin } from "#infrastructure/http/Origins"
import { Config } from "#infrastructure/platform/Config"
import { NotFound, Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApiMiddleware } from "effect/http-api"
import { COOKIE } from "./AuthorizeHttp.ts"

/** The authorization request of a call from the sign-in page. */
export class CurrentSignIn extends Context.Service<CurrentSignIn, {
  readonly reference: Reference
  readonly stored: StoredRequest
}>()("parley/signin/CurrentSignIn") {}

const ID = /^\/+oauth\/+requests\/+(orq_[A-Za-z0-9_-]+)/i

const notThere = () =>
  new NotFound({
    message: "This sign-in is over, too old, or began in another browser. Go back to the program, and connect again."
  })

/**
 * Admits only the sign-in page in the browser in which the authorization request began (wire.md P, Page API). Checks
 * the request's cookie and, for changes, the page's origin. For every other caller, the request does not exist.
 */
export class FromPage extends HttpApiMiddleware.Service<FromPage, { provides: CurrentSignIn }>()(
  "parley/signin/FromPage",
  { error: [NotFound, Unavailable] }
) {
  static readonly layer = Layer.effect(
    FromPage,
    Effect.gen(function*() {
      const config = yield* Config
      const requests = yield* AuthorizationRequests
      return (httpEffect) =>
        Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
          Effect.gen(function*() {
            const { host, origin } = request.headers
            // Browsers send no Origin header with a GET to the page's own origin.
            const isOwn = origin === ownOrigin(config, host) || (request.method === "GET" && origin === undefined)
            const [, id] = ID.exec(request.url) ?? []
            const cookie = cookieOf(request.headers["cookie"], COOKIE)
            if (!isOwn || id === undefined || cookie === undefined) return yield* notThere()
            const reference = { id, cookie }
            const stored = yield* requests.find(reference)
            if (stored === undefined) return yield* notThere()
            return yield* Effect.provideService(httpEffect, CurrentSignIn, { reference, stored })
          }))
    })
  )
}

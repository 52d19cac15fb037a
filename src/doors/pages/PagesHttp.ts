import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { Budgets } from "#domain/auth/Budgets"
import { NotFound } from "#ground/wire/WireError"
import { toResponse } from "#ground/wire/WireErrors"
import { Pages } from "./Pages.ts"

/** `/app`, `/console`, the page of sign-in by OAuth, and the files that pages load. */
export const PagesHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const budgets = yield* Budgets
    const pages = yield* Pages
    for (const [path, send] of [["/app", pages.app], ["/console", pages.console], ["/oauth/sign-in", pages.signIn]] as const) {
      yield* router.add("GET", path, Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        yield* budgets.ofAddress(request)
        const [, asked = "", query = ""] = /^([^?#]*)([^#]*)/s.exec(request.url) ?? []
        // The page names its files by paths relative to its own path, which must not end in a slash.
        return asked.endsWith("/")
          ? HttpServerResponse.empty({ status: 308, headers: { location: `../${path.split("/").at(-1)}${query}` } })
          : yield* send(request)
      }))
    }
    yield* router.add("GET", "/assets/:version/*", Effect.gen(function*() {
      const request = yield* HttpServerRequest.HttpServerRequest
      yield* budgets.ofAsset(request)
      const [, version = "", path = ""] = /\/assets\/([^/]+)\/([^?#]*)/.exec(request.url) ?? []
      return (yield* pages.asset(request, version, path)) ?? toResponse(new NotFound({ message: "The pages have no such file." }))
    }))
  })
)

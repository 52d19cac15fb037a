import { Budgets } from "#domain/auth/Budgets"
import { NotFound } from "#infrastructure/wire/WireError"
import { toResponse } from "#infrastructure/wire/WireErrors"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { Pages } from "./Pages.ts"

/** Adds the route of a page. Each request counts against the general budget of its IP address. */
export const addPage = (
  router: HttpRouter.HttpRouter,
  budgets: Budgets["Service"],
  path: `/${string}`,
  send: (request: HttpServerRequest.HttpServerRequest) => Effect.Effect<HttpServerResponse.HttpServerResponse>
) =>
  router.add(
    "GET",
    path,
    Effect.gen(function*() {
      const request = yield* HttpServerRequest.HttpServerRequest
      yield* budgets.ofAddress(request)
      const [, asked = "", query = ""] = /^([^?#]*)([^#]*)/s.exec(request.url) ?? []
      // The page refers to its files by relative paths, so its own path must not end in a slash.
      return asked.endsWith("/")
        ? HttpServerResponse.empty({ status: 308, headers: { location: `../${path.split("/").at(-1)}${query}` } })
        : yield* send(request)
    })
  )

/** `/app`, `/join`, `/console`, and the files that pages load. */
export const PagesHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const budgets = yield* Budgets
    const pages = yield* Pages
    yield* addPage(router, budgets, "/app", pages.app)
    yield* addPage(router, budgets, "/join", pages.join)
    yield* addPage(router, budgets, "/console", pages.console)
    yield* router.add(
      "GET",
      "/assets/:version/*",
      Effect.gen(function*() {
        const request = yield* HttpServerRequest.HttpServerRequest
        yield* budgets.ofAsset(request)
        const [, version = "", path = ""] = /\/assets\/([^/]+)\/([^?#]*)/.exec(request.url) ?? []
        return (yield* pages.asset(request, version, path)) ??
          toResponse(new NotFound({ message: "The pages have no such file." }))
      })
    )
  })
)

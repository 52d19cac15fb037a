import { offersOAuth } from "#domain/oauth/Discovery"
import { refusing } from "#infrastructure/http/Routing"
import { Config } from "#infrastructure/platform/Config"
import { loadOnce } from "#infrastructure/platform/LazyLoad"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { HttpRouter } from "effect/http"
import type { makeMcpHandler } from "./McpHandler.ts"
import { JOIN, MCP } from "./McpProtocol.ts"

type Services = Effect.Services<ReturnType<typeof makeMcpHandler>>

/**
 * `POST /mcp` and `POST /mcp/join`. The protocol's library is loaded by the first request, because loading it takes 100
 * ms.
 */
export const McpHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    // The handler is made in a fiber of its own, because it lives longer than the first request.
    const load = Effect.runPromiseWith(yield* Effect.context<Services>())
    const handlers = yield* loadOnce(
      "The code for MCP",
      Effect.promise(async () => {
        const { makeMcpHandler } = await import("./McpHandler.ts")
        return load(makeMcpHandler(router))
      }),
      () => new Unavailable()
    )
    // Without OAuth, the router itself refuses other methods.
    const others = offersOAuth(yield* Config) ? (["GET", "PUT", "PATCH", "DELETE"] as const) : []
    yield* router.addAll([
      ...others.map((method) =>
        refusing(HttpRouter.route(method, MCP, Effect.flatMap(handlers, ({ others }) => others)))
      ),
      HttpRouter.route("POST", MCP, Effect.flatMap(handlers, ({ agents }) => agents)),
      HttpRouter.route("POST", JOIN, Effect.flatMap(handlers, ({ join }) => join))
    ])
  })
)

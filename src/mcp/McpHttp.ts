import { Effect } from "effect"
import { HttpRouter } from "effect/http"
import { directRoute } from "../http/Endpoints.ts"
import type { makeMcpHandler } from "./McpHandler.ts"

type Services = Effect.Services<ReturnType<typeof makeMcpHandler>>

/** `POST /mcp`. The protocol's library takes a tenth of a second to load, so it is loaded by the first request. */
export const McpHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    // In a fiber of its own: what the handler keeps must not belong to the first request.
    const load = Effect.runPromiseWith(yield* Effect.context<Services>())
    const handler = yield* Effect.cached(Effect.uninterruptible(Effect.promise(async () => {
      const { makeMcpHandler } = await import("./McpHandler.ts")
      return load(makeMcpHandler(router))
    })))
    yield* router.addAll([directRoute("POST", "/mcp", Effect.flatten(handler))])
  })
)

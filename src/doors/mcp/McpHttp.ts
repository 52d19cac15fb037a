import { Effect } from "effect"
import { HttpRouter } from "effect/http"
import { MCP } from "./McpProtocol.ts"
import type { makeMcpHandler } from "./McpHandler.ts"

type Services = Effect.Services<ReturnType<typeof makeMcpHandler>>

/** `POST /mcp`. Loading the protocol's library takes 100 ms, so the first request loads it. */
export const McpHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    // The handler is made in a fiber of its own, because it lives longer than the first request.
    const load = Effect.runPromiseWith(yield* Effect.context<Services>())
    const handler = yield* Effect.cached(Effect.uninterruptible(Effect.promise(async () => {
      const { makeMcpHandler } = await import("./McpHandler.ts")
      return load(makeMcpHandler(router))
    })))
    yield* router.addAll([HttpRouter.route("POST", MCP, Effect.flatten(handler))])
  })
)

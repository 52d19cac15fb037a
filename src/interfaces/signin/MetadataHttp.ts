import { offersOAuth, resourceMetadata, serverMetadata } from "#domain/oauth/Discovery"
import { Config } from "#infrastructure/platform/Config"
import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { OAuthLimits } from "./OAuthLimits.ts"
import { WELL_KNOWN } from "./OAuthProtocol.ts"

/** The documents that tell a program how to sign in (wire.md P). */
export const MetadataHttp = HttpRouter.use((router) =>
  Effect.gen(function*() {
    const config = yield* Config
    const limits = yield* OAuthLimits
    if (!offersOAuth(config)) return
    const add = (path: string, document: (url: string) => object) =>
      router.add(
        "GET",
        `${WELL_KNOWN}${path}`,
        Effect.gen(function*() {
          const request = yield* HttpServerRequest.HttpServerRequest
          yield* limits.take("tokens", request)
          return HttpServerResponse.jsonUnsafe(document(request.url), {
            headers: { "cache-control": "public, max-age=300" }
          })
        })
      )
    yield* add("protected-resource", (url) => resourceMetadata(config, url))
    yield* add("protected-resource/mcp", (url) => resourceMetadata(config, url))
    yield* add("authorization-server", () => serverMetadata(config))
  })
)

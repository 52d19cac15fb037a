import { Context, Effect } from "effect"
import { HttpEffect, HttpServerRequest, HttpServerResponse } from "effect/http"
import { ServerRequest, type ShownLimit } from "./ServerRequest.ts"

/** The `RateLimit-*` headers (wire.md C.0, Rate headers). */
export const rateHeaders = ({ limit, remaining, resetMs }: ShownLimit): Readonly<Record<string, string>> => ({
  "ratelimit-limit": String(limit),
  "ratelimit-remaining": String(remaining),
  "ratelimit-reset": String(Math.ceil(resetMs / 1000))
})

/**
 * Describes a limit in the headers of the response to the request in `context`, even if the response is a failure. Of
 * several limits, the headers describe the one with the fewest requests remaining. `ServerResponse` writes the headers
 * once, and headers that the route itself sets take precedence. If `context` contains no request, nothing happens.
 */
export const showLimit = (context: Context.Context<never>, shown: ShownLimit): void => {
  const request = Context.getOrUndefined(context, HttpServerRequest.HttpServerRequest)
  if (request === undefined) return
  const { source } = request
  if (source instanceof ServerRequest) {
    if (source.limit === undefined || source.limit.remaining >= shown.remaining) source.limit = shown
  } else {
    HttpEffect.appendPreResponseHandlerUnsafe(
      context,
      (_request, response) =>
        Effect.succeed(HttpServerResponse.setHeaders(response, { ...rateHeaders(shown), ...response.headers }))
    )
  }
}

import { Effect, Layer } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiMiddleware } from "effect/http-api"
import { commonErrors } from "./WireError.ts"
import { answer } from "./WireErrors.ts"

/** The headers of responses that no cache may store. */
export const NO_STORE = {
  "cache-control": "no-store",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff"
}

/**
 * Turns every failure into its documented response, and keeps all responses out of caches. It is the outermost
 * middleware of its endpoints.
 */
export class UncachedErrors
  extends HttpApiMiddleware.Service<UncachedErrors>()("parley/wire/UncachedErrors", { error: commonErrors }) {
  static readonly layer = Layer.succeed(UncachedErrors, (httpEffect) =>
    Effect.map(
      Effect.catchCause(httpEffect, (cause) => answer(cause)),
      (response) => HttpServerResponse.setHeaders(response, { ...NO_STORE, ...response.headers })
    ))
}

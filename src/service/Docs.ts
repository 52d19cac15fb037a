import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { type HttpApi, type HttpApiGroup, HttpApiScalar, OpenApi } from "effect/http-api"
import { createHash } from "node:crypto"

/** Settings of Scalar with which nothing is loaded from elsewhere, and no button leads to Scalar's own services. */
const appearance = {
  withDefaultFonts: false,
  hideClientButton: true,
  showDeveloperTools: "never",
  telemetry: false,
  defaultOpenAllTags: true,
  authentication: { preferredSecurityScheme: "bearer" }
}

/** The page's Content-Security-Policy: it can run its inline scripts and call this server, and loads nothing else. */
const policyFor = (page: string): string => {
  const scripts = Array.from(
    page.matchAll(/<script>([\s\S]*?)<\/script>/g),
    (match) => `'sha256-${createHash("sha256").update(match[1] ?? "").digest("base64")}'`
  )
  return [
    "default-src 'none'",
    `script-src ${scripts.join(" ")}`,
    "style-src 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'"
  ].join("; ")
}

/**
 * Scalar's page, with its script inline. It is rendered by a router of its own when it is first requested, because the
 * layer that adds it loads three megabytes of script as soon as it is built.
 */
const makePage = <Id extends string, Groups extends HttpApiGroup.Constraint>(api: HttpApi.HttpApi<Id, Groups>) =>
  Effect.scoped(Effect.gen(function*() {
    const scalar = HttpApiScalar.layer(api, { path: "/docs", scalar: appearance })
    const made = yield* Effect.flatten(HttpRouter.toHttpEffect(scalar))
    const text = made.body._tag === "Uint8Array" ? Buffer.from(made.body.body).toString("utf8") : ""
    return HttpServerResponse.html(text).pipe(HttpServerResponse.setHeaders({
      "content-security-policy": policyFor(text),
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      "cache-control": "no-cache"
    }))
  }))

/** `/v1/openapi.json`, and `/docs`, which shows it in a browser, even offline. Both are made at the first request. */
export const docsOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(api: HttpApi.HttpApi<Id, Groups>) => {
  const document = Effect.cached(Effect.sync(() => HttpServerResponse.jsonUnsafe(OpenApi.fromApi(api))))
  const page = Effect.cached(makePage(api))
  return Layer.mergeAll(
    HttpRouter.use((router) => Effect.flatMap(document, (handler) => router.add("GET", "/v1/openapi.json", handler))),
    HttpRouter.use((router) => Effect.flatMap(page, (handler) => router.add("GET", "/docs", handler)))
  )
}

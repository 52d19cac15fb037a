import { Budgets } from "#domain/auth/Budgets"
import { loadOnce } from "#infrastructure/platform/LazyLoad"
import { Unavailable } from "#infrastructure/wire/WireError"
import { sendStatic, type StaticBody, staticBody } from "#interfaces/pages/StaticBody"
import { Effect, Layer } from "effect"
import { HttpRouter, HttpServerRequest } from "effect/http"
import { type HttpApi, type HttpApiGroup, HttpApiScalar, OpenApi } from "effect/http-api"
import { createHash } from "node:crypto"

/** Settings with which Scalar loads nothing from other servers and shows no links to its own services. */
const appearance = {
  withDefaultFonts: false,
  hideClientButton: true,
  showDeveloperTools: "never",
  telemetry: false,
  defaultOpenAllTags: true,
  authentication: { preferredSecurityScheme: "bearer" }
}

/**
 * The page's Content-Security-Policy. The page may run its inline scripts and call this server, and may load nothing
 * else.
 */
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
 * Scalar's page, with its script inline. The layer that adds the page loads three megabytes of script when it is built.
 * Therefore a separate router renders the page at the first request.
 */
const makePage = <Id extends string, Groups extends HttpApiGroup.Constraint>(api: HttpApi.HttpApi<Id, Groups>) =>
  Effect.scoped(Effect.gen(function*() {
    const scalar = HttpApiScalar.layer(api, { path: "/docs", scalar: appearance })
    const made = yield* Effect.orDie(Effect.flatten(HttpRouter.toHttpEffect(scalar)))
    const text = made.body._tag === "Uint8Array" ? Buffer.from(made.body.body).toString("utf8") : ""
    return {
      body: staticBody(Buffer.from(text), "text/html; charset=utf-8"),
      headers: {
        "content-security-policy": policyFor(text),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache"
      }
    } satisfies Made
  }))

interface Made {
  readonly body: StaticBody
  readonly headers: Readonly<Record<string, string>>
}

/**
 * `/v1/openapi.json`, and `/docs`, which shows this document in a browser, even offline. Both are generated at the
 * first request.
 */
export const docsOf = <Id extends string, Groups extends HttpApiGroup.Constraint>(api: HttpApi.HttpApi<Id, Groups>) => {
  const document = Effect.sync((): Made => ({
    body: staticBody(Buffer.from(JSON.stringify(OpenApi.fromApi(api))), "application/json"),
    headers: { "cache-control": "no-cache" }
  }))
  const route = (path: `/${string}`, make: Effect.Effect<Made, never, HttpServerRequest.HttpServerRequest>) =>
    HttpRouter.use((router) =>
      Effect.gen(function*() {
        const budgets = yield* Budgets
        const made = yield* loadOnce(path, make, () => new Unavailable())
        yield* router.add(
          "GET",
          path,
          Effect.gen(function*() {
            const request = yield* HttpServerRequest.HttpServerRequest
            yield* budgets.ofAddress(request)
            const { body, headers } = yield* made
            return yield* sendStatic(request, body, headers)
          })
        )
      })
    )
  return Layer.mergeAll(route("/v1/openapi.json", document), route("/docs", makePage(api)))
}

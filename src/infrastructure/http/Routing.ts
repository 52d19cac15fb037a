import type { Settings } from "#infrastructure/platform/Config"
import { isProbe } from "#infrastructure/platform/Metrics"
import { forTrace, TRACEPARENT, traceRequest } from "#infrastructure/platform/Tracing"
import { MethodNotAllowed, NotFound } from "#infrastructure/wire/WireError"
import { answer, type Body, toResponse } from "#infrastructure/wire/WireErrors"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import {
  ByteSize,
  Cause,
  Clock,
  Context,
  Effect,
  Exit,
  Layer,
  Logger,
  Metric,
  Random,
  References,
  type Scope,
  Tracer
} from "effect"
import {
  FindMyWay,
  HttpIncomingMessage,
  HttpRouter,
  HttpServerError,
  HttpServerRequest,
  HttpServerResponse
} from "effect/http"
import { checkedText } from "./BufferedRequest.ts"
import { untilEnded } from "./DeferredResponse.ts"
import { makeFastPath } from "./FastPath.ts"
import { hasBody } from "./RequestBody.ts"
import { makeRequestTimes } from "./RequestTimes.ts"
import { ServerRequest } from "./ServerRequest.ts"
import { CORS_METHODS, type ServerResponse } from "./ServerResponse.ts"

/**
 * Checks at compile time that handlers get their services when their group is built
 * (`routes satisfies SelfContained<typeof routes>`), because the context of a request provides none.
 */
export type SelfContained<L> = L extends Layer.Layer<infer _A, infer _E, infer R>
  ? [HttpRouter.Request.Only<"Requires" | "GlobalRequires", R>] extends [never] ? L
  : "a handler asks for a service at request time"
  : never

const [HASH, SLASH, SEMICOLON, QUESTION_MARK] = [35, 47, 59, 63]

/** The path of a request target as the router sees it: without query, repeated slashes or trailing slash. */
export const pathOf = (target: string): string => {
  let end = target.length
  let slashes = false
  for (let i = 0; i < end; i++) {
    const code = target.charCodeAt(i)
    if (code === QUESTION_MARK || code === HASH || code === SEMICOLON) end = i
    else if (code === SLASH && target.charCodeAt(i + 1) === SLASH) slashes = true
  }
  const given = end === target.length ? target : target.slice(0, end)
  const path = slashes ? given.replace(/\/{2,}/g, "/") : given
  return path.length > 1 && path.endsWith("/") ? path.slice(0, -1) : path
}

/**
 * A path with its escapes decoded, except those of separators; `undefined` if the path is not valid percent-encoded
 * UTF-8.
 */
export const decodedPath = (path: string): string | undefined => {
  if (!path.includes("%")) return path
  try {
    return decodeURI(path)
  } catch {
    return undefined
  }
}

/** The paths of the operators' API as the router accepts them: in upper or lower case, with escapes, behind a host. */
const CONSOLE_API = /^(?:https?:\/[^/]*)?\/console\/api(?:\/|$)/i
/** Whether outsiders must get the same answer as from all other paths of the operators' API (wire.md O.1). */
export const isConsoleApi = (path: string): boolean => CONSOLE_API.test(decodedPath(path) ?? path)
/** A path of the operators' API that no endpoint has. */
export const NO_ENDPOINT = "/console/api/"
/** The message for a path without an endpoint. */
export const NO_PATH = "This API has no such path."

/** A route of the server: its path's template, and the route itself if it is run on the fast path. */
interface Recorded {
  readonly path: string
  readonly route: HttpRouter.Route<unknown, unknown> | undefined
}

/** A route that only refuses. Answers with 405, and to OPTIONS, do not list its method. */
export const refusing = (route: HttpRouter.Route<never, never>): HttpRouter.Route<never, never> =>
  ({ ...route, refuses: true }) as typeof route

/**
 * Wraps a router to record its routes. Their methods are needed for 405 and OPTIONS. Routes that are added together
 * with `addAll` (endpoints, MCP, A2A) also get the fast path. Such a route needs nothing but the request, the
 * parameters of the path and the query.
 */
const recording = (router: HttpRouter.HttpRouter, routes: FindMyWay.Router<Recorded>): HttpRouter.HttpRouter => {
  const seen = new Set<string>()
  const record = (method: string, path: HttpRouter.PathInput, route?: HttpRouter.Route<unknown, unknown>) => {
    // Outsiders get the same answer from every path of the operators' API, whatever the method (wire.md O.1).
    if (method === "*" || path.startsWith("/console/api") || seen.has(`${method} ${path}`)) return
    seen.add(`${method} ${path}`)
    routes.on(method, path, { path, route })
  }
  return HttpRouter.HttpRouter.of({
    ...router,
    addAll: (added) => {
      for (const route of added) if (!("refuses" in route)) record(route.method, route.path, route)
      return router.addAll(added)
    },
    add: (method, path, handler, options) => {
      record(method, path)
      return router.add(method, path, handler, options)
    }
  })
}

/**
 * Builds the routes of the server, and the ways to them: Effect's router, and beside it the fast path (FastPath.ts).
 * Requests that are under way end with `requestScope`. `refusalBodyOf` returns what makes the body of a refusal on a
 * path.
 */
export const makeRouting = <A, E, R>(
  routes: Layer.Layer<A, E, R>,
  config: Settings,
  requestScope: Scope.Scope,
  refusalBodyOf: (path: string) => Body
) =>
  Effect.gen(function*() {
    const known = FindMyWay.make<Recorded>({ maxParamLength: 16_384 })
    const recordingRouter = Layer.effect(
      HttpRouter.HttpRouter,
      Effect.map(HttpRouter.HttpRouter, (router) => recording(router, known))
    )
    const routed = yield* HttpRouter.toHttpEffect(Layer.provide(routes, recordingRouter)).pipe(
      // The router accepts path parameters as long as the request line; routes validate the length themselves.
      Effect.provideService(HttpRouter.RouterConfig, { maxParamLength: 16_384 })
    )
    const methodsOf = (target: string): Array<string> => {
      const methods = CORS_METHODS.split(", ").filter((method) => known.find(method, target) !== undefined)
      if (methods.length === 0) return methods
      if (methods.includes("GET")) methods.push("HEAD")
      return [...methods, "OPTIONS"]
    }

    const noRoute = ({ source, url }: HttpServerRequest.HttpServerRequest) => {
      const methods = methodsOf(url)
      const failure = methods.length === 0 ? new NotFound({ message: NO_PATH }) : new MethodNotAllowed()
      if (source instanceof ServerRequest) source.refused = { code: failure.code, why: failure.message }
      return toResponse(
        failure,
        methods.length === 0 ? undefined : { allow: methods.join(", ") },
        refusalBodyOf(pathOf(url))
      )
    }
    const withBody = Effect.withFiber((fiber) => {
      const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
      const { source } = request
      // Shadows the getter that would read the stream, because the stream is already consumed.
      if (source instanceof ServerRequest) {
        if (source.answered !== undefined) return Effect.succeed(source.answered)
        if (source.body !== undefined) Object.defineProperty(request, "text", { value: checkedText(source.body) })
      }
      return Effect.flatMap(routed, untilEnded)
    })
    const app = Effect.catchCause(withBody, (cause) => {
      for (const reason of cause.reasons) {
        if (
          Cause.isFailReason(reason) && HttpServerError.isHttpServerError(reason.error) &&
          reason.error.reason._tag === "RouteNotFound"
        ) return Effect.map(HttpServerRequest.HttpServerRequest, noRoute)
      }
      return Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ source, url }) =>
        // The client has disconnected, so nothing is sent, and the request does not count as refused.
        source instanceof ServerRequest && source.socket.destroyed && Cause.hasInterruptsOnly(cause)
          ? Effect.succeed(HttpServerResponse.empty())
          : answer(cause, refusalBodyOf(pathOf(url))))
    })

    const times = makeRequestTimes(known)
    /** Runs `app` as a span of the request's trace, unless the request is a probe. */
    const traced = Effect.withFiber((fiber): typeof app => {
      const { headers, method, url } = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
      if (isProbe(pathOf(url))) return app
      const trace = traceRequest(headers[TRACEPARENT])
      if (trace === undefined) return app
      return Effect.onExit(forTrace(trace.context, app), (exit) =>
        Effect.sync(() => {
          const route = times.routeOf(method, pathOf(url))
          const status = Exit.isSuccess(exit) ? exit.value.status : 0
          const attributes = { "http.request.method": method, "http.route": route, "http.response.status_code": status }
          trace.end(`${method} ${route}`, attributes, status >= 500 || status === 0 ? String(status) : undefined)
        }))
    })

    const traces = config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined
    // The initial context is copied for every request. Handlers have their services already, so only the runtime's
    // own references are kept in it.
    const [handleRouted, handleFast] = yield* Effect.flatMap(
      NodeHttpServer.makeHandler(traces ? traced : app, { scope: requestScope }),
      (handleRouted) =>
        Effect.map(
          makeFastPath(requestScope, (request, response, answered) => {
            request.answered = answered
            handleRouted(request, response)
          }),
          (handleFast) => [handleRouted, handleFast] as const
        )
    ).pipe(
      withRuntimeOnly,
      Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(config.LIMITS_BODY_BYTES))
    )
    // A route that runs without the router makes no span for each request, and runs no middleware of the router.
    const mayBeFast = !traces && (yield* Tracer.Tracer) === Tracer.nativeTracer
    /** Runs a route without the router if the result is the same, and otherwise with it, as for HEAD and errors. */
    const handle = (request: ServerRequest, response: ServerResponse): void => {
      const { method = "", url = "" } = request
      const whole = request.body !== undefined || !hasBody(request)
      const found = mayBeFast && whole && url.startsWith("/") ? known.find(method, url) : undefined
      if (found?.handler.route === undefined) handleRouted(request, response)
      else handleFast(found.handler.route, found, request, response)
    }

    return { handle, methodsOf, times }
  })

const runtimeKeys: ReadonlySet<string> = new Set([
  Clock.Clock,
  HttpIncomingMessage.MaxBodySize,
  Logger.CurrentLoggers,
  Metric.MetricRegistry,
  Random.Random,
  References.CurrentLogAnnotations,
  References.MinimumLogLevel,
  Tracer.Tracer
].map((reference) => reference.key))

const withRuntimeOnly = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.updateContext(
    self,
    (context: Context.Context<R>): Context.Context<R> =>
      Context.makeUnsafe(new Map(Array.from(context.mapUnsafe).filter(([key]) => runtimeKeys.has(key))))
  )

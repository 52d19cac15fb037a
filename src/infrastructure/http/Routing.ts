import type { Settings } from "#infrastructure/platform/Config"
import { NO_ROUTE } from "#infrastructure/platform/Metrics"
import { forTrace, TRACEPARENT, traceRequest } from "#infrastructure/platform/Tracing"
import { MethodNotAllowed, NotFound, wireBody } from "#infrastructure/wire/WireError"
import { answer, toResponse } from "#infrastructure/wire/WireErrors"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
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
import { HttpIncomingMessage, HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { checkedText } from "./BufferedRequest.ts"
import { untilEnded } from "./DeferredResponse.ts"
import { makeFastPath } from "./FastPath.ts"
import { hasBody } from "./RequestBody.ts"
import type { RouteTable } from "./RouteTable.ts"
import { ServerRequest } from "./ServerRequest.ts"
import { ServerResponse } from "./ServerResponse.ts"

/**
 * Checks at compile time that handlers get their services when their group is built
 * (`routes satisfies SelfContained<typeof routes>`), because the context of a request provides none.
 */
export type SelfContained<L> = L extends Layer.Layer<infer _A, infer _E, infer R>
  ? [HttpRouter.Request.Only<"Requires" | "GlobalRequires", R>] extends [never] ? L
  : "a handler asks for a service at request time"
  : never

/** The message for a path without an endpoint. */
export const NO_PATH = "This API has no such path."

/** Marks a route that only refuses requests. Responses with 405 and responses to OPTIONS do not list its method. */
export const refusing = <E>(route: HttpRouter.Route<E, never>): HttpRouter.Route<E, never> =>
  ({ ...route, refuses: true }) as typeof route

/**
 * Wraps a router so that its routes are added to the table. Routes that are added with `addAll` (endpoints, MCP, A2A)
 * can also use the fast path. Such a route needs only the request, the parameters of the path and the query.
 */
const recording = (router: HttpRouter.HttpRouter, table: RouteTable): HttpRouter.HttpRouter =>
  HttpRouter.HttpRouter.of({
    ...router,
    addAll: (added) => {
      for (const route of added) if (!("refuses" in route)) table.add(route.method, route.path, route)
      return router.addAll(added)
    },
    add: (method, path, handler, options) => {
      table.add(method, path)
      return router.add(method, path, handler, options)
    }
  })

/** The response to a request over the network. */
const responseTo = (request: HttpServerRequest.HttpServerRequest): ServerResponse | undefined => {
  const response = NodeHttpServerRequest.toServerResponse(request)
  return response instanceof ServerResponse ? response : undefined
}

const refusalBodyOf = (request: HttpServerRequest.HttpServerRequest) => responseTo(request)?.refusalBody ?? wireBody

/** Runs a request through Effect's router. Every failure becomes a response. */
const makeApp = <E, R>(
  routed: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>,
  table: RouteTable
) => {
  const noRoute = (request: HttpServerRequest.HttpServerRequest) => {
    const { source, url } = request
    const methods = table.methodsOf(url)
    const failure = methods.length === 0 ? new NotFound({ message: NO_PATH }) : new MethodNotAllowed()
    if (source instanceof ServerRequest) source.refused = { code: failure.code, why: failure.message }
    return toResponse(
      failure,
      methods.length === 0 ? undefined : { allow: methods.join(", ") },
      refusalBodyOf(request)
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
  return Effect.catchCause(withBody, (cause) => {
    for (const reason of cause.reasons) {
      if (
        Cause.isFailReason(reason) && HttpServerError.isHttpServerError(reason.error) &&
        reason.error.reason._tag === "RouteNotFound"
      ) return Effect.map(HttpServerRequest.HttpServerRequest, noRoute)
    }
    return Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
      // The client has disconnected, so nothing is sent, and the request does not count as refused.
      request.source instanceof ServerRequest && request.source.socket.destroyed && Cause.hasInterruptsOnly(cause)
        ? Effect.succeed(HttpServerResponse.empty())
        : answer(cause, refusalBodyOf(request)))
  })
}

/** Runs `app` as a span of the request's trace, unless the request is a probe. */
const traced = <E, R>(app: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>) =>
  Effect.withFiber((fiber): typeof app => {
    const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
    const { headers, method } = request
    const route = responseTo(request)?.route
    if (route?.probes !== undefined) return app
    const trace = traceRequest(headers[TRACEPARENT])
    if (trace === undefined) return app
    return Effect.onExit(forTrace(trace.context, app), (exit) =>
      Effect.sync(() => {
        const template = route?.template ?? NO_ROUTE
        const status = Exit.isSuccess(exit) ? exit.value.status : 0
        const attributes = {
          "http.request.method": method,
          "http.route": template,
          "http.response.status_code": status
        }
        trace.end(`${method} ${template}`, attributes, status >= 500 || status === 0 ? String(status) : undefined)
      }))
  })

/**
 * Adds the routes of the server to the table, and builds the two ways to run them: Effect's router and the fast path
 * (FastPath.ts). When `requestScope` closes, requests in progress are ended. The returned function runs a request whose
 * route has been looked up.
 */
export const makeRouting = <A, E, R>(
  routes: Layer.Layer<A, E, R>,
  config: Settings,
  table: RouteTable,
  requestScope: Scope.Scope
) =>
  Effect.gen(function*() {
    const recordingRouter = Layer.effect(
      HttpRouter.HttpRouter,
      Effect.map(HttpRouter.HttpRouter, (router) => recording(router, table))
    )
    const routed = yield* HttpRouter.toHttpEffect(Layer.provide(routes, recordingRouter)).pipe(
      // The router accepts path parameters as long as the request line; routes validate the length themselves.
      Effect.provideService(HttpRouter.RouterConfig, { maxParamLength: 16_384 })
    )
    const app = makeApp(routed, table)
    const traces = config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined
    // The initial context is copied for every request. Handlers have their services already, so only the runtime's own
    // references are kept in the context.
    const [handleRouted, handleFast] = yield* Effect.flatMap(
      NodeHttpServer.makeHandler(traces ? traced(app) : app, { scope: requestScope }),
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
    // The fast path makes no span for a request, and runs no middleware of the router.
    const mayBeFast = !traces && (yield* Tracer.Tracer) === Tracer.nativeTracer

    /**
     * Runs a route on the fast path if the result is the same. Otherwise, for example for HEAD and for errors, the
     * router runs the route.
     */
    return (request: ServerRequest, response: ServerResponse): void => {
      const { found } = response
      response.found = undefined
      const fast = found?.handler.fast
      if (
        mayBeFast && found !== undefined && fast !== undefined && request.method === fast.method &&
        request.url?.startsWith("/") === true && (request.body !== undefined || !hasBody(request))
      ) handleFast(fast, found, request, response)
      else handleRouted(request, response)
    }
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

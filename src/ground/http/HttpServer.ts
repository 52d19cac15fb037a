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
  Schedule,
  Scope,
  Tracer
} from "effect"
import { FindMyWay, HttpIncomingMessage, HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { isUtf8 } from "node:buffer"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { type AddressInfo, Socket } from "node:net"
import type { Duplex } from "node:stream"
import { Asked } from "./Asked.ts"
import { addressKey, clientAddress } from "./ClientAddress.ts"
import { HeldBytes } from "./HeldBytes.ts"
import { Answer, CORS_METHODS, CORS_REQUEST_HEADERS, MCP_REQUEST_HEADERS } from "./Answer.ts"
import { clientConnections } from "./Connections.ts"
import { makeDirect } from "./Direct.ts"
import { isDirect } from "./Endpoints.ts"
import { lateEnded } from "./DeferredResponse.ts"
import { listen } from "./Listening.ts"
import { hostFamily, shownAgent } from "./HostFamily.ts"
import { apiOrigins, isOwnOrigin, mcpOrigins } from "./Origins.ts"
import { discard, hasBody, hasTooManyValues, MAX_VALUES, readBody } from "./RequestBody.ts"
import { UpgradeHandler } from "./UpgradeHandler.ts"
import { Config, type Settings } from "#ground/platform/Config"
import { Ids } from "#ground/platform/Ids"
import { listeningUrl, listensOn } from "#ground/platform/PublicUrl"
import { StallGuard } from "#ground/platform/StallGuard"
import { Readiness } from "#ground/platform/Readiness"
import { requestIdFrom } from "#ground/platform/RequestId"
import { forTrace, TRACEPARENT, traceRequest } from "#ground/platform/Tracing"
import { countMcpRequest, countRequest, isProbe, refusals } from "#ground/platform/Metrics"
import { LogVolume } from "#ground/platform/Telemetry"
import {
  Forbidden,
  MethodNotAllowed,
  NotFound,
  PayloadTooLarge,
  Unavailable,
  ValidationFailed,
  wireBody,
  type WireFailure
} from "#ground/wire/WireError"
import { a2aRestBody, a2aRpcBody } from "#ground/wire/A2aErrors"
import { answer, type Body, countFailures, refuse, rpcBody, toResponse } from "#ground/wire/WireErrors"
import { makeRequestTimes } from "./RequestTimes.ts"

/**
 * Checks at compile time that handlers get their services when their group is built
 * (`routes satisfies SelfContained<typeof routes>`), because the context of a request provides none.
 */
export type SelfContained<L> = L extends Layer.Layer<infer _A, infer _E, infer R>
  ? [HttpRouter.Request.Only<"Requires" | "GlobalRequires", R>] extends [never] ? L
  : "a handler asks for a service at request time"
  : never

/** Time limits of the server, in milliseconds. `firstByte`, `headers`, `request`, `stalled` and `linger` come from settings. */
export interface Patience {
  readonly firstByte: number
  readonly headers: number
  readonly request: number
  readonly stalled: number
  readonly keepAlive: number
  /**
   * Interval at which Node checks connections against `headers` and `request`, so either may be exceeded by this much.
   */
  readonly check: number
  /** How long after the start of the shutdown new requests are still accepted. */
  readonly linger: number
  readonly drain: number
}

const patienceOf = (config: Settings): Patience => {
  const headers = config.HTTP_HEADERS_SECONDS * 1_000
  const request = config.HTTP_REQUEST_SECONDS * 1_000
  const linger = (config.DRAIN_SECONDS ?? 0) * 1_000
  return {
    firstByte: config.HTTP_FIRST_BYTE_SECONDS * 1_000,
    headers,
    request,
    stalled: config.HTTP_STALLED_SECONDS * 1_000,
    keepAlive: 75_000,
    check: 500,
    linger,
    drain: 10_000 - linger
  }
}

/** The most requests that a client may send on a connection before it has the response to the first. */
const MAX_PIPELINED = 64
/** The most headers of a request that are read. Further headers are ignored. */
const MAX_HEADERS = 100
/** The most bytes of a body on routes without a key, which take an address, a handle, a name and a description. */
const PUBLIC_BODY = 16_384
/** How many times larger than a message the body of a send may be, because JSON may escape each byte as six. */
const ESCAPED = 6
const publicBodies = new Set(["/v1/register", "/v1/register/verify", "/v1/agents/recover", "/v1/agents/recover/verify"])

const every20Millis = Schedule.spaced("20 millis")

/** The code with which a probe is answered while the node is not ready (wire.md C.13). It does not count as a refusal. */
const NOT_READY = "NOT_READY"

const MCP = "/mcp"
const A2A = "/a2a/"
/** How many times larger than other bodies a body on `/mcp` or below `/a2a` may be, because it may hold a file in base64. */
const BASE64_BODY = 1.5
/** Paths where files may come in base64. */
const takesFiles = (path: string): boolean => path === MCP || path.startsWith(A2A)

/** Whether a route takes raw bytes of any content type, with a size limit of its own. */
const isRaw = (method: string | undefined, path: string): boolean =>
  method === "PUT" && (path.endsWith("/avatar") || path.startsWith("/v1/files/"))

const [HASH, SLASH, SEMICOLON, QUESTION_MARK] = [35, 47, 59, 63]

/** The path of a request target as the router sees it: without query, repeated slashes or trailing slash. */
const pathOf = (target: string): string => {
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

/** A path with its escapes decoded, except those of separators; `undefined` if the path is not valid percent-encoded UTF-8. */
const decodedPath = (path: string): string | undefined => {
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
const isConsoleApi = (path: string): boolean => CONSOLE_API.test(decodedPath(path) ?? path)
/** A path of the operators' API that no endpoint has. */
const NO_ENDPOINT = "/console/api/"
const NO_PATH = "This API has no such path."

/** Errors on `/mcp` and below `/a2a` have those protocols' bodies wherever the path is known (wire.md M, N). */
const bodyOf = (path: string): Body => {
  if (path === MCP) return rpcBody
  if (!path.startsWith(A2A)) return wireBody
  return path.includes("/", A2A.length) ? a2aRestBody : (failure) => a2aRpcBody(failure)
}
const bodyFor = (target: string): Body => bodyOf(pathOf(target))

/** A route of the server: its path's template, and the route itself if it can be run without the router. */
interface Recorded {
  readonly path: string
  readonly route: HttpRouter.Route<unknown, unknown> | undefined
}

/** Wraps a router to record its routes. Their methods are needed for 405 and OPTIONS, and some can be run without the router. */
const recording = (router: HttpRouter.HttpRouter, routes: FindMyWay.Router<Recorded>): HttpRouter.HttpRouter => {
  const seen = new Set<string>()
  const record = (method: string, path: HttpRouter.PathInput, route?: HttpRouter.Route<unknown, unknown>) => {
    // Outsiders get the same answer from every path of the operators' API, whatever the method (wire.md O.1).
    if (method === "*" || path.startsWith("/console/api") || seen.has(`${method} ${path}`)) return
    seen.add(`${method} ${path}`)
    routes.on(method, path, { path, route: route !== undefined && isDirect(route) ? route : undefined })
  }
  return HttpRouter.HttpRouter.of({
    ...router,
    addAll: (added) => {
      for (const route of added) record(route.method, route.path, route)
      return router.addAll(added)
    },
    add: (method, path, handler, options) => {
      record(method, path)
      return router.add(method, path, handler, options)
    }
  })
}

/** Runs when the server is asked to stop, before its port closes. A node hands over its shards here. */
export const BeforeClosing = Context.Reference<Effect.Effect<void>>("parley/http/HttpServer/BeforeClosing", {
  defaultValue: () => Effect.void
})

/**
 * The HTTP server of this process. It uses `node:http` directly so that a WebSocket costs no fiber. Requests go to
 * the routes, upgrades of `/v1/ws` to the UpgradeHandler. Requests that are refused before both also get the wire's
 * error body and a request id.
 *
 * On shutdown the server drains. Readiness turns false, and new WebSockets are closed at once. After `linger` and
 * `BeforeClosing` the port closes. Requests in flight then have `drain` milliseconds to finish. At last the open WebSockets are closed.
 */
export class HttpServer extends Context.Service<HttpServer, {
  readonly port: number
  /** Base of absolute URLs: PUBLIC_URL, or the address that the server listens on. */
  readonly url: string
}>()("parley/http/HttpServer") {
  /** Builds `routes`, waits for `ready`, then listens. */
  static readonly layer = <A, E, R, E2 = never, R2 = never>(
    routes: Layer.Layer<A, E, R>,
    changes?: Partial<Patience>,
    ready: Effect.Effect<unknown, E2, R2> = Effect.void
  ) =>
    Layer.effect(HttpServer, Effect.flatMap(Config, (config) => serve(routes, { ...patienceOf(config), ...changes }, ready)))
}

const serve = <A, E, R, E2, R2>(routes: Layer.Layer<A, E, R>, patience: Patience, ready: Effect.Effect<unknown, E2, R2>) =>
  Effect.gen(function*() {
    const config = yield* Config
    const ids = yield* Ids
    const upgrades = yield* UpgradeHandler
    const readiness = yield* Readiness
    const stallGuard = yield* StallGuard
    const held = yield* HeldBytes
    const scope = yield* Effect.scope

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
      if (source instanceof Asked) source.refused = { code: failure.code, why: failure.message }
      return toResponse(failure, methods.length === 0 ? undefined : { allow: methods.join(", ") }, bodyFor(url))
    }
    const withBody = Effect.withFiber((fiber) => {
      const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
      const { source } = request
      // Shadows the getter that would read the stream, because the stream is already consumed.
      if (source instanceof Asked) {
        if (source.answered !== undefined) return Effect.succeed(source.answered)
        if (source.body !== undefined) Object.defineProperty(request, "text", { value: Effect.succeed(source.body) })
      }
      return Effect.flatMap(routed, lateEnded)
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
        source instanceof Asked && source.socket.destroyed && Cause.hasInterruptsOnly(cause)
          ? Effect.succeed(HttpServerResponse.empty())
          : answer(cause, bodyFor(url)))
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
    const requestScope = yield* Scope.fork(scope, "parallel")
    // The initial context is copied for every request. Handlers have their services already, so only the runtime's
    // own references are kept in it.
    const [handleRouted, handleDirect] = yield* Effect.flatMap(
      NodeHttpServer.makeHandler(traces ? traced : app, { scope: requestScope }),
      (handleRouted) =>
        Effect.map(
          makeDirect(requestScope, (request, response, answered) => {
            request.answered = answered
            handleRouted(request, response)
          }),
          (handleDirect) => [handleRouted, handleDirect] as const
        )
    ).pipe(
      withRuntimeOnly,
      Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(config.LIMITS_BODY_BYTES))
    )
    // A route that runs without the router makes no span for each request, and runs no middleware of the router.
    const mayBeDirect = !traces && (yield* Tracer.Tracer) === Tracer.nativeTracer
    /** Runs a route without the router if the result is the same, and otherwise with it, as for HEAD and errors. */
    const handle = (request: Asked, response: Answer): void => {
      const { method = "", url = "" } = request
      const whole = request.body !== undefined || !hasBody(request)
      const found = mayBeDirect && whole && url.startsWith("/") ? known.find(method, url) : undefined
      if (found?.handler.route === undefined) handleRouted(request, response)
      else handleDirect(found.handler.route, found, request, response)
    }

    const allowOrigin = apiOrigins(config)
    const allowMcpOrigin = mcpOrigins(config)

    const volume = yield* LogVolume
    const context = yield* Effect.context<never>()
    const log = Effect.runForkWith(context)
    const addressOf = ({ headers, socket }: Asked): string => {
      const forwarded = headers["x-forwarded-for"]
      return addressKey(clientAddress(socket.remoteAddress, typeof forwarded === "string" ? forwarded : undefined, config.TRUST_PROXY))
    }
    const state = { draining: false, held, peerOf: (request: Asked): string => request.agentId ?? addressOf(request) }
    countFailures((code) => {
      if (code !== NOT_READY) refusals.at("http", code).add()
    })
    let inFlight = 0
    function finished(this: Answer) {
      inFlight--
      this.over()
      times.observe(this.req.method, this.path, performance.now() - this.began)
      if (!this.writableEnded) this.worker?.interruptUnsafe()
      const { refused } = this.req
      if (this.host !== undefined && this.req.method === "POST" && this.headersSent) {
        countMcpRequest(this.host, this.statusCode, refused !== undefined)
      }
      if (volume.level === "debug" && !isProbe(this.path)) {
        log(Effect.logDebug(refused === undefined ? "Answered" : "Refused").pipe(Effect.annotateLogs({
          request_id: this.requestId,
          method: this.req.method ?? "",
          path: pathOf(this.req.url ?? ""),
          status: this.statusCode,
          ...refused,
          ...(refused === undefined || this.host === undefined
            ? {}
            : { host: this.host, user_agent: shownAgent(this.req.headers["user-agent"]) })
        })))
      }
    }

    // Parsing a body of a megabyte with very many fields takes half a second, so each route takes only the size that it needs.
    const sendBody = Math.min(config.LIMITS_BODY_BYTES, ESCAPED * config.LIMITS_MESSAGE_BYTES + PUBLIC_BODY)
    const publicBody = Math.min(config.LIMITS_BODY_BYTES, PUBLIC_BODY)
    const maxBodyOf = (path: string): number =>
      path === "/v1/messages"
        ? sendBody
        : takesFiles(path)
        ? config.LIMITS_BODY_BYTES * BASE64_BODY
        : publicBodies.has(path)
        ? publicBody
        : config.LIMITS_BODY_BYTES

    /** The failure of the checks that need no route, or undefined if the request passes. */
    const refusal = (request: IncomingMessage, path: string, raw: boolean, maxBytes: number): WireFailure | undefined => {
      if (request.headers.host === undefined && request.httpVersion === "1.1") {
        return new ValidationFailed({ message: "The Host header is missing." })
      }
      // This includes the query, because no text from a client may contain NUL.
      if (request.url?.includes("%00") === true) {
        return new ValidationFailed({ message: "The address holds a NUL character." })
      }
      if (decodedPath(path) === undefined) return new ValidationFailed({ message: "The path is not valid percent-encoded UTF-8." })
      return !raw && Number(request.headers["content-length"]) > maxBytes ? new PayloadTooLarge() : undefined
    }

    /** Refuses a request before its route. On the operators' API, the answer to everybody is the 404 of a path without an endpoint. */
    const refuseEarly = (request: Asked, response: Answer, failure: WireFailure): void => {
      if (!isConsoleApi(response.path)) return response.refuse(failure)
      request.url = NO_ENDPOINT
      request.body = ""
      handle(request, response)
    }

    /**
     * Ends a connection in the middle of a packet. Otherwise Node would parse the rest of the packet and make a request and a response
     * for everything in it. Node's parser stops where `onIncoming` returns 2, which means that another protocol follows.
     */
    const cut = (socket: Socket & { parser?: { onIncoming: unknown } | null }): void => {
      if (socket.parser) socket.parser.onIncoming = () => 2
      socket.destroy()
    }

    /** The number of responses of each connection that wait behind others. */
    const behind = new WeakMap<Socket, number>()
    /** Counts a response that waits behind others. Returns `false`, and cuts the connection, if too many wait. */
    const queueBehind = (response: Answer): boolean => {
      const { socket } = response.req
      const before = behind.get(socket) ?? 0
      if (socket.destroyed || before >= MAX_PIPELINED) {
        cut(socket)
        return false
      }
      behind.set(socket, before + 1)
      response.once("close", () => behind.set(socket, (behind.get(socket) ?? 1) - 1))
      return true
    }

    const onRequest = (request: Asked, response: Answer, expectsContinue = false) => {
      if (response.socket === null && !queueBehind(response)) return
      inFlight++
      response.on("close", finished)
      const id = requestIdFrom(request.headers["x-request-id"], ids)
      request.headers["x-request-id"] = id
      response.requestId = id
      response.server = state
      response.began = performance.now()
      const path = response.path = pathOf(request.url ?? "/")
      if (path.startsWith("/v1/") || path === "/v1") response.allowOrigin = allowOrigin(request.headers.origin)
      response.refusalBody = bodyOf(path)
      if (path === MCP) {
        response.allowOrigin = allowMcpOrigin(request.headers.origin)
        response.host = hostFamily(request.headers["user-agent"])
      }
      if (request.method === "OPTIONS" && !isConsoleApi(path)) {
        request.resume()
        const methods = methodsOf(path)
        response.writeHead(204, {
          "allow": methods.length === 0 ? CORS_METHODS : methods.join(", "),
          ...(response.allowOrigin === undefined ? undefined : {
            "access-control-allow-methods": CORS_METHODS,
            "access-control-allow-headers": path === MCP ? MCP_REQUEST_HEADERS : CORS_REQUEST_HEADERS,
            "access-control-max-age": "86400"
          })
        })
        response.end()
        return
      }
      const raw = isRaw(request.method, path)
      const maxBytes = maxBodyOf(path)
      const refused = refusal(request, path, raw, maxBytes)
      if (refused !== undefined) {
        if (expectsContinue) response.shouldKeepAlive = false
        else discard(request, 0, maxBytes)
        return refuseEarly(request, response, refused)
      }
      if (expectsContinue) response.writeContinue()
      if (request.method === "GET" || request.method === "HEAD") return handle(request, response)
      if (raw) {
        // A file goes to the store piece by piece, but a picture is first read whole into memory.
        if (path.endsWith("/avatar")) request.onPiece = (bytes) => response.receives(bytes)
        if (!stallGuard.stalledLately("http")) return handle(request, response)
        response.refuse(new Unavailable())
        return discard(request, 0, config.LIMITS_BODY_BYTES)
      }
      request.headers["content-type"] = "application/json"
      readBody(request, maxBytes, (bytes) => response.receives(bytes), (body) => {
        if (body === undefined) return refuseEarly(request, response, new PayloadTooLarge())
        if (stallGuard.stalledLately("http")) return response.refuse(new Unavailable())
        if (!isUtf8(body)) return refuseEarly(request, response, new ValidationFailed({ message: "The body is not valid UTF-8." }))
        if (hasTooManyValues(body)) {
          return refuseEarly(request, response, new ValidationFailed({ message: `The body holds more than ${MAX_VALUES} values.` }))
        }
        request.body = body.toString("utf8")
        handle(request, response)
      })
    }

    const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      const id = requestIdFrom(request.headers["x-request-id"], ids)
      const path = pathOf(request.url ?? "/")
      if (path.toLowerCase() !== "/v1/ws") {
        refuse(socket, new NotFound({ message: isConsoleApi(path) ? NO_PATH : "This path has no WebSocket. The WebSocket is at /v1/ws." }), id)
      } else if (
        request.headers.origin !== undefined && allowOrigin(request.headers.origin) === "" &&
        !isOwnOrigin(config, request.headers.origin, request.headers.host)
      ) {
        refuse(socket, new Forbidden({ message: "This origin may not connect from a browser." }), id)
      } else {
        upgrades.upgrade(request, socket, head, id)
      }
    }

    const onClientError = (error: NodeJS.ErrnoException, socket: Duplex) => {
      // Node times out a connection without a byte after `headers` milliseconds.
      if (socket instanceof Socket && socket.bytesRead === 0) return void socket.destroy()
      // The unfinished response of this connection, which Node keeps on the socket.
      const current = (socket as Duplex & { readonly _httpMessage?: ServerResponse | null })._httpMessage
      if (error.code === "ECONNRESET" || !socket.writable || current?.headersSent === true) {
        socket.destroy()
        return
      }
      const id = current instanceof Answer ? current.requestId : requestIdFrom(undefined, ids)
      const [status, message] = error.code === "HPE_HEADER_OVERFLOW"
        ? [431, "The request line and headers are larger than 16 KiB."] as const
        : error.code === "ERR_HTTP_REQUEST_TIMEOUT"
        ? [408, "The request took too long to arrive."] as const
        : error.code === "HPE_CHUNK_EXTENSIONS_OVERFLOW"
        ? [413, "The chunk extensions are too large."] as const
        : [400, "This is not a valid HTTP request."] as const
      countRequest(undefined, status)
      refuse(socket, { code: status === 413 ? "PAYLOAD_TOO_LARGE" : "VALIDATION_ERROR", message, status }, id, undefined, current instanceof Answer ? current.refusalBody : undefined)
    }

    const server = createServer({
      IncomingMessage: Asked,
      ServerResponse: Answer,
      headersTimeout: patience.headers,
      requestTimeout: patience.request,
      keepAliveTimeout: patience.keepAlive,
      connectionsCheckingInterval: patience.check,
      maxHeaderSize: 16_384,
      requireHostHeader: false,
      // An upgrade to any other protocol is ignored: the request is served as plain HTTP/1.1.
      shouldUpgradeCallback: (request: IncomingMessage) => request.headers.upgrade?.toLowerCase() === "websocket"
    }, (request, response) => onRequest(request, response))
    // Without a timeout, a peer that stops reading would hold its connection and the unsent data for ever.
    server.timeout = patience.stalled
    server.maxHeadersCount = MAX_HEADERS
    server.on("checkContinue", (request, response) => onRequest(request, response, true))
    server.on("checkExpectation", (request, response) => {
      // A server may ignore an expectation, so outsiders get the same answer as without one.
      if (isConsoleApi(pathOf(request.url ?? "/"))) return onRequest(request, response)
      response.requestId = requestIdFrom(request.headers["x-request-id"], ids)
      response.refuse({ code: "VALIDATION_ERROR", message: "The only supported expectation is 100-continue.", status: 417 }, {
        connection: "close"
      })
    })
    server.on("upgrade", onUpgrade)
    server.on("connect", (request, socket) =>
      refuse(socket, new MethodNotAllowed(), requestIdFrom(request.headers["x-request-id"], ids)))
    server.on("clientError", onClientError)

    yield* ready
    stallGuard.listensOn("http")
    const connections = yield* clientConnections(config, patience.firstByte)
    connections.guardRequests(server)
    const stopListening = yield* listen(server, config)
    const { port } = server.address() as AddressInfo
    listensOn(config, port)
    server.on("error", (error) => log(Effect.logError("The HTTP server failed", error)))

    const beforeClosing = yield* BeforeClosing
    yield* Scope.addFinalizer(scope, Effect.gen(function*() {
      state.draining = true
      upgrades.turnAway()
      readiness.set("draining", "The server is shutting down.")
      // Gives load balancers time to see that this server is not ready before it refuses connections.
      yield* Effect.all([Effect.sleep(patience.linger), beforeClosing], { concurrency: 2 })
      stopListening()
      yield* Effect.suspend(() => {
        server.closeIdleConnections()
        return inFlight === 0 ? Effect.void : Effect.fail("busy")
      }).pipe(
        Effect.retry(every20Millis),
        Effect.timeoutOrElse({
          duration: patience.drain,
          orElse: () => Effect.logWarning(`The server stops with ${inFlight} requests unfinished`)
        })
      )
      yield* upgrades.drain
      yield* Scope.close(requestScope, Exit.void)
      server.closeAllConnections()
    }).pipe(Effect.ignore))

    return HttpServer.of({ port, url: config.PUBLIC_URL ?? listeningUrl(config) })
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
  Effect.updateContext(self, (context: Context.Context<R>): Context.Context<R> =>
    Context.makeUnsafe(new Map(Array.from(context.mapUnsafe).filter(([key]) => runtimeKeys.has(key)))))

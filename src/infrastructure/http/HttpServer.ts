import { Config, type Settings } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { countRequest, isProbe, refusals } from "#infrastructure/platform/Metrics"
import { listeningUrl, listensOn } from "#infrastructure/platform/PublicUrl"
import { Readiness } from "#infrastructure/platform/Readiness"
import { requestIdFrom } from "#infrastructure/platform/RequestId"
import { StallGuard } from "#infrastructure/platform/StallGuard"
import { LogVolume } from "#infrastructure/platform/Telemetry"
import {
  Forbidden,
  MethodNotAllowed,
  NotFound,
  PayloadTooLarge,
  Unavailable,
  UnsupportedEncoding,
  ValidationFailed,
  wireBody,
  type WireFailure
} from "#infrastructure/wire/WireError"
import { countFailures, refuse } from "#infrastructure/wire/WireErrors"
import { Context, Effect, Exit, Layer, Schedule, Scope } from "effect"
import { isUtf8 } from "node:buffer"
import { createServer, type IncomingMessage, type ServerResponse as NodeResponse } from "node:http"
import { type AddressInfo, Socket } from "node:net"
import type { Duplex } from "node:stream"
import { BufferedBytes } from "./BufferedBytes.ts"
import { addressKey, clientAddress } from "./ClientAddress.ts"
import { clientConnections } from "./Connections.ts"
import { listen } from "./Listening.ts"
import { apiOrigins, isOwnOrigin } from "./Origins.ts"
import type { Protocol } from "./Protocol.ts"
import { discard, hasBody, hasTooManyValues, isEncoded, MAX_VALUES, readBody } from "./RequestBody.ts"
import { decodedPath, isConsoleApi, makeRouting, NO_ENDPOINT, NO_PATH, pathOf } from "./Routing.ts"
import { ServerRequest } from "./ServerRequest.ts"
import { CORS_METHODS, CORS_REQUEST_HEADERS, ServerResponse } from "./ServerResponse.ts"
import { UpgradeHandler } from "./UpgradeHandler.ts"

/**
 * Time limits of the server, in milliseconds. `firstByte`, `headers`, `request`, `stalled` and `linger` come from
 * settings.
 */
export interface ServerTimeouts {
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

const timeoutsOf = (config: Settings): ServerTimeouts => {
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

/**
 * The code with which a probe is answered while the node is not ready (wire.md C.13). It does not count as a refusal.
 */
const NOT_READY = "NOT_READY"

/** Whether a route takes raw bytes of any content type, with a size limit of its own. */
const isRaw = (method: string | undefined, path: string): boolean =>
  method === "PUT" && (path.endsWith("/avatar") || path.startsWith("/v1/files/"))

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
 * `BeforeClosing` the port closes. Requests in flight then have `drain` milliseconds to finish. At last the open
 * WebSockets are closed, and requests that have not finished are interrupted. A commit that they wait for goes on
 * (`LAST_COMMITS`).
 */
export class HttpServer extends Context.Service<HttpServer, {
  readonly port: number
  /** Base of absolute URLs: PUBLIC_URL, or the address that the server listens on. */
  readonly url: string
}>()("parley/http/HttpServer") {
  /**
   * Builds `routes`, waits for `ready`, then listens. `protocols` are the protocols whose paths are not below `/v1`.
   */
  static readonly layer = <A, E, R, E2 = never, R2 = never>(
    routes: Layer.Layer<A, E, R>,
    { timeouts, protocols = () => [], ready = Effect.void }: {
      readonly timeouts?: Partial<ServerTimeouts>
      readonly protocols?: (config: Settings) => ReadonlyArray<Protocol>
      readonly ready?: Effect.Effect<unknown, E2, R2>
    } = {}
  ) =>
    Layer.effect(
      HttpServer,
      Effect.flatMap(
        Config,
        (config) => serve(routes, { ...timeoutsOf(config), ...timeouts }, protocols(config), ready)
      )
    )
}

const serve = <A, E, R, E2, R2>(
  routes: Layer.Layer<A, E, R>,
  timeouts: ServerTimeouts,
  protocols: ReadonlyArray<Protocol>,
  ready: Effect.Effect<unknown, E2, R2>
) =>
  Effect.gen(function*() {
    const config = yield* Config
    const ids = yield* Ids
    const upgrades = yield* UpgradeHandler
    const readiness = yield* Readiness
    const stallGuard = yield* StallGuard
    const held = yield* BufferedBytes
    const scope = yield* Effect.scope

    const protocolOf = (path: string): Protocol | undefined => protocols.find((protocol) => protocol.includes(path))
    const requestScope = yield* Scope.fork(scope, "parallel")
    const { handle, methodsOf, times } = yield* makeRouting(
      routes,
      config,
      requestScope,
      (path) => protocolOf(path)?.refusalBodyOf(path) ?? wireBody
    )

    const allowOrigin = apiOrigins(config)

    const volume = yield* LogVolume
    const context = yield* Effect.context<never>()
    const log = Effect.runForkWith(context)
    const addressOf = ({ headers, socket }: ServerRequest): string => {
      const forwarded = headers["x-forwarded-for"]
      return addressKey(
        clientAddress(socket.remoteAddress, typeof forwarded === "string" ? forwarded : undefined, config.TRUST_PROXY)
      )
    }
    const state = {
      draining: false,
      held,
      peerOf: (request: ServerRequest): string => request.agentId ?? addressOf(request)
    }
    countFailures((code) => {
      if (code !== NOT_READY) refusals.at("http", code).add()
    })
    let inFlight = 0
    function finished(this: ServerResponse) {
      inFlight--
      this.over()
      times.observe(this.req.method, this.path, performance.now() - this.began)
      if (!this.writableEnded) this.worker?.interruptUnsafe()
      const { refused } = this.req
      this.protocol?.ended?.({
        method: this.req.method,
        status: this.headersSent ? this.statusCode : undefined,
        isRefused: refused !== undefined,
        clientKind: this.clientKind
      })
      if (volume.level === "debug" && !isProbe(this.path)) {
        log(
          Effect.logDebug(refused === undefined ? "Answered" : "Refused").pipe(Effect.annotateLogs({
            request_id: this.requestId,
            method: this.req.method ?? "",
            path: pathOf(this.req.url ?? ""),
            status: this.statusCode,
            ...refused,
            ...(refused === undefined || this.clientKind === undefined
              ? {}
              : { host: this.clientKind, user_agent: this.req.userAgent ?? "" })
          }))
        )
      }
    }

    // Parsing a body of a megabyte with very many fields takes half a second, so each route takes only the size that it
    // needs.
    const sendBody = Math.min(config.LIMITS_BODY_BYTES, ESCAPED * config.LIMITS_MESSAGE_BYTES + PUBLIC_BODY)
    const publicBody = Math.min(config.LIMITS_BODY_BYTES, PUBLIC_BODY)
    const maxBodyOf = (path: string, protocol: Protocol | undefined): number =>
      path === "/v1/messages"
        ? sendBody
        : publicBodies.has(path) || protocol?.isPublic?.(path) === true
        ? publicBody
        : config.LIMITS_BODY_BYTES * (protocol?.bodyFactor ?? 1)

    /** The failure of the checks that need no route, or undefined if the request passes. */
    const refusal = (
      request: IncomingMessage,
      path: string,
      raw: boolean,
      maxBytes: number
    ): WireFailure | undefined => {
      if (request.headers.host === undefined && request.httpVersion === "1.1") {
        return new ValidationFailed({ message: "The Host header is missing." })
      }
      // This includes the query, because no text from a client may contain NUL.
      if (request.url?.includes("%00") === true) {
        return new ValidationFailed({ message: "The address contains a NUL character." })
      }
      if (decodedPath(path) === undefined)
        return new ValidationFailed({ message: "The path is not valid percent-encoded UTF-8." })
      if (hasBody(request) && isEncoded(request))
        return new UnsupportedEncoding()
      return !raw && Number(request.headers["content-length"]) > maxBytes ? new PayloadTooLarge() : undefined
    }

    /**
     * Refuses a request before its route. On the operators' API, the answer to everybody is the 404 of a path without
     * an endpoint.
     */
    const refuseEarly = (request: ServerRequest, response: ServerResponse, failure: WireFailure): void => {
      if (!isConsoleApi(response.path)) return response.refuse(failure)
      request.url = NO_ENDPOINT
      request.body = ""
      handle(request, response)
    }

    /**
     * Ends a connection in the middle of a packet. Otherwise Node would parse the rest of the packet and make a request
     * and a response for everything in it. Node's parser stops where `onIncoming` returns 2, which means that another
     * protocol follows.
     */
    const cut = (socket: Socket & { parser?: { onIncoming: unknown } | null }): void => {
      if (socket.parser) socket.parser.onIncoming = () => 2
      socket.destroy()
    }

    /** The number of responses of each connection that wait behind others. */
    const behind = new WeakMap<Socket, number>()
    /** Counts a response that waits behind others. Returns `false`, and cuts the connection, if too many wait. */
    const queueBehind = (response: ServerResponse): boolean => {
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

    const onRequest = (request: ServerRequest, response: ServerResponse, expectsContinue = false) => {
      if (response.socket === null && !queueBehind(response)) return
      inFlight++
      response.on("close", finished)
      const id = requestIdFrom(request.headers["x-request-id"], ids)
      request.headers["x-request-id"] = id
      response.requestId = id
      response.server = state
      response.began = performance.now()
      const path = response.path = pathOf(request.url ?? "/")
      const isApi = path.startsWith("/v1/") || path === "/v1"
      const protocol = isApi ? undefined : protocolOf(path)
      response.allowOrigin = isApi
        ? allowOrigin(request.headers.origin)
        : protocol?.cors?.allowOrigin(request.headers.origin)
      if (protocol !== undefined) response.isOf(protocol)
      if (request.method === "OPTIONS" && !isConsoleApi(path)) {
        request.resume()
        const methods = methodsOf(path)
        response.writeHead(204, {
          "allow": methods.length === 0 ? CORS_METHODS : methods.join(", "),
          ...(response.allowOrigin === undefined ? undefined : {
            "access-control-allow-methods": CORS_METHODS,
            "access-control-allow-headers": protocol?.cors?.requestHeaders ?? CORS_REQUEST_HEADERS,
            "access-control-max-age": "86400"
          })
        })
        response.end()
        return
      }
      const raw = isRaw(request.method, path)
      const maxBytes = maxBodyOf(path, protocol)
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
        if (!isUtf8(body))
          return refuseEarly(request, response, new ValidationFailed({ message: "The body is not valid UTF-8." }))
        if (hasTooManyValues(body)) {
          return refuseEarly(
            request,
            response,
            new ValidationFailed({ message: `The body contains more than ${MAX_VALUES} values.` })
          )
        }
        request.body = body.toString("utf8")
        handle(request, response)
      })
    }

    const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      const id = requestIdFrom(request.headers["x-request-id"], ids)
      const path = pathOf(request.url ?? "/")
      if (path.toLowerCase() !== "/v1/ws") {
        refuse(
          socket,
          new NotFound({
            message: isConsoleApi(path) ? NO_PATH : "This path has no WebSocket. The WebSocket is at /v1/ws."
          }),
          id
        )
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
      const current = (socket as Duplex & { readonly _httpMessage?: NodeResponse | null })._httpMessage
      if (error.code === "ECONNRESET" || !socket.writable || current?.headersSent === true) {
        socket.destroy()
        return
      }
      const id = current instanceof ServerResponse ? current.requestId : requestIdFrom(undefined, ids)
      const [status, message] = error.code === "HPE_HEADER_OVERFLOW"
        ? [431, "The request line and headers are larger than 16 KiB."] as const
        : error.code === "ERR_HTTP_REQUEST_TIMEOUT"
        ? [408, "The request took too long to arrive."] as const
        : error.code === "HPE_CHUNK_EXTENSIONS_OVERFLOW"
        ? [413, "The chunk extensions are too large."] as const
        : [400, "This is not a valid HTTP request."] as const
      countRequest(undefined, status)
      refuse(
        socket,
        { code: status === 413 ? "PAYLOAD_TOO_LARGE" : "VALIDATION_ERROR", message, status },
        id,
        undefined,
        current instanceof ServerResponse ? current.refusalBody : undefined
      )
    }

    const server = createServer({
      IncomingMessage: ServerRequest,
      ServerResponse,
      headersTimeout: timeouts.headers,
      requestTimeout: timeouts.request,
      keepAliveTimeout: timeouts.keepAlive,
      connectionsCheckingInterval: timeouts.check,
      maxHeaderSize: 16_384,
      requireHostHeader: false,
      // An upgrade to any other protocol is ignored: the request is served as plain HTTP/1.1.
      shouldUpgradeCallback: (request: IncomingMessage) => request.headers.upgrade?.toLowerCase() === "websocket"
    }, (request, response) => onRequest(request, response))
    // Without a timeout, a peer that stops reading would hold its connection and the unsent data for ever.
    server.timeout = timeouts.stalled
    server.maxHeadersCount = MAX_HEADERS
    server.on("checkContinue", (request, response) => onRequest(request, response, true))
    server.on("checkExpectation", (request, response) => {
      // A server may ignore an expectation, so outsiders get the same answer as without one.
      if (isConsoleApi(pathOf(request.url ?? "/"))) return onRequest(request, response)
      response.requestId = requestIdFrom(request.headers["x-request-id"], ids)
      response.refuse({
        code: "VALIDATION_ERROR",
        message: "The only supported expectation is 100-continue.",
        status: 417
      }, {
        connection: "close"
      })
    })
    server.on("upgrade", onUpgrade)
    server.on(
      "connect",
      (request, socket) => refuse(socket, new MethodNotAllowed(), requestIdFrom(request.headers["x-request-id"], ids))
    )
    server.on("clientError", onClientError)

    yield* ready
    stallGuard.listensOn("http")
    const connections = yield* clientConnections(config, timeouts.firstByte)
    connections.guardRequests(server)
    const stopListening = yield* listen(server, config)
    const { port } = server.address() as AddressInfo
    listensOn(config, port)
    server.on("error", (error) => log(Effect.logError("The HTTP server failed", error)))

    const beforeClosing = yield* BeforeClosing
    yield* Scope.addFinalizer(
      scope,
      Effect.gen(function*() {
        state.draining = true
        upgrades.turnAway()
        readiness.set("draining", "The server is shutting down.")
        // Gives load balancers time to see that this server is not ready before it refuses connections.
        yield* Effect.all([Effect.sleep(timeouts.linger), beforeClosing], { concurrency: 2 })
        stopListening()
        yield* Effect.suspend(() => {
          server.closeIdleConnections()
          return inFlight === 0 ? Effect.void : Effect.fail("busy")
        }).pipe(
          Effect.retry(every20Millis),
          Effect.timeoutOrElse({
            duration: timeouts.drain,
            orElse: () => Effect.logWarning(`The server stops with ${inFlight} requests unfinished`)
          })
        )
        yield* upgrades.drain
        yield* Scope.close(requestScope, Exit.void)
        server.closeAllConnections()
      }).pipe(Effect.ignore)
    )

    return HttpServer.of({ port, url: config.PUBLIC_URL ?? listeningUrl(config) })
  })

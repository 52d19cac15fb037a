import { countProbe, countRequest, refusals } from "#infrastructure/platform/Metrics"
import { wireBody, type WireFailure } from "#infrastructure/wire/WireError"
import { type Body, failureHeaders } from "#infrastructure/wire/WireErrors"
import type { HttpServerResponse } from "effect/http"
import * as Http from "node:http"
import type { Readable } from "node:stream"
import { type BufferAccount, type BufferEntry, progressOf, UNCOUNTED_BYTES } from "./BufferedBytes.ts"
import { CORS_RESPONSE_HEADERS } from "./Cors.ts"
import type { Protocol } from "./Protocol.ts"
import { rateHeaders } from "./RateHeaders.ts"
import { discard, hasBody } from "./RequestBody.ts"
import type { Found, KnownRoute } from "./RouteTable.ts"
import type { ServerRequest } from "./ServerRequest.ts"

/**
 * A text with more characters than this is converted into bytes outside of V8's heap before it is sent, because the
 * text may have to wait in memory for long.
 */
const LONG_TEXT = 65_536

/** How long a connection that closes after a response stays open for the rest of the request's body. */
const LINGER_MS = 5_000

/** The state that all responses of one server share. */
export interface Serving {
  readonly draining: boolean
  readonly held: BufferAccount
  /** Returns the agent of a request, or the key of its IP address. */
  readonly peerOf: (request: ServerRequest) => string
}

/**
 * A response that adds the headers of every response: the request id, and the CORS headers on paths that browsers may
 * call. The headers are added in `writeHead`, because every response passes through `writeHead`, and because headers
 * that are passed together cost less than headers that are set one by one.
 */
export class ServerResponse extends Http.ServerResponse<ServerRequest> {
  requestId = ""
  /** The value of Access-Control-Allow-Origin, or undefined if the header is not sent. */
  allowOrigin: string | undefined
  server: Serving | undefined
  /**
   * The entry of the unsent bytes in the account of held bytes, after there were more than `UNCOUNTED_BYTES` unsent
   * bytes.
   */
  #held: BufferEntry | undefined
  /** The entry of the request's body in the account. The body stays in memory until the response has been sent. */
  #heldBody: BufferEntry | undefined
  #bodyBytes = 0
  /** When the request arrived, from `performance.now()`. */
  began = 0
  /** The request's route; `undefined` if the request is refused before its route is looked up. */
  route: KnownRoute | undefined
  /**
   * The result of the look-up in the route table. It is dropped when the route runs, so that a response that waits for
   * long does not keep it in memory.
   */
  found: Found | undefined
  /** The stream that the response sends. Bytes that are waiting in the stream count as unsent. */
  source: Readable | undefined
  /** The kind of the program that sent the request, if the protocol distinguishes kinds. */
  clientKind: string | undefined
  /** Makes the body of a refusal. */
  refusalBody: Body = wireBody
  /**
   * The fiber or DeferredResponse that produces the response, if it does not finish in its first turn of the event
   * loop.
   */
  worker: { readonly interruptUnsafe: () => void } | undefined

  /** The protocol of the request's path; `undefined` on all paths without one. */
  get protocol(): Protocol | undefined {
    return this.route?.protocol
  }

  /**
   * Sets the route of the request, and the properties of the response that depend on the route. `path` is the path of
   * the request.
   */
  setRoute(found: Found, path: string): void {
    this.found = found
    this.route = found.handler
    const { protocol } = found.handler
    if (protocol === undefined) return
    this.refusalBody = protocol.refusalBodyOf?.(path) ?? wireBody
    this.clientKind = protocol.clientKindOf?.(this.req.userAgent)
    this.allowOrigin = protocol.cors?.allowOrigin(this.req.headers.origin)
  }

  override writeHead(status: number, reason?: unknown, headers?: unknown): this {
    const given = (typeof reason === "string" ? headers : headers ?? reason) as Http.OutgoingHttpHeaders | undefined
    const { limit } = this.req
    const all: Http.OutgoingHttpHeaders = limit === undefined ? { ...given } : { ...rateHeaders(limit), ...given }
    all["x-request-id"] = this.requestId
    if (this.allowOrigin !== undefined) {
      if (this.req.headers.origin !== undefined) {
        const more = this.protocol?.cors?.responseHeaders
        all["access-control-expose-headers"] = more === undefined
          ? CORS_RESPONSE_HEADERS
          : `${CORS_RESPONSE_HEADERS}, ${more}`
      }
      if (this.allowOrigin !== "") all["access-control-allow-origin"] = this.allowOrigin
      if (this.allowOrigin !== "*")
        all["vary"] = all["vary"] === undefined
          ? "Origin"
          : `${String(all["vary"])}, Origin`
    }
    if (this.server?.draining === true) all["connection"] = "close"
    super.writeHead(status, all)
    const probes = this.route?.probes
    if (probes !== undefined) countProbe(probes, status)
    else countRequest(this.req.method, status)
    return this
  }

  override write(chunk: unknown, encoding?: unknown, done?: unknown): boolean {
    const goesOn = super.write(chunk, encoding as BufferEncoding, done as () => void)
    this.#count()
    return goesOn
  }

  override end(chunk?: unknown, encoding?: unknown, done?: unknown): this {
    const body = typeof chunk === "string" && chunk.length > LONG_TEXT ? Buffer.from(chunk) : chunk
    this.req.reading?.encoded(typeof body === "string" || body instanceof Uint8Array ? body.length : 0)
    super.end(body, encoding as BufferEncoding, done as () => void)
    this.#count()
    return this
  }

  /**
   * Sends the whole body, whose length the head says. If Node is going to close the connection although the client still
   * sends its own body, the response ends when the client has sent that, or after `LINGER_MS`: if a connection is closed
   * while bytes on it are unread, the client may lose the response.
   */
  #finish(body?: string | Uint8Array): void {
    const { req } = this
    // Node sets this in `writeHead`: the connection closes after this response.
    const { _last: isLast } = this as unknown as { readonly _last: boolean }
    if (!isLast || !hasBody(req) || req.complete || req.destroyed || req.waitsToSend) return void this.end(body)
    if (body !== undefined) this.write(body)
    const finish = () => {
      clearTimeout(patience)
      if (!this.writableEnded) this.end()
    }
    const patience = setTimeout(finish, LINGER_MS)
    req.once("end", finish).once("close", finish)
    discard(req, 0, this.route?.maxBodyBytes ?? 0)
  }

  /**
   * Counts the bytes that the kernel has not taken. A response that waits behind another response of its connection has
   * no socket yet.
   */
  #count(): void {
    const { server } = this
    if (server === undefined) return
    // The entry is released once the response has drained. If the response fills up again, it needs a new entry.
    if (this.#held?.released === false) server.held.changed(this.#held)
    else if (this.writableLength > UNCOUNTED_BYTES || (this.socket === null && this.writableLength > 0)) {
      const { socket } = this.req
      this.#held = server.held.hold(server.peerOf(this.req), socket, {
        bytes: () => this.writableLength + (this.source?.readableLength ?? 0),
        progress: () => progressOf(socket),
        cut: () => {
          this.req.reading?.cut()
          socket.destroy()
        }
      })
    }
  }

  /** Counts the body of the request. `bytes` is how many bytes of the body are in memory. */
  receives(bytes: number): void {
    const { server } = this
    this.#bodyBytes = bytes
    if (server === undefined) return
    if (this.#heldBody?.released === false) server.held.changed(this.#heldBody)
    else if (bytes > UNCOUNTED_BYTES) {
      const { socket } = this.req
      this.#heldBody = server.held.hold(server.peerOf(this.req), socket, {
        bytes: () => this.#bodyBytes,
        progress: () => progressOf(socket),
        cut: () => void socket.destroy()
      })
    }
  }

  /** Must be called when the response has been sent, or its client has disconnected. Ends the accounting. */
  over(): void {
    if (this.#held !== undefined) this.server?.held.release(this.#held)
    if (this.#heldBody !== undefined) this.server?.held.release(this.#heldBody)
    this.req.isOver = true
    this.req.reading?.left()
    this.req.reading = undefined
  }

  /** Sends a response that has no body, or whose whole body is in memory. */
  whole({ body, headers, status }: HttpServerResponse.HttpServerResponse): void {
    this.strictContentLength = true
    this.writeHead(status, headers)
    if (body._tag === "Uint8Array") this.#finish(body.text ?? body.body)
    else this.#finish()
  }

  refuse(failure: WireFailure, headers?: Http.OutgoingHttpHeaders): void {
    refusals.at("http", failure.code).add()
    this.req.refused ??= { code: failure.code, why: failure.message }
    const body = JSON.stringify(this.refusalBody(failure))
    this.writeHead(failure.status, {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      ...failureHeaders(failure),
      ...headers
    })
    this.#finish(body)
  }

  /** Refuses the request, or closes the connection if the response has begun. */
  fail(failure: WireFailure): void {
    if (this.headersSent) this.destroy()
    else this.refuse(failure)
  }
}

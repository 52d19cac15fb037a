import type { HttpServerResponse } from "effect/http"
import { type OutgoingHttpHeaders, ServerResponse } from "node:http"
import { countRequest, refusals } from "../platform/Metrics.ts"
import { wireBody, type WireFailure } from "../wire/WireError.ts"
import { type Body, failureHeaders } from "../wire/WireErrors.ts"
import type { Asked } from "./Asked.ts"
import { rateHeaders } from "./RateHeaders.ts"

/** CORS: the headers and methods that browsers may send to `/v1/*`, and the headers that they may read (wire.md C.0). */
export const CORS_REQUEST_HEADERS =
  "Authorization, Content-Type, Idempotency-Key, X-AgentChat-Client, X-AgentChat-Client-Version, X-Request-Id"
/** The same for `/mcp`. */
export const MCP_REQUEST_HEADERS =
  "Authorization, Content-Type, Accept, Last-Event-ID, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, X-Request-Id"
const CORS_RESPONSE_HEADERS =
  "Retry-After, X-Backlog-Warning, Idempotent-Replay, X-Request-Id, Location, X-Next-Cursor, X-Total-Count"
export const CORS_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

/**
 * A response that adds the headers every response has: the request id, and on `/v1/*` the CORS headers. They are
 * added in `writeHead` because every response passes through it, and because headers passed to it together cost
 * less than headers set one by one.
 */
export class Answer extends ServerResponse<Asked> {
  requestId = ""
  /** The value of Access-Control-Allow-Origin; undefined where it is not sent. */
  allowOrigin: string | undefined
  server: { readonly draining: boolean } | undefined
  /** When its request had come in, as `performance.now()`, and the path of it as the router sees it. */
  began = 0
  path = ""
  /** How a refusal is written. */
  refusalBody: Body = wireBody
  /** What works on the response, where it outlives its first turn: a fiber, or a LateResponse. */
  worker: { readonly interruptUnsafe: () => void } | undefined

  override writeHead(status: number, reason?: unknown, headers?: unknown): this {
    const given = (typeof reason === "string" ? headers : headers ?? reason) as OutgoingHttpHeaders | undefined
    const { limit } = this.req
    const all: OutgoingHttpHeaders = limit === undefined ? { ...given } : { ...rateHeaders(limit), ...given }
    all["x-request-id"] = this.requestId
    if (this.allowOrigin !== undefined) {
      if (this.req.headers.origin !== undefined) all["access-control-expose-headers"] = CORS_RESPONSE_HEADERS
      if (this.allowOrigin !== "") all["access-control-allow-origin"] = this.allowOrigin
      if (this.allowOrigin !== "*") all["vary"] = all["vary"] === undefined ? "Origin" : `${String(all["vary"])}, Origin`
    }
    if (this.server?.draining === true) all["connection"] = "close"
    super.writeHead(status, all)
    countRequest(this.req.method, status)
    return this
  }

  /** Sends a response whose body is there, if it has one. */
  whole({ body, headers, status }: HttpServerResponse.HttpServerResponse): void {
    this.strictContentLength = true
    this.writeHead(status, headers)
    if (body._tag === "Uint8Array") this.end(body.text ?? body.body)
    else this.end()
  }

  refuse(failure: WireFailure, headers?: OutgoingHttpHeaders): void {
    refusals.at("http", failure.code).add()
    const body = JSON.stringify(this.refusalBody(failure))
    this.writeHead(failure.status, {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      ...failureHeaders(failure),
      ...headers
    })
    this.end(body)
  }

  /** Refuses, or breaks the connection off if the response has begun. */
  fail(failure: WireFailure): void {
    if (this.headersSent) this.destroy()
    else this.refuse(failure)
  }
}

import { type OutgoingHttpHeaders, ServerResponse } from "node:http"
import { countRequest } from "../platform/Telemetry.ts"
import { wireBody, type WireFailure } from "../wire/WireError.ts"
import { failureHeaders } from "../wire/WireErrors.ts"
import { answerHeadersOf } from "./AnswerHeaders.ts"

/** What a browser may send to, and read from, `/v1/*` (wire.md C.0). */
export const CORS_REQUEST_HEADERS =
  "Authorization, Content-Type, Idempotency-Key, X-AgentChat-Client, X-AgentChat-Client-Version, X-Request-Id"
const CORS_RESPONSE_HEADERS =
  "Retry-After, X-Backlog-Warning, Idempotent-Replay, X-Request-Id, Location, X-Next-Cursor, X-Total-Count"
export const CORS_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

/**
 * The answer to a request, which adds what every answer has: the request id, and
 * on `/v1/*` what browsers want to see. `writeHead` is the one way out for all of
 * them, and headers given to it at once are cheaper than headers set one by one.
 */
export class Answer extends ServerResponse {
  requestId = ""
  /** The value of Access-Control-Allow-Origin; undefined where it is not sent. */
  allowOrigin: string | undefined
  server: { readonly draining: boolean } | undefined

  override writeHead(status: number, reason?: unknown, headers?: unknown): this {
    const given = (typeof reason === "string" ? headers : headers ?? reason) as OutgoingHttpHeaders | undefined
    const all: OutgoingHttpHeaders = { ...answerHeadersOf(this.req), ...given, "x-request-id": this.requestId }
    if (this.allowOrigin !== undefined) {
      if (this.req.headers.origin !== undefined) all["access-control-expose-headers"] = CORS_RESPONSE_HEADERS
      if (this.allowOrigin !== "") all["access-control-allow-origin"] = this.allowOrigin
      if (this.allowOrigin !== "*") all["vary"] = all["vary"] === undefined ? "Origin" : `${String(all["vary"])}, Origin`
    }
    if (this.server?.draining === true) all["connection"] = "close"
    countRequest(this.req.method, status)
    return super.writeHead(status, all)
  }

  refuse(failure: WireFailure, headers?: OutgoingHttpHeaders): void {
    const body = JSON.stringify(wireBody(failure))
    this.writeHead(failure.status, {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      ...failureHeaders(failure),
      ...headers
    })
    this.end(body)
  }
}

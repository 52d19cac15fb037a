import { Cause, Effect, Layer, SchemaIssue } from "effect"
import { HttpServerError, HttpServerResponse } from "effect/http"
import { HttpApiError, HttpApiMiddleware } from "effect/http-api"
import { SqlError } from "effect/sql"
import { STATUS_CODES } from "node:http"
import type { Duplex } from "node:stream"
import {
  commonErrors,
  InternalError,
  isWireFailure,
  NotFound,
  PayloadTooLarge,
  Unavailable,
  ValidationFailed,
  wireBody,
  type WireFailure
} from "./WireError.ts"

/** Returns the response headers that a failure needs. */
export const failureHeaders = (failure: WireFailure): Record<string, string> => {
  const headers: Record<string, string> = {}
  if (failure.status === 401) headers["www-authenticate"] = "Bearer"
  // RFC 9110, 15.5.16: this header lists the content codings that the server accepts.
  if (failure.status === 415) headers["accept-encoding"] = "identity"
  if (failure.status === 426) {
    headers["upgrade"] = "websocket"
    headers["connection"] = "upgrade"
  }
  if (failure.retryAfterMs !== undefined) {
    headers["retry-after"] = String(Math.max(1, Math.ceil(failure.retryAfterMs / 1000)))
  }
  return headers
}

let count = (_code: string): void => {}
/** Sets the function that counts failures. It is called with the code of every failure that becomes a response. */
export const countFailures = (counter: (code: string) => void): void => {
  count = counter
}

/** Makes the response body for a failure. */
export type Body = (failure: WireFailure) => object

/** Makes the HTTP response for a failure: its status, body and headers. */
export const toResponse = (
  failure: WireFailure,
  extra?: Record<string, string>,
  body: Body = wireBody
): HttpServerResponse.HttpServerResponse => {
  count(failure.code)
  return HttpServerResponse.jsonUnsafe(body(failure), {
    status: failure.status,
    headers: { ...failureHeaders(failure), ...extra }
  })
}

/**
 * Writes the response for a failure to a raw connection, and ends the connection. It responds to refused upgrades, and
 * to bytes that are not an HTTP request.
 */
export const refuse = (
  socket: Duplex,
  failure: WireFailure,
  requestId: string,
  extra?: Record<string, string>,
  written: Body = wireBody
): void => {
  if (!socket.writable) {
    socket.destroy()
    return
  }
  count(failure.code)
  const body = JSON.stringify(written(failure))
  const headers = {
    ...failureHeaders(failure),
    ...extra,
    "content-type": "application/json",
    "content-length": String(Buffer.byteLength(body)),
    "x-request-id": requestId,
    "connection": failure.status === 426 ? "upgrade, close" : "close"
  }
  let head = `HTTP/1.1 ${failure.status} ${STATUS_CODES[failure.status] ?? "Refused"}\r\n`
  for (const [name, value] of Object.entries(headers)) head += `${name}: ${value}\r\n`
  socket.on("error", () => {})
  socket.end(`${head}\r\n${body}`)
  // A peer that does not close its side must not keep the connection open.
  const timer = setTimeout(() => socket.destroy(), 1000)
  timer.unref()
  socket.once("close", () => clearTimeout(timer))
}

/**
 * Maps a failure or a defect to a wire error (wire.md C.0, Error body). It is the only place that does this. Undefined
 * means that the response is a 500.
 */
export const toWireFailure = (error: unknown): WireFailure | undefined => {
  if (isWireFailure(error)) return error
  if (HttpApiError.HttpApiSchemaError.is(error)) {
    return error.kind === "Body" || error.kind === "ResponseHeaders" ? undefined : invalidRequest(error)
  }
  if (HttpServerError.isHttpServerError(error)) {
    switch (error.reason._tag) {
      case "RouteNotFound":
        return new NotFound({ message: "This API has no such path." })
      case "RequestParseError":
        return error.reason.reason === "BodyTooLarge"
          ? new PayloadTooLarge()
          : new ValidationFailed({ message: "The body could not be read." })
      default:
        return undefined
    }
  }
  if (SqlError.isSqlError(error)) return isStatementDefect(error) ? undefined : new Unavailable()
  return undefined
}

/**
 * Whether the database rejected a statement as invalid or not permitted. The cause is a fault in the server, or a wrong
 * schema or role. A retry does not help.
 */
export const isStatementDefect = ({ reason }: SqlError.SqlError): boolean =>
  reason._tag === "SqlSyntaxError" || reason._tag === "AuthorizationError"

const invalidRequest = (error: HttpApiError.HttpApiSchemaError): ValidationFailed =>
  invalid(error.cause.issue, error.kind.toLowerCase())

/** Makes the failure for a value that its schema refuses. `whole` is the name of the value in the message. */
export const invalid = (found: SchemaIssue.Issue, whole: string): ValidationFailed => {
  const fields: Record<string, Array<string>> = {}
  for (const issue of formatIssues(found).issues) {
    const path = (issue.path ?? []).map((step) => String(typeof step === "object" ? step.key : step)).join(".")
    ;(fields[path === "" ? whole : path] ??= []).push(issue.message)
  }
  const [first] = Object.entries(fields)
  return new ValidationFailed({
    message: first === undefined ? "The request is not valid." : `${first[0]}: ${first[1][0]}`,
    details: { fields }
  })
}

const formatIssues = SchemaIssue.makeFormatterStandardSchemaV1()

/** Turns every failure of a route into its documented response. It is the outermost middleware of its endpoints. */
export class WireErrors extends HttpApiMiddleware.Service<WireErrors>()("parley/wire/WireErrors", {
  error: commonErrors
}) {
  static readonly layer = Layer.succeed(
    WireErrors,
    (httpEffect) => Effect.catchCause(httpEffect, (cause) => answer(cause))
  )
}

/**
 * Makes the response for a cause. Errors of the database are logged and become a 503. Failures and defects that map to
 * no wire error are logged and become a 500.
 */
export const answer = (
  cause: Cause.Cause<unknown>,
  body: Body = wireBody
): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  const write = (failure: WireFailure) => toResponse(failure, undefined, body)
  for (const reason of cause.reasons) {
    if (Cause.isInterruptReason(reason)) continue
    const error = Cause.isFailReason(reason) ? reason.error : reason.defect
    const failure = toWireFailure(error)
    if (failure === undefined) continue
    const response = Effect.succeed(write(failure))
    return failure.status < 500 || isWireFailure(error)
      ? response
      : Effect.andThen(Effect.logWarning("A statement failed, and its request got 503", cause), response)
  }
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(write(new Unavailable()))
  return Effect.as(Effect.logError("A request failed", cause), write(new InternalError()))
}

import { Cause, Effect, Layer, SchemaIssue } from "effect"
import { HttpServerError, HttpServerResponse } from "effect/http"
import { HttpApiError, HttpApiMiddleware } from "effect/http-api"
import { SqlError } from "effect/sql"
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

/** The answer that a failure becomes: its status, its exact body, and the headers that go with it. */
export const toResponse = (failure: WireFailure): HttpServerResponse.HttpServerResponse => {
  const headers: Record<string, string> = {}
  if (failure.status === 401) headers["www-authenticate"] = "Bearer"
  if (failure.status === 405) headers["allow"] = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
  if (failure.retryAfterMs !== undefined) {
    headers["retry-after"] = String(Math.max(1, Math.ceil(failure.retryAfterMs / 1000)))
  }
  return HttpServerResponse.jsonUnsafe(wireBody(failure), { status: failure.status, headers })
}

/** The one place where any failure or defect becomes what the wire knows (wire.md C.0, Error body). */
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
  if (SqlError.isSqlError(error)) return new Unavailable()
  return undefined
}

const invalidRequest = (error: HttpApiError.HttpApiSchemaError): ValidationFailed => {
  const fields: Record<string, Array<string>> = {}
  for (const issue of formatIssues(error.cause.issue).issues) {
    const path = (issue.path ?? []).map((step) => String(typeof step === "object" ? step.key : step)).join(".")
    ;(fields[path === "" ? error.kind.toLowerCase() : path] ??= []).push(issue.message)
  }
  const [first] = Object.entries(fields)
  return new ValidationFailed({
    message: first === undefined ? "The request is not valid." : `${first[0]}: ${first[1][0]}`,
    details: { fields }
  })
}

const formatIssues = SchemaIssue.makeFormatterStandardSchemaV1()

/** Turns whatever a route fails with into its documented answer; the outermost middleware of every route. */
export class WireErrors extends HttpApiMiddleware.Service<WireErrors>()("parley/platform/WireErrors", {
  error: commonErrors
}) {
  static readonly layer = Layer.succeed(WireErrors, (httpEffect) => Effect.catchCause(httpEffect, answer))
}

/** Answers with the failure's own response; what nobody expected is logged and becomes a 500. */
export const answer = (cause: Cause.Cause<unknown>): Effect.Effect<HttpServerResponse.HttpServerResponse> => {
  for (const reason of cause.reasons) {
    const failure = Cause.isFailReason(reason)
      ? toWireFailure(reason.error)
      : Cause.isDieReason(reason)
      ? toWireFailure(reason.defect)
      : undefined
    if (failure !== undefined) return Effect.succeed(toResponse(failure))
  }
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(toResponse(new Unavailable()))
  return Effect.as(Effect.logError("A request failed", cause), toResponse(new InternalError()))
}

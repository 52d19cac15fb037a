import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import type { RpcId } from "#ground/wire/A2aErrors"
import { InternalError, isWireFailure, type WireFailure } from "#ground/wire/WireError"
import { failureHeaders } from "#ground/wire/WireErrors"
import { A2aFailure, type Failure, isOfRequest, restError, rpcError, statusOf } from "./Failure.ts"

const headersOf = (failure: Failure): Record<string, string> =>
  failureHeaders({
    code: "",
    message: "",
    status: statusOf(failure),
    retryAfterMs: failure instanceof A2aFailure ? undefined : failure.retryAfterMs
  } satisfies WireFailure)

/** The content type of the HTTP+JSON binding. */
export const REST_TYPE = "application/a2a+json"

export const json = (body: object, status: number, contentType: string, headers: Record<string, string> = {}) =>
  HttpServerResponse.text(JSON.stringify(body), { status, contentType, headers })

/** The answer to a refusal over JSON-RPC. Its status is 200, unless the error is about the HTTP request itself. */
export const rpcRefusal = (failure: Failure, id: RpcId) =>
  json(rpcError(failure, id), isOfRequest(failure) ? statusOf(failure) : 200, "application/json", headersOf(failure))

/** The answer to a refusal over HTTP+JSON. */
export const restRefusal = (failure: Failure) => json(restError(failure), statusOf(failure), REST_TYPE, headersOf(failure))

/** Answers a failure with `refusal`. A defect is logged and answered as an internal error. */
export const refusing = <R>(
  effect: Effect.Effect<HttpServerResponse.HttpServerResponse, Failure, R>,
  refusal: (failure: Failure) => HttpServerResponse.HttpServerResponse
) =>
  effect.pipe(
    Effect.catch((failure) => Effect.succeed(refusal(failure))),
    Effect.catchDefect((defect) =>
      isWireFailure(defect)
        ? Effect.succeed(refusal(defect))
        : Effect.as(Effect.logError("A request of /a2a failed", defect), refusal(new InternalError())))
  )

import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { A2A_DOMAIN, a2aRestBody, a2aRpcBody, type A2aShown, ERROR_INFO, RPC, type RpcId } from "./A2aErrors.ts"
import { InternalError, isWireFailure, type WireFailure } from "#ground/wire/WireError"
import { failureHeaders } from "#ground/wire/WireErrors"

/** An error of the protocol (its specification, 3.3.2 and 5.4): JSON-RPC's code, the HTTP status and its gRPC name. */
interface Kind {
  readonly code: number
  readonly status: number
  readonly name: string
}

const kinds = {
  TASK_NOT_FOUND: { code: -32_001, status: 404, name: "NOT_FOUND" },
  TASK_NOT_CANCELABLE: { code: -32_002, status: 400, name: "FAILED_PRECONDITION" },
  UNSUPPORTED_OPERATION: { code: -32_004, status: 400, name: "FAILED_PRECONDITION" },
  CONTENT_TYPE_NOT_SUPPORTED: { code: -32_005, status: 400, name: "INVALID_ARGUMENT" },
  VERSION_NOT_SUPPORTED: { code: -32_009, status: 400, name: "FAILED_PRECONDITION" },
  INVALID_PARAMS: { code: RPC.invalidParams, status: 400, name: "INVALID_ARGUMENT" },
  METHOD_NOT_FOUND: { code: -32_601, status: 404, name: "NOT_FOUND" },
  INVALID_REQUEST: { code: -32_600, status: 400, name: "INVALID_ARGUMENT" },
  PARSE_ERROR: { code: -32_700, status: 400, name: "INVALID_ARGUMENT" }
} as const satisfies Record<string, Kind>

export type Reason = keyof typeof kinds

/** A refusal for which the protocol has an error of its own. */
export class A2aFailure {
  readonly _tag = "A2aFailure"
  readonly reason: Reason
  readonly message: string
  readonly metadata: Readonly<Record<string, string>>

  constructor(reason: Reason, message: string, metadata: Readonly<Record<string, string>> = {}) {
    this.reason = reason
    this.message = message
    this.metadata = metadata
  }
}

export const pushConfigNotFound = () => new A2aFailure("TASK_NOT_FOUND", "The task has no such push notification configuration.")

export const taskNotFound = () => new A2aFailure("TASK_NOT_FOUND", "You have no such task with this agent.")

/** Why a request is refused: with an error of the protocol, or with a code of the wire. */
export type Failure = A2aFailure | A2aShown

const statusOf = (failure: Failure): number =>
  failure instanceof A2aFailure ? kinds[failure.reason].status : failure.status ?? 400

const infoOf = ({ metadata, reason }: A2aFailure) =>
  ({ "@type": ERROR_INFO, reason, domain: A2A_DOMAIN, metadata: { code: reason, ...metadata } })

const rpcError = (failure: Failure, id: RpcId): object =>
  failure instanceof A2aFailure
    ? { jsonrpc: "2.0", error: { code: kinds[failure.reason].code, message: failure.message, data: [infoOf(failure)] }, id }
    : a2aRpcBody(failure, id)

/** The body of an error over HTTP+JSON. */
const restError = (failure: Failure): object => {
  if (!(failure instanceof A2aFailure)) return a2aRestBody(failure)
  const { name, status } = kinds[failure.reason]
  return { error: { code: status, status: name, message: failure.message, details: [infoOf(failure)] } }
}

/** Whether JSON-RPC answers a failure with its HTTP status, because the failure is about the HTTP request and not about the method. */
const isOfRequest = (failure: Failure): boolean => {
  const status = statusOf(failure)
  return !(failure instanceof A2aFailure) && (status === 401 || status === 413 || status === 429 || status >= 500)
}

const headersOf = (failure: Failure): Record<string, string> =>
  failureHeaders({
    code: "",
    message: "",
    status: statusOf(failure),
    retryAfterMs: failure instanceof A2aFailure ? undefined : failure.retryAfterMs
  } satisfies WireFailure)

/** The content type of the HTTP+JSON binding. */
export const REST_TYPE = "application/a2a+json"

/** A response with a JSON body. */
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

/** Whether an error is a refusal that a parser of requests has thrown. Any other error is a defect. */
export const isThrown = (error: unknown): error is A2aFailure | WireFailure => error instanceof A2aFailure || isWireFailure(error)

import { InternalError, isWireFailure, type WireFailure } from "#infrastructure/wire/WireError"
import { failureHeaders } from "#infrastructure/wire/WireErrors"
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"

/** The parts of a failure that an A2A error shows. */
export type A2aShown = Pick<WireFailure, "code" | "message" | "details"> & {
  readonly status?: number
  readonly retryAfterMs?: number | undefined
}

/** JSON-RPC's error codes. `refused` is for failures for which JSON-RPC defines no code. */
export const RPC = { refused: -32_000, invalidParams: -32_602, internal: -32_603 } as const

export const ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
export const A2A_DOMAIN = "a2a-protocol.org"

/** The names of gRPC's status codes by HTTP status, for the field `status` of an HTTP+JSON error. */
const NAMES: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  405: "UNIMPLEMENTED",
  408: "DEADLINE_EXCEEDED",
  409: "FAILED_PRECONDITION",
  413: "INVALID_ARGUMENT",
  415: "INVALID_ARGUMENT",
  429: "RESOURCE_EXHAUSTED",
  503: "UNAVAILABLE"
}

const shownStatus = ({ status }: A2aShown): number => status ?? 400

/** A failure as google.rpc.ErrorInfo. Its metadata values must be strings. */
const wireInfoOf = (failure: A2aShown): object => {
  const metadata = {
    code: failure.code,
    ...(failure.retryAfterMs === undefined ? {} : { retry_after_ms: String(Math.ceil(failure.retryAfterMs)) }),
    ...(failure.details === undefined ? {} : { details: JSON.stringify(failure.details) })
  }
  return failure.code === "VALIDATION_ERROR"
    ? { "@type": ERROR_INFO, reason: "INVALID_PARAMS", domain: A2A_DOMAIN, metadata }
    : { "@type": ERROR_INFO, reason: failure.code, domain: "parley", metadata }
}

const rpcCode = (failure: A2aShown): number =>
  failure.code === "VALIDATION_ERROR" ? RPC.invalidParams : shownStatus(failure) >= 500 ? RPC.internal : RPC.refused

export type RpcId = string | number | null

/** The body of a JSON-RPC error below `/a2a` (wire.md N, Errors). */
export const a2aRpcBody = (failure: A2aShown, id: RpcId = null): object => ({
  jsonrpc: "2.0",
  error: { code: rpcCode(failure), message: failure.message, data: [wireInfoOf(failure)] },
  id
})

/** The body of an error over HTTP+JSON, a google.rpc.Status (A2A's specification, 11.6). */
export const a2aRestBody = (failure: A2aShown): object => {
  const code = shownStatus(failure)
  return {
    error: { code, status: NAMES[code] ?? "INTERNAL", message: failure.message, details: [wireInfoOf(failure)] }
  }
}

/**
 * A kind of error that A2A defines (A2A's specification, 3.3.2 and 5.4), with its JSON-RPC code, HTTP status and gRPC
 * name.
 */
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

/** A refusal for which A2A defines an error. */
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

export const pushConfigNotFound = () =>
  new A2aFailure("TASK_NOT_FOUND", "The task has no such push notification configuration.")

export const taskNotFound = () => new A2aFailure("TASK_NOT_FOUND", "You have no such task with this agent.")

/** Why a request is refused: an error that A2A defines, or an error with a code of this server's API. */
export type Failure = A2aFailure | A2aShown

const statusOf = (failure: Failure): number =>
  failure instanceof A2aFailure ? kinds[failure.reason].status : failure.status ?? 400

const infoOf = ({ metadata, reason }: A2aFailure) => ({
  "@type": ERROR_INFO,
  reason,
  domain: A2A_DOMAIN,
  metadata: { code: reason, ...metadata }
})

const rpcError = (failure: Failure, id: RpcId): object =>
  failure instanceof A2aFailure
    ? {
      jsonrpc: "2.0",
      error: { code: kinds[failure.reason].code, message: failure.message, data: [infoOf(failure)] },
      id
    }
    : a2aRpcBody(failure, id)

/** The body of an error over HTTP+JSON. */
const restError = (failure: Failure): object => {
  if (!(failure instanceof A2aFailure)) return a2aRestBody(failure)
  const { name, status } = kinds[failure.reason]
  return { error: { code: status, status: name, message: failure.message, details: [infoOf(failure)] } }
}

/**
 * Whether a JSON-RPC response gets the failure's HTTP status instead of 200, because the failure concerns the HTTP
 * request and not the method.
 */
const isOfRequest = (failure: Failure): boolean => {
  const status = statusOf(failure)
  return !(failure instanceof A2aFailure) &&
    (status === 401 || status === 413 || status === 415 || status === 429 || status >= 500)
}

const headersOf = (failure: Failure): Record<string, string> =>
  failureHeaders(
    {
      code: "",
      message: "",
      status: statusOf(failure),
      retryAfterMs: failure instanceof A2aFailure ? undefined : failure.retryAfterMs
    } satisfies WireFailure
  )

/** The content type of the HTTP+JSON binding. */
export const REST_TYPE = "application/a2a+json"

/** A response with a JSON body. */
export const json = (body: object, status: number, contentType: string, headers: Record<string, string> = {}) =>
  HttpServerResponse.text(JSON.stringify(body), { status, contentType, headers })

/** The response for a refusal over JSON-RPC. Its status is 200, unless the error is about the HTTP request itself. */
export const rpcRefusal = (failure: Failure, id: RpcId) =>
  json(rpcError(failure, id), isOfRequest(failure) ? statusOf(failure) : 200, "application/json", headersOf(failure))

/** The response for a refusal over HTTP+JSON. */
export const restRefusal = (failure: Failure) =>
  json(restError(failure), statusOf(failure), REST_TYPE, headersOf(failure))

/** Turns a failure into a response with `refusal`. Logs a defect and responds with an internal error. */
export const refusing = <R>(
  effect: Effect.Effect<HttpServerResponse.HttpServerResponse, Failure, R>,
  refusal: (failure: Failure) => HttpServerResponse.HttpServerResponse
) =>
  effect.pipe(
    Effect.catch((failure) => Effect.succeed(refusal(failure))),
    Effect.catchDefect((defect) =>
      isWireFailure(defect)
        ? Effect.succeed(refusal(defect))
        : Effect.as(Effect.logError("A request of /a2a failed", defect), refusal(new InternalError()))
    )
  )

/** Whether an error is a refusal that a request parser has thrown. Any other error is a defect. */
export const isThrown = (error: unknown): error is A2aFailure | WireFailure =>
  error instanceof A2aFailure || isWireFailure(error)

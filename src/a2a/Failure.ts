import { isWireFailure, type WireFailure } from "../wire/WireError.ts"

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
  INVALID_PARAMS: { code: -32_602, status: 400, name: "INVALID_ARGUMENT" },
  METHOD_NOT_FOUND: { code: -32_601, status: 404, name: "NOT_FOUND" },
  INVALID_REQUEST: { code: -32_600, status: 400, name: "INVALID_ARGUMENT" },
  PARSE_ERROR: { code: -32_700, status: 400, name: "INVALID_ARGUMENT" }
} as const satisfies Record<string, Kind>

export type Reason = keyof typeof kinds

/** A refusal in the protocol's own words. */
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

/** A refusal by the API has the wire's code; JSON-RPC's code for what the protocol has none for is -32000. */
export type Failure = A2aFailure | Pick<WireFailure, "code" | "message" | "details"> & {
  readonly status?: number
  readonly retryAfterMs?: number | undefined
}

const REFUSED = -32_000
const INTERNAL = -32_603
const INFO = "type.googleapis.com/google.rpc.ErrorInfo"
const DOMAIN = "a2a-protocol.org"

/** gRPC's names of HTTP statuses, in which HTTP+JSON says what kind of error it is. */
const NAMES: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  405: "UNIMPLEMENTED",
  409: "FAILED_PRECONDITION",
  413: "INVALID_ARGUMENT",
  429: "RESOURCE_EXHAUSTED",
  503: "UNAVAILABLE"
}

export const statusOf = (failure: Failure): number =>
  failure instanceof A2aFailure ? kinds[failure.reason].status : failure.status ?? 400

/** Details as ErrorInfo carries them: texts only. */
const info = (failure: Failure) => {
  if (failure instanceof A2aFailure) {
    return { "@type": INFO, reason: failure.reason, domain: DOMAIN, metadata: { code: failure.reason, ...failure.metadata } }
  }
  const metadata = {
    code: failure.code,
    ...(failure.retryAfterMs === undefined ? {} : { retry_after_ms: String(Math.ceil(failure.retryAfterMs)) }),
    ...(failure.details === undefined ? {} : { details: JSON.stringify(failure.details) })
  }
  return failure.code === "VALIDATION_ERROR"
    ? { "@type": INFO, reason: "INVALID_PARAMS", domain: DOMAIN, metadata }
    : { "@type": INFO, reason: failure.code, domain: "parley", metadata }
}

const rpcCode = (failure: Failure): number =>
  failure instanceof A2aFailure
    ? kinds[failure.reason].code
    : failure.code === "VALIDATION_ERROR"
    ? kinds.INVALID_PARAMS.code
    : statusOf(failure) >= 500
    ? INTERNAL
    : REFUSED

export type RpcId = string | number | null

export const rpcError = (failure: Failure, id: RpcId): object => ({
  jsonrpc: "2.0",
  error: { code: rpcCode(failure), message: failure.message, data: [info(failure)] },
  id
})

/** The body of an error over HTTP+JSON: google.rpc.Status (the specification, 11.6). */
export const restError = (failure: Failure): object => {
  const code = statusOf(failure)
  return {
    error: {
      code,
      status: failure instanceof A2aFailure ? kinds[failure.reason].name : NAMES[code] ?? "INTERNAL",
      message: failure.message,
      details: [info(failure)]
    }
  }
}

/** Whether JSON-RPC answers it with its HTTP status, because it is about the request and not about its method. */
export const isOfRequest = (failure: Failure): boolean => {
  const status = statusOf(failure)
  return !(failure instanceof A2aFailure) && (status === 401 || status === 413 || status === 429 || status >= 500)
}

/** What a parser of requests throws on purpose. */
export const isThrown = (error: unknown): error is A2aFailure | WireFailure => error instanceof A2aFailure || isWireFailure(error)

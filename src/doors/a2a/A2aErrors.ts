import type { WireFailure } from "#ground/wire/WireError"

/** The parts of a failure that an A2A error shows. */
export type A2aShown = Pick<WireFailure, "code" | "message" | "details"> & {
  readonly status?: number
  readonly retryAfterMs?: number | undefined
}

/** JSON-RPC's error codes. `refused` is for failures that JSON-RPC has no code for. */
export const RPC = { refused: -32_000, invalidParams: -32_602, internal: -32_603 } as const

export const ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
export const A2A_DOMAIN = "a2a-protocol.org"

/** gRPC's names of HTTP statuses, for the field `status` of an HTTP+JSON error. */
const NAMES: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "NOT_FOUND",
  405: "UNIMPLEMENTED",
  408: "DEADLINE_EXCEEDED",
  409: "FAILED_PRECONDITION",
  413: "INVALID_ARGUMENT",
  429: "RESOURCE_EXHAUSTED",
  503: "UNAVAILABLE"
}

const statusOf = ({ status }: A2aShown): number => status ?? 400

/** A failure as google.rpc.ErrorInfo, whose metadata values must be texts. */
const infoOf = (failure: A2aShown): object => {
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
  failure.code === "VALIDATION_ERROR" ? RPC.invalidParams : statusOf(failure) >= 500 ? RPC.internal : RPC.refused

export type RpcId = string | number | null

/** An error of JSON-RPC below `/a2a` (wire.md N, Errors). */
export const a2aRpcBody = (failure: A2aShown, id: RpcId = null): object => ({
  jsonrpc: "2.0",
  error: { code: rpcCode(failure), message: failure.message, data: [infoOf(failure)] },
  id
})

/** An error of A2A's HTTP+JSON binding: google.rpc.Status (A2A's specification, 11.6). */
export const a2aRestBody = (failure: A2aShown): object => {
  const code = statusOf(failure)
  return { error: { code, status: NAMES[code] ?? "INTERNAL", message: failure.message, details: [infoOf(failure)] } }
}

import type { Refusal } from "#domain/auth/ApiCalls"
import { ServerRequest } from "#infrastructure/http/ServerRequest"
import type { WireFailure } from "#infrastructure/wire/WireError"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { rpcBody } from "./McpProtocol.ts"

/** JSON-RPC's code for a body that is not JSON. */
export const PARSE_ERROR = -32_700
/** JSON-RPC's code for JSON that is not a message of the protocol. */
export const INVALID_REQUEST = -32_600
/** JSON-RPC's code for a method that the server does not have. */
export const METHOD_NOT_FOUND = -32_601
/** JSON-RPC's code for parameters that are invalid. */
export const INVALID_PARAMS = -32_602
/** The server's code for a protocol revision that it does not support. */
export const UNSUPPORTED = -32_000

type Id = string | number | null

/** Returns the id of a client's message, or null if the message has none. */
export const idOf = (message: unknown): Id => {
  const id = (message as { readonly id?: unknown } | null)?.id
  return typeof id === "string" || typeof id === "number" ? id : null
}

/** Records why a request, or a tool call in it, is refused, for the log line of the request. */
export type Note = (refusal: Pick<Refusal, "code" | "message">) => void

/**
 * Makes a function that keeps a reference only to `source`, which lives as long as a wait anyway, and not to the whole
 * request.
 */
export const noteOf = ({ source }: HttpServerRequest.HttpServerRequest): Note => {
  const asked = source instanceof ServerRequest ? source : undefined
  return ({ code, message }) => {
    if (asked !== undefined) asked.refused ??= { code, why: message }
  }
}

/** Records a JSON-RPC error for the log, if the message is one. */
export const noteError = (message: unknown, note: Note): void => {
  const error = (message as { readonly error?: { readonly code: number; readonly message: string } } | null)?.error
  if (error !== undefined) note({ code: String(error.code), message: error.message })
}

/** Makes the response with a JSON-RPC error, and records the error for the log. */
export const rpcError = (status: number, code: number, message: string, note: Note, id: Id = null) => {
  const body = { jsonrpc: "2.0", error: { code, message }, id }
  noteError(body, note)
  return HttpServerResponse.jsonUnsafe(body, { status })
}

/** Makes the body for a request that is refused before it reaches the protocol, and records the refusal for the log. */
export const refusalBody = (note: Note, id: Id = null) => (failure: WireFailure) => {
  note(failure)
  return rpcBody(failure, id)
}

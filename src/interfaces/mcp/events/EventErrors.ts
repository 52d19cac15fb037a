import { Data } from "effect"
import { INVALID_PARAMS } from "../JsonRpc.ts"

/**
 * The codes of the extension. The draft of the specification contains other, provisional codes (−32023 to −32027).
 * Released clients know the codes here (wire.md Q).
 */
const CODES = {
  notFound: -32_011,
  forbidden: -32_012,
  resourceExhausted: -32_013,
  unsupported: -32_014,
  callback: -32_015
}
const INTERNAL_ERROR = -32_603

/** The reasons why a callback URL is refused or a delivery failed. They reveal nothing of the content of a response. */
export type CallbackReason =
  | "connection_refused"
  | "timeout"
  | "tls_error"
  | "http_4xx"
  | "http_5xx"
  | "challenge_failed"

/** A JSON-RPC error of a method of the extension. */
export class EventRefusal extends Data.TaggedError("EventRefusal")<{
  readonly code: number
  readonly message: string
  readonly data?: Readonly<Record<string, unknown>>
}> {}

export const invalidParams = (message: string): EventRefusal => new EventRefusal({ code: INVALID_PARAMS, message })

export const noSuchEvent = (): EventRefusal =>
  new EventRefusal({ code: CODES.notFound, message: "There is no event of this name.", data: { kind: "event" } })

export const forbidden = (reason: string): EventRefusal =>
  new EventRefusal({ code: CODES.forbidden, message: "Forbidden", data: { reason } })

/** `max` is omitted if the limit is not a count. */
export const resourceExhausted = (limit: string, max?: number): EventRefusal =>
  new EventRefusal({
    code: CODES.resourceExhausted,
    message: "A limit is reached.",
    data: { limit, ...(max === undefined ? {} : { max }) }
  })

export const unsupported = (feature: string, value: string): EventRefusal =>
  new EventRefusal({ code: CODES.unsupported, message: "This is not supported.", data: { feature, value } })

export const callbackFailed = (reason: CallbackReason): EventRefusal =>
  new EventRefusal({ code: CODES.callback, message: "The callback URL could not be verified.", data: { reason } })

/** The server itself failed. The caller can repeat the request. */
export const unavailable = (): EventRefusal =>
  new EventRefusal({
    code: INTERNAL_ERROR,
    message: "The server cannot answer now. Repeat the request in a few seconds."
  })

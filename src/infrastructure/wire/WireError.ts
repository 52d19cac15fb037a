import type { Cause } from "effect"
import { Effect, Schema } from "effect"

/**
 * The fields of every failure that a client receives: the stable `code` of the wire, the HTTP status, and the time
 * until a retry if a retry can help.
 */
export interface WireFailure {
  readonly code: string
  readonly message: string
  readonly details?: Readonly<Record<string, unknown>> | undefined
  readonly status: number
  /** Milliseconds until a retry can succeed. `Retry-After` is this time in seconds, rounded up. */
  readonly retryAfterMs?: number | undefined
}

const WireFailureId: unique symbol = Symbol.for("parley/WireFailure")

export const isWireFailure = (u: unknown): u is WireFailure => typeof u === "object" && u !== null && WireFailureId in u

/**
 * Defines an expected failure: a tagged error whose encoded form is exactly the contract's `{code, message, details?}`
 * (wire.md C.0, H). `details` declares the documented fields. If one of them is `retry_after_ms`, it also sets
 * `Retry-After`.
 */
export const WireError =
  <Self>() =>
  <const Tag extends string, const Code extends string, const Details extends Schema.Struct.Fields = {}>(
    tag: Tag,
    options: {
      readonly code: Code
      readonly status: number
      /** The default message: what happened, and what the caller can do. */
      readonly message: string
      readonly details?: Details
      /** The default for `Retry-After`, in milliseconds, for errors without `details.retry_after_ms`. */
      readonly retryAfterMs?: number
    }
  ) => {
    const fields = {
      code: Schema.tag(options.code),
      message: Schema.String.pipe(Schema.withConstructorDefault(Effect.succeed(options.message))),
      details: Schema.optionalKey(Schema.Struct((options.details ?? {}) as Details))
    }
    class Base extends Schema.Error<WireFailure>(tag)(fields, {
      httpApiStatus: options.status,
      description: options.message
    }) {
      readonly _tag: Tag = tag
      readonly status: number = options.status
      readonly [WireFailureId] = true
      get retryAfterMs(): number | undefined {
        const details: { readonly retry_after_ms?: unknown } | undefined = this.details
        return typeof details?.retry_after_ms === "number" ? details.retry_after_ms : options.retryAfterMs
      }
    }
    // `Self` is the subclass, which only the caller can name, so the type of `Base` is replaced here.
    return Base as unknown as Schema.Class<
      Self,
      Schema.Struct<{
        readonly code: Schema.tag<Code>
        readonly message: Schema.withConstructorDefault<Schema.String>
        readonly details: Schema.optionalKey<Schema.Struct<Details>>
      }>,
      & Cause.YieldableError
      & { readonly _tag: Tag; readonly status: number; readonly retryAfterMs: number | undefined }
    >
  }

/** The `details` of every request that a rate limit refuses (wire.md H, `RATE_LIMITED`). */
export const rateDetails = {
  retry_after_ms: Schema.optionalKey(Schema.Int),
  limit: Schema.optionalKey(Schema.Int),
  window: Schema.optionalKey(Schema.String)
}

export class ValidationFailed extends WireError<ValidationFailed>()("ValidationFailed", {
  code: "VALIDATION_ERROR",
  status: 400,
  message: "The request is not valid.",
  details: { fields: Schema.optionalKey(Schema.Record(Schema.String, Schema.Array(Schema.String))) }
}) {
  /** Makes a failure for one invalid field; `text` is the reason. */
  static field(name: string, text: string): ValidationFailed {
    return new ValidationFailed({ message: `${name}: ${text}`, details: { fields: { [name]: [text] } } })
  }
}

export class Unauthorized extends WireError<Unauthorized>()("Unauthorized", {
  code: "UNAUTHORIZED",
  status: 401,
  message: "A valid API key is required: send it as `Authorization: Bearer <key>`."
}) {}

export class Forbidden extends WireError<Forbidden>()("Forbidden", {
  code: "FORBIDDEN",
  status: 403,
  message: "You may not do this."
}) {}

export class NotFound extends WireError<NotFound>()("NotFound", {
  code: "NOT_FOUND",
  status: 404,
  message: "There is nothing here."
}) {}

export class MethodNotAllowed extends WireError<MethodNotAllowed>()("MethodNotAllowed", {
  code: "METHOD_NOT_ALLOWED",
  status: 405,
  message: "This path does not support this method."
}) {}

export class PayloadTooLarge extends WireError<PayloadTooLarge>()("PayloadTooLarge", {
  code: "PAYLOAD_TOO_LARGE",
  status: 413,
  message: "The body is larger than this server accepts."
}) {}

export class UnsupportedEncoding extends WireError<UnsupportedEncoding>()("UnsupportedEncoding", {
  code: "UNSUPPORTED_ENCODING",
  status: 415,
  message: "This server does not accept compressed bodies: send the body without Content-Encoding."
}) {}

export class UpgradeRequired extends WireError<UpgradeRequired>()("UpgradeRequired", {
  code: "UPGRADE_REQUIRED",
  status: 426,
  message: "This address is for WebSockets: connect with `Upgrade: websocket`."
}) {}

export class RateLimited extends WireError<RateLimited>()("RateLimited", {
  code: "RATE_LIMITED",
  status: 429,
  message: "Too many requests: wait as long as Retry-After says.",
  details: rateDetails
}) {}

export class InternalError extends WireError<InternalError>()("InternalError", {
  code: "INTERNAL_ERROR",
  status: 500,
  message: "The server failed. Its log contains the reason, with the id of the request."
}) {}

export class Unavailable extends WireError<Unavailable>()("Unavailable", {
  code: "UNAVAILABLE",
  status: 503,
  message: "The service is unavailable right now: try again.",
  retryAfterMs: 2000
}) {}

/**
 * How long a call waits, in milliseconds, for an entity that is moving to another node, before it fails with
 * `Unavailable`. A send also waits this long while the database does not respond (wire.md C.0).
 */
export const CALLER_TIMEOUT_MS = 5_000

/**
 * How long a read, or a call of reply coordination, waits while the database does not respond, in milliseconds. This is
 * less than the 4 s that clients wait for such a call at the start and the end of an agent's turn.
 */
export const READ_MS = 3_500

/** The errors that every route can return in addition to its own (wire.md C, last line of C.0). */
export const commonErrors = [
  ValidationFailed,
  PayloadTooLarge,
  UnsupportedEncoding,
  RateLimited,
  InternalError,
  Unavailable
] as const

/** Returns the JSON body of a failure as the wire defines it. */
export const wireBody = (failure: WireFailure): { code: string; message: string; details?: object } =>
  failure.details === undefined
    ? { code: failure.code, message: failure.message }
    : { code: failure.code, message: failure.message, details: failure.details }

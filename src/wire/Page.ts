import { Effect, Schema, SchemaTransformation } from "effect"
import { ValidationFailed } from "./WireError.ts"

const Digits = Schema.String.check(
  Schema.makeFilter((text) => /^\d+$/.test(text) || "must be a whole number in decimal digits", {
    toJsonSchema: () => ({ pattern: "^\\d+$" })
  })
)

/**
 * A whole number in a query: decimal digits only. Other forms that JavaScript parses (`1e1`, `1.0`, `+1`, ` 1`) are
 * refused.
 */
export const QueryInt = (min: number, max = Number.MAX_SAFE_INTEGER) =>
  Digits.pipe(
    Schema.decodeTo(Schema.Int.check(Schema.isBetween({ minimum: min, maximum: max })), SchemaTransformation.numberFromString)
  )

/** A `limit` of at least 1. A value above the list's maximum is not refused: the handler clamps it. */
export const Limit = QueryInt(1)

export const Offset = QueryInt(0)

/** The query of every list (wire.md C.0, Lists). */
export const pageQuery = {
  limit: Schema.optionalKey(Limit),
  offset: Schema.optionalKey(Offset),
  cursor: Schema.optionalKey(Schema.String)
}

export interface PageQuery {
  readonly limit?: number
  readonly offset?: number
  readonly cursor?: string
}

/** Fails if a query has both `offset` and `cursor` (wire.md B1, B2). */
export const oneWay = (query: PageQuery): Effect.Effect<void, ValidationFailed> =>
  query.offset !== undefined && query.cursor !== undefined
    ? Effect.fail(ValidationFailed.field("cursor", "cannot be combined with offset"))
    : Effect.void

/** An id inside a cursor. It is validated because clients can forge cursors, and the database rejects some strings. */
export const CursorId = Schema.String.check(Schema.isPattern(/^[a-z]+_[A-Za-z0-9_-]{1,64}$/))

/** An opaque cursor around a JSON value. */
export const encodeCursor = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url")

/** Decodes a cursor; fails with 400 if this server cannot have issued it. */
export const decodeCursor = <S extends Schema.Codec<unknown, unknown>>(schema: S) => (text: string): Effect.Effect<S["Type"], ValidationFailed> =>
  Effect.try(() => JSON.parse(Buffer.from(text, "base64url").toString("utf8")) as unknown).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(schema)),
    Effect.mapError(() => ValidationFailed.field("cursor", "is not a cursor that this server issued"))
  )

/** The size of a page: the requested size, 50 by default and 200 at most (wire.md C.0, Lists). */
export const pageSize = (asked: number | undefined): number => Math.min(asked ?? 50, 200)

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
    Schema.decodeTo(
      Schema.Int.check(Schema.isBetween({ minimum: min, maximum: max })),
      SchemaTransformation.numberFromString
    )
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

/** A page of a list. `nextCursor` is null on the last page. */
export interface Page<Item> {
  readonly items: ReadonlyArray<Item>
  readonly total: number
  readonly limit: number
  readonly offset: number
  readonly nextCursor: string | null
}

/** The fields of a page beside its items, as the wire has them. */
export const figuresOf = ({ limit, nextCursor, offset, total }: Page<unknown>) => ({
  total,
  limit,
  offset,
  next_cursor: nextCursor
})

/** Fails if a query has both `offset` and `cursor` (wire.md B1, B2). */
const oneWay = (query: PageQuery): Effect.Effect<void, ValidationFailed> =>
  query.offset !== undefined && query.cursor !== undefined
    ? Effect.fail(ValidationFailed.field("cursor", "cannot be combined with offset"))
    : Effect.void

/** An id inside a cursor. It is validated because clients can forge cursors, and the database rejects some strings. */
export const CursorId = Schema.String.check(Schema.isPattern(/^[a-z]+_[A-Za-z0-9_-]{1,64}$/))

/** An opaque cursor around a JSON value. */
export const encodeCursor = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url")

/** Decodes a cursor; fails with 400 if this server cannot have issued it. */
export const decodeCursor =
  <S extends Schema.Codec<unknown, unknown>>(schema: S) => (text: string): Effect.Effect<S["Type"], ValidationFailed> =>
    Effect.try(() => JSON.parse(Buffer.from(text, "base64url").toString("utf8")) as unknown).pipe(
      Effect.flatMap(Schema.decodeUnknownEffect(schema)),
      Effect.mapError(() => ValidationFailed.field("cursor", "is not a cursor that this server issued"))
    )

/**
 * A list whose pages continue after a cursor. A page has 50 rows unless asked for another number, and 200 at most
 * (wire.md C.0, Lists).
 */
export interface Rows<Row, Position, E> {
  readonly usual?: number
  readonly max?: number
  readonly position: Schema.Codec<Position, unknown>
  /** Up to `limit` rows in the list's order: after a position, or from the beginning if `after` is null. */
  readonly rows: (after: Position | null, limit: number) => Effect.Effect<ReadonlyArray<Row>, E>
  readonly positionOf: (row: Row) => Position
}

/** Reads the rows of a page, and the cursor of the next page, which is null on the last page. */
export const rowsOf = <Row, Position, E>(
  query: Pick<PageQuery, "limit" | "cursor">,
  list: Rows<Row, Position, E>
): Effect.Effect<
  { readonly rows: ReadonlyArray<Row>; readonly limit: number; readonly nextCursor: string | null },
  ValidationFailed | E
> =>
  Effect.gen(function*() {
    const limit = Math.min(query.limit ?? list.usual ?? 50, list.max ?? 200)
    const after = query.cursor === undefined ? null : yield* decodeCursor(list.position)(query.cursor)
    const found = yield* list.rows(after, limit + 1)
    const rows = found.slice(0, limit)
    const last = rows.at(-1)
    return {
      rows,
      limit,
      nextCursor: found.length > limit && last !== undefined ? encodeCursor(list.positionOf(last)) : null
    }
  })

/**
 * The rows of a page: up to `limit` rows, `offset` rows after a position, or after the beginning if `after` is null.
 */
export interface PageRange<Position> {
  readonly after: Position | null
  readonly offset: number
  readonly limit: number
}

/** The position in a list that is sorted by time. */
export const TimePosition = Schema.Struct({ createdAt: Schema.Int, id: CursorId })
export type TimePosition = typeof TimePosition.Type

/** A list that is read in pages. A page has `usual` items, or as many as the request asks for, `max` at most. */
export interface Listed<Row, Position, Item, E1, E2, E3> {
  readonly usual: number
  readonly max: number
  readonly position: Schema.Codec<Position, unknown>
  /** In the list's order. */
  readonly rows: (range: PageRange<Position>) => Effect.Effect<ReadonlyArray<Row>, E1>
  readonly total: Effect.Effect<number, E2>
  readonly positionOf: (row: Row) => Position
  /** May leave out rows whose agents are gone. */
  readonly show: (rows: ReadonlyArray<Row>) => Effect.Effect<ReadonlyArray<Item>, E3>
}

/** Reads a page of a list (wire.md C.0, Lists). */
export const pageOf = <Row, Position, Item, E1, E2, E3>(
  query: PageQuery,
  list: Listed<Row, Position, Item, E1, E2, E3>
): Effect.Effect<Page<Item>, ValidationFailed | E1 | E2 | E3> =>
  Effect.gen(function*() {
    yield* oneWay(query)
    const offset = query.offset ?? 0
    const { limit, nextCursor, rows } = yield* rowsOf(query, {
      ...list,
      rows: (after, limit) => list.rows({ after, offset, limit })
    })
    return { total: yield* list.total, items: yield* list.show(rows), limit, offset, nextCursor }
  })

import { Effect, Schema, SchemaTransformation } from "effect"
import { ValidationFailed } from "./WireError.ts"

const Digits = Schema.String.check(
  Schema.makeFilter((text) => /^\d+$/.test(text) || "must be a whole number in decimal digits", {
    toJsonSchema: () => ({ pattern: "^\\d+$" })
  })
)

/**
 * A whole number in a query, written in decimal digits only. Other forms that JavaScript parses (`1e1`, `1.0`, `+1`, `
 * 1`) are refused.
 */
export const QueryInt = (min: number, max = Number.MAX_SAFE_INTEGER) =>
  Digits.pipe(
    Schema.decodeTo(
      Schema.Int.check(Schema.isBetween({ minimum: min, maximum: max })),
      SchemaTransformation.numberFromString
    )
  )

/**
 * A `limit` of at least 1. The handler lowers a value above the list's maximum to the maximum instead of refusing it.
 */
export const Limit = QueryInt(1)

export const Offset = QueryInt(0)

/** The query parameters of every list (wire.md C.0, Lists). */
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

/** The fields of a page in addition to its items, with their names on the wire. */
export const figuresOf = ({ limit, nextCursor, offset, total }: Page<unknown>) => ({
  total,
  limit,
  offset,
  next_cursor: nextCursor
})

/** Fails if a query contains both `offset` and `cursor` (wire.md B1, B2). */
const oneWay = (query: PageQuery): Effect.Effect<void, ValidationFailed> =>
  query.offset !== undefined && query.cursor !== undefined
    ? Effect.fail(ValidationFailed.field("cursor", "cannot be combined with offset"))
    : Effect.void

/** An id inside a cursor. It is validated because clients can forge cursors, and the database rejects some strings. */
export const CursorId = Schema.String.check(Schema.isPattern(/^[a-z]+_[A-Za-z0-9_-]{1,64}$/))

/** Encodes a JSON value as an opaque cursor. */
export const encodeCursor = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url")

/** Decodes a cursor. Fails with 400 if this server cannot have issued it. */
export const decodeCursor =
  <S extends Schema.Codec<unknown, unknown>>(schema: S) => (text: string): Effect.Effect<S["Type"], ValidationFailed> =>
    Effect.try(() => JSON.parse(Buffer.from(text, "base64url").toString("utf8")) as unknown).pipe(
      Effect.flatMap(Schema.decodeUnknownEffect(schema)),
      Effect.mapError(() => ValidationFailed.field("cursor", "is not a cursor that this server issued"))
    )

/**
 * A list whose pages continue after a cursor. By default a page contains 50 rows, or as many as the request asks for,
 * and at most 200 (wire.md C.0, Lists).
 */
export interface Rows<Row, Position, E> {
  readonly usual?: number
  readonly max?: number
  readonly position: Schema.Codec<Position, unknown>
  /** Reads up to `limit` rows in the list's order, after a position or, if `after` is null, from the beginning. */
  readonly rows: (after: Position | null, limit: number) => Effect.Effect<ReadonlyArray<Row>, E>
  readonly positionOf: (row: Row) => Position
}

/** Reads the rows of a page and makes the cursor of the next page, which is null on the last page. */
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
 * Which rows form a page: up to `limit` rows, after skipping `offset` rows from the position `after`, or from the
 * beginning if `after` is null.
 */
export interface PageRange<Position> {
  readonly after: Position | null
  readonly offset: number
  readonly limit: number
}

/** The position in a list that is sorted by time. */
export const TimePosition = Schema.Struct({ createdAt: Schema.Int, id: CursorId })
export type TimePosition = typeof TimePosition.Type

/**
 * A list that is read in pages. A page contains `usual` items, or as many as the request asks for, and at most `max`.
 */
export interface Listed<Row, Position, Item, E1, E2, E3> {
  readonly usual: number
  readonly max: number
  readonly position: Schema.Codec<Position, unknown>
  /** Reads rows in the list's order. */
  readonly rows: (range: PageRange<Position>) => Effect.Effect<ReadonlyArray<Row>, E1>
  readonly total: Effect.Effect<number, E2>
  readonly positionOf: (row: Row) => Position
  /** Makes the items from the rows. It may leave out rows whose agents no longer exist. */
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

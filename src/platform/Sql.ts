import { Context, type Effect } from "effect"
import type { SqlError } from "effect/sql"

/**
 * The database below `SqlClient`, for the statements that are worth preparing:
 * they keep one name and one plan per connection, and take and give plain rows.
 * Integers of 64 bits come back as numbers, `bytea` as `Buffer`.
 */
export class Database extends Context.Service<Database, {
  readonly driver: "pg" | "pglite"
  readonly prepared: <Row extends object>(
    name: string,
    text: string
  ) => (params: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError>
}>()("parley/platform/Sql/Database") {}

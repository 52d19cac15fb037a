import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Every statement on the table fails as it may with a database that is in trouble. (One on a table that is not there
 * would be a mistake in the server.)
 */
export const away = Effect.fnUntraced(function*(table: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(`ALTER TABLE ${table} RENAME TO ${table}_away`)
  yield* sql.unsafe(`CREATE VIEW ${table} AS SELECT * FROM ${table}_away WHERE 1 / 0 = 1 LIMIT 1`)
})

/** The table is as it was. */
export const back = Effect.fnUntraced(function*(table: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(`DROP VIEW ${table}`)
  yield* sql.unsafe(`ALTER TABLE ${table}_away RENAME TO ${table}`)
})

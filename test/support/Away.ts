import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Makes every statement on the table fail with an error that a database in trouble can return. The table is not
 * dropped, because a statement on a missing table counts as a mistake of the server.
 */
export const away = Effect.fnUntraced(function*(table: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(`ALTER TABLE ${table} RENAME TO ${table}_away`)
  yield* sql.unsafe(`CREATE VIEW ${table} AS SELECT * FROM ${table}_away WHERE 1 / 0 = 1 LIMIT 1`)
})

/** Makes statements on the table work again. */
export const back = Effect.fnUntraced(function*(table: string) {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(`DROP VIEW ${table}`)
  yield* sql.unsafe(`ALTER TABLE ${table}_away RENAME TO ${table}`)
})

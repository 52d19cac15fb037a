import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { eachDatabase } from "../support/Databases.ts"

eachDatabase((database) => {
  layer(database)((it) => {
    it.effect("hello", () => Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      assert.deepStrictEqual(yield* sql`SELECT 1 AS a`, [{ a: 1 }])
      assert.deepStrictEqual(yield* sql`SELECT count(*) AS n FROM agents`, [{ n: 0 }])
    }))
  })
})

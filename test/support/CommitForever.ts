/** A process that commits rows 1, 2, 3… to the PGlite database in a folder, and prints each number after its commit. */
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { writeSync } from "node:fs"

const [dataDir = ""] = process.argv.slice(2)

const commitForever = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE IF NOT EXISTS commits (n integer PRIMARY KEY)`
  for (let n = 1;; n++) {
    yield* sql`INSERT INTO commits VALUES (${n})`
    writeSync(1, `${n}\n`)
  }
})

await Effect.runPromise(Effect.provide(commitForever, layerPglite({ dataDir })))

import { PgliteDatabase } from "#infrastructure/database/Pglite"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

/**
 * Measures for how long one statement that vacuums a table blocks PGlite, by the table's size: `node
 * verification/bench/VacuumStops.ts`, or with sizes in MB. The table is `messages` with its indexes. Prints a table and
 * a JSON line, from which the figures in docs/operations.md come.
 */

const sizes = process.argv.slice(2).map(Number)
const PIECES = 20

const column = (text: string | number): string => String(text).padStart(16)

console.log(
  ["MB with indexes", "first, ms", "nothing new, ms", "1% new, ms", "20% dead, ms", "full, ms"].map(column).join("")
)
for (const mb of sizes.length > 0 ? sizes : [16, 64, 256, 512]) {
  const dataDir = mkdtempSync(join(tmpdir(), "parley-vacuum-"))
  const database = await PgliteDatabase.open({ dataDir })
  const run = (statement: string): number => {
    const began = performance.now()
    database.session.query(statement, [])
    return Math.round(performance.now() - began)
  }
  /** Times a statement after a checkpoint. The server also writes a checkpoint after every 64 MB of log. */
  const measure = (statement: string): number => {
    database.checkpoint()
    return run(statement)
  }
  try {
    run(`CREATE TABLE messages (
      conversation_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, id text COLLATE "C" NOT NULL, sender_id text COLLATE "C" NOT NULL,
      client_msg_id text COLLATE "C" NOT NULL, type text NOT NULL, content text NOT NULL, metadata text NOT NULL, created_at bigint NOT NULL,
      PRIMARY KEY (conversation_id, seq))`)
    run("CREATE UNIQUE INDEX messages_by_id ON messages (id)")
    run("CREATE UNIQUE INDEX messages_by_key ON messages (conversation_id, sender_id, client_msg_id)")
    let rows = 0
    const insert = (count: number): void => {
      run(`
        INSERT INTO messages SELECT 'dir_' || md5((n % 1000)::text), n, 'msg_' || md5(n::text), 'agt_' || md5((n % 500)::text), 'c' || n, 'text',
          repeat('some text ', 16), '{}', n FROM generate_series(${rows}, ${rows + count - 1}) n`)
      rows += count
      database.checkpoint()
    }
    const size = (): number =>
      Number(database.session.query("SELECT pg_total_relation_size('messages')", []).rows[0]?.[0]) / 1e6
    for (let i = 0; i < PIECES; i++) insert(Math.round(mb * 1_400 / PIECES))
    const megabytes = Math.round(size())
    const first = measure("VACUUM (FREEZE) messages")
    const nothing = measure("VACUUM (FREEZE) messages")
    insert(Math.round(rows / 100))
    const some = measure("VACUUM (FREEZE) messages")
    run("DELETE FROM messages WHERE created_at % 5 = 0")
    const dead = measure("VACUUM (FREEZE) messages")
    const full = measure("VACUUM (FULL, FREEZE, ANALYZE) messages")
    console.log([megabytes, first, nothing, some, dead, full].map(column).join(""))
    console.log(JSON.stringify({ megabytes, first, nothing, some, dead, full }))
  } finally {
    await database.close()
    rmSync(dataDir, { recursive: true, force: true })
  }
}

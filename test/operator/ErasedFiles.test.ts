import { Deletions } from "#domain/agents/Deletions"
import { backUp } from "#domain/archives/Backup"
import * as Cluster from "#infrastructure/cluster/Cluster"
import { PgliteDatabase } from "#infrastructure/database/Pglite"
import { Database } from "#infrastructure/database/Sql"
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { Config } from "#infrastructure/platform/Config"
import { DataDir } from "#infrastructure/platform/disk/DataDir"
import { FreeDisk } from "#infrastructure/platform/disk/DiskSpace"
import { Ids } from "#infrastructure/platform/Ids"
import { ErasedFiles } from "#interfaces/operator/ErasedFiles"
import { Erasure } from "#interfaces/operator/Erasure"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Exit, Fiber, Layer, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { readdirSync, readFileSync, rmSync, statSync } from "node:fs"
import { join } from "node:path"
import * as Entities from "../../src/Services.ts"
import { adminHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { layerLeapingClock, leap } from "../support/Leap.ts"
import { newAgent } from "../support/Modules.ts"
import { makeDataDir, PROGRAM, programEnv } from "../support/Server.ts"

const dataDirOf = Effect.acquireRelease(
  Effect.promise(makeDataDir),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

/** The files below a folder that have these bytes anywhere. */
const filesWith = (folder: string, text: string): ReadonlyArray<string> =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
    statSync(join(folder, name)).isFile() && readFileSync(join(folder, name)).includes(text)
  )

/**
 * Rows of other agents around an agent's, statistics with its address, which is the first of all, and files of the log
 * that are used again.
 */
const spread = Effect.fnUntraced(function*(handle: string) {
  const sql = yield* SqlClient.SqlClient
  const others = (from: number) =>
    sql`
    INSERT INTO agents (id, handle, email, created_at, updated_at)
    SELECT 'agt_o' || n, 'o' || n, 'o' || n || '@example.com', 0, 0 FROM generate_series(${from}::integer, ${
      from + 99
    }::integer) n`
  yield* others(0)
  const agent = yield* newAgent(handle)
  yield* others(100)
  // The last row of its page: nothing moves into its place when it goes.
  for (const email of ["o1@example.com", `${handle}@example.com`]) {
    yield* sql`INSERT INTO codes (id, purpose, email, agent_id, expires_at) VALUES (${email}, 'recover', ${email}, ${agent.id}, ${Number.MAX_SAFE_INTEGER})`
  }
  // As in a server (Maintenance.ts): more values would be compressed, and not be found.
  yield* sql`SET default_statistics_target = 10`
  yield* sql`ANALYZE agents`
  for (let i = 0; i < 3; i++) {
    yield* sql`SELECT pg_logical_emit_message(true, 'filler', ''), pg_switch_wal()`
    yield* sql`CHECKPOINT`
  }
  return agent
})

/** The modules without their jobs. */
const layerOf = (dataDir: string, free?: () => number) =>
  Erasure.layer.pipe(
    Layer.provideMerge(
      free === undefined ? Entities.services : Layer.provide(Entities.services, Layer.succeed(FreeDisk, free))
    ),
    Layer.provideMerge(Layer.provide(Cluster.layerStandalone, Layer.succeed(Clock.Clock, Clock.Clock.defaultValue()))),
    Layer.provideMerge(layerPglite({ dataDir })),
    Layer.provideMerge(Layer.mergeAll(Config.layerTest({}), Ids.layer)),
    Layer.provideMerge(layerLeapingClock)
  )

/**
 * All batches of the job; each waits a second. On a busy machine one may find that too much is under way. A job that
 * waits for room on the disk tries again each time, so it is left after ten times.
 */
const sweep = Effect.gen(function*() {
  for (let idle = 0, passes = 0; idle < 3 && passes < 10;) {
    const fiber = yield* Effect.forkChild((yield* ErasedFiles).sweep, { startImmediately: true })
    yield* leap("1 second")
    yield* TestClock.adjust("1 second")
    const { more } = yield* Fiber.join(fiber)
    idle = more ? 0 : idle + 1
    if (!more) passes++
  }
})

describe("after an erasure", () => {
  it.effect("the address is in no file of the database within minutes, nor in a new backup; a backup under way delays only the log", () =>
    Effect.gen(function*() {
      const dataDir = yield* dataDirOf
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const folder = join(dataDir, "database")
        const { id, handle } = yield* spread("a-nina-of-the-files")
        const address = `${handle}@example.com`
        const rounds = Effect.map(
          sql<{ readonly n: number }>`SELECT count(*) AS n FROM audit_log WHERE action = 'rewrite files'`,
          ([row]) => row?.n
        )
        const erased = yield* (yield* Erasure).erase({ agentId: id, handle, operator: "ops", reason: null })
        assert.match(JSON.stringify(erased.remains), /old bytes in the database's files and write-ahead log/)
        assert.strictEqual((yield* sql`SELECT 1 FROM agents WHERE email = ${address}`).length, 0)
        yield* sweep
        for (const place of ["agents", "codes", "pg_statistic"]) {
          const [row] = yield* sql<{ readonly path: string }>`SELECT pg_relation_filepath(${place}) AS path`
          yield* sql`CHECKPOINT`
          assert.include(filesWith(folder, address), row?.path ?? "", `the test sees what is left in ${place}`)
        }
        assert.strictEqual(yield* rounds, 0, "an erasure that is not finished is waited for")
        yield* leap("61 seconds")
        yield* (yield* Deletions).sweep
        const { backup } = yield* Database
        if (backup === undefined) return assert.fail("no backup of a database in a folder")
        yield* Effect.scoped(Effect.andThen(backup.begin, sweep))
        assert.strictEqual(yield* rounds, 0)
        yield* sweep
        assert.strictEqual(yield* rounds, 1)
        assert.deepStrictEqual(filesWith(folder, address), [])
        const file = join(dataDir, "a.tar")
        yield* backUp({ target: file, database: backup, schema: "1", store: undefined })
        assert.isFalse(readFileSync(file).includes(address))
        yield* leap("24 hours")
        yield* sweep
        assert.strictEqual(yield* rounds, 1)
        yield* leap("1 hour")
        yield* sweep
        assert.strictEqual(yield* rounds, 2, "once more, for the steps that take a day")
      }).pipe(Effect.provide(layerOf(dataDir)))
    }).pipe(Effect.scoped))
})

describe("after an erasure, on a disk without room for a large table", () => {
  it.effect("the other tables are rewritten at once; the large one is rewritten when there is room, and only then the erasure is over", () =>
    Effect.gen(function*() {
      const dataDir = yield* dataDirOf
      let free = Infinity
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const rounds = Effect.map(
          sql<{ readonly n: number }>`SELECT count(*) AS n FROM audit_log WHERE action = 'rewrite files'`,
          ([row]) => row?.n
        )
        const pathOf = (table: string) =>
          Effect.map(
            sql<{ readonly path: string }>`SELECT pg_relation_filepath(${table}) AS path`,
            ([row]) => row?.path
          )
        const { id, handle } = yield* newAgent("a-nell-of-the-files")
        // The first of the tables by name.
        yield* sql`CREATE TABLE a_large AS SELECT n, repeat(md5(n::text), 20) AS text FROM generate_series(1, 10000) n`
        yield* (yield* Erasure).erase({ agentId: id, handle, operator: "ops", reason: null })
        yield* leap("61 seconds")
        yield* (yield* Deletions).sweep
        const before = {
          large: yield* pathOf("a_large"),
          agents: yield* pathOf("agents"),
          webhooks: yield* pathOf("webhooks")
        }
        free = 70_000_000
        yield* sweep
        const first = {
          large: yield* pathOf("a_large"),
          agents: yield* pathOf("agents"),
          webhooks: yield* pathOf("webhooks")
        }
        assert.strictEqual(first.large, before.large)
        assert.notStrictEqual(first.agents, before.agents)
        assert.notStrictEqual(first.webhooks, before.webhooks)
        yield* sweep
        assert.strictEqual(yield* pathOf("agents"), first.agents, "what is done is not done again")
        assert.strictEqual(yield* rounds, 0)
        free = Infinity
        yield* sweep
        assert.notStrictEqual(yield* pathOf("a_large"), before.large)
        assert.strictEqual(yield* rounds, 1)
      }).pipe(Effect.provide(layerOf(dataDir, () => free)))
    }).pipe(Effect.scoped))
})

describe("parley admin compact", () => {
  it.live("refuses while a server runs, then leaves the erased address in no file of the folder, and gives back space", () =>
    Effect.gen(function*() {
      const dataDir = yield* dataDirOf
      const address = "a-nora-of-the-files@example.com"
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const { id } = yield* spread("a-nora-of-the-files")
        yield* sql`DELETE FROM codes WHERE email = ${address}`
        yield* sql`UPDATE agents SET email = 'erased:1' WHERE id = ${id}`
        yield* sql`INSERT INTO deletions (agent_id, since, due_at, erase) VALUES ('agt_o1', 0, 0, true)`
        yield* sql`CREATE TABLE filler AS SELECT n, repeat(md5(n::text), 20) AS text FROM generate_series(1, 10000) n`
        yield* sql`DELETE FROM filler WHERE n % 10 <> 0`
        yield* sql`CHECKPOINT`
      }).pipe(Effect.provide(layerPglite({ dataDir })), Effect.provide(Ids.layer))
      assert.isNotEmpty(filesWith(dataDir, address))
      const scope = yield* Scope.make()
      yield* Layer.buildWithScope(DataDir.layerAt(dataDir), scope)
      const refused = yield* Effect.promise(() => adminHere({ DATA_DIR: dataDir }, "compact"))
      assert.strictEqual(refused.code, 1)
      assert.match(refused.stderr, /A server runs on .*: stop the server, and run the command again/)
      yield* Scope.close(scope, Exit.void)
      const done = yield* Effect.promise(() => adminHere({ DATA_DIR: dataDir }, "compact", "--json"))
      assert.strictEqual(done.code, 0, done.stderr)
      const figures = JSON.parse(done.stdout) as {
        readonly bytes_before: number
        readonly bytes_after: number
        readonly unfinished_erasures: number
      }
      assert.strictEqual(figures.unfinished_erasures, 1)
      assert.isAbove(figures.bytes_before - figures.bytes_after, 5_000_000)
      assert.match(done.stderr, /^filler: \d\.\d MB → 0\.\d MB$/m)
      assert.deepStrictEqual(filesWith(dataDir, address), [])
      const postgres = yield* Effect.promise(() =>
        adminHere({ DATABASE_URL: "postgres://localhost/parley" }, "compact")
      )
      assert.match(postgres.stderr, /VACUUM FULL/)
    }).pipe(Effect.scoped))

  it.live("leaves a folder that starts with every row if it is killed at any moment, and can be repeated", () =>
    Effect.promise(async () => {
      const dataDir = await makeDataDir()
      try {
        const made = await PgliteDatabase.open({ dataDir })
        made.session.query(
          "CREATE TABLE filler AS SELECT n, repeat(md5(n::text), 20) AS text FROM generate_series(1, 10000) n",
          []
        )
        made.session.query("CREATE INDEX filler_text ON filler (md5(text))", [])
        made.session.query("DELETE FROM filler WHERE n % 2 = 0", [])
        await made.close()
        const base = join(dataDir, "database", "base", "5")
        const nodes = (database: PgliteDatabase) =>
          new Set(
            database.session.query("SELECT pg_relation_filenode(oid)::text FROM pg_class", []).rows.map(([node]) =>
              node
            )
          )
        const whole = new Set(readdirSync(base))
        const written = () =>
          Math.max(
            ...readdirSync(base).filter((name) => !whole.has(name)).map((name) =>
              statSync(join(base, name), { throwIfNoEntry: false })?.size ?? 0
            )
          )
        let unfinished = 0
        for (const bytes of [0, 1_000_000]) {
          const child = spawn(process.execPath, [PROGRAM, "admin", "compact"], {
            env: { ...programEnv(), DATA_DIR: dataDir },
            stdio: "ignore"
          })
          const exit = once(child, "exit")
          // When the first new file is there, and when that of the largest table is.
          await eventually("a new file", () => child.exitCode !== null || written() >= bytes ? true : undefined)
          child.kill("SIGKILL")
          await exit
          const left = readdirSync(base)
          const database = await PgliteDatabase.open({ dataDir })
          const { rows } = database.session.query(
            "SELECT count(*), count(DISTINCT n), max(length(text)) FROM filler",
            []
          )
          assert.deepStrictEqual(rows, [[5_000, 5_000, 640]])
          const known = nodes(database)
          const strange = readdirSync(base).filter((name) => /^\d/.test(name) && !known.has(/^\d+/.exec(name)?.[0]))
          assert.deepStrictEqual(strange, [], "files that nothing belongs to")
          unfinished += left.filter((name) => !readdirSync(base).includes(name)).length
          await database.close()
          for (const name of readdirSync(base)) whole.add(name)
        }
        assert.isAbove(unfinished, 0, "no kill came while a table was written")
        const done = await adminHere({ DATA_DIR: dataDir }, "compact")
        assert.strictEqual(done.code, 0, done.stderr)
        assert.match(done.stdout, /database had \d+\.\d MB and has \d+\.\d MB\.$/m)
      } finally {
        rmSync(dataDir, { recursive: true, force: true })
      }
    }))
})

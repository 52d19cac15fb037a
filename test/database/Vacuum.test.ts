import { PgliteDatabase } from "#infrastructure/database/Pglite"
import { compact, FreezeAge, type TurnWait, Vacuum } from "#infrastructure/database/Vacuum"
import { Config } from "#infrastructure/platform/Config"
import { FreeDisk } from "#infrastructure/platform/disk/DiskSpace"
import {
  connectionsAllowed,
  connectionsUsed,
  databaseTimes,
  jobRuns,
  transactionAge,
  vacuumSkipped
} from "#infrastructure/platform/Metrics"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Result } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { layerPgliteTest, layerPostgresTest, type TestDatabase } from "../support/Databases.ts"
import { layerLeapingClock, leap, setBack } from "../support/Leap.ts"
import { layerModules } from "../support/Modules.ts"
import { Stopwatch } from "../support/Promptly.ts"
import { makeDataDir } from "../support/Server.ts"

const layerVacuum = (database: TestDatabase, { freezeAge = 1_000_000_000, mb = 256, free = () => Infinity } = {}) =>
  Vacuum.layer.pipe(
    Layer.provide(Layer.mergeAll(Layer.succeed(FreezeAge, freezeAge), Layer.succeed(FreeDisk, free))),
    Layer.provideMerge(database),
    Layer.provide(Config.layerTest({ VACUUM_TABLE_MB: mb }))
  )

/** A batch of the job; the second in which it looks whether little is under way passes at once. */
const step = Effect.gen(function*() {
  const fiber = yield* Effect.forkChild((yield* Vacuum).step)
  yield* TestClock.adjust("1 second")
  return yield* Fiber.join(fiber)
})

const steps = Effect.gen(function*() {
  let rows = 0
  for (let made = yield* step; made.more; made = yield* step) rows++
  return rows
})

/** Runs a piece of work that waits for a second, in which statements run for half of it. */
const whileBusy = Effect.fnUntraced(function*<A, E, R>(work: Effect.Effect<A, E, R>) {
  const fiber = yield* Effect.forkChild(work, { startImmediately: true })
  yield* TestClock.adjust("500 millis")
  databaseTimes.millis(500)
  yield* TestClock.adjust("500 millis")
  return yield* Fiber.join(fiber)
})

/** PGlite counts dead rows at most once a second otherwise. */
const countNow = Effect.flatMap(
  SqlClient.SqlClient,
  (sql) => Effect.andThen(sql`SELECT pg_stat_force_next_flush()`, sql`SELECT 1`)
)

const fill = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  sql`
  INSERT INTO idempotency_keys (agent_id, key, fingerprint, nonce, created_at, lapses_at, body)
  SELECT 'agt_1', n::text, '\\x00', '\\x00', 0, 0, convert_to(repeat(md5(n::text), 10), 'UTF8') FROM generate_series(1, 5000) n`)

const dead = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  Effect.map(
    sql<{ readonly n: number }>`SELECT pg_stat_get_dead_tuples('idempotency_keys'::regclass) AS n`,
    ([row]) => row?.n ?? NaN
  ))

const sizeOf = (table: string) =>
  Effect.flatMap(
    SqlClient.SqlClient,
    (sql) =>
      Effect.map(sql<{ readonly bytes: number }>`SELECT pg_total_relation_size(${table}::regclass) AS bytes`, ([row]) =>
        row?.bytes ?? 0)
  )

describe("PGlite", () => {
  it.effect("space of deleted rows is used again: four cycles of filling and deleting take no more than one", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const sizes: Array<number> = []
      for (let i = 0; i < 4; i++) {
        yield* fill
        sizes.push(yield* sizeOf("idempotency_keys"))
        yield* sql`DELETE FROM idempotency_keys`
        yield* countNow
        // On a busy machine a turn may find that too much is under way; after ten minutes it does not ask.
        for (let minute = 0; minute < 15 && (yield* dead) > 0; minute++) yield* TestClock.adjust("1 minute")
      }
      // The job that does the same after erasures runs too.
      assert.isAbove(jobRuns.at("erased_files", "done").value, 0)
      assert.isAtMost(sizes[3] ?? Infinity, 1.2 * (sizes[0] ?? 0), sizes.join())
    }).pipe(Effect.provide(layerModules(layerPgliteTest))))

  it.effect("the age of the oldest transaction falls, of the whole database, and nothing is vacuumed twice", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const age = Effect.map(
        sql<
          { readonly age: number }
        >`SELECT age(datfrozenxid) AS age FROM pg_database WHERE datname = current_database()`,
        ([row]) => row?.age ?? NaN
      )
      for (let i = 0; i < 300; i++) yield* sql`INSERT INTO inboxes (agent_id) VALUES (${`agt_${i}`})`
      assert.isAbove(yield* age, 300)
      assert.isAbove(yield* steps, 50)
      assert.isBelow(yield* age, 100)
      assert.strictEqual(yield* steps, 0)
      assert.isAbove(transactionAge.current ?? 0, 0)
    }).pipe(Effect.provide(layerVacuum(layerPgliteTest, { freezeAge: 100 }))))

  it.effect("a table that is too large is left out and named, once; new rows alone do not make it large", () => {
    const lines: Array<string> = []
    return Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const vacuumed = Effect.map(
        sql<
          { readonly n: number }
        >`SELECT count(*) AS n FROM pg_stat_user_tables WHERE relname = 'idempotency_keys' AND vacuum_count > 0`,
        ([row]) => row?.n
      )
      yield* sql`SELECT pg_stat_reset()`
      yield* fill
      yield* sql`DELETE FROM idempotency_keys WHERE key LIKE '%1'`
      yield* countNow
      yield* steps
      yield* steps
      assert.strictEqual(yield* vacuumed, 0)
      assert.strictEqual(lines.length, 1)
      assert.match(
        lines[0] ?? "",
        /^The table idempotency_keys is not vacuumed while the server runs: a vacuum would read \d+ MB, and VACUUM_TABLE_MB is 1\. .*compact/
      )
      assert.strictEqual(vacuumSkipped.current, 1)
      const { rewrite } = yield* Vacuum
      assert.strictEqual(yield* rewrite("idempotency_keys"), "too large")
      assert.strictEqual(yield* rewrite("inboxes"), "done")
      // As compact would do, after which a few new rows are a small piece of work.
      yield* sql`VACUUM (FULL) idempotency_keys`
      yield* sql`VACUUM idempotency_keys`
      yield* sql`SELECT pg_stat_reset()`
      yield* sql`INSERT INTO idempotency_keys (agent_id, key, fingerprint, nonce, created_at, lapses_at) VALUES ('agt_2', 'k', '\\x00', '\\x00', 0, 0)`
      yield* countNow
      yield* steps
      assert.strictEqual(yield* vacuumed, 1)
      assert.strictEqual(vacuumSkipped.current, 0)
    }).pipe(
      Effect.provide(layerVacuum(layerPgliteTest, { mb: 1 })),
      Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
    )
  })

  it.effect("a table with very old transaction ids is vacuumed however large it is, and the log says so", () => {
    const lines: Array<string> = []
    return Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* fill
      for (let i = 0; i < 120; i++) yield* sql`INSERT INTO inboxes (agent_id) VALUES (${`agt_${i}`})`
      yield* steps
      const [row] = yield* sql<
        { readonly age: number }
      >`SELECT age(relfrozenxid) AS age FROM pg_class WHERE relname = 'idempotency_keys'`
      assert.isBelow(row?.age ?? NaN, 50)
      assert.include(
        lines,
        "The table idempotency_keys has very old transaction ids and is vacuumed now, whatever its size"
      )
    }).pipe(
      Effect.provide(layerVacuum(layerPgliteTest, { freezeAge: 1, mb: 1 })),
      Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
    )
  })

  it.live("a statement beside the vacuum of a table of 15 MB waits for moments only", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      for (let i = 0; i < 4; i++) {
        yield* fill
        yield* sql`UPDATE idempotency_keys SET agent_id = ${`agt_old_${i}`} WHERE agent_id = 'agt_1'`
      }
      assert.isAbove(yield* sizeOf("idempotency_keys"), 12_000_000)
      const watch = new Stopwatch()
      yield* Effect.all([
        sql`VACUUM (FREEZE) idempotency_keys`,
        Effect.map(sql`SELECT 1`, () => watch.endsWithin(3_000))
      ], { concurrency: 2 })
    }).pipe(Effect.provide(layerPgliteTest)))

  it.effect("a vacuum waits while much is under way, for ten minutes", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* fill
      yield* sql`DELETE FROM idempotency_keys`
      yield* countNow
      const busy = Effect.flatMap(Vacuum, ({ step }) => whileBusy(step))
      assert.deepStrictEqual(yield* busy, { rows: 0, more: false })
      yield* TestClock.adjust("9 minutes")
      assert.deepStrictEqual(yield* busy, { rows: 0, more: false })
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(yield* busy, { rows: 1, more: true })
      assert.deepStrictEqual(yield* busy, { rows: 0, more: false }, "the next one waits again")
    }).pipe(Effect.provide(layerVacuum(layerPgliteTest))))

  it.effect("each job waits ten minutes of its own, which do not pass while nothing is due, nor when the wall clock is set", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { step, turn } = yield* Vacuum
      const other: TurnWait = { waitsSince: undefined }
      yield* fill
      yield* sql`DELETE FROM idempotency_keys`
      yield* countNow
      assert.isFalse(yield* whileBusy(turn(other)))
      assert.deepStrictEqual(yield* whileBusy(step), { rows: 0, more: false })
      yield* setBack("1 hour")
      assert.isFalse(yield* whileBusy(turn(other)))
      yield* leap("10 minutes")
      assert.isTrue(yield* whileBusy(turn(other)))
      assert.deepStrictEqual(
        yield* whileBusy(step),
        { rows: 1, more: true },
        "the turn of another job takes nothing from this one"
      )
      yield* fill
      yield* sql`DELETE FROM idempotency_keys`
      yield* countNow
      assert.deepStrictEqual(yield* whileBusy(step), { rows: 0, more: false })
      yield* sql`VACUUM (FREEZE)`
      yield* countNow
      assert.deepStrictEqual(yield* whileBusy(step), { rows: 0, more: false })
      yield* leap("10 minutes")
      yield* fill
      yield* sql`DELETE FROM idempotency_keys`
      yield* countNow
      assert.deepStrictEqual(yield* whileBusy(step), { rows: 0, more: false }, "nothing was due, so nothing waited")
    }).pipe(Effect.provide(layerVacuum(layerPgliteTest)), Effect.provide(layerLeapingClock)))

  it.effect("without room on the disk nothing is vacuumed or rewritten; the log says so once, until there is room", () => {
    const lines: Array<string> = []
    let free = 63_999_999
    return Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const { rewrite } = yield* Vacuum
      yield* fill
      yield* sql`DELETE FROM idempotency_keys WHERE key LIKE '%1'`
      yield* countNow
      const rows = yield* dead
      assert.isAbove(rows, 0)
      assert.deepStrictEqual(yield* step, { rows: 0, more: false })
      assert.deepStrictEqual(yield* step, { rows: 0, more: false })
      assert.strictEqual(yield* dead, rows)
      assert.strictEqual(lines.length, 1)
      assert.match(
        lines[0] ?? "",
        /^Vacuuming the table \w+ needs up to 6\d MB of free disk, and 63 MB are free\. The server leaves this out until there is enough free space\.$/
      )
      const bytes = yield* sizeOf("idempotency_keys")
      free = 64_000_000 + 3 * bytes - 1
      assert.strictEqual(yield* rewrite("idempotency_keys"), "no room")
      assert.strictEqual(yield* rewrite("idempotency_keys"), "no room")
      assert.strictEqual(yield* sizeOf("idempotency_keys"), bytes)
      assert.strictEqual(yield* rewrite("inboxes"), "done")
      assert.strictEqual(lines.length, 2)
      assert.match(
        lines[1] ?? "",
        /^Rewriting the table idempotency_keys needs up to \d+ MB of free disk, and \d+ MB are free\./
      )
      const refused = yield* Effect.result(Effect.provideService(compact(() => Effect.void), FreeDisk, () => free))
      assert.strictEqual(Result.isFailure(refused) ? refused.failure._tag : "", "DiskSpaceShort")
      assert.strictEqual(yield* sizeOf("idempotency_keys"), bytes)
      free += 1
      assert.strictEqual(yield* rewrite("idempotency_keys"), "done")
      assert.isBelow(yield* sizeOf("idempotency_keys"), bytes)
      yield* sql`DELETE FROM idempotency_keys`
      yield* countNow
      free = Infinity
      assert.isAbove(yield* steps, 0)
      assert.strictEqual(yield* dead, 0)
    }).pipe(
      Effect.provide(layerVacuum(layerPgliteTest, { free: () => free })),
      Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
    )
  })

  it.live("at startup, old template databases are frozen; after a crash, files of no table are removed", () =>
    Effect.promise(async () => {
      const dataDir = await makeDataDir()
      try {
        const first = await PgliteDatabase.open({ dataDir })
        // Databases that earlier versions made have the template databases.
        for (const name of ["template0", "template1"])
          first.session.query(`CREATE DATABASE ${name} TEMPLATE postgres`, [])
        const ages = (database: PgliteDatabase) =>
          database.session.query(
            "SELECT datname, age(datfrozenxid) FROM pg_database WHERE datname LIKE 'template%' ORDER BY 1",
            []
          ).rows
        const [[oid] = []] =
          first.session.query("SELECT oid::text FROM pg_database WHERE datname = current_database()", []).rows
        const base = join(dataDir, "database", "base", String(oid))
        const known = readdirSync(base)
        assert.isTrue(ages(first).every(([, age]) => Number(age) > 20), JSON.stringify(ages(first)))
        const lock = join(dataDir, "database", "postmaster.pid")
        const held = readFileSync(lock)
        await first.close()
        // As after a crash.
        writeFileSync(lock, held)
        for (const name of ["99999", "99999.1", "99999_fsm"])
          writeFileSync(join(base, name), "bytes of a table that was never finished")
        const second = await PgliteDatabase.open({ dataDir, templateAge: 20 })
        assert.deepStrictEqual(ages(second).map(([name]) => name), ["template0", "template1"])
        assert.isTrue(ages(second).every(([, age]) => Number(age) < 20), JSON.stringify(ages(second)))
        assert.includeMembers(known, readdirSync(base))
        assert.strictEqual(second.session.query("SELECT count(*) > 20 FROM migrations", []).rows[0]?.[0], true)
        await second.close()
      } finally {
        rmSync(dataDir, { recursive: true, force: true })
      }
    }))
})

it.effect("the job only reads the age of transactions and the number of connections on PostgreSQL", () =>
  Effect.gen(function*() {
    assert.deepStrictEqual(yield* (yield* Vacuum).step, { rows: 0, more: false })
    assert.isAbove(transactionAge.current ?? 0, 0)
    assert.isUndefined(vacuumSkipped.current)
    assert.isAtLeast(connectionsUsed.current ?? 0, 1)
    assert.isAbove(connectionsAllowed.current ?? 0, connectionsUsed.current ?? 0)
  }).pipe(Effect.provide(layerVacuum(layerPostgresTest(), { freezeAge: 1 }))))

import * as Migrations from "#infrastructure/database/Migrations"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer, Redacted } from "effect"
import { SqlClient, SqlError } from "effect/sql"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { pathToFileURL } from "node:url"
import { eachDatabase, freshDatabase } from "../support/Databases.ts"

const migration = (id: number, text: string, name = `000${id}_number_${id}.sql`): Migrations.Migration => ({
  id,
  name,
  text,
  sha256: createHash("sha256").update(text).digest("hex")
})

const first = migration(1, "CREATE TABLE one (n integer); INSERT INTO one VALUES (1);")
const second = migration(2, "CREATE TABLE two (n integer); INSERT INTO two VALUES (2);")
const third = migration(3, "INSERT INTO one SELECT n FROM two;")

const applied = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<
    { readonly id: number; readonly name: string; readonly applied_at: number }
  >`SELECT id, name, applied_at FROM migrations ORDER BY id`
})

const ones = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  return (yield* sql<{ readonly n: number }>`SELECT n FROM one ORDER BY n`).map(({ n }) => n)
})

eachDatabase((_, { version, empty }) => {
  it.effect("applies the schema, and then finds nothing to do", () =>
    Effect.gen(function*() {
      const unapplied = yield* Effect.flip(Migrations.verify())
      assert.instanceOf(unapplied, Migrations.SchemaMismatch)
      assert.include(unapplied.message, "0001_create_agents.sql has not been applied")
      yield* TestClock.setTime(1_700_000_000_000)
      yield* Migrations.run()
      const before = yield* applied
      assert.deepStrictEqual(
        before.map(({ name }) => name),
        fs.readdirSync(new URL("../../schema", import.meta.url)).sort()
      )
      assert.isTrue(before.every((row) => row.applied_at === 1_700_000_000_000))
      yield* TestClock.adjust("1 day")
      yield* Migrations.run()
      assert.deepStrictEqual(yield* applied, before)
      yield* Migrations.verify()
    }).pipe(Effect.provide(empty)))

  it.effect("applies new files", () =>
    Effect.gen(function*() {
      yield* Migrations.run([first])
      assert.deepStrictEqual(yield* ones, [1])
      yield* Migrations.run([first, second, third])
      assert.deepStrictEqual(yield* ones, [1, 2])
      assert.deepStrictEqual((yield* applied).map(({ id }) => id), [1, 2, 3])
    }).pipe(Effect.provide(empty)))

  it.effect("leaves nothing of a file that fails, and goes on from there when it is mended", () =>
    Effect.gen(function*() {
      const broken = migration(2, `${second.text} INSERT INTO one VALUES (99); SELECT nonsense;`)
      const error = yield* Effect.flip(Migrations.run([first, broken, third]))
      assert.isTrue(SqlError.isSqlError(error))
      assert.deepStrictEqual(yield* ones, [1])
      assert.deepStrictEqual((yield* applied).map(({ id }) => id), [1])
      yield* Migrations.run([first, second, third])
      assert.deepStrictEqual(yield* ones, [1, 2])
    }).pipe(Effect.provide(empty)))

  it.effect("refuses a database that other files made, saying which and what to do", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* Migrations.run([first, second])
      const refusal = (files: ReadonlyArray<Migrations.Migration>) =>
        Effect.gen(function*() {
          const running = yield* Effect.flip(Migrations.run(files))
          const verifying = yield* Effect.flip(Migrations.verify(files))
          assert.instanceOf(running, Migrations.SchemaMismatch)
          assert.strictEqual(running.message, verifying.message)
          return running.message
        })
      assert.strictEqual(
        yield* refusal([first, migration(2, second.text + " "), third]),
        "0002_number_2.sql was edited since it was applied: restore the file as it was and put the change into a new one"
      )
      assert.match(
        yield* refusal([first]),
        /^0002_number_2\.sql was applied to this database and is unknown here: a newer version/
      )
      assert.match(
        yield* refusal([first, migration(2, second.text, "0002_other.sql")]),
        /^0002_other\.sql is not 0002_number_2\.sql, which was applied: /
      )
      yield* sql`DELETE FROM migrations WHERE id = 1`
      assert.match(
        yield* refusal([first, second]),
        /^0001_number_1\.sql was not applied, though 0002_number_2\.sql was: /
      )
      assert.deepStrictEqual(yield* ones, [1])
    }).pipe(Effect.provide(empty)))

  if (version === undefined) return

  const together = (url: string) => Layer.build(Layer.fresh(layerPg({ url: Redacted.make(url), poolSize: 2 })))

  it.live("run once when nodes start together", () =>
    Effect.gen(function*() {
      const url = yield* Effect.promise(() => freshDatabase(version, "empty"))
      const nodes = yield* Effect.forEach([1, 2, 3, 4], () => together(url))
      const slow = migration(2, `${second.text} SELECT count(*) FROM generate_series(1, 200000);`)
      yield* Effect.forEach(nodes, (node) => Effect.provide(Migrations.run([first, slow, third]), node), {
        concurrency: "unbounded"
      })
      for (const node of nodes) assert.deepStrictEqual(yield* Effect.provide(ones, node), [1, 2])
    }))

  it.live("leave nothing when they are interrupted, and the next start applies them", () =>
    Effect.gen(function*() {
      const url = yield* Effect.promise(() => freshDatabase(version, "empty"))
      const [one, other] = yield* Effect.all([together(url), together(url)])
      const holding = Context.get(yield* together(url), SqlClient.SqlClient)
      const held = yield* Deferred.make<void>()
      const end = yield* Deferred.make<void>()
      const holder = yield* Effect.forkChild(holding.withTransaction(Effect.gen(function*() {
        yield* holding`SELECT set_config('idle_in_transaction_session_timeout', '0', true)`
        yield* holding`SELECT pg_advisory_xact_lock(7)`
        yield* Deferred.succeed(held, undefined)
        yield* Deferred.await(end)
      })))
      yield* Deferred.await(held)
      const slow = migration(2, `${second.text} SELECT pg_advisory_xact_lock(7);`)
      const interrupted = yield* Effect.forkChild(Effect.provide(Migrations.run([first, slow]), one))
      const waits = holding`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
      yield* Effect.repeat(waits, { until: (rows) => rows.length > 0 })
      const ended = yield* Effect.forkChild(Fiber.interrupt(interrupted), { startImmediately: true })
      yield* Deferred.succeed(end, undefined)
      yield* Fiber.join(holder)
      yield* Fiber.join(ended)
      assert.deepStrictEqual((yield* Effect.provide(applied, other)).map(({ id }) => id), [1])
      yield* Effect.provide(Migrations.run([first, second, third]), other)
      assert.deepStrictEqual(yield* Effect.provide(ones, other), [1, 2])
    }))
}, { oldest: true, pglite: true })

describe("the files", () => {
  const reading = (names: ReadonlyArray<string>) =>
    Effect.gen(function*() {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => fs.mkdtempSync(path.join(tmpdir(), "parley-schema-"))),
        (made) => Effect.sync(() => fs.rmSync(made, { recursive: true }))
      )
      for (const name of names) fs.writeFileSync(path.join(folder, name), `-- ${name}`)
      return yield* Migrations.read(pathToFileURL(`${folder}/`))
    })

  it.effect("are read in the order of their numbers", () =>
    Effect.gen(function*() {
      const files = yield* reading(["0002_add_b.sql", "0001_create_a.sql", "README.md"])
      assert.deepStrictEqual(files.map(({ id, name, text }) => [id, name, text]), [
        [1, "0001_create_a.sql", "-- 0001_create_a.sql"],
        [2, "0002_add_b.sql", "-- 0002_add_b.sql"]
      ])
    }))

  for (
    const [what, names, culprit] of [
      ["a gap", ["0001_a.sql", "0003_c.sql"], "0003_c.sql is not number 0002"],
      ["a number twice", ["0001_a.sql", "0001_b.sql"], "0001_b.sql is not number 0002"],
      ["a name of another form", ["0001_a.sql", "later.sql"], "later.sql is not number 0002"]
    ] as const
  ) {
    it.effect(`may not have ${what}`, () =>
      Effect.gen(function*() {
        const error = yield* Effect.flip(reading(names))
        assert.instanceOf(error, Migrations.SchemaMismatch)
        assert.include(error.message, culprit)
      }))
  }
})

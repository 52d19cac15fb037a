import { Database, sqlState } from "#infrastructure/database/Sql"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Unavailable, wireBody } from "#infrastructure/wire/WireError"
import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer, Redacted } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { PostgresServer } from "../../runners/local/Postgres.ts"
import {
  databaseSettings,
  eachDatabase,
  freshDatabase,
  layerPgliteTest,
  layerPostgresTest
} from "../support/Databases.ts"

const table = (name: string) =>
  Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    yield* sql`CREATE TABLE ${sql(name)} (id bigint PRIMARY KEY, note text NOT NULL CHECK (note <> 'bad'))`
    const ids = Effect.map(sql<{ readonly id: number }>`SELECT id FROM ${sql(name)} ORDER BY id`, (rows) =>
      rows.map(({ id }) => id))
    const add = (id: number | null, note: string | null = "note") =>
      sql`INSERT INTO ${sql(name)} (id, note) VALUES (${id}, ${note})`
    return { sql, ids, add }
  })

eachDatabase((database, { version }) => {
  const layerOfOne = version === undefined ? layerPgliteTest : layerPostgresTest(version, { poolSize: 1 })

  // Real time: what is waited for is a database.
  layer(database, { excludeTestServices: true })((it) => {
    describe("values", () => {
      it.effect("come back as they went in", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const bytes = Buffer.from([0, 1, 0x5c, 0x27, 255])
          const text = "a'b\"c\\d\n{,} \u{1f980} é"
          const [row] = yield* sql`SELECT
            ${9_007_199_254_740_991}::bigint AS big, ${-5}::bigint AS negative, ${7}::integer AS int, ${0.5}::float8 AS float,
            ${true}::boolean AS yes, ${false}::boolean AS no, ${null}::text AS nothing, ${text}::text AS text,
            ${bytes}::bytea AS bytes, ${new Uint8Array([1, 2])}::bytea AS array, ${Buffer.alloc(0)}::bytea AS empty,
            ${{ a: [1, "x"] }}::jsonb AS json, ${12n}::bigint AS bigint, ${"x".repeat(300_000)}::text AS long`
          assert.deepStrictEqual(row, {
            big: 9_007_199_254_740_991,
            negative: -5,
            int: 7,
            float: 0.5,
            yes: true,
            no: false,
            nothing: null,
            text,
            bytes,
            array: Buffer.from([1, 2]),
            empty: Buffer.alloc(0),
            json: { a: [1, "x"] },
            bigint: 12,
            long: "x".repeat(300_000)
          })
          assert.isTrue(Buffer.isBuffer(row?.["bytes"]))
        }))

      it.effect("come back from arrays too", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const texts = ["plain", "", "NULL", "null", null, "a,b", "{x}", 'q"q', "b\\b", "two words", "é\u{1f980}", "'"]
          const numbers = [1, -2, 9_007_199_254_740_991, null, 0]
          const bytes = [Buffer.from([0, 92, 34]), Buffer.alloc(0)]
          const [row] =
            yield* sql`SELECT ${texts}::text[] AS texts, ${numbers}::bigint[] AS numbers, ${[]}::text[] AS none,
            ${[]}::bigint[] AS no_numbers, ${bytes}::bytea[] AS bytes, ${[true, false]}::boolean[] AS booleans`
          assert.deepStrictEqual(row, { texts, numbers, none: [], no_numbers: [], bytes, booleans: [true, false] })
          for (
            const some of [
              texts.filter((text) => text !== null),
              ["plain", "", "NULL", "null", "a,b", "{x}", " two ", "é\u{1f980}", "'"],
              ["a\nb\u2028c"],
              [""]
            ]
          ) {
            assert.deepStrictEqual(yield* sql`SELECT ${some}::text[] AS texts`, [{ texts: some }])
          }
          for (const some of [[0.5, -3, 1e21], [Infinity, 1], [7]]) {
            const rows = yield* sql`SELECT ${some}::float8[] = ARRAY[${
              sql.literal(some.map((n) => `'${n}'::float8`).join())
            }] AS same`
            assert.deepStrictEqual(rows, [{ same: true }])
          }
          const rows =
            yield* sql`SELECT * FROM unnest(${texts}::text[], ${numbers}::bigint[]) WITH ORDINALITY AS t(text, number, ord)`
          assert.strictEqual(rows.length, texts.length)
          assert.deepStrictEqual(rows[2], { text: "NULL", number: 9_007_199_254_740_991, ord: 3 })
        }))

      it.effect("may be whole rows and lists", () =>
        Effect.gen(function*() {
          const { sql, ids } = yield* table("helpers")
          yield* sql`INSERT INTO helpers ${
            sql.insert([{ id: 1, note: "a" }, { id: 2, note: "b" }, { id: 3, note: "c" }])
          }`
          const found = yield* sql`SELECT note FROM helpers WHERE id IN ${sql.in([1, 3])} ORDER BY id`.values
          assert.deepStrictEqual(found, [["a"], ["c"]])
          yield* sql`UPDATE helpers SET ${sql.update({ note: "changed" })} WHERE id = ${2}`
          assert.deepStrictEqual(yield* sql`SELECT note FROM helpers WHERE id = 2`, [{ note: "changed" }])
          assert.deepStrictEqual(yield* ids, [1, 2, 3])
        }))

      it.effect("count and add up to numbers and text", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          const [row] = yield* sql`SELECT count(*) AS count, sum(n) AS sum FROM unnest(${[1, 2]}::bigint[]) AS n`
          assert.deepStrictEqual(row, { count: 2, sum: "3" })
        }))
    })

    it.effect("plans use the index of a table that was empty when they were made", () =>
      Effect.gen(function*() {
        const { sql } = yield* table("growing")
        yield* sql`ANALYZE growing`.unprepared
        yield* sql`PREPARE growing_join AS SELECT g.note FROM unnest($1::bigint[]) AS wanted(id)
          CROSS JOIN LATERAL (SELECT * FROM growing WHERE id = wanted.id OFFSET 0) g`.unprepared
        const plan = yield* sql`EXPLAIN EXECUTE growing_join('{1,2}')`.values
        assert.include(String(plan), "Index Scan using growing_pkey")
        assert.notInclude(String(plan), "Seq Scan")
      }).pipe((onOneConnection) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(onOneConnection))))

    describe("errors", () => {
      const refusals: ReadonlyArray<
        readonly [what: string, statement: string, tag: SqlError.SqlErrorReason["_tag"], state: string]
      > = [
        ["a repeated key", "INSERT INTO refusals VALUES (1, 'again')", "UniqueViolation", "23505"],
        ["a missing value", "INSERT INTO refusals VALUES (2, NULL)", "ConstraintError", "23502"],
        ["a value that a check refuses", "INSERT INTO refusals VALUES (2, 'bad')", "ConstraintError", "23514"],
        ["bad syntax", "SELEC 1", "SqlSyntaxError", "42601"],
        ["a table that is not there", "SELECT * FROM nowhere", "SqlSyntaxError", "42P01"],
        ["a value of another type", "SELECT 'secret'::bigint", "UnknownError", "22P02"],
        ["a division by zero", "SELECT 1/0", "UnknownError", "22012"],
        ["a lock that cannot be had", "DO $$ BEGIN RAISE lock_not_available; END $$", "LockTimeoutError", "55P03"],
        ["a deadlock", "DO $$ BEGIN RAISE deadlock_detected; END $$", "DeadlockError", "40P01"],
        ["a serialization failure", "DO $$ BEGIN RAISE serialization_failure; END $$", "SerializationError", "40001"],
        ["a statement that took too long", "DO $$ BEGIN RAISE query_canceled; END $$", "StatementTimeoutError", "57014"]
      ]

      it.effect("are classified by their SQLSTATE, and leave the connection usable", () =>
        Effect.gen(function*() {
          const { sql, add } = yield* table("refusals")
          yield* add(1)
          for (const [what, statement, tag, state] of refusals) {
            const error = yield* Effect.flip(sql.unsafe(statement))
            assert.deepStrictEqual([what, error.reason._tag, sqlState(error)], [what, tag, state])
            assert.deepStrictEqual(yield* sql`SELECT 1 AS one`, [{ one: 1 }])
          }
          const error = yield* Effect.flip(add(1))
          assert.strictEqual(error.reason._tag === "UniqueViolation" && error.reason.constraint, "refusals_pkey")
        }))

      it.effect("quote no row and no parameter", () =>
        Effect.gen(function*() {
          const { sql, add } = yield* table("quotes")
          yield* add(77_777, "secret")
          const errors = yield* Effect.all([
            Effect.flip(add(77_777, "secret")),
            Effect.flip(sql`INSERT INTO quotes VALUES (${77_778}, ${null})`),
            Effect.flip(sql`SELECT ${"secret"}::bigint`)
          ])
          for (const error of errors) {
            const everything = JSON.stringify(error) + String(error) + Object.values(error.reason.cause ?? {}).join()
            assert.notMatch(everything, /secret|7777/)
          }
        }))
    })

    describe("transactions", () => {
      it.effect("commit together", () =>
        Effect.gen(function*() {
          const { sql, ids, add } = yield* table("together")
          yield* sql.withTransaction(Effect.andThen(add(1), add(2)))
          assert.deepStrictEqual(yield* ids, [1, 2])
        }))

      it.effect("leave nothing when they fail", () =>
        Effect.gen(function*() {
          const { sql, ids, add } = yield* table("nothing")
          assert.strictEqual(yield* Effect.flip(sql.withTransaction(Effect.andThen(add(1), Effect.fail("no")))), "no")
          const error = yield* Effect.flip(sql.withTransaction(Effect.andThen(add(2), add(2))))
          assert.strictEqual(error.reason._tag, "UniqueViolation")
          assert.deepStrictEqual(yield* ids, [])
        }))

      it.effect("may roll back an inner one and commit the rest", () =>
        Effect.gen(function*() {
          const { sql, ids, add } = yield* table("inner")
          yield* sql.withTransaction(Effect.gen(function*() {
            yield* add(1)
            yield* Effect.flip(sql.withTransaction(Effect.andThen(add(2), add(2))))
            yield* sql.withTransaction(add(3))
          }))
          assert.deepStrictEqual(yield* ids, [1, 3])
        }))

      it.effect("do not seem committed when a failure in them was ignored", () =>
        Effect.gen(function*() {
          const { sql, ids, add } = yield* table("ignored")
          const error = yield* Effect.flip(sql.withTransaction(Effect.andThen(add(1), Effect.ignore(add(1)))))
          assert.strictEqual(sqlState(error), "25P02")
          assert.deepStrictEqual(yield* ids, [])
        }))

      it.effect("are invisible to others before they commit, and run the prepared statements inside", () =>
        Effect.gen(function*() {
          const { sql, ids, add } = yield* table("unseen")
          const count = (yield* Database).prepared<{ readonly n: number }>("unseen", "SELECT count(*) AS n FROM unseen")
          const opened = yield* Deferred.make<void>()
          const outside = yield* Effect.forkChild(Effect.andThen(Deferred.await(opened), ids))
          yield* sql.withTransaction(Effect.gen(function*() {
            yield* add(1)
            assert.deepStrictEqual(yield* count([]), [{ n: 1 }])
            yield* Deferred.succeed(opened, undefined)
            yield* Effect.yieldNow
            if (version !== undefined) assert.deepStrictEqual(yield* Fiber.join(outside), [])
            yield* add(2)
          }))
          // PGlite's one session makes the reader wait for the end.
          if (version === undefined) assert.deepStrictEqual(yield* Fiber.join(outside), [1, 2])
        }))

      it.effect("take statements that are given to them at once, one after the other", () =>
        Effect.gen(function*() {
          const { sql, ids, add } = yield* table("at_once")
          yield* sql.withTransaction(
            Effect.forEach([3, 1, 2], (id) => add(id), { concurrency: "unbounded", discard: true })
          )
          assert.deepStrictEqual(yield* ids, [1, 2, 3])
        }))

      it.effect("are rolled back when their fiber is interrupted", () =>
        Effect.gen(function*() {
          const { sql, ids, add } = yield* table("interrupted")
          const opened = yield* Deferred.make<void>()
          const fiber = yield* Effect.forkChild(sql.withTransaction(
            Effect.andThen(add(1), Effect.andThen(Deferred.succeed(opened, undefined), Effect.never))
          ))
          yield* Deferred.await(opened)
          yield* Fiber.interrupt(fiber)
          assert.deepStrictEqual(yield* ids, [])
        }))
    })

    describe("prepared statements", () => {
      it.effect("keep their results apart, one after the other and at once", () =>
        Effect.gen(function*() {
          const { prepared } = yield* Database
          const square = prepared<{ readonly n: number; readonly square: number }>(
            "square",
            "SELECT $1::bigint AS n, $1::bigint * $1::bigint AS square"
          )
          const echo = prepared<{ readonly a: string | null; readonly b: Buffer }>(
            "echo",
            "SELECT $1::text AS a, $2::bytea AS b"
          )
          for (let n = 0; n < 20; n++) assert.deepStrictEqual(yield* square([n]), [{ n, square: n * n }])
          const all = yield* Effect.forEach(
            Array.from({ length: 100 }, (_, n) => n),
            (n) => Effect.all([square([n]), echo([n % 2 === 0 ? null : String(n), Buffer.from([n])])]),
            { concurrency: "unbounded" }
          )
          all.forEach(([squares, echoes], n) => {
            assert.deepStrictEqual(squares, [{ n, square: n * n }])
            assert.deepStrictEqual(echoes, [{ a: n % 2 === 0 ? null : String(n), b: Buffer.from([n]) }])
          })
        }))

      it.effect("give many rows, and none", () =>
        Effect.gen(function*() {
          const { prepared } = yield* Database
          const series = prepared<{ readonly n: number; readonly text: string }>(
            "series",
            "SELECT n::bigint, repeat('é', 100) AS text FROM generate_series(1, $1::integer) AS n"
          )
          const rows = yield* series([5_000])
          assert.strictEqual(rows.length, 5_000)
          assert.deepStrictEqual(rows[4_999], { n: 5_000, text: "é".repeat(100) })
          assert.deepStrictEqual(yield* series([0]), [])
        }))

      it.effect("can be used again after they failed", () =>
        Effect.gen(function*() {
          yield* table("failing")
          const { prepared, raw } = yield* Database
          const add = raw<{ readonly id: number }>("failing", "INSERT INTO failing VALUES ($1, $2) RETURNING id")
          assert.deepStrictEqual(yield* add([1, "a"]), [{ id: 1 }])
          assert.strictEqual(sqlState(yield* Effect.flip(add([1, "b"]))), "23505")
          assert.strictEqual(sqlState(yield* Effect.flip(add(["x", "b"]))), "22P02")
          assert.strictEqual((yield* Effect.flip(add([1]))).reason._tag, "ConnectionError")
          assert.deepStrictEqual(yield* add([2, "b"]), [{ id: 2 }])
          const text = "SELECT * FROM nowhere WHERE id = $1"
          const wrong = raw("wrong", text)
          assert.strictEqual(sqlState(yield* Effect.flip(wrong([1]))), "42P01")
          assert.strictEqual(sqlState(yield* Effect.flip(wrong([1]))), "42P01")
          assert.isTrue(Exit.hasDies(yield* Effect.exit(prepared("wrong", text)([1]))))
        }))

      it.effect("fail with UNAVAILABLE, whose cause is the SQL error, and so do templates and transactions", () =>
        Effect.gen(function*() {
          yield* table("unavailable")
          const { prepared, query, transaction } = yield* Database
          const add = prepared("unavailable", "INSERT INTO unavailable VALUES ($1, 'a')")
          yield* add([1])
          for (const failing of [add([1]), query`INSERT INTO unavailable VALUES (${1}, 'b')`]) {
            const error = yield* Effect.flip(transaction(failing))
            assert.deepStrictEqual(wireBody(error), wireBody(new Unavailable()))
            assert.strictEqual(sqlState(error.cause as SqlError.SqlError), "23505")
          }
          // PostgreSQL refuses the commit of a transaction in which a statement failed.
          const refused = yield* Effect.flip(transaction(Effect.ignore(add([1]))))
          assert.strictEqual(sqlState(refused.cause as SqlError.SqlError), "25P02")
          assert.isTrue(Exit.hasDies(yield* Effect.exit(transaction(query`SELECT * FROM nowhere`))))
        }))

      it.effect("may fail in a transaction first, and work outside", () =>
        Effect.gen(function*() {
          const { sql, add } = yield* table("first_failing")
          const count = (yield* Database).raw<{ readonly n: number }>(
            "first_failing",
            "SELECT count(*) AS n FROM first_failing"
          )
          const error = yield* Effect.flip(sql.withTransaction(Effect.gen(function*() {
            yield* add(1)
            yield* Effect.ignore(add(1))
            yield* count([])
          })))
          assert.strictEqual(sqlState(error), "25P02")
          assert.deepStrictEqual(yield* count([]), [{ n: 0 }])
        }))

      it.effect("need unique names", () =>
        Effect.gen(function*() {
          const { prepared } = yield* Database
          prepared("same", "SELECT 1")
          prepared("same", "SELECT 1")
          assert.throws(() => prepared("same", "SELECT 2"), "two statements have the name same")
        }))
    })

    it.effect("a reserved connection that was left in a transaction hands nothing on", () =>
      Effect.gen(function*() {
        const { sql, ids, add } = yield* table("left_open")
        yield* Effect.scoped(Effect.gen(function*() {
          const connection = yield* sql.reserve
          yield* connection.executeRaw("BEGIN", [])
          yield* connection.executeRaw("INSERT INTO left_open VALUES (1, 'x')", [])
        }))
        yield* add(2)
        assert.deepStrictEqual(yield* ids, [2])
      }))
  })

  layer(layerOfOne, { excludeTestServices: true })("with one connection", (it) => {
    it.effect("a parameter that cannot be written leaves it usable", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const circular: { self?: unknown } = {}
        circular.self = circular
        const exit = yield* Effect.exit(sql.unsafe("SELECT $1::jsonb", [circular]))
        assert.isTrue(Exit.hasDies(exit))
        assert.deepStrictEqual(yield* sql`SELECT 1 AS one`, [{ one: 1 }])
      }))

    it.effect("a fiber that is interrupted while it waits does not keep the connection", () =>
      Effect.gen(function*() {
        const { sql, ids, add } = yield* table("waiting")
        const opened = yield* Deferred.make<void>()
        const end = yield* Deferred.make<void>()
        const holder = yield* Effect.forkChild(sql.withTransaction(
          add(1).pipe(Effect.andThen(Deferred.succeed(opened, undefined)), Effect.andThen(Deferred.await(end)))
        ))
        yield* Deferred.await(opened)
        const waiting = yield* Effect.forkChild(add(2))
        yield* Effect.yieldNow
        yield* Fiber.interrupt(waiting)
        yield* Deferred.succeed(end, undefined)
        yield* Fiber.join(holder)
        yield* add(3)
        assert.deepStrictEqual(yield* ids, [1, 3])
      }))
  })

  if (version === undefined) return

  /** A client with one connection of its own. */
  const connected = (url: Redacted.Redacted) =>
    Effect.map(
      Layer.build(Layer.fresh(layerPg({ url, poolSize: 1 }))),
      (context) => Context.get(context, SqlClient.SqlClient)
    )

  layer(layerOfOne, { excludeTestServices: true })("an interrupted fiber", (it) => {
    it.effect("does not wait for its statement, which ends by itself and leaves the connection usable", () =>
      Effect.gen(function*() {
        const url = Redacted.make(yield* Effect.promise(() => freshDatabase(version, "empty")))
        const [sql, other] = yield* Effect.all([connected(url), connected(url)])
        const { add, ids } = yield* Effect.provideService(table("slow"), SqlClient.SqlClient, sql)
        const [before] = yield* sql`SELECT pg_backend_pid() AS pid`
        yield* sql`SELECT set_config('lock_timeout', '0', false)`
        const lock = (one: SqlClient.SqlClient) => one`SELECT pg_advisory_lock(7)`
        const unlock = (one: SqlClient.SqlClient) => one`SELECT pg_advisory_unlock_all()`
        const waits = other`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
        /** Interrupts a fiber whose statement waits for the lock. */
        const interrupting = Effect.fnUntraced(function*<A, E>(effect: Effect.Effect<A, E>) {
          yield* lock(other)
          const fiber = yield* Effect.forkChild(effect)
          yield* Effect.repeat(waits, { until: (rows) => rows.length > 0 })
          return yield* Effect.forkChild(Fiber.interrupt(fiber), { startImmediately: true })
        })
        yield* Fiber.join(yield* interrupting(lock(sql)))
        yield* unlock(other)
        yield* unlock(sql)
        const ended = yield* interrupting(sql.withTransaction(Effect.andThen(add(1), lock(sql))))
        yield* unlock(other)
        yield* Fiber.join(ended)
        assert.deepStrictEqual(yield* ids, [])
        assert.deepStrictEqual((yield* sql`SELECT pg_backend_pid() AS pid`)[0], before)
      }))

    it.effect("does not hand on the locks of a reserved connection that it was tidying up", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const tidied = "SELECT pg_advisory_unlock_all()"
        const reserved = (last: string) =>
          Effect.scoped(Effect.gen(function*() {
            const connection = yield* sql.reserve
            yield* connection.executeRaw("SELECT pg_advisory_lock(7)", [])
            const slow = yield* Effect.forkChild(connection.executeRaw("SELECT pg_sleep(0.3)", []))
            yield* Effect.yieldNow
            yield* connection.executeRaw(last, []).pipe(Effect.timeout("50 millis"), Effect.ignore)
            yield* Fiber.interrupt(slow)
          }))
        const held = Effect.map(
          sql`SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`,
          (rows) => rows.length
        )
        yield* reserved(tidied)
        assert.strictEqual(yield* held, 0)
        yield* reserved("SELECT 1 / 0")
        assert.strictEqual(yield* held, 0)
      }))

    it.effect("takes along a statement whose turn has not come", () =>
      Effect.gen(function*() {
        const { sql, ids, add } = yield* table("never")
        yield* Effect.scoped(Effect.gen(function*() {
          const connection = yield* sql.reserve
          const slow = yield* Effect.forkChild(connection.executeRaw("SELECT pg_sleep(0.1)", []))
          yield* Effect.yieldNow
          const queued = yield* Effect.forkChild(connection.executeRaw("INSERT INTO never VALUES (1, 'x')", []))
          yield* Effect.yieldNow
          yield* Fiber.interrupt(queued)
          yield* Fiber.join(slow)
        }))
        yield* add(2)
        assert.deepStrictEqual(yield* ids, [2])
      }))
  })

  layer(database, { excludeTestServices: true })("a connection that the server closes", (it) => {
    const end = (pid: unknown) =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const ended = yield* sql<
          { readonly ended: boolean }
        >`SELECT pg_terminate_backend(${pid}::integer, 18000) AS ended`
        assert.deepStrictEqual(ended, [{ ended: true }])
      })

    it.effect("in a transaction is a failure of the connection, not of the process", () =>
      Effect.gen(function*() {
        const { sql, ids, add } = yield* table("ended")
        const own = Effect.map(sql<{ readonly pid: number }>`SELECT pg_backend_pid() AS pid`, ([row]) => row?.pid)
        const pids = yield* Deferred.make<unknown>()
        const gone = yield* Deferred.make<void>()
        const failing = yield* Effect.forkChild(Effect.flip(sql.withTransaction(Effect.gen(function*() {
          yield* add(1)
          yield* Deferred.succeed(pids, yield* own)
          yield* Deferred.await(gone)
          yield* sql.withTransaction(add(2))
        }))))
        yield* end(yield* Deferred.await(pids))
        yield* Deferred.succeed(gone, undefined)
        const error = yield* Fiber.join(failing)
        assert.strictEqual(error.reason._tag, "ConnectionError")
        assert.deepStrictEqual(yield* ids, [])
      }))

    it.effect("amid a statement is a failure of the connection", () =>
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        const sleeping = yield* Effect.forkChild(Effect.flip(sql`SELECT pg_sleep(20), 'find me'`))
        const find = sql<{ readonly pid: number }>`SELECT pid FROM pg_stat_activity
          WHERE query LIKE '%pg_sleep(20)%' AND state = 'active' AND pid <> pg_backend_pid()`
        const [row] = yield* Effect.repeat(find, { until: (rows) => rows.length > 0 })
        yield* end(row?.pid)
        const error = yield* Fiber.join(sleeping)
        assert.deepStrictEqual([error.reason._tag, sqlState(error)], ["ConnectionError", "57P01"])
        assert.deepStrictEqual(yield* sql`SELECT 1 AS one`, [{ one: 1 }])
      }))

    it.effect("while it is idle is replaced", () =>
      Effect.gen(function*() {
        const { prepared } = yield* Database
        const one = prepared<{ readonly one: number }>("one", "SELECT $1::integer AS one")
        const sql = yield* SqlClient.SqlClient
        const run = Effect.forEach([1, 2, 3, 4], (n) => one([n]), { concurrency: "unbounded" })
        yield* run
        yield* sql`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'parley'`
        // Until the client has read of it, a statement may meet a dead connection once.
        yield* Effect.retry(run, { times: 10 })
        assert.deepStrictEqual(yield* run, [[{ one: 1 }], [{ one: 2 }], [{ one: 3 }], [{ one: 4 }]])
      }))

    it.effect("knows its limits in time", () =>
      Effect.gen(function*() {
        const names = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "application_name"]
        assert.deepStrictEqual(yield* databaseSettings(names), [
          "application_name=parley",
          "idle_in_transaction_session_timeout=10000",
          "lock_timeout=5000",
          "statement_timeout=20000"
        ])
      }))

    it.effect("that holds a row locks others out for a bounded time", () =>
      Effect.gen(function*() {
        const { sql, add } = yield* table("locked")
        yield* add(1)
        const locked = yield* Deferred.make<void>()
        const holder = yield* Effect.forkChild(sql.withTransaction(
          sql`SELECT set_config('idle_in_transaction_session_timeout', '0', true)`.pipe(
            Effect.andThen(sql`UPDATE locked SET note = 'mine'`),
            Effect.andThen(Deferred.succeed(locked, undefined)),
            Effect.andThen(Effect.never)
          )
        ))
        yield* Deferred.await(locked)
        const error = yield* Effect.flip(sql.withTransaction(Effect.andThen(
          sql`SELECT set_config('lock_timeout', '100ms', true)`,
          sql`UPDATE locked SET note = 'yours'`
        )))
        assert.deepStrictEqual([error.reason._tag, sqlState(error)], ["LockTimeoutError", "55P03"])
        yield* Fiber.interrupt(holder)
      }))
  })
}, { oldest: true, pglite: true })

describe("PostgreSQL", () => {
  it.live("may crash and come back without a restart of this process", () =>
    Effect.gen(function*() {
      const server = yield* Effect.acquireRelease(
        Effect.promise(() => PostgresServer.start(18)),
        (started) => Effect.promise(() => started.stop())
      )
      const context = yield* Layer.build(layerPg({ url: Redacted.make(server.url()), poolSize: 4 }))
      const sql = yield* SqlClient.SqlClient.pipe(Effect.provide(context))
      const all = Effect.forEach([1, 2, 3, 4], () => sql`SELECT 1 AS one`, { concurrency: "unbounded" })
      yield* all
      yield* Effect.promise(() => server.kill())
      // The processes of its connections outlive it for a moment.
      const error = yield* Effect.flip(Effect.forever(sql`SELECT 1 AS one`))
      assert.strictEqual(error.reason._tag, "ConnectionError")
      yield* Effect.promise(() => server.restart())
      yield* Effect.retry(all, { times: 10 })
      assert.deepStrictEqual((yield* all)[0], [{ one: 1 }])
    }))

  it.live("is reported as refusing the user, which differs from an unreachable one", () =>
    Effect.gen(function*() {
      const statement = (url: string) =>
        Effect.flip(Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT 1`)).pipe(
          Effect.provide(layerPg({ url: Redacted.make(url), poolSize: 1 }))
        )
      const server = yield* Effect.acquireRelease(
        Effect.promise(() => PostgresServer.start(18)),
        (started) => Effect.promise(() => started.stop())
      )
      const stranger = yield* statement(server.url().replace("postgres@", "stranger@"))
      assert.strictEqual(stranger.reason._tag, "AuthenticationError")
      assert.strictEqual(sqlState(yield* statement(server.url("nowhere"))), "3D000")
      const absent = yield* statement("postgres://postgres@127.0.0.1:1/postgres")
      assert.deepStrictEqual([absent.reason._tag, sqlState(absent)], ["ConnectionError", undefined])
      assert.include(absent.message, "ECONNREFUSED")
    }))
})

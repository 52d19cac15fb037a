import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Config } from "#infrastructure/platform/Config"
import * as DiskSpace from "#infrastructure/platform/disk/DiskSpace"
import { metricsText } from "#infrastructure/platform/Metrics"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Context, Deferred, Effect, Fiber, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { once } from "node:events"
import { mkdirSync, rmSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { isInstalled } from "../../runners/local/Postgres.ts"
import { freshDatabase, layerPgliteEmpty, type TestDatabase } from "../support/Databases.ts"
import { chanceFor, eventually } from "../support/Eventually.ts"
import { Link } from "../support/Link.ts"
import { metric } from "../support/Metrics.ts"
import { MEASURES } from "../support/Promptly.ts"
import { serviceAlone } from "./ServiceAlone.ts"

/** Starts a server on a database. `ready` is its answer to `/v1/ready`. */
const serve = Effect.fnUntraced(function*(database: TestDatabase) {
  const { context, url } = yield* serviceAlone(database)
  const ready = Effect.promise(async () => {
    const response = await fetch(`${url}/v1/ready`)
    const body = await response.json() as { readonly details?: { readonly reason: string } }
    return { status: response.status, reason: body.details?.reason }
  })
  return { ready, sql: Context.get(context, SqlClient.SqlClient) }
})

const POOL = 4
const AWAY = /^The database does not answer or does not commit/

describe("readiness", () => {
  it.live.skipIf(!isInstalled(18))(
    "says nothing against a database that much is asked of, and takes one connection for it",
    () =>
      Effect.gen(function*() {
        const url = Redacted.make(yield* Effect.promise(() => freshDatabase(18, "empty")))
        const { ready, sql } = yield* serve(layerPg({ url, poolSize: POOL }))
        // Ten times what there are connections for: a statement of somebody else would wait for minutes.
        const busy = yield* Effect.forkChild(Effect.forEach(
          Array.from({ length: 10 * POOL }),
          () => sql`SELECT pg_sleep(60)`,
          { concurrency: "unbounded", discard: true }
        ))
        for (let i = 0; i < 10; i++) {
          const answers = yield* Effect.all(Array.from({ length: 5 }, () => ready), { concurrency: "unbounded" })
          assert.deepStrictEqual(answers.filter(({ status }) => status !== 200), [])
        }
        assert.isUndefined(busy.pollUnsafe())
        const other = Context.get(yield* Layer.build(Layer.fresh(layerPg({ url, poolSize: 1 }))), SqlClient.SqlClient)
        const [row] = yield* other<{ readonly n: number }>`
        SELECT count(*)::integer AS n FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'parley' AND pid <> pg_backend_pid()`
        assert.isAtMost(row?.n ?? 0, POOL + 1)
        yield* Fiber.interrupt(busy)
        yield* other`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()`
      }).pipe(Effect.scoped)
  )

  it.live("stays ready with the built-in database while many wait for their turn", () =>
    Effect.gen(function*() {
      const { ready, sql } = yield* serve(layerPgliteEmpty)
      const free = yield* Effect.forkChild(Effect.scoped(Effect.andThen(sql.reserve, Effect.never)), {
        startImmediately: true
      })
      const waiting = yield* Effect.forkChild(sql`SELECT 1`, { startImmediately: true })
      assert.deepStrictEqual(yield* ready, { status: 200, reason: undefined })
      assert.isUndefined(waiting.pollUnsafe())
      yield* Fiber.interrupt(free)
      yield* Fiber.join(waiting)
      // It takes no part in a transaction: what that does is wholly undone.
      const [begun, end] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      const transaction = yield* Effect.forkChild(
        Effect.exit(sql.withTransaction(Effect.gen(function*() {
          yield* sql`CREATE TABLE undone ()`
          yield* Deferred.succeed(begun, undefined)
          yield* Deferred.await(end)
          return yield* sql`SELECT * FROM nowhere`
        }))),
        { startImmediately: true }
      )
      yield* Deferred.await(begun)
      const asked = yield* Effect.forkChild(ready, { startImmediately: true })
      yield* Effect.promise(() => chanceFor("a statement inside the transaction", 100))
      yield* Deferred.succeed(end, undefined)
      assert.deepStrictEqual(yield* Fiber.join(asked), { status: 200, reason: undefined })
      yield* Fiber.join(transaction)
      assert.deepStrictEqual(yield* sql`SELECT 1 FROM pg_tables WHERE tablename = 'undone'`, [])
    }).pipe(Effect.scoped))

  it.live.skipIf(!isInstalled(18))(
    "is back soon where its connection is dead, and nobody has said so",
    () =>
      Effect.gen(function*() {
        const url = new URL(yield* Effect.promise(() => freshDatabase(18, "empty")))
        const link = yield* Effect.acquireRelease(
          Effect.promise(() => Link.open("127.0.0.1", { host: url.hostname, port: Number(url.port) })),
          (link) => Effect.sync(() => link.close())
        )
        url.port = String(link.address.port)
        const { ready } = yield* serve(layerPg({ url: Redacted.make(url.href), poolSize: POOL }))
        assert.strictEqual((yield* ready).status, 200)
        link.lose()
        assert.match((yield* ready).reason ?? "", AWAY)
        // Each answer that says no takes two seconds, however busy the machine is.
        let refused = 1
        while ((yield* ready).status !== 200) refused++
        if (MEASURES) assert.isBelow(refused, 7)
      }).pipe(Effect.scoped)
  )

  it.live("says that DATA_DIR has no space left, with the bytes, as long as that is so; and shows the free bytes", () =>
    Effect.gen(function*() {
      let free = 32_000_000
      const folder = tmpdir()
      const { context, url } = yield* serviceAlone(layerPgliteEmpty, { DATA_DIR: folder, SHARED_DIR: folder })
      yield* Layer.build(DiskSpace.layer).pipe(
        Effect.provideContext(context),
        Effect.provide(Config.layerTest({ DATA_DIR: folder, SHARED_DIR: folder })),
        Effect.provideService(DiskSpace.FreeDisk, () => free),
        Effect.provideService(DiskSpace.FullDisk, new DiskSpace.FullDisks())
      )
      const ready = Effect.promise(async () => {
        const response = await fetch(`${url}/v1/ready`)
        const body = await response.json() as { readonly details?: { readonly reason: string } }
        return [response.status, body.details?.reason]
      })
      assert.deepStrictEqual(yield* ready, [200, undefined])
      free = 123_456
      assert.deepStrictEqual(yield* ready, [
        503,
        `The database cannot write: no space left on ${folder} (0.1 MB free). Free some space.`
      ])
      free = Infinity
      assert.deepStrictEqual(yield* ready, [200, undefined])
      const shown = (name: string) => metric(metricsText(), "disk_free_bytes", { folder: name })
      yield* Effect.promise(() =>
        eventually("the measured bytes", () => shown("DATA_DIR") > 0 && shown("SHARED_DIR") > 0 || undefined)
      )
    }).pipe(Effect.scoped))

  it.live("says that DATA_DIR cannot be read, as long as that is so", () =>
    Effect.gen(function*() {
      const folder = path.join(tmpdir(), `parley-away-${process.pid}`)
      const { context, url } = yield* serviceAlone(layerPgliteEmpty, { DATA_DIR: folder })
      const clock = yield* TestClock.make()
      yield* Layer.build(DiskSpace.layer).pipe(
        Effect.provideContext(context),
        Effect.provide(Config.layerTest({ DATA_DIR: folder })),
        Effect.provideService(Clock.Clock, clock),
        Effect.provideService(DiskSpace.FullDisk, new DiskSpace.FullDisks())
      )
      const ready = async () => {
        const response = await fetch(`${url}/v1/ready`)
        const body = await response.json() as { readonly details?: { readonly reason: string } }
        return [response.status, body.details?.reason]
      }
      const after = (status: number) =>
        Effect.promise(() =>
          eventually(`an answer ${status}`, async () => {
            const answer = await ready()
            return answer[0] === status ? answer : undefined
          })
        )
      const away = `DATA_DIR cannot be read: ENOENT: no such file or directory, statfs '${folder}'. Check its disk.`
      assert.deepStrictEqual(yield* after(503), [503, away])
      // What else asks for its free bytes does not fail for that.
      assert.strictEqual(DiskSpace.noSpaceLeftOn(folder, DiskSpace.freeBytes(folder)), `no space left on ${folder}`)
      mkdirSync(folder)
      yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(folder, { recursive: true, force: true })))
      yield* clock.adjust("10 seconds")
      assert.deepStrictEqual(yield* after(200), [200, undefined])
      rmSync(folder, { recursive: true })
      yield* clock.adjust("10 seconds")
      assert.deepStrictEqual(yield* after(503), [503, away])
    }).pipe(Effect.scoped))

  it.live("says that the database is away where nothing listens, or what listens does not answer", () =>
    Effect.gen(function*() {
      const silent = yield* Effect.acquireRelease(
        Effect.promise(async () => {
          const server = createServer((connection) => connection.on("error", () => {})).listen(0, "127.0.0.1")
          await once(server, "listening")
          return server
        }),
        (server) => Effect.sync(() => server.close())
      )
      const address = silent.address()
      if (address === null || typeof address === "string") return assert.fail("no port")
      for (const port of [1, address.port]) {
        const { ready } = yield* serve(
          layerPg({ url: Redacted.make(`postgres://somebody@127.0.0.1:${port}/some`), poolSize: POOL })
        )
        for (let i = 0; i < 2; i++) {
          const { reason, status } = yield* ready
          assert.strictEqual(status, 503)
          assert.match(reason ?? "", AWAY)
        }
      }
    }).pipe(Effect.scoped))
})

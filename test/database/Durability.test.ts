import { createDatabase } from "#infrastructure/database/PreparedDatabase"
import { sqlState } from "#infrastructure/database/Sql"
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { noSpace } from "#infrastructure/database/SqlValues"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { PGlite } from "@electric-sql/pglite"
import { NodeFS } from "@electric-sql/pglite/nodefs"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { spawn } from "node:child_process"
import { once } from "node:events"
import fs from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { constants, tmpdir } from "node:os"
import * as path from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { databaseSettings } from "../support/Databases.ts"
import { makeDataDir } from "../support/Server.ts"
import { missingForDisks, SmallDisk } from "../support/SmallDisk.ts"

const COMMITS = 50

let home = ""

beforeAll(async () => {
  home = fs.mkdtempSync(path.join(tmpdir(), "parley-durability-"))
  fs.renameSync(await makeDataDir(), path.join(home, "made"))
})

afterAll(() => fs.rmSync(home, { recursive: true, force: true }))

let copies = 0

/** A DATA_DIR with a database, copied for each test. */
const dataDirOf = (): string => {
  const copy = path.join(home, String(++copies))
  fs.cpSync(path.join(home, "made"), copy, { recursive: true })
  return copy
}

const { fdatasyncSync, fsyncSync, ftruncateSync, writeSync } = fs

/** Puts something else in the place of the two system calls that sync a file, for everybody in this process. */
const replaceSync = (sync: (original: (descriptor: number) => void, descriptor: number) => void) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      fs.fdatasyncSync = (descriptor) => sync(fdatasyncSync, descriptor)
      fs.fsyncSync = (descriptor) => sync(fsyncSync, descriptor)
      syncBuiltinESMExports()
    }),
    () =>
      Effect.sync(() => {
        fs.fdatasyncSync = fdatasyncSync
        fs.fsyncSync = fsyncSync
        syncBuiltinESMExports()
      })
  )

/** As Node reports a used up disk quota. */
const overQuota = (): never => {
  throw Object.assign(new Error("Unknown system error -122: Unknown system error -122, write"), {
    code: "Unknown system error -122",
    errno: -constants.errno.EDQUOT
  })
}

/** Fails every write of this process for lack of a quota, or every write but those to the write-ahead log. */
const useUpQuota = ({ logMayGrow }: { readonly logMayGrow: boolean }) => {
  const mayGrow = (descriptor: number): boolean =>
    logMayGrow && fs.readlinkSync(`/proc/self/fd/${descriptor}`).includes("/pg_wal/")
  return Effect.acquireRelease(
    Effect.sync(() => {
      fs.writeSync = new Proxy(writeSync, {
        apply: (write, self, given) => mayGrow(Number(given[0])) ? Reflect.apply(write, self, given) : overQuota()
      })
      fs.ftruncateSync = (descriptor, length) => mayGrow(descriptor) ? ftruncateSync(descriptor, length) : overQuota()
      syncBuiltinESMExports()
    }),
    () =>
      Effect.sync(() => {
        fs.writeSync = writeSync
        fs.ftruncateSync = ftruncateSync
        syncBuiltinESMExports()
      })
  )
}

/** How many syncs of WAL files the kernel is asked for while so many single commits are made. */
const walSyncs = Effect.fnUntraced(function*<E>(dataDir: string, commit: (n: number) => Effect.Effect<unknown, E>) {
  const wal = path.join(dataDir, "database", "pg_wal")
  let syncs = 0
  yield* replaceSync((original, descriptor) => {
    original(descriptor)
    const { ino } = fs.fstatSync(descriptor)
    if (fs.readdirSync(wal).some((name) => fs.statSync(path.join(wal, name)).ino === ino)) syncs++
  })
  for (let n = 0; n < COMMITS; n++) yield* commit(n)
  return syncs
}, Effect.scoped)

const nested = "[".repeat(10_000) + "]".repeat(10_000)

describe("PGlite in a folder", () => {
  it.live("syncs its WAL with every commit before it acknowledges it", () =>
    Effect.gen(function*() {
      const dataDir = dataDirOf()
      let told = 0
      const layer = layerPglite({ dataDir, onSync: (file) => file.includes("/pg_wal/") && told++ })
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        yield* sql`CREATE TABLE t (n integer)`
        told = 0
        const syncs = yield* walSyncs(dataDir, (n) => sql`INSERT INTO t VALUES (${n})`)
        assert.isAtLeast(syncs, COMMITS)
        assert.isAtLeast(told, COMMITS)
        assert.isBelow(syncs, 2 * COMMITS)
      }).pipe(Effect.provide(layer))
    }))

  it.live("fails that check when it is opened without our file system", () =>
    Effect.gen(function*() {
      const dataDir = dataDirOf()
      const startParams = [
        ...PGlite.defaultStartParams.filter((param) => param !== "-F"),
        "-c",
        "fsync=on",
        "-c",
        "wal_sync_method=fsync"
      ]
      const unsynced = yield* Effect.acquireRelease(
        Effect.promise(() => PGlite.create({ fs: new NodeFS(path.join(dataDir, "database")), startParams })),
        (pglite) => Effect.promise(() => pglite.close())
      )
      yield* Effect.promise(() => unsynced.exec("CREATE TABLE t (n integer)"))
      const syncs = yield* walSyncs(dataDir, (n) =>
        Effect.promise(() => unsynced.query("INSERT INTO t VALUES ($1)", [n])))
      assert.isBelow(syncs, COMMITS)
    }))

  it.live("runs with every setting that durability rests on", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(
        yield* databaseSettings(["fsync", "synchronous_commit", "full_page_writes", "wal_sync_method"]),
        [
          "fsync=on",
          "full_page_writes=on",
          "synchronous_commit=on",
          "wal_sync_method=fsync"
        ]
      )
    }).pipe(Effect.provide(layerPglite({ dataDir: dataDirOf() }))))

  it.live("has every acknowledged commit after a SIGKILL", () =>
    Effect.gen(function*() {
      const dataDir = dataDirOf()
      const script = fileURLToPath(new URL("../support/CommitForever.ts", import.meta.url))
      const child = spawn(process.execPath, [script, dataDir], { stdio: ["ignore", "pipe", "inherit"] })
      let acknowledged = 0
      yield* Effect.promise(async () => {
        for await (const line of createInterface({ input: child.stdout })) {
          acknowledged = Number(line)
          if (acknowledged === 200) child.kill("SIGKILL")
        }
        if (child.signalCode === null) await once(child, "exit")
      })
      assert.isAtLeast(acknowledged, 200)
      const sql = yield* SqlClient.SqlClient.pipe(Effect.provide(yield* Layer.build(layerPglite({ dataDir }))))
      const [row] = yield* sql<
        { readonly rows: number; readonly last: number }
      >`SELECT count(*) AS rows, max(n) AS last FROM commits`
      assert.isAtLeast(row?.last ?? 0, acknowledged)
      assert.strictEqual(row?.rows, row?.last)
    }))

  it.live("starts again after an interrupted creation", () =>
    Effect.gen(function*() {
      const dataDir = path.join(home, "interrupted")
      fs.cpSync(path.join(home, "made", "database", "base"), path.join(dataDir, "database.creating", "base"), {
        recursive: true
      })
      fs.writeFileSync(path.join(dataDir, "database.creating", "PG_VERSION"), "18\n")
      yield* createDatabase(dataDir)
      const sql = yield* SqlClient.SqlClient.pipe(Effect.provide(yield* Layer.build(layerPglite({ dataDir }))))
      assert.deepStrictEqual(yield* sql`SELECT 1 AS one`, [{ one: 1 }])
      assert.deepStrictEqual(fs.readdirSync(dataDir), ["database"])
    }))

  it.live("acknowledges nothing that it could not sync, and goes on once it can", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TABLE t (n integer)`
      yield* sql`INSERT INTO t VALUES (1)`
      const error = yield* Effect.gen(function*() {
        yield* replaceSync(() => {
          throw new Error("the disk is gone")
        })
        return yield* Effect.flip(sql`INSERT INTO t VALUES (2)`)
      }).pipe(Effect.scoped)
      assert.strictEqual(error.reason._tag, "ConnectionError")
      yield* sql`INSERT INTO t VALUES (3)`
      const rows = yield* sql<{ readonly n: number }>`SELECT n FROM t WHERE n <> 2 ORDER BY n`
      assert.deepStrictEqual(rows, [{ n: 1 }, { n: 3 }])
    }).pipe(Effect.provide(layerPglite({ dataDir: dataDirOf() }))))

  it.live("acknowledges nothing that a disk quota refuses, says so, and goes on once it has space", () =>
    Effect.gen(function*() {
      const dataDir = dataDirOf()
      const sql = yield* SqlClient.SqlClient.pipe(Effect.provide(yield* Layer.build(layerPglite({ dataDir }))))
      yield* sql`CREATE TABLE t (n integer, filler text)`
      yield* sql`INSERT INTO t VALUES (1)`
      const grown = sql`INSERT INTO t SELECT 2, repeat('x', 1000) FROM generate_series(1, 100)`
      const refused = yield* Effect.scoped(
        Effect.andThen(useUpQuota({ logMayGrow: true }), Effect.flip(grown))
      )
      assert.match(noSpace(refused) ?? "", /^no space left on .*could not extend file .*: Quota exceeded$/)
      const crashed = yield* Effect.scoped(
        Effect.andThen(useUpQuota({ logMayGrow: false }), Effect.flip(sql`INSERT INTO t VALUES (3)`))
      )
      assert.match(noSpace(crashed) ?? "", /^no space left on .*could not write to log file .*: Quota exceeded$/)
      yield* sql`INSERT INTO t VALUES (4)`
      assert.deepStrictEqual(yield* sql`SELECT n FROM t ORDER BY n`, [{ n: 1 }, { n: 4 }])
    }).pipe(Effect.scoped))

  it.live("recovers from a crash of PGlite, in a transaction too", () =>
    Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TABLE t (n integer)`
      yield* sql`INSERT INTO t VALUES (1)`
      // So deep that the stack of the WebAssembly overflows.
      const crash = sql`SELECT ${nested}::jsonb IS NULL`
      assert.strictEqual(sqlState(yield* Effect.flip(crash)), "57P02")
      const error = yield* Effect.flip(sql.withTransaction(Effect.andThen(sql`INSERT INTO t VALUES (2)`, crash)))
      assert.strictEqual(sqlState(error), "57P02")
      assert.deepStrictEqual(yield* sql`SELECT n FROM t`, [{ n: 1 }])
    }).pipe(Effect.provide(layerPglite({ dataDir: dataDirOf() }))))

  it.live.skipIf(missingForDisks !== "")(
    `keeps what it acknowledged on a full disk, says that the disk is full, and goes on once it has space${missingForDisks}`,
    () =>
      Effect.gen(function*() {
        const disk = yield* Effect.acquireRelease(Effect.sync(() => new SmallDisk(200)), (disk) =>
          Effect.sync(() => disk.unmount()))
        const dataDir = path.join(disk.folder, "data")
        fs.cpSync(path.join(home, "made"), dataDir, { recursive: true })
        const sql = yield* SqlClient.SqlClient.pipe(Effect.provide(yield* Layer.build(layerPglite({ dataDir }))))
        yield* sql`CREATE TABLE t (n integer PRIMARY KEY, filler text)`
        let acknowledged = 0
        const insert = Effect.suspend(() =>
          sql`INSERT INTO t VALUES (${acknowledged + 1}, ${"x".repeat(1_000)})`
        ).pipe(
          Effect.tap(() => Effect.sync(() => acknowledged++))
        )
        yield* insert
        disk.fill()
        // The table cannot grow. What is there can be read.
        const refused = yield* Effect.flip(Effect.forever(insert))
        assert.strictEqual(sqlState(refused), "53100")
        const says = `no space left on ${dataDir} (0.0 MB free): could not extend file`
        assert.include(refused.message, says)
        assert.deepStrictEqual(yield* sql`SELECT count(*) AS n FROM t`, [{ n: acknowledged }])
        // The next file of the log does not fit, which ends PGlite.
        const log = Effect.forever(sql`SELECT pg_logical_emit_message(true, 'test', repeat('x', 1000000))`)
        const crashed = yield* Effect.flip(log)
        assert.strictEqual(sqlState(crashed), "57P02")
        assert.match(crashed.message, /^no space left on .*could not write to file "pg_wal/)
        for (let i = 0; i < 3; i++) {
          const error = yield* Effect.flip(insert)
          assert.match(error.message, /^no space left on .*the database could not be opened \(could not write to file/)
        }
        disk.clear()
        yield* insert
        assert.deepStrictEqual(yield* sql`SELECT count(*) AS n, max(n) AS last FROM t`, [{
          n: acknowledged,
          last: acknowledged
        }])
      }).pipe(Effect.scoped)
  )

  it.live.skipIf(missingForDisks !== "")(
    `is not begun on a disk that is too small for it${missingForDisks}`,
    () =>
      Effect.gen(function*() {
        const disk = yield* Effect.acquireRelease(
          Effect.sync(() => new SmallDisk(20)),
          (disk) => Effect.sync(() => disk.unmount())
        )
        const error = yield* Effect.flip(Layer.build(layerPglite({ dataDir: disk.folder })))
        assert.strictEqual(error.message, `no space left on ${disk.folder} (20 MB free): a new database needs 80 MB`)
        assert.deepStrictEqual(fs.readdirSync(disk.folder), [])
      }).pipe(Effect.scoped)
  )

  it.live("keeps its WAL short", () =>
    Effect.gen(function*() {
      const dataDir = dataDirOf()
      yield* Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        yield* sql`CREATE TABLE t (n integer)`
        // Each round ends a segment of 16 MB: three times what a checkpoint is due after.
        for (let n = 0; n < 12; n++) {
          yield* sql`INSERT INTO t VALUES (${n})`
          yield* sql`SELECT pg_switch_wal()`
          yield* Effect.yieldNow
        }
        const [row] = yield* sql<
          { readonly bytes: number }
        >`SELECT (pg_current_wal_lsn() - redo_lsn)::bigint AS bytes FROM pg_control_checkpoint()`
        assert.isAtMost(row?.bytes ?? Infinity, 6 * 16 * 1024 * 1024)
      }).pipe(Effect.provide(layerPglite({ dataDir })))
    }))

  it.live("says why a folder cannot be opened", () =>
    Effect.gen(function*() {
      const dataDir = dataDirOf()
      fs.writeFileSync(path.join(dataDir, "database", "PG_VERSION"), "17\n")
      const error = yield* Effect.flip(Layer.build(layerPglite({ dataDir })))
      assert.strictEqual(
        error.message,
        `${dataDir}/database could not be opened: database files are incompatible with server`
      )
    }))
})

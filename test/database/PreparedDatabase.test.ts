import { databaseIsNew, folderOf, makeDatabase } from "#infrastructure/database/Pglite"
import { createDatabase, pack, type Places, unpack } from "#infrastructure/database/PreparedDatabase"
import { Secrets } from "#infrastructure/database/Secrets"
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { Ids } from "#infrastructure/platform/Ids"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { Effect, Latch, Layer, Logger } from "effect"
import { SqlClient } from "effect/sql"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { zstdCompressSync } from "node:zlib"
import { layerPgliteTest } from "../support/Databases.ts"

const home = fs.mkdtempSync(join(tmpdir(), "parley-prepared-"))
afterAll(() => fs.rmSync(home, { recursive: true, force: true }))

/** Everything that migrations make, by names. */
const shape = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ readonly entry: string }>`
    SELECT concat_ws(' ', 'relation', relname, relkind, reloptions) AS entry FROM pg_class
      WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', 'column', attrelid::regclass, attnum, attname, format_type(atttypid, atttypmod),
        attnotnull, attcollation::regcollation, attstorage, attcompression, pg_get_expr(adbin, adrelid))
      FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
      WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    UNION ALL SELECT concat_ws(' ', 'index', pg_get_indexdef(indexrelid), indisvalid) FROM pg_index
      WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    UNION ALL SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
      FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', 'trigger', pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT concat_ws(' ', 'function', pg_get_functiondef(oid)) FROM pg_proc
      WHERE pronamespace = 'public'::regnamespace AND prokind = 'f'
    UNION ALL SELECT concat_ws(' ', 'extension', extname, extversion) FROM pg_extension
    UNION ALL SELECT concat_ws(' ', 'schema', nspname) FROM pg_namespace
    UNION ALL SELECT concat_ws(' ', 'setting', setconfig) FROM pg_db_role_setting
    UNION ALL SELECT concat_ws(' ', 'migration', id, name, sha256) FROM migrations
    ORDER BY 1`
  return rows.map(({ entry }) => entry)
})

/** The tables with rows. */
const filled = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  const tables = yield* sql<
    { readonly name: string }
  >`SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'`
  const counts = yield* Effect.forEach(tables, ({ name }) => sql`SELECT 1 FROM ${sql(name)} LIMIT 1`)
  return tables.flatMap(({ name }, i) => counts[i]!.length > 0 ? [name] : [])
})

const secretsOf = Effect.provide(Secrets, Secrets.layer.pipe(Layer.provide(Ids.layer)))

describe("the prepared database", () => {
  it.live(
    "has the schema of the migrations and no rows, and each server makes its own keys in it",
    () =>
      Effect.gen(function*() {
        const migrated = yield* Effect.provide(shape, layerPgliteTest)
        const keys = yield* Effect.forEach(["one", "two"], (name) =>
          Effect.gen(function*() {
            const dataDir = join(home, name)
            yield* createDatabase(dataDir)
            return yield* Effect.gen(function*() {
              assert.deepStrictEqual(yield* shape, migrated)
              assert.deepStrictEqual(yield* filled, ["migrations"])
              const { clients, ...others } = yield* secretsOf
              return [...clients, ...Object.values(others)].flat().map((key) => key.toString("hex"))
            }).pipe(Effect.provide(layerPglite({ dataDir })))
          }))
        assert.lengthOf(keys.flat(), 10)
        assert.lengthOf([...new Set(keys.flat())], 10)
      })
  )

  it.live("is complete, and readable by its owner only, after a creation that was interrupted", () =>
    Effect.gen(function*() {
      const dataDir = join(home, "interrupted")
      for (const name of ["database.creating/base", "database.creating/database"]) {
        fs.mkdirSync(join(dataDir, name), { recursive: true })
        fs.writeFileSync(join(dataDir, name, "PG_VERSION"), "18\n", { mode: 0o666 })
      }
      yield* createDatabase(dataDir)
      assert.deepStrictEqual(fs.readdirSync(dataDir), ["database"])
      const entries = fs.readdirSync(dataDir, { recursive: true, withFileTypes: true })
      const open = entries.filter(({ name, parentPath }) => (fs.statSync(join(parentPath, name)).mode & 0o077) !== 0)
      assert.deepStrictEqual(open, [])
    }))

  it("is no database before it is complete", async () => {
    const dataDir = join(home, "broken")
    const folder = join(home, "packed")
    fs.mkdirSync(join(folder, "empty"), { recursive: true })
    fs.writeFileSync(join(folder, "PG_VERSION"), "18\n")
    const packed = pack(folder)
    const failed = await makeDatabase(dataDir, async (unfinished) => unpack(packed.subarray(0, -3), unfinished)).then(
      () => false,
      () => true
    )
    assert.isTrue(failed)
    assert.isTrue(databaseIsNew({ dataDir }))
    await makeDatabase(dataDir, async (unfinished) => unpack(packed, unfinished))
    assert.deepStrictEqual(fs.readdirSync(folderOf(dataDir)), ["PG_VERSION", "empty"])
    assert.strictEqual(fs.readFileSync(join(folderOf(dataDir), "PG_VERSION"), "utf8"), "18\n")
  })

  /** Places in a new folder. In place of a database, a folder with one file is made, which takes no time. */
  const newPlaces = (text = "18\n") => {
    const folder = fs.mkdtempSync(join(home, "places-"))
    const source = join(folder, "source")
    fs.mkdirSync(source)
    fs.writeFileSync(join(source, "PG_VERSION"), text)
    const bytes = pack(source)
    let made = 0
    const make: Places["make"] = () => Effect.sync(() => (made++, bytes))
    return { packed: join(folder, "package"), cache: join(folder, "cache"), make, bytes, count: () => made, folder }
  }

  /** Creates a database, and returns what is logged. */
  const created = Effect.fnUntraced(function*(places: Places) {
    const dataDir = fs.mkdtempSync(join(home, "data-"))
    const lines: Array<string> = []
    const logger = Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
    yield* Effect.provide(createDatabase(dataDir, places), logger)
    assert.strictEqual(fs.readFileSync(join(folderOf(dataDir), "PG_VERSION"), "utf8"), "18\n")
    return lines
  })

  /** The only file in a folder. */
  const only = (folder: string): string => {
    const names = fs.readdirSync(folder)
    assert.lengthOf(names, 1)
    return join(folder, names[0]!)
  }

  it.effect("is made once for all users, whatever the umask is", () =>
    Effect.gen(function*() {
      const places = newPlaces()
      const umask = process.umask(0o077)
      yield* Effect.addFinalizer(() => Effect.sync(() => process.umask(umask)))
      assert.deepStrictEqual(yield* created(places), [])
      assert.deepStrictEqual(yield* created(places), [])
      assert.strictEqual(places.count(), 1)
      assert.strictEqual(fs.statSync(only(places.cache)).mode & 0o777, 0o644)
    }))

  it.effect("is made again if the file in the cache is damaged or cannot be read, and its name is logged", () =>
    Effect.gen(function*() {
      const places = newPlaces()
      yield* created(places)
      const file = only(places.cache)
      const middle = places.bytes.length >> 1
      const damages = [
        () => fs.truncateSync(file),
        () => fs.truncateSync(file, middle),
        () => fs.writeFileSync(file, Buffer.from(places.bytes).fill(0, middle)),
        () => fs.writeFileSync(file, zstdCompressSync("no database")),
        () => {
          fs.rmSync(file)
          fs.mkdirSync(file)
        }
      ]
      for (const [i, damage] of damages.entries()) {
        damage()
        const lines = yield* created(places)
        assert.lengthOf(lines, 1)
        assert.include(lines[0], `${file} cannot be used (`)
        assert.strictEqual(places.count(), i + 2)
        assert.deepStrictEqual(fs.readFileSync(only(places.cache)), places.bytes)
        assert.deepStrictEqual(yield* created(places), [])
      }
    }))

  it.effect("is not kept if the cache cannot be written", () =>
    Effect.gen(function*() {
      const places = newPlaces()
      fs.writeFileSync(places.cache, "a file")
      assert.deepStrictEqual(yield* created(places), [])
      assert.deepStrictEqual(yield* created(places), [])
      assert.strictEqual(places.count(), 2)
    }))

  it.effect("is made by two servers at once, and the cache keeps the newest ten", () =>
    Effect.gen(function*() {
      const places = newPlaces()
      fs.mkdirSync(places.cache)
      for (let i = 10; i < 30; i++) {
        const file = join(places.cache, `database-${i}.zst`)
        fs.writeFileSync(file, "")
        fs.utimesSync(file, i, i)
      }
      const bothMake = yield* Latch.make()
      const make: Places["make"] = (parent) =>
        Effect.tap(places.make(parent), () => places.count() === 2 ? bothMake.open : bothMake.await)
      const both = { ...places, make }
      yield* Effect.all([created(both), created(both)], { concurrency: 2 })
      assert.strictEqual(places.count(), 2)
      const left = fs.readdirSync(places.cache)
      assert.lengthOf(left, 10)
      assert.includeMembers(left, Array.from({ length: 9 }, (_, i) => `database-${21 + i}.zst`))
    }))

  it.effect("is refused by name if the file in the package is damaged", () =>
    Effect.gen(function*() {
      const places = newPlaces()
      yield* created({ ...places, cache: places.packed })
      const file = only(places.packed)
      assert.deepStrictEqual(yield* created({ ...newPlaces("other"), packed: places.packed }), [])
      fs.truncateSync(file, 10)
      const refused = yield* Effect.flip(created(places))
      assert.match(refused.message, /cannot be used \(.+\): install Parley again$/)
      assert.include(refused.message, file)
      assert.strictEqual(places.count(), 1)
    }))
})

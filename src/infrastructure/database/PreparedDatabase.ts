import { makeFolder } from "#infrastructure/platform/disk/Folder"
import { sha256 } from "#infrastructure/platform/Ids"
import { Effect } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import * as fs from "node:fs"
import { createRequire } from "node:module"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib"
import * as Migrations from "./Migrations.ts"
import { folderOf, makeDatabase, unfinishedOf } from "./Pglite.ts"
import { layerPglite } from "./SqlPglite.ts"
import { sqlError } from "./SqlValues.ts"

/**
 * A prepared database is the folder of a database that has the schema and no rows, packed into one file. The first start
 * of a server unpacks it instead of running PostgreSQL's initdb and all migrations. The package contains the file. In a
 * checkout, the first server that needs the file makes it.
 *
 * The file holds nothing secret: a server generates its keys when it starts with the database (`Secrets.ts`). All
 * servers have the same PostgreSQL system identifier, which only physical replication reads.
 */

/** The folder of the checkout, or of the compiled files in the package. */
const ROOT = fileURLToPath(new URL("../../../", import.meta.url))
const CACHE = path.join(ROOT, "node_modules/.cache/parley")

/** The number of prepared databases that stay in the cache. */
const KEPT = 10

/** Increase this number when `prepare` or the packing changes, because then a file made before must not be used. */
const FORMAT = 1

/** The version of PGlite, whose files another version might not read. */
const pgliteVersion = (): string => {
  const main = createRequire(import.meta.url).resolve("@electric-sql/pglite")
  const about: unknown = JSON.parse(fs.readFileSync(path.join(path.dirname(main), "../package.json"), "utf8"))
  return (about as { readonly version: string }).version
}

/** The name of the file for this format, this schema and this version of PGlite. A file for others has another name. */
const fileName = Effect.map(Migrations.schema, (migrations) => {
  const schema = migrations.map(({ name, sha256 }) => `${name} ${sha256}\n`).join("")
  return `database-${sha256(`${FORMAT} ${pgliteVersion()}\n${schema}`).toString("hex").slice(0, 16)}.zst`
})

/** The first line of a packed folder: its folders, and its files with their sizes. Their bytes follow, in this order. */
interface Contents {
  readonly folders: ReadonlyArray<string>
  readonly files: ReadonlyArray<readonly [name: string, size: number]>
}

const CHUNK_BYTES = 8_388_608

/** Packs a folder. */
export const pack = (folder: string): Buffer => {
  const entries = fs.readdirSync(folder, { recursive: true, withFileTypes: true })
  const named = (wanted: (entry: fs.Dirent) => boolean): ReadonlyArray<string> =>
    entries.filter(wanted).map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name))).sort()
  const names = named((entry) => entry.isFile())
  const bytes = names.map((name) => fs.readFileSync(path.join(folder, name)))
  const contents: Contents = {
    folders: named((entry) => entry.isDirectory()),
    files: names.map((name, i) => [name, bytes[i]!.length])
  }
  return zstdCompressSync(Buffer.concat([Buffer.from(`${JSON.stringify(contents)}\n`), ...bytes]), {
    params: { [constants.ZSTD_c_compressionLevel]: 12, [constants.ZSTD_c_checksumFlag]: 1 }
  })
}

/** A packed folder, decompressed. */
interface Opened {
  readonly contents: Contents
  readonly bytes: Buffer
}

/** Decompresses a packed folder. Throws if it is damaged. */
const opened = (packed: Buffer): Opened => {
  const bytes = zstdDecompressSync(packed, { chunkSize: CHUNK_BYTES })
  const end = bytes.indexOf("\n")
  return { contents: JSON.parse(bytes.toString("utf8", 0, end)) as Contents, bytes: bytes.subarray(end + 1) }
}

/** Writes the contents of a packed folder into a folder that exists. */
const writeInto = ({ bytes, contents: { files, folders } }: Opened, folder: string): void => {
  for (const name of folders) fs.mkdirSync(path.join(folder, name), { mode: 0o700 })
  let at = 0
  for (const [name, size] of files) {
    fs.writeFileSync(path.join(folder, name), bytes.subarray(at, at + size), { mode: 0o600 })
    at += size
  }
}

/** Unpacks a folder into one that exists. */
export const unpack = (packed: Buffer, folder: string): void => writeInto(opened(packed), folder)

/**
 * Removes PostgreSQL's template databases, which are half of the files of a new database. Only CREATE DATABASE reads
 * them.
 */
const removeTemplates = Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql`UPDATE pg_database SET datistemplate = false`
  yield* sql`DROP DATABASE template0`
  yield* sql`DROP DATABASE template1`
})

/**
 * Makes the prepared database. This takes seconds. Meanwhile it is in the folder in which `makeDatabase` makes a
 * database of `parent`, so that one which was interrupted is removed.
 */
const prepare = (parent: string) => {
  const dataDir = unfinishedOf(parent)
  const remove = Effect.sync(() => fs.rmSync(dataDir, { recursive: true, force: true }))
  return remove.pipe(
    Effect.andThen(Effect.provide(Effect.andThen(Migrations.run(), removeTemplates), layerPglite({ dataDir }))),
    Effect.andThen(Effect.try({ try: () => pack(folderOf(dataDir)), catch: (error) => sqlError(error, "connect") })),
    Effect.ensuring(remove)
  )
}

/** Writes a file that all users may read. It appears when it is complete and synced to disk. */
const write = (file: string, bytes: Buffer): void => {
  const folder = path.dirname(file)
  const created = [path.dirname(folder), folder].filter((one) => !fs.existsSync(one))
  makeFolder(folder)
  for (const one of created) fs.chmodSync(one, 0o755)
  // Several processes may write the file at the same time, also in containers, whose processes have the same numbers.
  const making = fs.mkdtempSync(path.join(folder, "making-"))
  try {
    const unfinished = path.join(making, "database")
    fs.writeFileSync(unfinished, bytes, { flush: true })
    fs.chmodSync(unfinished, 0o644)
    fs.renameSync(unfinished, file)
  } finally {
    fs.rmSync(making, { recursive: true, force: true })
  }
}

/** Removes all but the newest prepared databases from a cache. */
const prune = (cache: string): void => {
  const files = fs.readdirSync(cache).filter((name) => /^database-.*\.zst$/.test(name)).map((name) => {
    const file = path.join(cache, name)
    return { file, made: fs.statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0 }
  })
  for (const { file } of files.sort((a, b) => b.made - a.made).slice(KEPT)) fs.rmSync(file, { force: true })
}

/** Writes the prepared database for the package into a folder. */
export const createDatabaseFile = Effect.fnUntraced(function*(folder: string) {
  write(path.join(folder, yield* fileName), yield* prepare(folder))
})

/** The folders that may contain the prepared database, and what makes it otherwise. */
export interface Places {
  /** The folder of the package. */
  readonly packed: string
  readonly cache: string
  /** Makes the prepared database in the folder in which the database is then created. */
  readonly make: typeof prepare
}

const PLACES: Places = { packed: ROOT, cache: CACHE, make: prepare }

/** Whether the prepared database exists, so that a new database takes less than a second. */
export const isPrepared = Effect.map(
  fileName,
  (name) => [ROOT, CACHE].some((folder) => fs.existsSync(path.join(folder, name)))
)

/** Reads a prepared database. Fails with the reason if the file is damaged or cannot be read. */
const read = (file: string): Effect.Effect<Opened, Error> =>
  Effect.try({
    try: () => opened(fs.readFileSync(file)),
    catch: (error) => error instanceof Error ? error : new Error(String(error))
  })

/** Whether a file could not be opened because too many are open. This says nothing about the file. */
const hasTooManyOpen = (error: Error): boolean => ["EMFILE", "ENFILE"].includes(String(Reflect.get(error, "code")))

/** Makes the prepared database, and keeps it in the cache unless the cache cannot be written. */
const makeIn = Effect.fnUntraced(function*({ cache, make }: Places, name: string, dataDir: string) {
  const made = yield* make(dataDir)
  yield* Effect.ignore(Effect.try(() => write(path.join(cache, name), made)))
  yield* Effect.ignore(Effect.try(() => prune(cache)))
  return opened(made)
})

/** Returns the prepared database. A file in the cache that is damaged or cannot be read is replaced. */
const prepared = Effect.fnUntraced(function*(places: Places, dataDir: string) {
  const name = yield* fileName
  const inPackage = path.join(places.packed, name)
  if (fs.existsSync(inPackage)) {
    return yield* Effect.mapError(
      read(inPackage),
      (error): SqlError.SqlError =>
        sqlError(new Error(`${inPackage} cannot be used (${error.message}): install Parley again`), "connect")
    )
  }
  const kept = path.join(places.cache, name)
  if (!fs.existsSync(kept)) return yield* makeIn(places, name, dataDir)
  return yield* Effect.catch(read(kept), (error) =>
    Effect.gen(function*() {
      yield* Effect.logWarning(
        `${kept} cannot be used (${error.message}). It is made again, which takes ten seconds or more`
      )
      if (!hasTooManyOpen(error))
        yield* Effect.ignore(Effect.try(() => fs.rmSync(kept, { recursive: true, force: true })))
      return yield* makeIn(places, name, dataDir)
    }))
})

/**
 * Creates the database in DATA_DIR from the prepared database. If there is none, it is made, and kept in the cache for
 * the next new database.
 */
export const createDatabase = Effect.fnUntraced(function*(dataDir: string, places: Places = PLACES) {
  const database = yield* prepared(places, dataDir)
  yield* Effect.tryPromise({
    try: () => makeDatabase(dataDir, async (unfinished) => writeInto(database, unfinished)),
    catch: (error) => sqlError(error, "connect")
  })
})

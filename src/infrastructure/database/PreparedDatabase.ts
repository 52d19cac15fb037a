import { makeFolder } from "#infrastructure/platform/disk/Folder"
import { sha256 } from "#infrastructure/platform/Ids"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
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

/** The version of PGlite, whose files another version might not read. */
const pgliteVersion = (): string => {
  const main = createRequire(import.meta.url).resolve("@electric-sql/pglite")
  const about: unknown = JSON.parse(fs.readFileSync(path.join(path.dirname(main), "../package.json"), "utf8"))
  return (about as { readonly version: string }).version
}

/** The name of the file for this schema and this version of PGlite. A file for others has another name. */
const fileName = Effect.map(Migrations.schema, (migrations) => {
  const schema = migrations.map(({ name, sha256 }) => `${name} ${sha256}\n`).join("")
  return `database-${sha256(`${pgliteVersion()}\n${schema}`).toString("hex").slice(0, 16)}.zst`
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

/** Unpacks a folder into one that exists. */
export const unpack = (packed: Buffer, folder: string): void => {
  const bytes = zstdDecompressSync(packed, { chunkSize: CHUNK_BYTES })
  const end = bytes.indexOf("\n")
  const { files, folders } = JSON.parse(bytes.toString("utf8", 0, end)) as Contents
  for (const name of folders) fs.mkdirSync(path.join(folder, name), { mode: 0o700 })
  let at = end + 1
  for (const [name, size] of files) {
    fs.writeFileSync(path.join(folder, name), bytes.subarray(at, at + size), { mode: 0o600 })
    at += size
  }
}

/** The file in the package, or in the cache of the checkout. */
const find = (name: string): string | undefined =>
  [ROOT, CACHE].map((folder) => path.join(folder, name)).find((file) => fs.existsSync(file))

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

/** Writes a file, which appears when it is complete and synced to disk. */
const write = (file: string, bytes: Buffer): void => {
  makeFolder(path.dirname(file))
  fs.writeFileSync(`${file}.${process.pid}`, bytes, { flush: true })
  fs.renameSync(`${file}.${process.pid}`, file)
}

/** Writes the prepared database for the package into a folder. */
export const createDatabaseFile = Effect.fnUntraced(function*(folder: string) {
  write(path.join(folder, yield* fileName), yield* prepare(folder))
})

/** Whether the prepared database exists, so that a new database takes less than a second. */
export const isPrepared = Effect.map(fileName, (name) => find(name) !== undefined)

/**
 * Creates the database in DATA_DIR from the prepared database. If there is none, it is made, and kept in the cache for
 * the next new database; if the cache cannot be written, it is not kept.
 */
export const createDatabase = Effect.fnUntraced(function*(dataDir: string) {
  const name = yield* fileName
  const kept = find(name)
  const packed = kept === undefined
    ? yield* Effect.tap(
      prepare(dataDir),
      (made) => Effect.ignore(Effect.try(() => write(path.join(CACHE, name), made)))
    )
    : fs.readFileSync(kept)
  yield* Effect.tryPromise({
    try: () => makeDatabase(dataDir, async (unfinished) => unpack(packed, unfinished)),
    catch: (error) => sqlError(error, "connect")
  })
})

import { Clock, Data, Effect, Option, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { existsSync } from "node:fs"
import { mkdir, open, readdir, rename, rm } from "node:fs/promises"
import * as path from "node:path"
import { syncTree } from "#ground/database/Pglite"
import type { LogOfBackup, OnlineBackup } from "#ground/database/Sql"
import { entriesOf, TarWriter } from "#ground/files/Tar"
import { RESTORING } from "#ground/platform/DataDir"

/** A backup cannot be made or restored where the operator wants it. */
export class BackupRefused extends Data.TaggedError("BackupRefused")<{ readonly message: string }> {}

const refuse = (message: string) => new BackupRefused({ message })

const io = <A>(run: () => Promise<A>): Effect.Effect<A, BackupRefused> =>
  Effect.tryPromise({ try: run, catch: (error) => refuse(error instanceof Error ? error.message : String(error)) })

/** The last entry of a backup. A backup without this entry is incomplete. */
const Contents = Schema.Struct({
  format: Schema.Literal(1),
  made_at: Schema.String,
  /** The last migration of the database. */
  schema: Schema.String,
  /** How many entries come before this one. */
  entries: Schema.Int,
  /** The folders of the database, because PostgreSQL also needs the empty ones. */
  folders: Schema.Array(Schema.String),
  /** Whether the backup contains the file store. */
  files: Schema.Boolean
})
const CONTENTS = "backup.json"
const decodeContents = Schema.decodeUnknownEffect(Schema.fromJsonString(Contents))

/** Files that PostgreSQL creates when it starts (compare pg_basebackup). The needed files of pg_wal are added by name. */
const MADE_ANEW = /^(postmaster\.(pid|opts)|backup_label(\.old)?|tablespace_map(\.old)?)$|^(pg_wal|pg_replslot|pg_dynshmem|pg_notify|pg_serial|pg_snapshots|pg_stat_tmp|pg_subtrans)\/|(^|\/)pgsql_tmp/
const LOG_FILE = /^([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})$/
/** How many files of the log, of 16 MB each, have the same first 16 digits. */
const LOG_FILES = 256

const numberOf = (file: string): number => {
  const [, , high = "", low = ""] = LOG_FILE.exec(file) ?? []
  if (low === "") throw new Error(`the log has no file ${file}`)
  return parseInt(high, 16) * LOG_FILES + parseInt(low, 16)
}

const digits = (n: number): string => n.toString(16).toUpperCase().padStart(8, "0")

/** The names of all files of the log from one to another. */
const logFiles = (first: string, last: string): ReadonlyArray<string> => {
  const from = numberOf(first)
  return Array.from({ length: numberOf(last) - from + 1 }, (_, i) =>
    first.slice(0, 8) + digits(Math.floor((from + i) / LOG_FILES)) + digits((from + i) % LOG_FILES))
}

const syncFolder = async (folder: string): Promise<void> => {
  const handle = await open(folder, "r")
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

const isMissing = (error: unknown): boolean => Reflect.get(Object(error), "code") === "ENOENT"

interface Tree {
  readonly folders: ReadonlyArray<string>
  readonly files: ReadonlyArray<string>
}

/** The folders and files below a folder, as relative paths in order; empty if the folder does not exist. */
const treeOf = async (root: string): Promise<Tree> => {
  const folders: Array<string> = []
  const files: Array<string> = []
  const left = [""]
  for (let folder = left.pop(); folder !== undefined; folder = left.pop()) {
    const entries = await readdir(path.join(root, folder), { withFileTypes: true }).catch((error: unknown) => {
      if (isMissing(error)) return []
      throw error
    })
    for (const entry of entries) {
      const name = folder === "" ? entry.name : `${folder}/${entry.name}`
      if (entry.isDirectory()) {
        folders.push(name)
        left.push(name)
      } else if (entry.isFile()) files.push(name)
    }
  }
  return { folders: folders.sort(), files: files.sort() }
}

export interface BackedUp {
  readonly file: string
  readonly bytes: number
  readonly entries: number
  readonly files: boolean
  /** The longest time for which the backup held up all other statements, in milliseconds. */
  readonly longest_stop_ms: number
}

export interface BackupGiven {
  readonly target: string
  readonly database: OnlineBackup
  readonly schema: string
  /** The folder of the file store; undefined if the files are not on this disk. */
  readonly store: string | undefined
}

/**
 * Writes a backup of a database and of the files of a store into a tar file, while both are in use. The backup has the database as it
 * was when the copy of its files ended. The store's files are copied after that, so the backup contains every file that the database
 * names, except files removed meanwhile. The tar file gets its name when it is complete. While another backup of the
 * database is under way, the call is refused before anything is written.
 *
 * Two statements hold up all others: a checkpoint at the beginning, like the one that follows every 64 MB of log, and the end of
 * the log. Other threads read and write the bytes, a quarter of a megabyte at a time.
 */
export const backUp = Effect.fnUntraced(function*(given: BackupGiven): Effect.fn.Return<BackedUp, BackupRefused | SqlError.SqlError> {
  const made = yield* given.database.one.withPermitsIfAvailable(1)(backUpAlone(given))
  return Option.isSome(made) ? made.value : yield* refuse("A backup is under way: wait until it has ended.")
})

const backUpAlone = Effect.fnUntraced(function*(given: BackupGiven): Effect.fn.Return<BackedUp, BackupRefused | SqlError.SqlError> {
  const { database, schema, store } = given
  const target = path.resolve(given.target)
  if (existsSync(target)) return yield* refuse(`${target} is there already.`)
  const at = yield* Clock.currentTimeMillis
  const unfinished = `${target}.unfinished`
  let longest = 0
  const timed = <A, E, R>(statement: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      const began = performance.now()
      return Effect.tap(statement, () =>
        Effect.sync(() => {
          longest = Math.max(longest, performance.now() - began)
        }))
    })
  return yield* Effect.scoped(Effect.gen(function*() {
    const handle = yield* Effect.acquireRelease(io(() => open(unfinished, "w", 0o600)), (handle, exit) =>
      Effect.promise(async () => {
        await handle.close()
        if (exit._tag === "Failure") await rm(unfinished, { force: true })
      }))
    const tar = new TarWriter(handle, at)
    const root = database.folder
    const folders = yield* Effect.scoped(Effect.gen(function*() {
      yield* timed(database.begin)
      const tree = yield* io(() => treeOf(root))
      yield* io(async () => {
        await tar.files(tree.files.filter((name) => !MADE_ANEW.test(name)).map((name) => [`database/${name}`, path.join(root, name)]))
      })
      const log: LogOfBackup = yield* timed(database.end)
      yield* io(async () => {
        await tar.text("database/backup_label", log.label)
        // Each of these files must exist. A backup without one of them could not be restored.
        for (const name of logFiles(log.first, log.last)) await tar.file(`database/pg_wal/${name}`, path.join(root, "pg_wal", name))
      })
      return tree.folders
    }))
    yield* io(async () => {
      if (store !== undefined) {
        const { files } = await treeOf(store)
        await tar.files(files.filter((name) => !name.startsWith("incoming/")).map((name) => [`blobs/${name}`, path.join(store, name)]))
      }
      const contents: typeof Contents.Type = {
        format: 1,
        made_at: new Date(at).toISOString(),
        schema,
        entries: tar.entries,
        folders,
        files: store !== undefined
      }
      await tar.text(CONTENTS, JSON.stringify(contents))
      await tar.finish()
      await rename(unfinished, target)
      await syncFolder(path.dirname(target))
    })
    return { file: target, bytes: tar.bytes, entries: tar.entries, files: store !== undefined, longest_stop_ms: Math.ceil(longest) }
  }))
})

const STORE = "blobs"

/** The files of a backup, unpacked in a subfolder of the folder that is restored. */
export interface Unpacked {
  /** The subfolder, which is a DATA_DIR on which the database can be opened. */
  readonly dataDir: string
  readonly madeAt: string
  readonly files: boolean
  /** Moves the files into the restored folder, the database last. */
  readonly finish: Effect.Effect<void, BackupRefused>
}

/**
 * Unpacks a backup below an empty folder and syncs it to disk. May be repeated, because it removes the files of an interrupted
 * restoration. Until `finish`, a server that is started on the folder finds no database there.
 */
export const unpack = Effect.fnUntraced(function*(file: string, folder: string): Effect.fn.Return<Unpacked, BackupRefused> {
  const target = path.resolve(folder)
  const dataDir = path.join(target, RESTORING)
  if (!existsSync(file)) return yield* refuse(`There is no file ${path.resolve(file)}.`)
  yield* io(() => mkdir(target, { recursive: true, mode: 0o700 }))
  const names = yield* io(() => readdir(target))
  const others = names.filter((name) => name !== RESTORING)
  // The state that `finish` leaves if the process dies between its two steps.
  const isHalf = names.includes(RESTORING) && others.length === 1 && others[0] === STORE
  if (others.length > 0 && !isHalf) return yield* refuse(`${target} is not empty: give an empty folder, or one that is not there yet.`)
  const damaged = (error: unknown) =>
    refuse(`${path.resolve(file)} is not a complete backup: ${error instanceof Error ? error.message : String(error)}.`)
  const text = yield* Effect.tryPromise({
    try: async () => {
      // The store is removed before `dataDir`, whose presence shows that the store is a leftover.
      if (isHalf) await rm(path.join(target, STORE), { recursive: true })
      await rm(dataDir, { recursive: true, force: true })
      await mkdir(dataDir, { recursive: true, mode: 0o700 })
      const source = await open(file, "r")
      try {
        let entries = 0
        for await (const entry of entriesOf(source)) {
          if (entry.name === CONTENTS) {
            const parts: Array<Buffer> = []
            for await (const chunk of entry.chunks()) parts.push(chunk)
            return { contents: Buffer.concat(parts).toString("utf8"), entries }
          }
          if (!/^(database|blobs)\//.test(entry.name)) throw new Error(`it has an entry ${entry.name}`)
          entries++
          const place = path.join(dataDir, entry.name)
          await mkdir(path.dirname(place), { recursive: true, mode: 0o700 })
          const handle = await open(place, "wx", 0o600)
          try {
            for await (const chunk of entry.chunks()) await handle.writeFile(chunk)
          } finally {
            await handle.close()
          }
        }
        throw new Error(`it ends without ${CONTENTS}`)
      } finally {
        await source.close()
      }
    },
    catch: damaged
  })
  const contents = yield* Effect.mapError(decodeContents(text.contents), () => refuse("This backup was made by another version of Parley."))
  if (contents.entries !== text.entries) return yield* damaged(`it has ${text.entries} of ${contents.entries} entries`)
  yield* io(async () => {
    for (const name of contents.folders) await mkdir(path.join(dataDir, "database", name), { recursive: true, mode: 0o700 })
    await syncTree(dataDir)
  })
  return {
    dataDir,
    madeAt: contents.made_at,
    files: contents.files,
    finish: io(async () => {
      for (const name of [STORE, "database"]) {
        if (existsSync(path.join(dataDir, name))) await rename(path.join(dataDir, name), path.join(target, name))
      }
      await rm(dataDir, { recursive: true })
      await syncFolder(target)
    })
  }
})

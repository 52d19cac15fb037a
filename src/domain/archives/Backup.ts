import { syncTree } from "#infrastructure/database/Pglite"
import type { OnlineBackup } from "#infrastructure/database/Sql"
import { unlessMissing } from "#infrastructure/files/Missing"
import { filesAt, type TarEntries, writeTar } from "#infrastructure/files/Tar"
import { RESTORING } from "#infrastructure/platform/disk/DataDir"
import { makeFolder, reasonOf } from "#infrastructure/platform/disk/Folder"
import { Clock, Data, Effect, Option, Schema, Stream } from "effect"
import { Tar } from "effect/encoding"
import type { SqlError } from "effect/sql"
import { createReadStream, existsSync } from "node:fs"
import { mkdir, open, readdir, rename, rm, stat } from "node:fs/promises"
import * as path from "node:path"

/** A backup cannot be written to, or restored at, the place that the operator gave. */
export class BackupRefused extends Data.TaggedError("BackupRefused")<{ readonly message: string }> {}

const refuse = (message: string) => new BackupRefused({ message })

const errorOf = (error: unknown): Error => error instanceof Error ? error : new Error(String(error))

const attempt = <A>(run: () => Promise<A>): Effect.Effect<A, Error> => Effect.tryPromise({ try: run, catch: errorOf })

/** Makes a refusal of any error. */
export const refusedBy = (error: unknown): BackupRefused => refuse(errorOf(error).message)

/** Runs operations on files or stores. A failure is a refusal. */
export const io = <A>(run: () => Promise<A>): Effect.Effect<A, BackupRefused> =>
  Effect.tryPromise({ try: run, catch: refusedBy })

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
/** The folder of the file store in a backup. */
const STORE = "blobs"
const decodeContents = Schema.decodeUnknownEffect(Schema.fromJsonString(Contents))

/**
 * Files that are left out because PostgreSQL creates them when it starts (compare pg_basebackup). The required files of
 * pg_wal are added by name.
 */
const MADE_ANEW =
  /^(postmaster\.(pid|opts)|backup_label(\.old)?|tablespace_map(\.old)?)$|^(pg_wal|pg_replslot|pg_dynshmem|pg_notify|pg_serial|pg_snapshots|pg_stat_tmp|pg_subtrans)\/|(^|\/)pgsql_tmp/
const LOG_FILE = /^([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{8})$/
/** How many log files of 16 MB have the same first 16 digits. */
const SEGMENTS_PER_LOG = 256

const numberOf = (file: string): number => {
  const [, , high = "", low = ""] = LOG_FILE.exec(file) ?? []
  if (low === "") throw new Error(`the log has no file ${file}`)
  return parseInt(high, 16) * SEGMENTS_PER_LOG + parseInt(low, 16)
}

const digits = (n: number): string => n.toString(16).toUpperCase().padStart(8, "0")

/** Returns the names of all log files from `first` to `last`. */
const logFiles = (first: string, last: string): ReadonlyArray<string> => {
  const from = numberOf(first)
  return Array.from(
    { length: numberOf(last) - from + 1 },
    (_, i) =>
      first.slice(0, 8) + digits(Math.floor((from + i) / SEGMENTS_PER_LOG)) + digits((from + i) % SEGMENTS_PER_LOG)
  )
}

const syncFolder = async (folder: string): Promise<void> => {
  const handle = await open(folder, "r")
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

interface Tree {
  readonly folders: ReadonlyArray<string>
  readonly files: ReadonlyArray<string>
}

/** Returns the folders and files below a folder, as sorted relative paths, or none if the folder does not exist. */
const treeOf = async (root: string): Promise<Tree> => {
  const folders: Array<string> = []
  const files: Array<string> = []
  const left = [""]
  for (let folder = left.pop(); folder !== undefined; folder = left.pop()) {
    const entries = await unlessMissing(readdir(path.join(root, folder), { withFileTypes: true })) ?? []
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

/** How many bytes a backup of these folders takes, without the files that are left out. */
export const bytesOfBackup = ({ database, store }: Pick<BackupGiven, "database" | "store">) =>
  io(async () => {
    let bytes = 0
    for (const root of [database.folder, ...store === undefined ? [] : [store]]) {
      for (const name of (await treeOf(root)).files)
        bytes += (await unlessMissing(stat(path.join(root, name))))?.size ?? 0
    }
    return bytes
  })

export interface BackedUp {
  readonly file: string
  readonly bytes: number
  readonly entries: number
  readonly files: boolean
  /** The longest time for which the backup delayed all other statements, in milliseconds. */
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
 * Writes a backup of a database and of the files of a store into a tar file, while both are in use. The backup contains
 * the state of the database at the end of the copy. The store's files are copied after that, so the backup contains
 * every file to which the database refers, except files that are removed during the backup. The tar file gets its final
 * name when it is complete. While another backup of the database is under way, the call is refused before anything is
 * written.
 *
 * Two statements delay all others: a checkpoint at the beginning, like the one after every 64 MB of log, and the
 * statement that ends the backup of the log. Other threads read and write the bytes, at most four megabytes at a time.
 */
export const backUp = Effect.fnUntraced(
  function*(given: BackupGiven): Effect.fn.Return<BackedUp, BackupRefused | SqlError.SqlError> {
    const made = yield* given.database.one.withPermitsIfAvailable(1)(backUpAlone(given))
    return Option.isSome(made) ? made.value : yield* refuse("A backup is under way: wait until it has ended.")
  }
)

const backUpAlone = Effect.fnUntraced(
  function*(given: BackupGiven): Effect.fn.Return<BackedUp, BackupRefused | SqlError.SqlError> {
    const { database, schema, store } = given
    const target = path.resolve(given.target)
    if (existsSync(target)) return yield* refuse(`${target} is there already.`)
    if (!existsSync(path.dirname(target)))
      return yield* refuse(`There is no folder ${path.dirname(target)} on the machine of the server.`)
    const at = yield* Clock.currentTimeMillis
    let longest = 0
    const timed = <A, E, R>(statement: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
      Effect.suspend(() => {
        const began = performance.now()
        return Effect.tap(statement, () =>
          Effect.sync(() => {
            longest = Math.max(longest, performance.now() - began)
          }))
      })
    let folders: ReadonlyArray<string> = []
    /** The files of the database, then the log that was written while they were copied. */
    const ofDatabase: TarEntries<BackupRefused | SqlError.SqlError> = Stream.unwrap(Effect.gen(function*() {
      yield* timed(database.begin)
      const tree = yield* io(() => treeOf(database.folder))
      folders = tree.folders
      const named = (names: ReadonlyArray<string>) =>
        names.map((name) => [`database/${name}`, path.join(database.folder, name)] as const)
      const ofLog = Stream.unwrap(Effect.map(timed(database.end), ({ first, label, last }) =>
        // Each file of the log must exist. A backup without one of them could not be restored.
        Stream.concat(
          Stream.succeed(Tar.file("database/backup_label", label)),
          filesAt(named(logFiles(first, last).map((name) => `pg_wal/${name}`)), "fail")
        )))
      return Stream.concat(filesAt(named(tree.files.filter((name) => !MADE_ANEW.test(name))), "skip"), ofLog)
    }))
    const ofStore: TarEntries<BackupRefused> = store === undefined
      ? Stream.empty
      : Stream.unwrap(Effect.map(io(() => treeOf(store)), ({ files }) =>
        filesAt(
          files.filter((name) => !name.startsWith("incoming/")).map((
            name
          ) => [`blobs/${name}`, path.join(store, name)]),
          "skip"
        )))
    let entries = 0
    const counted = Stream.map(Stream.concat(ofDatabase, ofStore), (entry) => {
      entries++
      return entry
    })
    const last = Stream.suspend(() => {
      const contents: typeof Contents.Type = {
        format: 1,
        made_at: new Date(at).toISOString(),
        schema,
        entries,
        folders,
        files: store !== undefined
      }
      return Stream.succeed(Tar.file(CONTENTS, JSON.stringify(contents)))
    })
    const bytes = yield* Effect.catchTag(
      writeTar(target, `${target}.unfinished`, at, Stream.concat(counted, last)),
      "TarFailed",
      ({ message }) => Effect.fail(refuse(message))
    )
    yield* io(() => syncFolder(path.dirname(target)))
    return {
      file: target,
      bytes,
      entries: entries + 1,
      files: store !== undefined,
      longest_stop_ms: Math.ceil(longest)
    }
  }
)

/** The files of a backup, unpacked in a subfolder of the folder to which the backup is restored. */
export interface Unpacked {
  /** The subfolder. The database can be opened with this folder as DATA_DIR. */
  readonly dataDir: string
  readonly madeAt: string
  readonly files: boolean
  /** Moves the files into the restored folder, the database last. */
  readonly finish: Effect.Effect<void, BackupRefused>
}

/** Whether a path is relative and does not lead out of the folder, as required of all paths in a backup. */
const isInside = (name: string): boolean =>
  /^(database|blobs)\//.test(name) && !name.split("/").includes("..") && !name.includes("\\")

/** How a backup is unpacked. */
export interface UnpackOptions {
  /** Opens the bytes of a backup that is not a file of this machine. */
  readonly open?: () => AsyncIterable<Uint8Array>
  /** Reads the files of the store, but does not write them. */
  readonly onlyDatabase?: boolean
}

/**
 * Writes the entries of a backup below a folder, except the last one. Returns the number of entries and the content of
 * the last one.
 */
const unpackEntries = Effect.fnUntraced(function*(file: string, folder: string, options: UnpackOptions) {
  let entries = 0
  let contents: string | undefined
  const { onlyDatabase = false, open: opened = () => createReadStream(file) } = options
  yield* Stream.suspend(() => Stream.fromAsyncIterable(opened(), errorOf)).pipe(
    Stream.pipeThroughChannel(Tar.decode<Error>()),
    Stream.runForEachWhile(({ body, header }) =>
      Effect.gen(function*() {
        if (header.path === CONTENTS) {
          contents = yield* Stream.mkString(Stream.decodeText(body))
          return false
        }
        if (header.type !== "File" || !isInside(header.path))
          return yield* Effect.fail(new Error(`it has an entry ${header.path}`))
        entries++
        if (onlyDatabase && header.path.startsWith(`${STORE}/`)) {
          yield* Stream.runDrain(body)
          return true
        }
        const place = path.join(folder, header.path)
        yield* Effect.acquireUseRelease(
          attempt(async () => {
            await mkdir(path.dirname(place), { recursive: true, mode: 0o700 })
            return await open(place, "wx", 0o600)
          }),
          (handle) => Stream.runForEach(body, (chunk) => attempt(() => handle.writeFile(chunk))),
          (handle) => Effect.promise(() => handle.close())
        )
        return true
      })
    )
  )
  return contents === undefined ? yield* Effect.fail(new Error(`it ends without ${CONTENTS}`)) : { contents, entries }
})

/**
 * Unpacks a backup below an empty folder and syncs it to disk. May be repeated, because it removes the files of an
 * interrupted restoration. Before `finish`, a server that is started with this folder finds no database there.
 */
export const unpack = Effect.fnUntraced(
  function*(file: string, folder: string, options: UnpackOptions = {}): Effect.fn.Return<Unpacked, BackupRefused> {
    const target = path.resolve(folder)
    const dataDir = path.join(target, RESTORING)
    if (options.open === undefined && !existsSync(file)) return yield* refuse(`There is no file ${path.resolve(file)}.`)
    yield* Effect.try({
      try: () => makeFolder(target, 0o700),
      catch: (error) => refuse(`${target} cannot be used: ${reasonOf(error)}.`)
    })
    const names = yield* io(() => readdir(target))
    const others = names.filter((name) => name !== RESTORING)
    // The state that `finish` leaves if the process crashes between its two steps.
    const isHalf = names.includes(RESTORING) && others.length === 1 && others[0] === STORE
    if (others.length > 0 && !isHalf)
      return yield* refuse(`${target} is not empty: give an empty folder, or one that is not there yet.`)
    const damaged = (why: string) =>
      refuse(`${options.open === undefined ? path.resolve(file) : file} is not a complete backup: ${why}.`)
    yield* io(async () => {
      // The store is removed before `dataDir`, because only the presence of `dataDir` shows that the store is a
      // leftover.
      if (isHalf) await rm(path.join(target, STORE), { recursive: true })
      await rm(dataDir, { recursive: true, force: true })
      await mkdir(dataDir, { recursive: true, mode: 0o700 })
    })
    const text = yield* Effect.mapError(unpackEntries(file, dataDir, options), (error) =>
      damaged(
        Tar.isTarError(error) && error.kind === "InvalidHeader"
          ? `it is no tar file, or damaged: ${error.message}`
          : Reflect.get(error, "code") === "EISDIR"
          ? "it is a folder"
          : error.message
      ))
    const contents = yield* Effect.mapError(
      decodeContents(text.contents),
      () => refuse("This backup was made by another version of Parley.")
    )
    if (contents.entries !== text.entries)
      return yield* damaged(`it has ${text.entries} of ${contents.entries} entries`)
    yield* io(async () => {
      for (const name of contents.folders)
        await mkdir(path.join(dataDir, "database", name), { recursive: true, mode: 0o700 })
      await syncTree(dataDir)
    })
    return {
      dataDir,
      madeAt: contents.made_at,
      files: contents.files,
      finish: io(async () => {
        for (const name of [STORE, "database"]) {
          if (existsSync(path.join(dataDir, name)))
            await rename(path.join(dataDir, name), path.join(target, name))
        }
        await rm(dataDir, { recursive: true })
        await syncFolder(target)
      })
    }
  }
)

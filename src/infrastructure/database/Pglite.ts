import { freeBytes, isNoSpace, noSpaceLeftOn, saysNoSpace } from "#infrastructure/platform/disk/DiskSpace"
import { closeTree, isOverQuota, makeFolder, reasonOf } from "#infrastructure/platform/disk/Folder"
import { PGlite, type postgresMod } from "@electric-sql/pglite"
import { NodeFS } from "@electric-sql/pglite/nodefs"
import * as fs from "node:fs"
import { open } from "node:fs/promises"
import * as path from "node:path"
import { setFlagsFromString } from "node:v8"
import { PgliteSession } from "./PgliteSession.ts"
import { PLANNER_SETTINGS } from "./SqlValues.ts"

/**
 * V8 compiles a function of WebAssembly again, with optimisation, when it has run for long enough: by default after a
 * millisecond or two. A start runs hundreds of functions for so long and then never again. With this budget it is about
 * 25 ms, so that the functions of a start stay as they are, and those of every send are optimised within seconds.
 */
setFlagsFromString("--wasm-tiering-budget=200000000")

/** The parts of Emscripten's streams and file systems that syncing needs. */
interface Stream {
  nfd?: number
  readonly path: string
  readonly node: unknown
}

/** Operations that change the attributes of a file, among them its mode. */
interface Attributes {
  setattr: (file: unknown, attributes: { readonly mode?: number }) => void
}

interface Mounted {
  readonly FS: { readonly ErrnoError: new(errno: number) => Error; readonly streams: ReadonlyArray<Stream | null> }
  readonly NODEFS: {
    readonly realPath: (node: unknown) => string
    convertNodeCode: (error: unknown) => number | undefined
    readonly node_ops: Attributes
    readonly stream_ops: Attributes & { fsync?: (stream: Stream) => number }
  }
}

/** The mode bits that give other users access to a file. */
const OTHERS = 0o077

/**
 * Removes the access of other users from every mode that PGlite sets on a file, because PGlite ignores the umask of the
 * process.
 */
const closeModes = (operations: Attributes): void => {
  const { setattr } = operations
  operations.setattr = (file, attributes) =>
    setattr(file, typeof attributes.mode !== "number" ? attributes : { ...attributes, mode: attributes.mode & ~OTHERS })
}

/** Error numbers of Emscripten. */
const EDQUOT = 19
const EIO = 29

/**
 * Returns the error number for an error of Node. PGlite's own function returns undefined for an error without a code
 * that it knows, and PostgreSQL would then see success. A used up disk quota is such an error.
 */
const errnoOf = (known: (error: unknown) => number | undefined) => (error: unknown): number =>
  known(error) ?? (isOverQuota(error) ? EDQUOT : EIO)

/**
 * PGlite's file system with a working fsync, in which every failed operation is an error. In the file system that
 * PGlite comes with, PostgreSQL's fsync never reaches the disk, so a power failure loses committed data.
 */
class SyncedNodeFS extends NodeFS {
  readonly #onSync: (file: string) => void
  #mounted: Mounted | undefined
  #settled: Settled | undefined

  /** Until `opened` is called, files that have not changed since they were synced (`settled`) are not synced again. */
  constructor(folder: string, onSync: (file: string) => void, settled: Settled | undefined) {
    super(folder)
    this.#onSync = onSync
    this.#settled = settled
  }

  opened(): void {
    this.#settled = undefined
  }

  override async init(pg: PGlite, options: Partial<postgresMod.PostgresMod>) {
    const { emscriptenOpts } = await super.init(pg, options)
    const addSync = (module: unknown) => {
      // The types of Emscripten's module omit the internals of its file systems.
      const mounted = module as Mounted
      this.#mounted = mounted
      const errno = errnoOf(mounted.NODEFS.convertNodeCode)
      mounted.NODEFS.convertNodeCode = errno
      closeModes(mounted.NODEFS.node_ops)
      closeModes(mounted.NODEFS.stream_ops)
      mounted.NODEFS.stream_ops.fsync = (stream) => {
        try {
          if (stream.nfd === undefined) syncFolder(mounted.NODEFS.realPath(stream.node))
          else if (!isSettled(stream.nfd, this.#settled)) fs.fdatasyncSync(stream.nfd)
        } catch (error) {
          throw new mounted.FS.ErrnoError(errno(error))
        }
        this.#onSync(stream.path)
        return 0
      }
    }
    return { emscriptenOpts: { ...emscriptenOpts, preRun: [...(emscriptenOpts.preRun ?? []), addSync] } }
  }

  /** Closes the files that a crashed PGlite left open. */
  abandon(): void {
    for (const stream of this.#mounted?.FS.streams ?? []) {
      if (stream?.nfd !== undefined) fs.closeSync(stream.nfd)
    }
    this.#mounted = undefined
  }
}

const syncFolder = (folder: string): void => {
  const descriptor = fs.openSync(folder, "r")
  try {
    fs.fsyncSync(descriptor)
  } finally {
    fs.closeSync(descriptor)
  }
}

/** For each inode, the change time (ctime, in nanoseconds) of the file just before it was synced. */
type Settled = ReadonlyMap<bigint, bigint>

const isSettled = (descriptor: number, settled: Settled | undefined): boolean => {
  if (settled === undefined) return false
  const { ino, ctimeNs } = fs.fstatSync(descriptor, { bigint: true })
  return settled.get(ino) === ctimeNs
}

/**
 * Syncs all files of a folder, 16 at a time, so that the file system commits them together. Syncing a thousand files
 * one by one takes seconds.
 */
export const syncTree = async (folder: string): Promise<Settled> => {
  const settled = new Map<bigint, bigint>()
  const left = fs.readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => path.join(folder, name))
  left.push(folder)
  const worker = async (): Promise<void> => {
    for (let file = left.pop(); file !== undefined; file = left.pop()) {
      const handle = await open(file, "r")
      try {
        const { ino, ctimeNs } = await handle.stat({ bigint: true })
        await handle.sync()
        settled.set(ino, ctimeNs)
      } finally {
        await handle.close()
      }
    }
  }
  await Promise.all(Array.from({ length: 16 }, worker))
  return settled
}

export interface PgliteSettings {
  /** The parent of the folder `database`, or undefined to keep everything in memory. */
  readonly dataDir: string | undefined
  /** A dump made by `snapshot` to start from instead of an empty database. Only for a database in memory. */
  readonly snapshot?: Blob | undefined
  /** Called with each file that was synced. */
  readonly onSync?: ((file: string) => void) | undefined
  /** The age in transactions from which `open` freezes the template databases; 100 million if undefined. */
  readonly templateAge?: number | undefined
}

/**
 * The default of `templateAge`. PGlite contains PostgreSQL's two template databases beside the database of the server.
 * No statement ever uses the template databases, but their age counts against the limit of 2^31 transactions, and
 * PGlite has no autovacuum. Freezing both takes about a second.
 */
const TEMPLATE_AGE = 100_000_000

/** The folder of the database in DATA_DIR. */
export const folderOf = (dataDir: string): string => path.join(dataDir, "database")

/** Where the database of DATA_DIR is while it is made. */
export const unfinishedOf = (dataDir: string): string => `${folderOf(dataDir)}.creating`

/** Whether the database has to be created first, which takes seconds. */
export const databaseIsNew = (settings: PgliteSettings): boolean =>
  settings.dataDir !== undefined && !fs.existsSync(folderOf(settings.dataDir))

const withSettings = (params: ReadonlyArray<string>, settings: Readonly<Record<string, string>>): Array<string> => [
  ...params,
  ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])
]

const inMemory = withSettings(PGlite.defaultStartParams, PLANNER_SETTINGS)

const durable = withSettings(PGlite.defaultStartParams.filter((param) => param !== "-F"), {
  ...PLANNER_SETTINGS,
  // Half of PGlite's own size. PGlite writes zeros to all of it at each start, and what it does not hold is in the cache
  // of the operating system.
  shared_buffers: "64MB",
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",
  wal_sync_method: "fsync"
})

/**
 * How many bytes must be free to create a database. A new database with its migrations takes 70 MB. The rest is a
 * reserve.
 */
const NEW_DATABASE_BYTES = 80_000_000

/** How many bytes are free on the disk of DATA_DIR. */
const freeOn = (folder: string): number => freeBytes(path.dirname(folder))

/** The disk of DATA_DIR is full. */
export class NoSpaceLeft extends Error {
  /** `why` says what did not fit. */
  constructor(folder: string, why: string, options?: ErrorOptions) {
    super(`${noSpaceLeftOn(path.dirname(folder), freeOn(folder))}: ${why}`, options)
  }
}

/**
 * Creates the database's folder in DATA_DIR. `fill` makes the files under another name, and the folder is renamed at the
 * end, so an interrupted creation is never opened.
 */
export const makeDatabase = async (
  dataDir: string,
  fill: (unfinished: string) => Promise<void> = initialize
): Promise<void> => {
  const folder = folderOf(dataDir)
  const unfinished = unfinishedOf(dataDir)
  fs.rmSync(unfinished, { recursive: true, force: true })
  makeFolder(dataDir, 0o700)
  if (freeOn(folder) < NEW_DATABASE_BYTES) throw new NoSpaceLeft(folder, "a new database needs 80 MB")
  fs.mkdirSync(unfinished, { mode: 0o700 })
  try {
    await fill(unfinished)
    // PGlite makes the files of a new database writable for all users, whatever the umask of the process is.
    closeTree(unfinished)
    await syncTree(unfinished)
  } catch (error) {
    // PGlite's own error does not say why it could not create a file.
    throw isNoSpace(error) || freeOn(folder) < NEW_DATABASE_BYTES / 2
      ? new NoSpaceLeft(folder, `the new database could not be completed (${reasonOf(error)})`, { cause: error })
      : error
  }
  fs.renameSync(unfinished, folder)
  syncFolder(dataDir)
}

/** Makes an empty database, as PostgreSQL's initdb does. This takes seconds. */
const initialize = async (folder: string): Promise<void> => {
  const made = await PGlite.create({ fs: new SyncedNodeFS(folder, () => {}, undefined) })
  await made.close()
}

/**
 * How many WAL segments of 16 MB are written between two checkpoints. PGlite starts no checkpoints itself, and a
 * recovery reads all WAL since the last checkpoint.
 */
const SEGMENTS_PER_CHECKPOINT = 4

const TABLE_FILE = /^(\d+)(?:_(?:fsm|vm|init))?(?:\.\d+)?$/

/**
 * Removes files that belong to no table or index. A crash during a `VACUUM FULL` or while an index is built leaves such
 * files, and PostgreSQL never removes them. Call it only directly after opening, when no transaction is in progress.
 */
const removeOrphans = (folder: string, session: PgliteSession): void => {
  const { rows } = session.query(
    "SELECT pg_relation_filenode(oid)::text FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL",
    []
  )
  const known = new Set(rows.map(([node]) => node))
  const [[oid] = []] = session.query("SELECT oid::text FROM pg_database WHERE datname = current_database()", []).rows
  const files = path.join(folder, "base", String(oid))
  for (const name of fs.readdirSync(files)) {
    const node = TABLE_FILE.exec(name)?.[1]
    if (node !== undefined && !known.has(node)) fs.rmSync(path.join(files, name))
  }
  // The folder itself is kept, because the PostgreSQL in PGlite cannot create it.
  const temporary = path.join(folder, "base", "pgsql_tmp")
  if (fs.existsSync(temporary)) {
    for (const name of fs.readdirSync(temporary)) fs.rmSync(path.join(temporary, name), { recursive: true })
  }
}

/**
 * A PGlite database in a folder or in memory. After a crash of PGlite, a database in a folder can be opened again,
 * which recovers everything that was committed.
 */
export class PgliteDatabase {
  readonly #settings: PgliteSettings
  readonly #onCheckpointDue: () => void
  #session: PgliteSession | undefined
  #files: SyncedNodeFS | undefined
  #segment = ""
  #segments = 0
  #logKeepers = 0

  private constructor(settings: PgliteSettings, onCheckpointDue: () => void) {
    this.#settings = settings
    this.#onCheckpointDue = onCheckpointDue
  }

  /** `onCheckpointDue` is called during a statement when so much WAL has been written that a checkpoint is due. */
  static async open(settings: PgliteSettings, onCheckpointDue: () => void = () => {}): Promise<PgliteDatabase> {
    const database = new PgliteDatabase(settings, onCheckpointDue)
    if (databaseIsNew(settings) && settings.dataDir !== undefined) await makeDatabase(settings.dataDir)
    await database.reopen()
    await database.#freezeTemplates()
    return database
  }

  async #freezeTemplates(): Promise<void> {
    const { folder } = this
    if (folder === undefined) return
    const age = this.#settings.templateAge ?? TEMPLATE_AGE
    const { rows } = this.session.query(
      `SELECT datname FROM pg_database WHERE datname <> current_database() AND age(datfrozenxid) > ${age}`,
      []
    )
    if (rows.length === 0) return
    await this.close()
    for (const [database] of rows) {
      const files = new SyncedNodeFS(folder, () => {}, undefined)
      const template = await PGlite.create({ fs: files, startParams: durable, database: String(database) })
      await template.exec("VACUUM (FREEZE)")
      await template.close()
    }
    await this.reopen()
  }

  /**
   * An in-memory database on a session of the caller. `takeBack` returns the session to the caller and closes the
   * database.
   */
  static lend(session: PgliteSession): PgliteDatabase {
    const database = new PgliteDatabase({ dataDir: undefined }, () => {})
    database.#session = session
    return database
  }

  takeBack(): PgliteSession {
    const session = this.session
    this.#session = undefined
    return session
  }

  get session(): PgliteSession {
    if (this.#session === undefined) throw new Error("not open")
    return this.#session
  }

  /**
   * Opens the database, or opens it again after a crash. A database in memory cannot be opened again, because its data
   * are lost.
   */
  async reopen(): Promise<void> {
    const { dataDir, snapshot } = this.#settings
    if (dataDir === undefined) {
      if (this.#session !== undefined) throw new Error("PGlite crashed, and its data in memory are lost")
      const options = snapshot === undefined ? {} : { loadDataDir: snapshot }
      this.#session = new PgliteSession(await PGlite.create({ ...options, startParams: inMemory }))
      return
    }
    this.#files?.abandon()
    const folder = folderOf(dataDir)
    // After a crash PostgreSQL syncs every file, one by one. It is faster to sync the files here first, in parallel.
    const settled = fs.existsSync(path.join(folder, "postmaster.pid")) ? await syncTree(folder) : undefined
    const files = new SyncedNodeFS(folder, this.#synced, settled)
    this.#files = files
    const complaints: Array<string> = []
    try {
      this.#session = new PgliteSession(
        await PGlite.create({
          fs: files,
          startParams: durable,
          onStderr: (line) => {
            if (/(FATAL|PANIC): /.test(line)) complaints.push(line)
            return false
          }
        })
      )
    } catch (error) {
      files.abandon()
      const reason = complaints.join("; ").replace(/^.*?(FATAL|PANIC): +/, "") || String(error)
      if (saysNoSpace(reason))
        throw new NoSpaceLeft(folder, `the database could not be opened (${reason})`, { cause: error })
      throw new Error(`${folder} could not be opened: ${reason}`, { cause: error })
    }
    files.opened()
    this.#segments = 0
    if (settled !== undefined) removeOrphans(folder, this.session)
  }

  readonly #synced = (file: string): void => {
    this.#settings.onSync?.(file)
    if (!file.includes("/pg_wal/") || file === this.#segment) return
    this.#segment = file
    if (++this.#segments > SEGMENTS_PER_CHECKPOINT) this.#onCheckpointDue()
  }

  /** The folder of the files, or undefined for a database in memory. */
  get folder(): string | undefined {
    return this.#settings.dataDir === undefined ? undefined : folderOf(this.#settings.dataDir)
  }

  /**
   * Keeps the WAL until `letLogGo` is called. No checkpoint is written meanwhile, because a checkpoint removes the WAL
   * before it.
   */
  keepLog(): void {
    this.#logKeepers++
  }

  get keepsLog(): boolean {
    return this.#logKeepers > 0
  }

  /** Ends the effect of one call of `keepLog`. */
  letLogGo(): void {
    if (--this.#logKeepers > 0) return
    if (this.#segments > SEGMENTS_PER_CHECKPOINT) this.#onCheckpointDue()
  }

  /**
   * Writes a checkpoint, which limits the size of the WAL and the duration of a recovery. Blocks the event loop
   * meanwhile. Does nothing while the WAL is kept.
   */
  checkpoint(): void {
    if (this.#logKeepers > 0) return
    this.session.query("CHECKPOINT", [])
    this.#segments = 0
  }

  close(): Promise<void> {
    return this.session.close()
  }
}

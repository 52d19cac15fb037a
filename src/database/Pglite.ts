import { PGlite, type postgresMod } from "@electric-sql/pglite"
import { NodeFS } from "@electric-sql/pglite/nodefs"
import * as fs from "node:fs"
import { open } from "node:fs/promises"
import * as path from "node:path"
import { PgliteSession } from "./PgliteSession.ts"
import { PLANNER_SETTINGS } from "./SqlValues.ts"

/** What Emscripten's streams and file systems are here, as far as syncing needs them. */
interface Stream {
  nfd?: number
  readonly path: string
  readonly node: unknown
}

interface Mounted {
  readonly FS: { readonly ErrnoError: new(errno: number) => Error; readonly streams: ReadonlyArray<Stream | null> }
  readonly NODEFS: {
    readonly realPath: (node: unknown) => string
    readonly stream_ops: { fsync?: (stream: Stream) => number }
  }
}

const EIO = 29

/**
 * PGlite's file system with the sync that it lacks: as shipped, PostgreSQL's
 * fsync reaches the disk never, and a power cut takes what was committed.
 */
class SyncedNodeFS extends NodeFS {
  readonly #onSync: (file: string) => void
  #mounted: Mounted | undefined
  #settled: Settled | undefined

  /** Files that are still as they were when they were synced need not be synced again, until `opened`. */
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
      // The module is Emscripten's own; its types leave out both file systems' insides.
      const mounted = module as Mounted
      this.#mounted = mounted
      mounted.NODEFS.stream_ops.fsync = (stream) => {
        try {
          if (stream.nfd === undefined) syncFolder(mounted.NODEFS.realPath(stream.node))
          else if (!isSettled(stream.nfd, this.#settled)) fs.fdatasyncSync(stream.nfd)
        } catch {
          throw new mounted.FS.ErrnoError(EIO)
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

/** By inode, when each file last changed before it was synced. */
type Settled = ReadonlyMap<bigint, bigint>

const isSettled = (descriptor: number, settled: Settled | undefined): boolean => {
  if (settled === undefined) return false
  const { ino, ctimeNs } = fs.fstatSync(descriptor, { bigint: true })
  return settled.get(ino) === ctimeNs
}

/** Many at once, which the file system commits together: one after the other takes seconds for a thousand files. */
const syncTree = async (folder: string): Promise<Settled> => {
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
  /** Where its folder `database` is or will be; undefined keeps everything in memory. */
  readonly dataDir: string | undefined
  /** A dump to begin from instead of an empty database, in memory only: made by `snapshot`. */
  readonly snapshot?: Blob | undefined
  /** Told each file that was synced. */
  readonly onSync?: ((file: string) => void) | undefined
}

const folderOf = (dataDir: string): string => path.join(dataDir, "database")

/** Whether opening it means making it first, which takes seconds. */
export const databaseIsNew = (settings: PgliteSettings): boolean =>
  settings.dataDir !== undefined && !fs.existsSync(folderOf(settings.dataDir))

const withSettings = (params: ReadonlyArray<string>, settings: Readonly<Record<string, string>>): Array<string> => [
  ...params,
  ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])
]

const inMemory = withSettings(PGlite.defaultStartParams, PLANNER_SETTINGS)

const durable = withSettings(PGlite.defaultStartParams.filter((param) => param !== "-F"), {
  ...PLANNER_SETTINGS,
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",
  wal_sync_method: "fsync"
})

/** Makes the database's folder. An interrupted making leaves nothing that would be opened. */
const makeFolder = async (folder: string): Promise<void> => {
  const unfinished = `${folder}.creating`
  fs.rmSync(unfinished, { recursive: true, force: true })
  fs.mkdirSync(path.dirname(folder), { recursive: true })
  const made = await PGlite.create({ fs: new NodeFS(unfinished) })
  await made.close()
  await syncTree(unfinished)
  fs.renameSync(unfinished, folder)
  syncFolder(path.dirname(folder))
}

/** WAL between two checkpoints, in segments of 16 MB: PGlite makes none of its own accord, and recovery reads it all. */
const SEGMENTS_PER_CHECKPOINT = 4

/**
 * The one database of a folder, or of memory, over the crashes of PGlite: a
 * folder can be opened again, which recovers what was committed.
 */
export class PgliteDatabase {
  readonly #settings: PgliteSettings
  readonly #onCheckpointDue: () => void
  #session: PgliteSession | undefined
  #files: SyncedNodeFS | undefined
  #segment = ""
  #segments = 0

  private constructor(settings: PgliteSettings, onCheckpointDue: () => void) {
    this.#settings = settings
    this.#onCheckpointDue = onCheckpointDue
  }

  /** `onCheckpointDue` is told, amid a statement, that so much was written that a checkpoint should follow. */
  static async open(settings: PgliteSettings, onCheckpointDue: () => void = () => {}): Promise<PgliteDatabase> {
    const database = new PgliteDatabase(settings, onCheckpointDue)
    if (databaseIsNew(settings) && settings.dataDir !== undefined) await makeFolder(folderOf(settings.dataDir))
    await database.reopen()
    return database
  }

  /** In memory, of a session that its owner takes back by `takeBack`; after that it is not open. */
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

  /** After a crash. In memory there is nothing to open again. */
  async reopen(): Promise<void> {
    const { dataDir, snapshot } = this.#settings
    if (dataDir === undefined) {
      if (this.#session !== undefined) throw new Error("PGlite crashed, and with it what it had in memory")
      const options = snapshot === undefined ? {} : { loadDataDir: snapshot }
      this.#session = new PgliteSession(await PGlite.create({ ...options, startParams: inMemory }))
      return
    }
    this.#files?.abandon()
    const folder = folderOf(dataDir)
    // It syncs every file itself after a crash, one after the other.
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
      throw new Error(`${folder} could not be opened: ${reason}`, { cause: error })
    }
    files.opened()
    this.#segments = 0
  }

  readonly #synced = (file: string): void => {
    this.#settings.onSync?.(file)
    if (!file.includes("/pg_wal/") || file === this.#segment) return
    this.#segment = file
    if (++this.#segments > SEGMENTS_PER_CHECKPOINT) this.#onCheckpointDue()
  }

  /** Bounds the WAL and what recovery has to read; stops the event loop while it writes. */
  checkpoint(): void {
    this.session.query("CHECKPOINT", [])
    this.#segments = 0
  }

  close(): Promise<void> {
    return this.session.close()
  }
}

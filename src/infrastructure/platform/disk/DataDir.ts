import { Clock, Context, Data, Effect, Layer } from "effect"
import * as fs from "node:fs"
import { hostname } from "node:os"
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Config } from "../Config.ts"
import { closedTo, closeToOthers, foreignTo, makeFolder, reasonOf, staysOpen } from "./Folder.ts"

/** DATA_DIR or SHARED_DIR cannot be created, written to or locked. */
export class FolderUnusable extends Data.TaggedError("FolderUnusable")<{
  readonly setting: "DATA_DIR" | "SHARED_DIR"
  readonly path: string
  readonly reason: string
}> {
  override get message(): string {
    return `${this.setting} ${this.path} cannot be used: ${this.reason}`
  }
}

/** Another process uses this DATA_DIR. Two processes that use the same folder would corrupt it. */
export class DataDirInUse extends Data.TaggedError("DataDirInUse")<{
  readonly path: string
  readonly holder: string | undefined
}> {
  override get message(): string {
    return `DATA_DIR ${this.path} is in use by another server${
      this.holder === undefined ? "" : ` (${this.holder})`
    }: ` +
      "stop that server, or give this one another DATA_DIR"
  }
}

/** The folder inside DATA_DIR into which a backup is unpacked. It exists until the restoration is complete. */
export const RESTORING = "restoring"

/**
 * How long a process retries to take the lock, in milliseconds. SQLite takes an exclusive lock in steps. If several
 * processes start at once, each may complete a first step that blocks the others. Without retries, all of them could
 * fail.
 */
const LOCK_WAIT_MS = 500

/**
 * The folder of a standalone server. It is locked, so that only one process uses it.
 *
 * The lock is on the file `lock`, which must never be removed. Nothing else in this process may open it, so another
 * file, `lock.holder`, names the process that holds the lock.
 */
export class DataDir extends Context.Service<DataDir, {
  /** The absolute path of the folder. */
  readonly path: string
}>()("parley/platform/DataDir") {
  static readonly layerAt = (folder: string) =>
    Layer.effect(
      DataDir,
      Effect.gen(function*() {
        const absolute = path.resolve(folder)
        const refuseIf = (reason: string | undefined) =>
          reason === undefined
            ? Effect.void
            : new FolderUnusable({ setting: "DATA_DIR", path: absolute, reason })
        if (!fs.existsSync(absolute)) yield* refuseIf(foreignTo(absolute, process.geteuid?.() ?? 0))
        yield* Effect.try({
          try: () => prepare(absolute, 0o700),
          catch: (error) =>
            new FolderUnusable({ setting: "DATA_DIR", path: absolute, reason: closedTo(absolute) ?? reasonOf(error) })
        }).pipe(Effect.flatMap((self) => refuseIf(foreignTo(absolute, self))))
        const has = (name: string): boolean => fs.existsSync(path.join(absolute, name))
        // The last step of a restoration moves the database into DATA_DIR. Without this check, the server would create
        // an empty database.
        if (has(RESTORING) && !has("database")) {
          return yield* new FolderUnusable({
            setting: "DATA_DIR",
            path: absolute,
            reason:
              `a restoration into it is not complete: run the same restore command again, or remove the folder ${RESTORING} in it`
          })
        }
        const since = new Date(yield* Clock.currentTimeMillis).toISOString()
        yield* Effect.acquireRelease(lock(absolute, since), (held) =>
          Effect.sync(() => {
            fs.rmSync(holderFile(absolute), { force: true })
            held.release()
          }))
        yield* close(absolute)
        return DataDir.of({ path: absolute })
      })
    )

  static readonly layer = Layer.unwrap(Effect.map(Config, (config) => DataDir.layerAt(config.DATA_DIR)))
}

const holderFile = (folder: string): string => path.join(folder, "lock.holder")

/**
 * Creates a folder if it does not exist. Returns the id of the user who owns the files that this process creates there.
 */
const prepare = (folder: string, mode?: number): number => {
  makeFolder(folder, mode)
  // The host name is included because processes in different containers may have the same process id.
  const probe = path.join(folder, `.probe-${hostname()}-${process.pid}`)
  fs.writeFileSync(probe, "x")
  const { uid } = fs.statSync(probe)
  fs.rmSync(probe, { force: true })
  return uid
}

/**
 * The entries of DATA_DIR that contain data. DATA_DIR itself keeps its mode, because the folder may also be used for
 * other purposes.
 */
const PRIVATE = ["database", "database.creating", "blobs", "outbox", "cluster", "backups", RESTORING]
/** Entries without data. Other users who can open them could block the server. */
const LOCKS = ["lock", "lock.holder", "admin.sock"]

/**
 * Removes the permissions of other users of the machine on the server's own entries. Earlier versions left the database
 * open to other users if somebody else had created DATA_DIR. The warning is logged once, because afterwards no entry is
 * open.
 */
const close = (folder: string) =>
  Effect.gen(function*() {
    if (process.platform === "win32") return
    const opened = yield* Effect.try({
      try: () => {
        closeToOthers(folder, LOCKS)
        return closeToOthers(folder, PRIVATE)
      },
      catch: (error) => {
        const file = String(Reflect.get(Object(error), "path") ?? "a file in it")
        return new FolderUnusable({
          setting: "DATA_DIR",
          path: folder,
          reason: `${file} cannot be closed to other users (${
            reasonOf(error)
          }): give all files in it to the server's user, with chown -R`
        })
      }
    })
    if (opened.length === 0) return
    const names = opened.join(", ")
    yield* Effect.logWarning(
      staysOpen(folder, opened)
        ? `Other users of this machine may use ${names} in ${folder}, because its file system stores no file modes: deny them access to the folder`
        : `Other users of this machine could use ${names} in ${folder}. The server has removed their rights`
    )
  })

/** Fails if SHARED_DIR is set but not writable, at startup rather than at the first upload. */
export const sharedDirIsUsable = Effect.gen(function*() {
  const { SHARED_DIR } = yield* Config
  if (SHARED_DIR === undefined) return
  const absolute = path.resolve(SHARED_DIR)
  yield* Effect.try({
    try: () => void prepare(absolute),
    catch: (error) => new FolderUnusable({ setting: "SHARED_DIR", path: absolute, reason: reasonOf(error) })
  })
})

const lock = (folder: string, since: string) =>
  Effect.try({
    try: () => {
      const held = lockFile(path.join(folder, "lock"), LOCK_WAIT_MS)
      if (held === undefined) throw new DataDirInUse({ path: folder, holder: holder(folder) })
      try {
        fs.writeFileSync(holderFile(folder), `process ${process.pid} on ${hostname()} since ${since}\n`)
        return held
      } catch (error) {
        held.release()
        throw error
      }
    },
    catch: (error) =>
      error instanceof DataDirInUse
        ? error
        : new FolderUnusable({ setting: "DATA_DIR", path: folder, reason: reasonOf(error) })
  })

const holder = (folder: string): string | undefined => {
  try {
    return fs.readFileSync(holderFile(folder), "utf8").trim() || undefined
  } catch {
    return undefined
  }
}

const SQLITE_BUSY = 5

/** A lock that this process holds on a file until it is released or the process ends. */
export interface FileLock {
  readonly release: () => void
}

/**
 * Locks a file, and creates the file if it does not exist. Returns undefined if another process still holds the lock
 * after `wait` milliseconds.
 *
 * Node has no flock but includes SQLite, whose exclusive lock is a kernel lock on the file itself. Such a lock is
 * released however the process ends. Every process on the machine sees it, in every container and through every mount.
 * If two processes try at once, the kernel decides. (A socket lacks the first two properties or leaves a file behind.)
 * Nothing else in this process may open the file, because closing any descriptor of the file would release the lock.
 */
export const lockFile = (file: string, wait: number): FileLock | undefined => {
  const held = new DatabaseSync(file, { timeout: wait })
  try {
    // Without this pragma, SQLite keeps a second file beside the locked one.
    held.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE")
    return { release: () => held.close() }
  } catch (error) {
    held.close()
    if (Reflect.get(Object(error), "errcode") === SQLITE_BUSY) return undefined
    throw error
  }
}

import { Clock, Context, Effect, Layer, Schedule } from "effect"
import { statfsSync } from "node:fs"
import { statfs } from "node:fs/promises"
import * as path from "node:path"
import { Config } from "../Config.ts"
import { LogThrottle, MINUTE_MS } from "../LogThrottle.ts"
import { diskFree } from "../Metrics.ts"
import { monotonicMillis } from "../MonotonicClock.ts"
import { Readiness } from "../Readiness.ts"
import { isOverQuota } from "./Folder.ts"

interface Sizes {
  readonly bavail: number
  readonly blocks: number
  readonly bsize: number
}

/** Returns the free bytes, or Infinity if the file system reports no size. */
const bytesOf = ({ bavail, blocks, bsize }: Sizes): number => blocks === 0 ? Infinity : bavail * bsize

/**
 * Returns the free bytes on the disk of a folder. Returns Infinity if the file system reports no size, or cannot be
 * read: nobody knows then that it is full.
 */
export const freeBytes = (folder: string): number => {
  try {
    return bytesOf(statfsSync(folder))
  } catch {
    return Infinity
  }
}

/** The function `freeBytes`, which tests can replace. It returns Infinity if no folder is given. */
export const FreeDisk = Context.Reference<(folder: string | undefined) => number>(
  "parley/platform/disk/DiskSpace/FreeDisk",
  {
    defaultValue: () => (folder) => folder === undefined ? Infinity : freeBytes(folder)
  }
)

/** Formats bytes as megabytes, with one decimal below ten. */
const megabytes = (bytes: number): string =>
  `${bytes < 10_000_000 ? (bytes / 1e6).toFixed(1) : Math.floor(bytes / 1e6)} MB`

/** Returns a text that says that a folder has no space left, and how much is free if that is known. */
export const noSpaceLeftOn = (folder: string, free: number): string =>
  `no space left on ${folder}${Number.isFinite(free) ? ` (${megabytes(free)} free)` : ""}`

// The C library of PGlite, which is also that of Alpine Linux, says "Quota exceeded" without "Disk".
const NO_SPACE = /(?:no space left on|quota exceeded)[^\n]*/i

/** Whether a message of Node or of PostgreSQL says that a disk, or a quota, is full. */
export const saysNoSpace = (message: string): boolean => NO_SPACE.test(message)

/**
 * Returns the part of a text, such as an error with its stack trace, that says that a disk is full. Returns undefined
 * if no part does.
 */
export const noSpaceIn = (text: string): string | undefined => NO_SPACE.exec(text)?.[0]

/** Whether an error of Node says that a disk, or a quota, is full. */
export const isNoSpace = (error: unknown): boolean =>
  Reflect.get(Object(error), "code") === "ENOSPC" || isOverQuota(error)

/** The kind of data that could not be written. */
export type Written = "database" | "files" | "mail"

/** How long a failure counts as recent, in milliseconds. */
const RECENT_MS = 10_000

/**
 * The failures of this process for lack of disk space. They repeat with every request, so the log gets one error line a
 * minute for each kind of data instead of one line for each failure.
 */
export class FullDisks {
  readonly #lines = new LogThrottle(MINUTE_MS)
  #last: { readonly why: string; readonly at: number } | undefined

  /** Logs a failure. `why` contains "no space left on" and the place. */
  report(kind: Written, why: string): Effect.Effect<void> {
    return Effect.clockWith((clock) => {
      if (kind === "database") this.#last = { why, at: monotonicMillis(clock)() }
      return this.#lines.log(Effect.logError(`${LOST[kind]}: ${why}`), kind)
    })
  }

  /**
   * Returns why the database failed for lack of space in the ten seconds before `now`, or undefined if it did not.
   * `now` is in monotonic milliseconds.
   */
  recent(now: number): string | undefined {
    return this.#last !== undefined && now - this.#last.at < RECENT_MS ? this.#last.why : undefined
  }
}

const LOST: Readonly<Record<Written, string>> = {
  database: "The database cannot write, and requests that change something get 503",
  files: "The file store cannot write, and uploads get 503",
  mail: "E-mails cannot be written to the outbox"
}

export const FullDisk = Context.Reference<FullDisks>("parley/platform/disk/DiskSpace/FullDisk", {
  defaultValue: () => new FullDisks()
})

/**
 * How many bytes of DATA_DIR must be free for a server with PGlite to be ready: the size of two files of the
 * write-ahead log. PGlite crashes if the next file does not fit.
 */
export const LEAST_FREE_BYTES = 32_000_000

/** How old a measurement of the free bytes may be, in milliseconds. */
const STALE_MS = 60_000

/**
 * Measures the free space of DATA_DIR and SHARED_DIR, and reports this node as not ready while its database has no
 * space, or is in a folder that cannot be read. SHARED_DIR never makes a node not ready, because all nodes share that
 * folder, and messages need no files.
 */
export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const { DATABASE_URL, DATA_DIR, SHARED_DIR } = yield* Config
  const readiness = yield* Readiness
  const fullDisk = yield* FullDisk
  const freeDisk = yield* FreeDisk
  const now = monotonicMillis(yield* Clock.Clock)
  const dataDir = path.resolve(DATA_DIR)
  /** Why a folder could not be measured the last time. */
  const unreadable = new Map<string, string>()
  readiness.check(() => {
    if (DATABASE_URL !== undefined) return undefined
    const why = unreadable.get(dataDir)
    return why === undefined ? undefined : `DATA_DIR cannot be read: ${why}. Check its disk.`
  })
  readiness.check(() => {
    const free = DATABASE_URL === undefined ? freeDisk(dataDir) : Infinity
    const why = free < LEAST_FREE_BYTES ? noSpaceLeftOn(dataDir, free) : fullDisk.recent(now())
    return why === undefined ? undefined : `The database cannot write: ${why}. Free some space.`
  })
  for (const [name, folder] of [["DATA_DIR", dataDir], ["SHARED_DIR", SHARED_DIR]] as const) {
    if (folder === undefined) continue
    let measured: { readonly free: number; readonly at: number } | undefined
    yield* diskFree.at(name).readsIn(() =>
      measured !== undefined && now() - measured.at < STALE_MS ? measured.free : undefined
    )
    // `statfs` runs in another thread, because a network file system may hang.
    yield* Effect.tryPromise({
      try: () => statfs(folder),
      catch: (error) => error instanceof Error ? error.message : String(error)
    }).pipe(
      Effect.match({
        onFailure: (why) => void unreadable.set(folder, why),
        onSuccess: (sizes) => {
          const free = bytesOf(sizes)
          measured = Number.isFinite(free) ? { free, at: now() } : undefined
          unreadable.delete(folder)
        }
      }),
      Effect.repeat(Schedule.spaced("10 seconds")),
      Effect.forkScoped
    )
  }
}))

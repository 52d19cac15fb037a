import type { Effect } from "effect"
import { mkdir, readdir, rm } from "node:fs/promises"
import * as path from "node:path"
import { type BackupRefused, io } from "./Backup.ts"

/** A backup that a server has made on its own. `at` is in milliseconds. */
export interface StoredBackup {
  readonly name: string
  readonly at: number
  readonly bytes: number
}

/** The place where a server keeps its backups. A new one is written to the disk first, and checked there. */
export interface BackupStore {
  /** This server's backups that are complete, oldest first. Everything else at the place is left out. */
  readonly list: Effect.Effect<ReadonlyArray<StoredBackup>, BackupRefused>
  /** Returns the path at which a new backup is to be written, and removes what an earlier attempt has left. */
  readonly stage: (name: string) => Effect.Effect<string, BackupRefused>
  /** Moves the backup at that path to its place. Afterwards the place has exactly these bytes. */
  readonly keep: (name: string) => Effect.Effect<void, BackupRefused>
  readonly remove: (name: string) => Effect.Effect<void, BackupRefused>
}

const UNCHECKED = ".unchecked"

/** How far the time in a name may be ahead of this machine's clock, in milliseconds. */
const AHEAD_MS = 30_000

/**
 * The names of one server's backups. Each contains the id of the server's DATA_DIR, so that several servers, and a
 * restored copy of a server, may use one place.
 */
export class BackupNames {
  readonly #prefix: string

  constructor(id: string) {
    this.#prefix = `parley-${id}-`
  }

  /** The name of a backup that begins at this time. */
  at(time: number): string {
    return `${this.#prefix}${new Date(time).toISOString().replace(/[-:]|\.\d+/g, "")}.tar`
  }

  /** The time at which a backup began. Undefined if the file is no backup of this server. */
  timeOf(name: string): number | undefined {
    const [, year, month, day, hour, minute, second] = /(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z\.tar$/.exec(name) ?? []
    const time = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`)
    return Number.isFinite(time) && this.at(time) === name ? time : undefined
  }

  /** Whether this server has written a file while it made a backup. */
  isUnfinished(name: string): boolean {
    const end = name.indexOf(UNCHECKED)
    return end !== -1 && this.timeOf(name.slice(0, end)) !== undefined
  }

  /** The backups of this server among these files, oldest first. Times in the future are left out. */
  among(
    files: ReadonlyArray<{ readonly name: string; readonly bytes: number }>,
    now: number
  ): ReadonlyArray<StoredBackup> {
    return files.flatMap(({ bytes, name }) => {
      const at = this.timeOf(name)
      return at === undefined || at > now + AHEAD_MS ? [] : [{ name, at, bytes }]
    }).sort((one, other) => one.at - other.at)
  }
}

/** The path of a staged backup. A backup of which a check has not yet come to its end has another name. */
export const stagedIn = (folder: string, name: string): string => path.join(folder, name + UNCHECKED)

/** Makes `stage` for a folder that exists, or whose parent exists. */
export const stageIn = (folder: string, names: BackupNames): BackupStore["stage"] => (name) =>
  io(async () => {
    await mkdir(folder, { mode: 0o700 }).catch(() => undefined)
    for (const left of await readdir(folder)) {
      if (names.isUnfinished(left)) await rm(path.join(folder, left), { recursive: true, force: true })
    }
    return stagedIn(folder, name)
  })

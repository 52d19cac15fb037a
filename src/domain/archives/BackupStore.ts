import { makeFolder } from "#infrastructure/platform/disk/Folder"
import { Effect } from "effect"
import { readdir, rm } from "node:fs/promises"
import * as path from "node:path"
import { BackupRefused } from "./Backup.ts"

/** A backup that a server has made on its own. `at` is in milliseconds. */
export interface StoredBackup {
  readonly name: string
  readonly at: number
  readonly bytes: number
}

/** The place where a server keeps its backups. A new one is written to the disk first, and checked there. */
export interface BackupStore {
  /** The backups, oldest first. Other files at the place are left out. */
  readonly list: Effect.Effect<ReadonlyArray<StoredBackup>, BackupRefused>
  /** Returns the path at which a new backup is to be written, and removes what an earlier attempt has left. */
  readonly stage: (name: string) => Effect.Effect<string, BackupRefused>
  /** Moves the backup at that path to its place. Afterwards the place has exactly these bytes. */
  readonly keep: (name: string) => Effect.Effect<void, BackupRefused>
  readonly remove: (name: string) => Effect.Effect<void, BackupRefused>
}

const NAME = /^parley-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z\.tar$/

/** The name of a backup that begins at this time. */
export const nameAt = (at: number): string => `parley-${new Date(at).toISOString().replace(/[-:]|\.\d+/g, "")}.tar`

/** The time at which a backup began, or undefined if no server gave a file this name. */
const timeOf = (name: string): number | undefined => {
  const [found, year, month, day, hour, minute, second] = NAME.exec(name) ?? []
  return found === undefined ? undefined : Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`)
}

/** The backups among these files, oldest first. */
export const backupsAmong = (
  files: ReadonlyArray<{ readonly name: string; readonly bytes: number }>
): ReadonlyArray<StoredBackup> =>
  files.flatMap(({ bytes, name }) => {
    const at = timeOf(name)
    return at === undefined ? [] : [{ name, at, bytes }]
  }).sort((one, other) => one.at - other.at)

/** Makes a refusal of any error. */
export const refusedBy = (error: unknown): BackupRefused =>
  new BackupRefused({ message: error instanceof Error ? error.message : String(error) })

export const io = <A>(run: () => Promise<A>): Effect.Effect<A, BackupRefused> =>
  Effect.tryPromise({ try: run, catch: refusedBy })

const UNCHECKED = ".unchecked"

/** Makes `stage` for a folder. A backup of which a check has not yet come to its end has another name. */
export const stageIn = (folder: string): BackupStore["stage"] => (name) =>
  io(async () => {
    makeFolder(folder, 0o700)
    for (const left of await readdir(folder)) {
      if (left.startsWith("parley-") && left.includes(UNCHECKED))
        await rm(path.join(folder, left), { recursive: true, force: true })
    }
    return path.join(folder, name + UNCHECKED)
  })

/** The path of a staged backup. */
export const stagedIn = (folder: string, name: string): string => path.join(folder, name + UNCHECKED)

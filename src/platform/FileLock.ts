import { DatabaseSync } from "node:sqlite"

const SQLITE_BUSY = 5

/** A lock that this process has on a file, until it is released or the process ends. */
export interface FileLock {
  readonly release: () => void
}

/**
 * Locks a file, which is made if it is not there; undefined: somebody else has it, also after so many milliseconds.
 *
 * It is SQLite's exclusive lock: Node has no flock, but it includes SQLite. It is a kernel lock on the file itself. So it is released
 * however the process ends, every process on the machine sees it whatever its container or mount, and the kernel decides
 * when two processes come at once. (A socket lacks the first two properties, or leaves a file to clean up.) Nothing else
 * in this process may open the file: closing any descriptor of it would release the lock.
 */
export const lockFile = (file: string, wait: number): FileLock | undefined => {
  const held = new DatabaseSync(file, { timeout: wait })
  try {
    held.exec("BEGIN EXCLUSIVE")
    return { release: () => held.close() }
  } catch (error) {
    held.close()
    if (Reflect.get(Object(error), "errcode") === SQLITE_BUSY) return undefined
    throw error
  }
}

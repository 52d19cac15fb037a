import { spawnSync } from "node:child_process"
import { closeSync, mkdtempSync, openSync, rmdirSync, rmSync, statfsSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const mount = (folder: string, megabytes: number): boolean =>
  process.platform === "linux" && process.getuid?.() === 0
  && spawnSync("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", folder], { stdio: "ignore" }).status === 0

const unmount = (folder: string): void => {
  spawnSync("umount", ["-l", folder], { stdio: "ignore" })
  rmdirSync(folder)
}

const isMissing = (): boolean => {
  const folder = mkdtempSync(join(tmpdir(), "parley-probe-"))
  const works = mount(folder, 1)
  if (works) unmount(folder)
  else rmdirSync(folder)
  return !works
}

/** A note on what tests of full disks need and this machine lacks; empty if nothing is missing. */
export const missingForDisks = isMissing() ? " (skipped: needs Linux, root, and the right to mount a tmpfs)" : ""

/** A file system in memory of this size, which can be filled. */
export class SmallDisk {
  readonly folder: string
  readonly #ballast: string

  constructor(megabytes: number) {
    this.folder = mkdtempSync(join(tmpdir(), "parley-disk-"))
    this.#ballast = join(this.folder, "ballast")
    if (!mount(this.folder, megabytes)) throw new Error(`cannot mount ${this.folder}`)
  }

  get free(): number {
    const { bavail, bsize } = statfsSync(this.folder)
    return bavail * bsize
  }

  /** Fills it until `left` bytes are free. */
  fill(left = 0): void {
    const file = openSync(this.#ballast, "a")
    const page = Buffer.alloc(65_536)
    try {
      for (let room = this.free - left; room > 0; room = this.free - left)
        writeSync(file, page, 0, Math.min(page.length, room))
    } catch (error) {
      if (Reflect.get(Object(error), "code") !== "ENOSPC") throw error
    } finally {
      closeSync(file)
    }
  }

  /** Removes what `fill` has written. */
  clear(): void {
    rmSync(this.#ballast, { force: true })
  }

  unmount(): void {
    unmount(this.folder)
  }
}

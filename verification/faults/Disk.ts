import { spawnSync } from "node:child_process"
import { chmodSync, closeSync, mkdirSync, openSync, readdirSync, rmSync, truncateSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { lives } from "./Lives.ts"

const run = (command: string, ...args: ReadonlyArray<string>): boolean => spawnSync(command, args, { stdio: "ignore" }).status === 0

/** Of which only what is written takes room: a run of a million sends is some gigabytes. */
const BYTES = 24 * 2 ** 30
const NAME = /^parley-disk-(\d+)$/

const remove = (folder: string): void => {
  run("umount", "--lazy", join(folder, "mounted"))
  rmSync(folder, { recursive: true, force: true })
}

/** What a run that was killed has left behind. */
const sweep = (): void => {
  for (const name of readdirSync(tmpdir())) {
    const pid = Number(NAME.exec(name)?.[1] ?? process.pid)
    if (!lives(pid)) remove(join(tmpdir(), name))
  }
}

/** A disk of one's own that can be full to the last byte: ext4 in a file (Linux, root, and a loop device). */
export class Disk {
  readonly folder: string
  private readonly home: string
  private fillers = 0

  private constructor(home: string) {
    this.home = home
    this.folder = join(home, "mounted")
  }

  /** Undefined where this is not allowed. */
  static open(): Disk | undefined {
    sweep()
    const home = join(tmpdir(), `parley-disk-${process.pid}`)
    const disk = new Disk(home)
    const image = join(home, "image")
    mkdirSync(disk.folder, { recursive: true })
    closeSync(openSync(image, "w"))
    truncateSync(image, BYTES)
    const made = run("mkfs.ext4", "-q", "-F", "-m", "0", image) && run("mount", "-o", "loop,discard", image, disk.folder)
    if (!made) {
      remove(home)
      return undefined
    }
    process.once("exit", () => disk.close())
    // PostgreSQL has an account of its own.
    chmodSync(disk.folder, 0o777)
    return disk
  }

  /** Takes all the room that is left; once more, what others have given back meanwhile. */
  fill(): void {
    // Takes what there is, and fails for want of the rest.
    run("fallocate", "--length", String(BYTES), join(this.folder, `filler-${this.fillers++}`))
  }

  /** There is room again. */
  clear(): void {
    for (const name of readdirSync(this.folder)) if (name.startsWith("filler-")) rmSync(join(this.folder, name))
  }

  close(): void {
    remove(this.home)
  }
}

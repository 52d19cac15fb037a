import { spawnSync } from "node:child_process"
import { chmodSync, closeSync, mkdirSync, openSync, readdirSync, rmSync, truncateSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { lives } from "./Lives.ts"

const run = (command: string, ...args: ReadonlyArray<string>): boolean =>
  spawnSync(command, args, { stdio: "ignore" }).status === 0

/** The size of the disk. Only written parts take real disk space, some gigabytes for a run of a million sends. */
const BYTES = 24 * 2 ** 30
const NAME = /^parley-disk-(\d+)$/

const remove = (folder: string): void => {
  run("umount", "--lazy", join(folder, "mounted"))
  rmSync(folder, { recursive: true, force: true })
}

/** Removes the disks that killed runs have left behind. */
const sweep = (): void => {
  for (const name of readdirSync(tmpdir())) {
    const pid = Number(NAME.exec(name)?.[1] ?? process.pid)
    if (!lives(pid)) remove(join(tmpdir(), name))
  }
}

/** A separate disk that can be filled to the last byte: ext4 in a file. Needs Linux, root and a loop device. */
export class Disk {
  readonly folder: string
  private readonly home: string
  private fillers = 0

  private constructor(home: string) {
    this.home = home
    this.folder = join(home, "mounted")
  }

  /** Creates a disk; undefined if this is not allowed. */
  static open(): Disk | undefined {
    sweep()
    const home = join(tmpdir(), `parley-disk-${process.pid}`)
    const disk = new Disk(home)
    const image = join(home, "image")
    mkdirSync(disk.folder, { recursive: true })
    closeSync(openSync(image, "w"))
    truncateSync(image, BYTES)
    const made = run("mkfs.ext4", "-q", "-F", "-m", "0", image) &&
      run("mount", "-o", "loop,discard", image, disk.folder)
    if (!made) {
      remove(home)
      return undefined
    }
    process.once("exit", () => disk.close())
    // PostgreSQL runs under another account, so everybody may write.
    chmodSync(disk.folder, 0o777)
    return disk
  }

  /** Fills all free space. A second call also fills the space that was freed meanwhile. */
  fill(): void {
    // The command takes all free space and then fails, because it asked for more.
    run("fallocate", "--length", String(BYTES), join(this.folder, `filler-${this.fillers++}`))
  }

  /** Frees the filled space. */
  clear(): void {
    for (const name of readdirSync(this.folder)) if (name.startsWith("filler-")) rmSync(join(this.folder, name))
  }

  close(): void {
    remove(this.home)
  }
}

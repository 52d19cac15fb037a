import { DataDir, DataDirInUse, FolderUnusable } from "#infrastructure/platform/disk/DataDir"
import { foreignTo } from "#infrastructure/platform/disk/Folder"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { type ChildProcessByStdio, spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { createInterface } from "node:readline"
import type { Readable, Writable } from "node:stream"
import { fileURLToPath } from "node:url"
import { missingForDisks, SmallDisk } from "../support/SmallDisk.ts"

const temporary = Effect.acquireRelease(
  Effect.sync(() => fs.mkdtempSync(path.join(tmpdir(), "parley-data-dir-"))),
  (folder) => Effect.sync(() => fs.rmSync(folder, { recursive: true, force: true }))
)

/** Another process that takes DATA_DIRs. */
class Holder {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>
  readonly #lines: AsyncIterator<string>

  constructor() {
    const script = fileURLToPath(new URL("../support/HoldDataDir.ts", import.meta.url))
    this.#child = spawn(process.execPath, [script], { stdio: ["pipe", "pipe", "inherit"] })
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]()
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  async answer(): Promise<string> {
    const { value } = await this.#lines.next()
    return String(value)
  }

  take(folder: string): Promise<string> {
    this.#child.stdin.write(`${folder}\n`)
    return this.answer()
  }

  async kill(): Promise<void> {
    if (this.#child.signalCode !== null) return
    const gone = new Promise((resolve) => this.#child.once("exit", resolve))
    this.#child.kill("SIGKILL")
    await gone
  }
}

const holder = Effect.acquireRelease(
  Effect.promise(async () => {
    const process = new Holder()
    assert.strictEqual(await process.answer(), "ready")
    return process
  }),
  (process) => Effect.promise(() => process.kill())
)

const take = (folder: string) => Effect.scoped(Layer.build(DataDir.layerAt(folder)))

describe("DataDir", () => {
  it.effect("makes the folder, and releases it at the end", () =>
    Effect.gen(function*() {
      const folder = path.join(yield* temporary, "a", "b")
      yield* take(folder)
      assert.isTrue(fs.statSync(folder).isDirectory())
      yield* take(folder)
    }))

  it.effect("is refused to a second taker in the same process", () =>
    Effect.gen(function*() {
      const folder = yield* temporary
      yield* Layer.build(DataDir.layerAt(folder))
      const error = yield* Effect.flip(take(folder))
      assert.instanceOf(error, DataDirInUse)
      assert.include(error.message, `process ${process.pid} on `)
    }))

  it.effect("is refused while a restoration into it has put no database in its place", () =>
    Effect.gen(function*() {
      const folder = yield* temporary
      fs.mkdirSync(path.join(folder, "restoring"))
      const error = yield* Effect.flip(take(folder))
      assert.include(error.message, "run the same restore command again")
      assert.deepStrictEqual(fs.readdirSync(folder), ["restoring"])
      fs.mkdirSync(path.join(folder, "database"))
      yield* take(folder)
    }))

  it.live("is refused while another process has it, and free once that is killed", () =>
    Effect.gen(function*() {
      const folder = yield* temporary
      const first = yield* holder
      assert.strictEqual(yield* Effect.promise(() => first.take(folder)), "held")
      const error = yield* Effect.flip(take(folder))
      assert.instanceOf(error, DataDirInUse)
      assert.include(error.message, folder)
      assert.include(error.message, `process ${first.pid} on `)
      assert.notInclude(error.message, "\n")
      yield* Effect.promise(() => first.kill())
      yield* take(folder)
    }))

  it.live("goes to exactly one of those that start at the same instant", () =>
    Effect.gen(function*() {
      const parent = yield* temporary
      const all = yield* Effect.all([holder, holder, holder], { concurrency: "unbounded" })
      for (let round = 0; round < 8; round++) {
        const folder = path.join(parent, String(round))
        const answers = yield* Effect.promise(() => Promise.all(all.map((process) => process.take(folder))))
        const others = answers.filter((answer) => answer !== "held")
        assert.strictEqual(others.length, all.length - 1, answers.join("; "))
        for (const answer of others) assert.match(answer, /^DataDirInUse /)
      }
    }))

  it.live("goes to a process that starts while another start fails half-way", () =>
    Effect.gen(function*() {
      const folder = yield* temporary
      yield* take(folder)
      const halfWay = `
        const file = new (require("node:sqlite").DatabaseSync)(${JSON.stringify(path.join(folder, "lock"))})
        file.exec("BEGIN")
        file.prepare("SELECT * FROM sqlite_master").all()
        console.log("half-way")
        setTimeout(() => file.close(), 100)`
      // On a busy machine the other may give up later than this one waits: then both try again.
      yield* Effect.retry(
        Effect.gen(function*() {
          const other = spawn(process.execPath, ["-e", halfWay], { stdio: ["ignore", "pipe", "inherit"] })
          yield* Effect.promise(() => new Promise((resolve) => other.stdout.once("data", resolve)))
          yield* take(folder)
        }),
        { times: 5 }
      )
    }))

  it.effect("says in a line why a folder cannot be used", () =>
    Effect.gen(function*() {
      const folder = path.join(yield* temporary, "file")
      fs.writeFileSync(folder, "not a folder")
      const isFile = yield* Effect.flip(take(folder))
      assert.instanceOf(isFile, FolderUnusable)
      assert.strictEqual(isFile.message, `DATA_DIR ${folder} cannot be used: it is a file`)
      const below = yield* Effect.flip(take(path.join(folder, "below")))
      assert.instanceOf(below, FolderUnusable)
      assert.include(below.message, "a part of the path is a file")
    }))

  it.effect.skipIf(process.platform !== "linux")(
    "says so where nobody may write, or no folder can be (Linux has such places for root too)",
    () =>
      Effect.gen(function*() {
        for (
          const [folder, reason] of [
            ["/sys/parley", /permission denied|read-only/],
            // Where Node's own `mkdir` with `recursive` never returns.
            ["/proc/parley", /its file system does not permit files or folders there/],
            ["/proc/parley/below", /its file system does not permit/],
            ["/proc/self/fdinfo", /permission denied|its file system does not permit/],
            ["/dev/full", /it is a file/],
            ["/dev/full/below", /a part of the path is a file/]
          ] as const
        ) {
          const error = yield* Effect.flip(take(folder))
          assert.instanceOf(error, FolderUnusable)
          assert.match(error.message, reason, folder)
          assert.isTrue(error.message.startsWith(`DATA_DIR ${folder} cannot be used: `), error.message)
        }
      })
  )

  it.effect.skipIf(missingForDisks !== "")(
    `says so on a full disk, and on one that is read-only${missingForDisks}`,
    () =>
      Effect.gen(function*() {
        const disk = yield* Effect.acquireRelease(
          Effect.sync(() => new SmallDisk(1)),
          (disk) => Effect.sync(() => disk.unmount())
        )
        disk.fill()
        const full = yield* Effect.flip(take(disk.folder))
        assert.strictEqual(full.message, `DATA_DIR ${disk.folder} cannot be used: no space left on its disk`)
        spawnSync("mount", ["-o", "remount,ro", disk.folder])
        const closed = yield* Effect.flip(take(path.join(disk.folder, "data")))
        assert.strictEqual(closed.message, `DATA_DIR ${disk.folder}/data cannot be used: its file system is read-only`)
      })
  )

  it.effect("closes to other users what a folder that somebody else has made leaves open, and says it once", () =>
    Effect.gen(function*() {
      const folder = yield* temporary
      const at = (...names: ReadonlyArray<string>) => path.join(folder, ...names)
      const mode = (...names: ReadonlyArray<string>) => (fs.statSync(at(...names)).mode & 0o777).toString(8)
      for (const name of ["database/base", "outbox", "blobs/files"]) fs.mkdirSync(at(name), { recursive: true })
      for (const name of ["database/base/1", "outbox/a.eml", "lock", "own.txt"]) fs.writeFileSync(at(name), "")
      for (const name of ["database/base/1", "lock", "own.txt"]) fs.chmodSync(at(name), 0o666)
      fs.symlinkSync(at("own.txt"), at("outbox/link"))
      fs.chmodSync(folder, 0o755)
      const lines: Array<string> = []
      const logged = take(folder).pipe(
        Effect.provide(Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))]))
      )
      yield* logged
      assert.deepStrictEqual(lines, [
        `Other users of this machine could use database, blobs, outbox in ${folder}. The server has removed their rights`
      ])
      for (const name of ["database", "database/base", "outbox", "blobs", "blobs/files"])
        assert.strictEqual(mode(name), "700", name)
      for (const name of ["database/base/1", "outbox/a.eml", "lock"]) assert.strictEqual(mode(name), "600", name)
      assert.deepStrictEqual([mode(), mode("own.txt")], ["755", "666"], "what is not Parley's, through a link too")
      yield* logged
      assert.strictEqual(lines.length, 1)
    }))

  const missingRoot = process.getuid?.() === 0 ? "" : " (skipped: needs root)"

  it.effect.skipIf(missingRoot !== "")(
    `is refused to root if it belongs to another user, who is named${missingRoot}`,
    () =>
      Effect.gen(function*() {
        const [name, uid] = ["daemon", 1]
        const asName = /run this as "daemon" \(for example sudo -u daemon …\)$/
        const empty = yield* temporary
        fs.chownSync(empty, uid, uid)
        const refused = yield* Effect.flip(take(empty))
        assert.match(refused.message, asName)
        assert.deepStrictEqual(fs.readdirSync(empty), [], "nothing is left there")
        assert.isUndefined(foreignTo(path.join(empty, "new", "data"), 0), "a checkout that a container has mounted")
        // The folder of a volume may belong to root, and its database to the server's user.
        const used = yield* temporary
        fs.mkdirSync(path.join(used, "database"))
        fs.chownSync(path.join(used, "database"), uid, uid)
        assert.match((yield* Effect.flip(take(used))).message, asName)
        const below = path.join(used, "new", "data")
        assert.isUndefined(foreignTo(below, 0), "a folder with something called database is no DATA_DIR")
        // Nor is a folder created in a DATA_DIR.
        fs.writeFileSync(path.join(used, "lock"), "")
        fs.chownSync(path.join(used, "lock"), uid, uid)
        const unmade = yield* Effect.flip(take(below))
        assert.match(unmade.message, asName)
        assert.include(unmade.message, `DATA_DIR ${below} cannot be used: database in ${used} belongs to "${name}"`)
        assert.isUndefined(foreignTo(below, uid))
        assert.deepStrictEqual(fs.readdirSync(used), ["database", "lock"], "nothing is left there")
        assert.include(foreignTo(empty, 0) ?? "", `it belongs to "${name}"`)
        assert.isUndefined(foreignTo(empty, uid))
        // What root has left behind in the folder of the server's user.
        fs.mkdirSync(path.join(empty, "database"))
        assert.include(foreignTo(empty, uid) ?? "", `chown -R daemon ${empty}`)
        assert.match(foreignTo(used, 12_345) ?? "", asName)
        fs.chownSync(path.join(used, "database"), 54_321, 54_321)
        assert.match(foreignTo(used, 0) ?? "", /as the user with the id 54321 \(for example sudo -u '#54321' …\)$/)
      })
  )
})

import { BackupNames } from "#domain/archives/BackupStore"
import { backupStore } from "#domain/archives/BackupStoreLive"
import { placeIn } from "#domain/archives/BackupStoreS3"
import { layerPglite } from "#infrastructure/database/SqlPglite"
import { Config } from "#infrastructure/platform/Config"
import { FreeDisk } from "#infrastructure/platform/disk/DiskSpace"
import { AuditLog } from "#interfaces/operator/AuditLog"
import { Backups } from "#interfaces/operator/Backups"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { mkdirSync, readdirSync, writeFileSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { adminHere } from "../support/Admin.ts"
import { eventually } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { Operating } from "../support/Operating.ts"
import { makeDataDir, newAgent, type Server, startServer } from "../support/Server.ts"
import { missingForDisks, SmallDisk } from "../support/SmallDisk.ts"

const names = new BackupNames("0123abcd")
const AT = Date.parse("2026-11-28T03:30:07.250Z")

describe("the place of backups", () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "parley-backups-"))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  it("knows its own backups by their names, whatever else is there", () => {
    assert.strictEqual(names.at(AT), "parley-0123abcd-20261128T033007Z.tar")
    const files = [
      "parley-0123abcd-20261128T033007Z.tar",
      "parley-0123abcd-20251128T033007Z.tar",
      "parley-ffffffff-20261128T033007Z.tar",
      "parley-0123abcd-20261301T000000Z.tar",
      "parley-0123abcd-20261128T043007Z.tar",
      "parley.tar",
      "notes.txt"
    ]
    // One server's, of a date that exists, and not of the future.
    assert.deepStrictEqual(names.among(files.map((name) => ({ name, bytes: 7 })), AT), [
      { name: "parley-0123abcd-20251128T033007Z.tar", at: Date.parse("2025-11-28T03:30:07Z"), bytes: 7 },
      { name: "parley-0123abcd-20261128T033007Z.tar", at: Date.parse("2026-11-28T03:30:07Z"), bytes: 7 }
    ])
    assert.deepStrictEqual(
      ["parley-0123abcd-20261128T033007Z.tar.unchecked", "parley-0123abcd-20261128T033007Z.tar.unchecked.check"].map(
        (name) => names.isUnfinished(name)
      ),
      [true, true]
    )
    assert.isFalse(names.isUnfinished("parley-notes.unchecked"))
    assert.isFalse(names.isUnfinished("parley-ffffffff-20261128T033007Z.tar.unchecked"))
  })

  it("is a bucket with a prefix, or without", () => {
    assert.deepStrictEqual(placeIn("s3://backups"), { bucket: "backups", prefix: "" })
    assert.deepStrictEqual(placeIn("s3://backups/parley/one/"), { bucket: "backups", prefix: "parley/one/" })
  })

  it.live("shows a backup only when it is kept, and removes what an earlier attempt has left", () =>
    Effect.gen(function*() {
      const config = yield* Config.pipe(Effect.provide(Config.layerTest({})))
      const place = join(folder, "place")
      const store = yield* backupStore(config, place, names)
      assert.match(
        (yield* Effect.flip(store.list)).message,
        /^There is no folder .*place\. Create it, or mount its disk/
      )
      mkdirSync(place)
      assert.deepStrictEqual(yield* store.list, [])
      writeFileSync(yield* store.stage(names.at(AT)), "one")
      writeFileSync(`${yield* store.stage(names.at(AT + 1_000))}.unfinished`, "two")
      assert.lengthOf(readdirSync(place), 1)
      const name = names.at(AT + 2_000)
      const staged = yield* store.stage(name)
      assert.deepStrictEqual(readdirSync(place), [])
      writeFileSync(staged, "three")
      assert.deepStrictEqual(yield* store.list, [])
      yield* store.keep(name)
      assert.deepStrictEqual((yield* store.list).map(({ bytes, name }) => [name, bytes]), [[name, 5]])
      yield* store.remove(name)
      assert.deepStrictEqual(readdirSync(place), [])
    }))

  it.effect("that cannot be used is refused with the reason", () =>
    Effect.gen(function*() {
      const config = yield* Config.pipe(Effect.provide(Config.layerTest({})))
      const place = join(folder, "a file")
      writeFileSync(place, "")
      const store = yield* backupStore(config, place, names)
      assert.match((yield* Effect.flip(store.list)).message, /^There is no folder/)
    }))
})

type Note = AuditLog["Service"]["note"]

const noting = (noted: Array<string>): Note => ({ action, detail }) =>
  Effect.sync(() => void noted.push(`${action} ${detail}`))

/** Makes a backup of a small database on the disk of the tests, without a server. */
const makeOne = Effect.fnUntraced(function*(target: string, note: Note, free: () => number = () => Infinity) {
  const dataDir = yield* Effect.acquireRelease(
    Effect.promise(makeDataDir),
    (made) => Effect.promise(() => rm(made, { recursive: true, force: true }))
  )
  return yield* Effect.flatMap(Backups, ({ make }) => make(target, "nina")).pipe(
    Effect.provide(
      Backups.layer.pipe(Layer.provide([
        Layer.mock(AuditLog)({ note }),
        Config.layerTest({ DATA_DIR: dataDir }),
        Layer.succeed(FreeDisk, free),
        layerPglite({ dataDir })
      ]))
    )
  )
}, Effect.scoped)

describe("a backup by an operator", () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "parley-backups-"))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  it.live("is not begun if the database could crash, because its own disk has no room for a checkpoint", () =>
    Effect.gen(function*() {
      const noted: Array<string> = []
      const file = join(folder, "full.tar")
      const refused = yield* Effect.flip(makeOne(file, noting(noted), () => 31_000_000))
      const why = "The disk of DATA_DIR has 31 MB free, and a backup of a running server needs 32 MB there. " +
        "Free some space, or stop the server and copy DATA_DIR."
      assert.strictEqual(refused.message, why)
      assert.deepStrictEqual(noted, [`refused backup ${file}: ${why}`])
      assert.deepStrictEqual(readdirSync(folder), [])
    }))

  it.live.skipIf(missingForDisks !== "")(
    `is not begun on a disk that has no room for it${missingForDisks}`,
    () =>
      Effect.gen(function*() {
        const disk = yield* Effect.acquireRelease(
          Effect.sync(() => new SmallDisk(200)),
          (disk) => Effect.sync(() => disk.unmount())
        )
        const noted: Array<string> = []
        const refused = yield* Effect.flip(makeOne(join(disk.folder, "small.tar"), ({ action, detail }) =>
          Effect.sync(() =>
            void noted.push(`${action} ${detail}`)
          )))
        const why = refused.message
        assert.match(why, /^The disk of .* has \d+ MB free, and a backup needs \d+ MB\.$/)
        assert.deepStrictEqual(noted, [
          `begin backup ${join(disk.folder, "small.tar")}`,
          `refused backup ${join(disk.folder, "small.tar")}: ${why}`
        ])
        assert.deepStrictEqual(readdirSync(disk.folder), [])
      }).pipe(Effect.scoped)
  )
})

describe("a server with BACKUP_EVERY", () => {
  let folder: string
  let dataDir: string
  let server: Server
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "parley-backups-"))
    dataDir = await makeDataDir()
    mkdirSync(join(dataDir, "backups"))
    writeFileSync(join(dataDir, "backups/id"), "0123abcd\n")
    for (const year of [2021, 2022, 2023]) writeFileSync(join(folder, names.at(Date.UTC(year))), "old")
    writeFileSync(join(folder, "notes.txt"), "of a person")
    server = await startServer({ dataDir, env: { BACKUP_EVERY: "1", BACKUP_TO: folder, BACKUP_KEEP: "2" } })
  })
  afterAll(async () => {
    await server?.stop()
    for (const made of [folder, dataDir]) await rm(made, { recursive: true, force: true })
  })

  it("makes a backup that is due, checks it, keeps as many as it should, and shows them", async () => {
    await newAgent(server, "ada")
    await eventually(
      "a backup",
      async () => await metricOf(server, "backups_total", { outcome: "done" }) > 0 || undefined
    )
    const files = readdirSync(folder).sort()
    assert.lengthOf(files, 3, server.output)
    const [notes, old, fresh] = files
    assert.deepStrictEqual([notes, old], ["notes.txt", names.at(Date.UTC(2023))])
    assert.match(fresh ?? "", /^parley-0123abcd-\d{8}T\d{6}Z\.tar$/)
    assert.include(server.stderr, `Made the backup ${join(folder, fresh ?? "")}`)
    assert.strictEqual(await metricOf(server, "backup_interval_seconds"), 3_600)
    assert.isAtLeast(await metricOf(server, "backup_age_seconds"), 0)

    const checked = await adminHere(server.place, "check-backup", "--json", join(folder, fresh ?? ""))
    assert.strictEqual(checked.code, 0, checked.stderr)
    const { rows, tables } = JSON.parse(checked.stdout) as { readonly rows: number; readonly tables: number }
    assert.isAbove(rows, 0)
    assert.isAbove(tables, 20)
    assert.deepStrictEqual(readdirSync(folder).sort(), files)

    const operator = await Operating.signIn(server)
    const { entries } = await operator.ok<{ readonly entries: ReadonlyArray<{ readonly action: string }> }>(
      "GET",
      "/audit?operator=server"
    )
    const actions = entries.map(({ action }) => action)
    assert.includeMembers(actions, ["begin backup", "backup"])
  })

  it("a backup that is damaged is found by its check", async () => {
    const damaged = join(folder, "damaged.tar")
    mkdirSync(join(folder, "not a backup"))
    writeFileSync(damaged, "not a tar file")
    for (
      const [file, why] of [[damaged, /is not a complete backup/], [
        join(folder, "not a backup"),
        /it is a folder/
      ]] as const
    ) {
      const { code, stderr } = await adminHere(server.place, "check-backup", file)
      assert.strictEqual(code, 1)
      assert.match(stderr, why)
    }
  })
})

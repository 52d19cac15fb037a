import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import { mkdir, mkdtemp, open, readdir, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { backUp } from "#domain/archives/Backup"
import { PgliteDatabase } from "#ground/database/Pglite"
import { Database } from "#ground/database/Sql"
import { layerPglite, layerPgliteOf } from "#ground/database/SqlPglite"
import { entriesOf, headerOf, TarWriter } from "#ground/files/Tar"
import { attempt, say } from "../contract/Talk.ts"
import { adminHere } from "../support/Admin.ts"
import { newAgent, type Server, sharedServer } from "../support/Server.ts"

it("a tar file has its entries again, long names too, and one that ends too soon is noticed", async () => {
  const folder = await mkdtemp(join(tmpdir(), "parley-tar-"))
  try {
    const file = join(folder, "a.tar")
    const long = `${"folder/".repeat(20)}${"x".repeat(90)}`
    const bytes = Buffer.alloc(700_000, "some bytes ")
    await writeFile(join(folder, "bytes"), bytes)
    const handle = await open(file, "w")
    const tar = new TarWriter(handle, 0)
    await tar.text("empty", "")
    await tar.text(long, "Größe")
    await tar.file("bytes", join(folder, "bytes"))
    await tar.finish()
    await handle.close()
    const read = async (): Promise<ReadonlyArray<readonly [string, Buffer]>> => {
      const source = await open(file, "r")
      const found: Array<readonly [string, Buffer]> = []
      try {
        for await (const entry of entriesOf(source)) {
          const chunks: Array<Buffer> = []
          for await (const chunk of entry.chunks()) chunks.push(chunk)
          found.push([entry.name, Buffer.concat(chunks)])
        }
      } finally {
        await source.close()
      }
      return found
    }
    assert.deepStrictEqual(await read(), [["empty", Buffer.alloc(0)], [long, Buffer.from("Größe")], ["bytes", bytes]])

    // Of 8 GiB and more, without writing them.
    const size = 8 * 1_024 ** 3 + 5
    const sparse = await open(join(folder, "large.tar"), "w+")
    await sparse.write(headerOf("large", size, 0), 0, 512, 0)
    await sparse.write(headerOf("after", 0, 0), 0, 512, 512 + 8 * 1_024 ** 3 + 512)
    await sparse.truncate(8 * 1_024 ** 3 + 4 * 512)
    const found: Array<readonly [string, number]> = []
    for await (const entry of entriesOf(sparse)) found.push([entry.name, entry.size])
    await sparse.close()
    assert.deepStrictEqual(found, [["large", size], ["after", 0]])

    await truncate(file, 400_000)
    assert.match(String(await read().catch((error: unknown) => error)), /ends too soon/)
    await writeFile(file, Buffer.alloc(2_048, "no tar"))
    assert.match(String(await read().catch((error: unknown) => error)), /no tar file/)
  } finally {
    await rm(folder, { recursive: true })
  }
})

it.live("a database has one backup at a time, which keeps its log, and none without a file of the log", () =>
  Effect.gen(function*() {
    const folder = yield* Effect.acquireRelease(
      Effect.promise(() => mkdtemp(join(tmpdir(), "parley-backup-"))),
      (folder) => Effect.promise(() => rm(folder, { recursive: true }))
    )
    let opened: PgliteDatabase | undefined
    const database = layerPgliteOf({
      open: async (onCheckpointDue) => opened = await PgliteDatabase.open({ dataDir: folder }, onCheckpointDue),
      close: (opened) => opened.close()
    })
    yield* Effect.gen(function*() {
      const { backup } = yield* Database
      const sql = yield* SqlClient.SqlClient
      const files = opened
      if (backup === undefined || files === undefined) return assert.fail("no backup of a database in a folder")
      const checkpoint = Effect.map(sql<{ readonly at: string }>`SELECT redo_lsn::text AS at FROM pg_control_checkpoint()`, ([row]) => row?.at)
      const target = join(folder, "a.tar")
      const given = { target, database: backup, schema: "1", store: undefined }

      yield* Effect.scoped(Effect.gen(function*() {
        yield* backup.begin
        const begun = yield* checkpoint
        yield* sql`CREATE TABLE later (n integer)`
        assert.isTrue(Exit.isFailure(yield* Effect.exit(Effect.scoped(backup.begin))))
        files.checkpoint()
        assert.strictEqual(yield* checkpoint, begun, "the first backup's log is kept")
      }))

      const both = yield* Effect.all([Effect.result(backUp(given)), Effect.result(backUp(given))], { concurrency: 2 })
      assert.deepStrictEqual(both.map(({ _tag }) => _tag), ["Success", "Failure"])
      assert.include(both[1]._tag === "Failure" ? both[1].failure.message : "", "A backup is under way")
      assert.isFalse((yield* Effect.promise(() => readdir(folder))).includes("a.tar.unfinished"))

      const end = Effect.map(backup.end, (log) => ({ ...log, last: `${log.last.slice(0, 16)}000000FF` }))
      const lacking = yield* Effect.flip(backUp({ ...given, target: join(folder, "b.tar"), database: { ...backup, end } }))
      assert.include(lacking.message, "is gone")
    }).pipe(Effect.provide(database))
  }).pipe(Effect.scoped), 60_000)

describe("a backup of a standalone server that is used", () => {
  let server: Server
  let folder: string
  beforeAll(async () => {
    server = await sharedServer()
    folder = await mkdtemp(join(tmpdir(), "parley-backup-"))
  })
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true })
    await server.stop()
  })

  it("has everything that was answered before it, no half of what came later, and the files; and starts where nothing is", async () => {
    const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
    await say(ada, bob)
    const first = await say(bob, ada)
    const bytes = Buffer.from("a file that is kept")
    const { attachment_id, upload_url } = (await ada.http.post("/v1/uploads", {
      to: bob.handle,
      filename: "kept.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex")
    })).body as { attachment_id: string; upload_url: string }
    assert.strictEqual((await fetch(upload_url, { method: "PUT", body: bytes })).status, 200)
    await say(ada, bob, { type: "file", content: { attachment_id } })

    const before: Array<string> = []
    const all: Array<string> = []
    const stop = new AbortController()
    const sending = (async () => {
      while (!stop.signal.aborted && all.length < 300) {
        const answer = await attempt(ada, bob, { content: { text: "x".repeat(2_000) } })
        assert.strictEqual(answer.status, 201, `${answer}`)
        all.push((answer.body as { id: string }).id)
      }
    })()
    for (let i = 0; i < 20; i++) before.push((await say(bob, ada)).id)
    const file = join(folder, "parley.tar")
    const made = await adminHere(server.place, "backup", file, "--json")
    const answered = all.length
    for (let i = 0; i < 5; i++) await say(bob, ada)
    stop.abort()
    await sending
    assert.strictEqual(made.code, 0, made.stderr)
    assert.deepInclude(JSON.parse(made.stdout), { file, files: true })
    assert.strictEqual((await stat(file)).mode & 0o777, 0o600)
    assert.deepStrictEqual(await readdir(folder), ["parley.tar"])
    const twice = await adminHere(server.place, "backup", file)
    assert.include(twice.stderr, "is there already")

    const restored = join(folder, "restored")
    const done = await adminHere({}, "restore", file, restored)
    assert.strictEqual(done.code, 0, done.stderr)
    assert.include(done.stdout, `start it with DATA_DIR=${restored}`)
    assert.match(done.stdout, /\d+ conversations and \d+ inboxes now continue above/)
    assert.sameMembers(await readdir(restored), ["blobs", "database"])
    // As if it had died between the two: it is done again.
    await mkdir(join(restored, "restoring"))
    await rename(join(restored, "database"), join(restored, "restoring/database"))
    const again = await adminHere({}, "restore", file, restored)
    assert.strictEqual(again.code, 0, again.stderr)
    assert.sameMembers(await readdir(restored), ["blobs", "database"])
    assert.strictEqual(await readFile(join(restored, "blobs/files", attachment_id), "utf8"), bytes.toString())
    await Effect.runPromise(Effect.gen(function*() {
      const sql = yield* SqlClient.SqlClient
      const rows = yield* sql<{ readonly id: string; readonly seq: number; readonly envelope: boolean }>`
        SELECT m.id, m.seq, EXISTS (SELECT FROM envelopes e WHERE e.conversation_id = m.conversation_id AND e.seq = m.seq) AS envelope
        FROM messages m WHERE m.conversation_id = ${first.conversation_id} ORDER BY m.seq`
      const ids = new Set(rows.map(({ id }) => id))
      for (const id of before) assert.isTrue(ids.has(id), "answered before the backup began")
      assert.deepStrictEqual(rows.map(({ seq }) => seq), rows.map((_, i) => i + 1), "no hole")
      assert.isTrue(rows.every(({ envelope }) => envelope))
      // A state of one moment: of what one agent sent one after the other, a beginning.
      const there = all.filter((id) => ids.has(id))
      assert.deepStrictEqual(there, all.slice(0, there.length))
      assert.isAtMost(there.length, answered + 1)
      const counted = yield* sql`
        SELECT i.agent_id FROM inboxes i
        WHERE i.undelivered <> (SELECT count(*) FROM envelopes e WHERE e.recipient_id = i.agent_id AND e.delivered_at IS NULL)`
      assert.deepStrictEqual(counted, [])
      const audit = yield* sql<{ readonly action: string }>`SELECT action FROM audit_log ORDER BY no DESC LIMIT 2`
      assert.deepStrictEqual(audit.map(({ action }) => action), ["restored", "backup"])
    }).pipe(Effect.provide(layerPglite({ dataDir: restored })), Effect.scoped))

    const occupied = await adminHere({}, "restore", file, restored)
    assert.include(occupied.stderr, "is not empty")
    // Damaged, and no backup at all: nothing is left that a server would take for a database.
    await truncate(file, (await stat(file)).size - 4_096)
    const target = join(folder, "half")
    const half = await adminHere({}, "restore", file, target)
    assert.strictEqual(half.code, 1)
    assert.include(half.stderr, "is not a complete backup")
    assert.deepStrictEqual(await readdir(target), ["restoring"])
    await mkdir(join(folder, "other"))
    const none = await adminHere({}, "restore", join(folder, "nothing.tar"), join(folder, "other"))
    assert.include(none.stderr, "There is no file")
    const postgres = await adminHere({ DATABASE_URL: "postgres://localhost/parley" }, "restore", file, join(folder, "other"))
    assert.include(postgres.stderr, "pg_restore")
  })
})

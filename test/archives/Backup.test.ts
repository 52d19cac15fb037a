import { backUp, unpack } from "#domain/archives/Backup"
import { PgliteDatabase } from "#infrastructure/database/Pglite"
import { Database } from "#infrastructure/database/Sql"
import { layerPglite, layerPgliteOf } from "#infrastructure/database/SqlPglite"
import { filesAt, writeTar } from "#infrastructure/files/Tar"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Effect, Exit, Option, Stream } from "effect"
import { Tar } from "effect/encoding"
import { SqlClient } from "effect/sql"
import { createHash } from "node:crypto"
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { gunzipSync } from "node:zlib"
import { attempt, say } from "../contract/Talk.ts"
import { adminHere } from "../support/Admin.ts"
import { newAgent, type Server, sharedServer } from "../support/Server.ts"

const temporaryFolder = Effect.acquireRelease(
  Effect.promise(() => mkdtemp(join(tmpdir(), "parley-backup-"))),
  (folder) => Effect.promise(() => rm(folder, { recursive: true }))
)

const decoded = (archive: Uint8Array) => Stream.pipeThroughChannel(Stream.succeed(archive), Tar.decode())

it.live("a tar file has long names, no file that is gone, and zeros for what a file has lost", () =>
  Effect.gen(function*() {
    const folder = yield* temporaryFolder
    const at = (name: string) => join(folder, name)
    const long = `${"folder/".repeat(20)}${"x".repeat(90)}`
    const bytes = Buffer.alloc(700_000, "some bytes ")
    yield* Effect.promise(async () => {
      await writeFile(at("small"), "Größe")
      await writeFile(at("large"), bytes)
      await writeFile(at("shrinks"), bytes)
      await writeFile(at("empty"), "")
    })
    const named = [[long, at("small")], ["large", at("large")], ["gone", at("gone")], ["shrinks", at("shrinks")], [
      "empty",
      at("empty")
    ]] as const
    const entries = Stream.tap(
      filesAt(named, "skip"),
      ({ header }) => header.path === "shrinks" ? Effect.promise(() => truncate(at("shrinks"), 300_000)) : Effect.void
    )
    const size = yield* writeTar(at("a.tar"), at("unfinished"), 1_500, entries)
    const archive = yield* Effect.promise(() => readFile(at("a.tar")))
    assert.strictEqual(archive.length, size)
    assert.strictEqual((yield* Effect.promise(() => stat(at("a.tar")))).mode & 0o777, 0o600)
    const found = yield* Stream.runCollect(
      Stream.mapEffect(decoded(archive), ({ body, header }) =>
        Effect.map(
          Stream.mkUint8Array(body),
          (content) => [header.path, header.mode, header.mtime.getTime(), Buffer.from(content)]
        ))
    )
    const cut = Buffer.concat([bytes.subarray(0, 300_000), Buffer.alloc(400_000)])
    assert.deepStrictEqual(found, [
      [long, 0o600, 1_000, Buffer.from("Größe")],
      ["large", 0o600, 1_000, bytes],
      ["shrinks", 0o600, 1_000, cut],
      ["empty", 0o600, 1_000, Buffer.alloc(0)]
    ])

    const before = yield* Effect.promise(() => readdir(folder))
    const failure = yield* Effect.flip(writeTar(at("b.tar"), at("unfinished"), 0, filesAt(named, "fail")))
    assert.include(failure.message, "is gone")
    assert.deepStrictEqual(yield* Effect.promise(() => readdir(folder)), before)
  }).pipe(Effect.scoped))

/** A backup that was made in November 2026, when Parley wrote tar files without `effect/encoding/Tar`. */
const OLDER_BACKUP =
  "H4sIAAAAAAACA+2XS07DMBCGveYUkddp48mrVfaoYgMIEAsQipzGgULSRLEjqBBn4RZcoBfDacuCsGiR2oiQ+RR5fluWbGU0npmYKx5xKazzSXh9fHF5cnZK9g3T+IytLP" +
  "tpNQ4Bz2HgeMx29ToA+IwYjLRAJRUv9VVIP4HxEUH6S5KnsSitl4OxU/yPvse/73rOqOPxH389rJs/3LLZ9ZqTcvmxfBcYCD0lSvNIWsksFesxhP2fsSX+7ZHjNvO/jfm/" +
  "HWSeCSNaKCENlChRokT5T+Rv87/ICrUgref/lW7m/87X/12p//j0qSqGjzKfH+yMbf4Hr9H/gZZY/7XCK03yMuOKBmDSjMcirDW1me0PAAa2ewXjgDH9DbWnbqhJ5fRBZF" +
  "zvqT2n52KuypmQNHBNuu49tb6lxX34zFN6pxfrx4UGqqzEGzZcCIIgf4RPkW4MRQAaAAA="
/** A header of that time, of a file of 8 GiB and 5 bytes. Its size is in binary. */
const OLDER_HEADER =
  "H4sIAAAAAAACA8tJLEpPZaAtMDAwMDAzMADTBkh0A0SaiYGBgdUAARgMDMwMjcwZFAwY6ABKi0sSixgM6GLXIAQA9NKTrgACAAA="
const inflated = (text: string) => gunzipSync(Buffer.from(text, "base64"))

it.live("a backup of an older version is restored; one that is damaged, or has an entry that leads elsewhere, is refused", () =>
  Effect.gen(function*() {
    const folder = yield* temporaryFolder
    const at = (name: string) => join(folder, name)
    const restored = (archive: Uint8Array, to: string) =>
      Effect.andThen(
        Effect.promise(() => writeFile(at("a.tar"), archive)),
        Effect.flatMap(unpack(at("a.tar"), at(to)), ({ finish }) => finish)
      )
    const older = inflated(OLDER_BACKUP)
    yield* restored(older, "older")
    const content = (name: string) => Effect.promise(() => readFile(at(`older/${name}`), "utf8"))
    assert.sameMembers(yield* Effect.promise(() => readdir(at("older/database"))), ["PG_VERSION", "folder", "pg_wal"])
    assert.strictEqual(yield* content("database/PG_VERSION"), "18\n")
    assert.strictEqual(yield* content(`database/${"folder/".repeat(18)}${"x".repeat(90)}`), "Größe")
    assert.strictEqual(yield* content("blobs/files/file_1"), Buffer.alloc(1_500, "some bytes ").toString())
    assert.strictEqual(yield* content("blobs/files/empty"), "")
    const large = yield* Stream.runHead(Stream.map(decoded(inflated(OLDER_HEADER)), ({ header }) => header.size))
    assert.deepStrictEqual(large, Option.some(8 * 1_024 ** 3 + 5))

    const refused = (archive: Uint8Array) =>
      Effect.map(Effect.flip(restored(archive, "refused")), ({ message }) => message)
    assert.match(
      yield* refused(older.subarray(0, 4_000)),
      /is not a complete backup: unexpected end of tar archive at byte 4000/
    )
    assert.match(yield* refused(older.subarray(0, 2_048)), /is not a complete backup: it ends without backup.json/)
    assert.match(
      yield* refused(Buffer.alloc(2_048, "no tar")),
      /is not a complete backup: it is no tar file, or damaged/
    )
    assert.match(
      (yield* Effect.flip(unpack(folder, at("refused")))).message,
      /is not a complete backup: it is a folder\.$/
    )
    for (
      const entry of [
        Tar.file("database/../../out", "x"),
        Tar.file("/etc/out", "x"),
        Tar.symlink("database/out", "/etc")
      ]
    ) {
      yield* writeTar(at("b.tar"), at("unfinished"), 0, Stream.succeed(entry))
      assert.match(
        yield* refused(yield* Effect.promise(() => readFile(at("b.tar")))),
        /is not a complete backup: it has an entry .*out\.$/
      )
    }
  }).pipe(Effect.scoped))

it.live("a database has one backup at a time, which keeps its log, and none without a file of the log", () =>
  Effect.gen(function*() {
    const folder = yield* temporaryFolder
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
      const checkpoint = Effect.map(
        sql<{ readonly at: string }>`SELECT redo_lsn::text AS at FROM pg_control_checkpoint()`,
        ([row]) => row?.at
      )
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
      const lacking = yield* Effect.flip(
        backUp({ ...given, target: join(folder, "b.tar"), database: { ...backup, end } })
      )
      assert.include(lacking.message, "is gone")
      const nowhere = yield* Effect.flip(backUp({ ...given, target: join(folder, "none/c.tar") }))
      assert.include(nowhere.message, `There is no folder ${join(folder, "none")} on the machine of the server.`)
    }).pipe(Effect.provide(database))
  }).pipe(Effect.scoped))

describe("a backup of a standalone server under load", () => {
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

  it("has everything that was answered before it, nothing later in part, and the files; it starts in an empty folder", async () => {
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
        assert.include(answer.repeated ? [200, 201] : [201], answer.status, `${answer}`)
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
    const listed = await adminHere(server.place, "audit", "list", "--changes", "--limit", "4", "--json")
    const noted = JSON.parse(listed.stdout) as ReadonlyArray<
      { readonly action: string; readonly reason: string | null }
    >
    assert.deepStrictEqual(noted.map(({ action, reason }) => [action, reason]), [
      ["refused backup", `${file}: ${file} is there already.`],
      ["begin backup", file],
      ["backup", `${file}: ${(await stat(file)).size} bytes`],
      ["begin backup", file]
    ])

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
    await Effect.runPromise(
      Effect.gen(function*() {
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
        assert.deepStrictEqual(audit.map(({ action }) => action), ["restored", "begin backup"])
      }).pipe(Effect.provide(layerPglite({ dataDir: restored })), Effect.scoped)
    )

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
    const nowhere = await adminHere({}, "restore", file, "/dev/null/below")
    assert.include(nowhere.stderr, "/dev/null/below cannot be used: a part of the path is a file.")
    const postgres = await adminHere(
      { DATABASE_URL: "postgres://localhost/parley" },
      "restore",
      file,
      join(folder, "other")
    )
    assert.include(postgres.stderr, "pg_restore")
  })
})

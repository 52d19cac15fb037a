import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { once } from "node:events"
import { readFileSync } from "node:fs"
import { appendFile, chown, cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Client } from "pg"
import { freePort } from "../../runners/local/FreePort.ts"
import { DEBIAN_15, isInstalled } from "../../runners/local/Postgres.ts"
import * as Shapes from "../../test/contract/Shapes.ts"
import { history, say } from "../../test/contract/Talk.ts"
import { admin } from "../../test/support/Admin.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { makeDataDir, newAgent, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"

const missing = isInstalled(15) && process.getuid?.() === 0
  ? ""
  : " (skipped: needs root and PostgreSQL 15: apt-get install postgresql)"

/** The account of Debian's package. */
const account = () => {
  const [, , uid, gid] = /^postgres:.*$/m.exec(readFileSync("/etc/passwd", "utf8"))?.[0].split(":") ?? []
  return { uid: Number(uid), gid: Number(gid) }
}

/** Restores PostgreSQL to a point in time as docs/operations.md says: a base backup, and an archive of the log. */
describe.skipIf(missing !== "")(`PostgreSQL with an archive of its log${missing}`, { timeout: 300_000 }, () => {
  let folder: string
  let dataDir: string
  let port: number
  let postgres: ChildProcess
  let server: Server | undefined

  const run = (program: string, ...args: ReadonlyArray<string>) =>
    execFileSync(join(DEBIAN_15, program), args, { ...account(), cwd: "/", stdio: ["ignore", "ignore", "pipe"] })

  const query = async <A extends object>(text: string, database = "postgres", user = "postgres"): Promise<A[]> => {
    const client = new Client({ host: "127.0.0.1", port, user, database })
    await client.connect()
    try {
      return (await client.query<A>(text)).rows
    } finally {
      await client.end()
    }
  }

  /** Starts PostgreSQL on a folder, and waits until it takes writes. */
  const launch = async (data: string) => {
    postgres = spawn(join(DEBIAN_15, "postgres"), ["-D", data, "-p", String(port)], {
      ...account(),
      cwd: "/",
      stdio: "ignore"
    })
    await eventually("PostgreSQL", async () => {
      const [row] = await query<{ readonly away: boolean }>("SELECT pg_is_in_recovery() AS away").catch(() => [])
      return row?.away === false || undefined
    })
  }
  const stop = async () => {
    const ended = once(postgres, "exit")
    postgres.kill("SIGINT")
    await ended
  }

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "parley-point-"))
    const { gid, uid } = account()
    await chown(folder, uid, gid)
    port = await freePort()
    run(
      "initdb",
      "-D",
      join(folder, "data"),
      "--username=postgres",
      "--auth=trust",
      "--encoding=UTF8",
      "--locale=C.UTF-8"
    )
    const archive = join(folder, "archive")
    await mkdir(archive)
    await chown(archive, uid, gid)
    await appendFile(
      join(folder, "data/postgresql.conf"),
      `listen_addresses = '127.0.0.1'
unix_socket_directories = ''
archive_mode = on
archive_command = 'test ! -f ${archive}/%f && cp %p ${archive}/%f'
`
    )
    await launch(join(folder, "data"))
    // One role for the servers, and one that may read the log and nothing else.
    await query("CREATE ROLE parley LOGIN")
    await query("CREATE DATABASE parley OWNER parley")
    await query("CREATE ROLE backup LOGIN REPLICATION")
    dataDir = await makeDataDir()
  })
  afterAll(async () => {
    await server?.stop().catch(() => undefined)
    postgres?.kill("SIGQUIT")
    for (const made of [folder, dataDir]) await rm(made, { recursive: true, force: true })
  })

  it("is restored to any moment since a base backup, with the file store, and no number is assigned twice", async () => {
    const place = { DATABASE_URL: `postgres://parley@127.0.0.1:${port}/parley`, DATA_DIR: dataDir }
    const start = async () =>
      startServer({ dataDir, env: { DATABASE_URL: place.DATABASE_URL, PORT: String(serverPort) } })
    const serverPort = await freePort()
    server = await start()
    const [alice, bob] = [await newAgent(server, "alice"), await newAgent(server, "bob")]
    const tell = async (from: TestAgent, to: TestAgent, times: number) => {
      const told: Array<Shapes.Message> = []
      for (let i = 0; i < times; i++) told.push(await say(from, to))
      return told
    }
    await tell(bob, alice, 1)
    const early = await tell(alice, bob, 3)

    run(
      "pg_basebackup",
      "-h",
      "127.0.0.1",
      "-p",
      String(port),
      "-U",
      "backup",
      "-D",
      join(folder, "base"),
      "--checkpoint=fast"
    )

    const late = await tell(alice, bob, 4)
    const bytes = Buffer.from("a file that was sent before the mistake")
    const upload = await alice.client.createUpload({
      to: bob.handle,
      filename: "a.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex")
    })
    assert.strictEqual((await fetch(upload.upload_url, { method: "PUT", body: bytes })).status, 200)
    await alice.client.sendMessage({ to: bob.handle, type: "file", content: { attachment_id: upload.attachment_id } })
    const [now] = await query<{ readonly at: string }>("SELECT clock_timestamp()::text AS at")
    // The file store is copied after that moment: a file without a row does no harm.
    await cp(join(dataDir, "blobs"), join(folder, "blobs"), { recursive: true })
    const lost = await tell(alice, bob, 5)

    await server.stop()
    // At its end PostgreSQL archives the last file of the log.
    await stop()
    await rm(join(dataDir, "blobs"), { recursive: true })
    await cp(join(folder, "blobs"), join(dataDir, "blobs"), { recursive: true })
    const base = join(folder, "base")
    await appendFile(
      join(base, "postgresql.auto.conf"),
      `restore_command = 'cp ${join(folder, "archive")}/%f %p'
recovery_target_time = '${now!.at}'
recovery_target_action = 'promote'
`
    )
    await writeFile(join(base, "recovery.signal"), "")
    const { gid, uid } = account()
    await chown(join(base, "recovery.signal"), uid, gid)
    await launch(base)
    const moved = await admin(place, "restored")
    assert.strictEqual(moved.code, 0, moved.stderr)
    server = await start()

    const found = await history(bob, early[0]!.conversation_id, "?limit=50")
    const ids = found.map(({ id }) => id)
    for (const { id } of [...early, ...late]) assert.include(ids, id)
    for (const { id } of lost) assert.notInclude(ids, id)
    const file = await fetch(`${server.url}/v1/attachments/${upload.attachment_id}`, {
      headers: { authorization: `Bearer ${bob.key}` }
    })
    assert.strictEqual(await file.text(), bytes.toString())
    const [after] = await tell(alice, bob, 1)
    assert.isAbove(after!.seq, Math.max(...lost.map(({ seq }) => seq)))
  })
})

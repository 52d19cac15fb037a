import { afterEach, assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import { chownSync, cpSync } from "node:fs"
import { rm } from "node:fs/promises"
import { join } from "node:path"
import { Client } from "pg"
import { isInstalled, PostgresServer } from "../../runners/local/Postgres.ts"
import { history } from "../../test/contract/Talk.ts"
import { admin } from "../../test/support/Admin.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Http } from "../../test/support/Http.ts"
import { metric } from "../../test/support/Metrics.ts"
import { attempt } from "../../test/support/Nodes.ts"
import { runParley } from "../../test/support/RunParley.ts"
import { makeDataDir, newAgent, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"
import { missingForDisks, SmallDisk } from "../../test/support/SmallDisk.ts"

const undo: Array<() => unknown> = []
afterEach(async () => {
  for (const step of undo.splice(0).toReversed()) await step()
})

const smallDisk = (megabytes: number): SmallDisk => {
  const disk = new SmallDisk(megabytes)
  undo.push(() => disk.unmount())
  return disk
}

/** Two agents with an established conversation. */
const talkers = async (server: Server): Promise<readonly [TestAgent, TestAgent]> => {
  const [ada, bob] = [await newAgent(server, "ada"), await newAgent(server, "bob")]
  assert.strictEqual((await attempt(ada, { to: bob.handle }, "a")).status, 201)
  assert.strictEqual((await attempt(bob, { to: ada.handle }, "b")).status, 201)
  return [ada, bob]
}

/** Sends until sends have been refused ten times in a row, and returns the ids that were acknowledged. */
const sendUntilRefused = async (from: TestAgent, to: TestAgent): Promise<Array<string>> => {
  const acknowledged: Array<string> = []
  const http = new Http(from.http.base, from.key, () => undefined)
  for (let inARow = 0; inARow < 10;) {
    const answers = await Promise.all(
      Array.from({ length: 8 }, (_, i) =>
        http.post("/v1/messages", {
          to: to.handle,
          client_msg_id: `${i}-${Math.random()}`,
          content: { text: randomBytes(10_000).toString("hex") }
        }))
    )
    for (const answer of answers) {
      if (answer.status === 201) acknowledged.push((answer.body as { readonly id: string }).id)
      else {
        assert.strictEqual(answer.status, 503, `${answer}`)
        assert.strictEqual((answer.body as { readonly code: string }).code, "UNAVAILABLE")
        inARow++
      }
    }
  }
  return acknowledged
}

const readiness = async (server: Server): Promise<{ readonly status: number; readonly reason: string }> => {
  const answer = await server.http().get("/v1/ready")
  return {
    status: answer.status,
    reason: String((answer.body as { readonly details?: { readonly reason: string } }).details?.reason)
  }
}

/** The lines of the log at a level, as their messages. */
const logged = (server: Server, level: string): ReadonlyArray<string> =>
  server.stderr.split("\n").filter((line) => line.startsWith("{")).map((line) =>
    JSON.parse(line) as { level: string; message: string }
  )
    .filter((line) => line.level === level).map(({ message }) => message)

const isThere = async (agent: TestAgent, conversation: string, ids: ReadonlyArray<string>) => {
  const found = new Set<string>()
  for (let query = "?limit=100";;) {
    const page = await history(agent, conversation, query)
    for (const { id } of page) found.add(id)
    if (page.length < 100) break
    query = `?limit=100&before_seq=${Math.min(...page.map(({ seq }) => seq))}`
  }
  assert.deepStrictEqual(ids.filter((id) => !found.has(id)), [], "acknowledged and lost")
}

const conversationOf = async (agent: TestAgent, other: TestAgent): Promise<string> => {
  const answer = await attempt(agent, { to: other.handle }, "which")
  assert.strictEqual(answer.status, 201, `${answer}`)
  return (answer.body as { readonly conversation_id: string }).conversation_id
}

describe("a full disk", { timeout: 600_000 }, () => {
  it.skipIf(missingForDisks !== "")(
    `under PGlite causes 503 with the reason and one line a minute, loses nothing, and the server goes on${missingForDisks}`,
    async () => {
      const disk = smallDisk(300)
      const dataDir = join(disk.folder, "data")
      const made = await makeDataDir()
      cpSync(made, dataDir, { recursive: true })
      await rm(made, { recursive: true })
      let server = await startServer({ dataDir, env: { LOG_LEVEL: "info" } })
      undo.push(() => server.kill().catch(() => undefined))
      const [ada, bob] = await talkers(server)
      const conversation = await conversationOf(ada, bob)
      const bytes = Buffer.alloc(100_000, "f")
      const announced = (await ada.http.post("/v1/uploads", {
        to: bob.handle,
        filename: "f",
        content_type: "text/plain",
        size: bytes.length,
        sha256: createHash("sha256").update(bytes).digest("hex")
      })).body as { readonly upload_url: string }
      disk.fill(15_000_000)
      await eventually(
        "a node that is not ready before its disk is full",
        async () => (await readiness(server)).status === 503 || undefined
      )
      const acknowledged = await sendUntilRefused(ada, bob)
      assert.isAbove(acknowledged.length, 50)
      disk.fill()

      const { reason, status } = await readiness(server)
      assert.strictEqual(status, 503)
      assert.match(reason, new RegExp(`^The database cannot write: no space left on ${dataDir} \\(.* free\\)`))
      assert.strictEqual((reason.match(/no space left on \//g) ?? []).length, 1, reason)
      const upload = await fetch(announced.upload_url, { method: "PUT", body: bytes })
      assert.deepInclude(await upload.json(), {
        code: "STORAGE_UNAVAILABLE",
        message: "The file store has no space left: try again later."
      })
      assert.strictEqual(upload.status, 503)
      const mail = await server.http().post("/v1/register", { email: "c@agents.invalid", handle: "cleo-cleo" })
      assert.isAtLeast(mail.status, 500)
      const errors = logged(server, "error")
      assert.strictEqual(
        errors.filter((line) => /^The database cannot write.*no space left on/.test(line)).length,
        1,
        errors.join("\n")
      )
      assert.strictEqual(
        errors.filter((line) => /^The file store cannot write.*no space left on/.test(line)).length,
        1,
        errors.join("\n")
      )
      // Each line that has the full disk as its cause says it without a stack.
      assert.notMatch(server.stderr, /no space left on[^\n]*\\n +at /i)

      disk.clear()
      await eventually(
        "a server that is ready again",
        async () => (await readiness(server)).status === 200 || undefined
      )
      acknowledged.push(
        ...await Promise.all(Array.from({ length: 20 }, async (_, i) => {
          const answer = await attempt(ada, { to: bob.handle }, `after ${i}`)
          assert.strictEqual(answer.status, 201, `${answer}`)
          return (answer.body as { readonly id: string }).id
        }))
      )
      await eventually(
        "free bytes as a metric",
        async () =>
          metric((await server.http().get("/internal/metrics")).text, "disk_free_bytes", { folder: "DATA_DIR" }) > 0 ||
          undefined
      )
      await isThere(bob, conversation, acknowledged)
      assert.strictEqual((await fetch(announced.upload_url, { method: "PUT", body: bytes })).status, 200)

      // It starts on a full disk no worse: it says why, and what was acknowledged is there once it can.
      await server.kill()
      disk.fill()
      const refused = await runParley(["start"], { DATA_DIR: dataDir, PORT: "0" })
      assert.strictEqual(refused.code, 1)
      assert.match(refused.stderr, /^parley: .*no space left on/m)
      disk.clear()
      server = await startServer({ dataDir, env: { LOG_LEVEL: "info" } })
      const again = { ...bob, http: server.http(bob.key) }
      await isThere(again, conversation, acknowledged)
    }
  )

  it.skipIf(missingForDisks !== "")(
    `at the first start is reported at once, in a sentence${missingForDisks}`,
    async () => {
      for (const left of [0, 5_000_000, 50_000_000]) {
        const disk = smallDisk(100)
        disk.fill(left)
        const refused = await runParley(["start"], { DATA_DIR: join(disk.folder, "data"), PORT: "0" })
        assert.strictEqual(refused.code, 1)
        assert.match(refused.stderr, /^parley: .*no space left on [^\n]*\n$/)
      }
    }
  )

  const missing = missingForDisks !== "" || isInstalled(18)
    ? missingForDisks
    : " (skipped: needs PostgreSQL 18: npm ci)"

  it.skipIf(missing !== "")(
    `of PostgreSQL has the same consequences, with the messages of PostgreSQL${missing}`,
    async () => {
      const disk = smallDisk(400)
      spawnSync("chmod", ["755", disk.folder])
      const postgres = await PostgresServer.start(18, { parent: disk.folder, settings: { wal_recycle: "off" } })
      undo.push(() => postgres.stop())
      const server = await startServer({ env: { DATABASE_URL: postgres.url(), LOG_LEVEL: "info" } })
      undo.push(() => server.kill().catch(() => undefined))
      const [ada, bob] = await talkers(server)
      const conversation = await conversationOf(ada, bob)
      disk.fill(15_000_000)
      const acknowledged = await sendUntilRefused(ada, bob)
      const errors = logged(server, "error").filter((line) =>
        /^The database cannot write.*no space left on/i.test(line)
      )
      assert.strictEqual(errors.length, 1, server.output)
      disk.clear()
      // PostgreSQL stops if a file of its log does not fit. An operator starts it again.
      const client = new Client(postgres.url())
      await client.connect().then(() => client.end(), () => postgres.restart())
      await eventually(
        "a server that is ready again",
        async () => (await readiness(server)).status === 200 || undefined
      )
      await eventually(
        "a send",
        async () => (await attempt(ada, { to: bob.handle }, "after")).status === 201 || undefined
      )
      await isThere(bob, conversation, acknowledged)
    }
  )

  it.skipIf(process.getuid?.() !== 0)(
    "operators' commands by root on the folder of another user are refused, and leave nothing",
    async () => {
      const dataDir = await makeDataDir()
      undo.push(() => rm(dataDir, { recursive: true, force: true }))
      spawnSync("chown", ["-R", "daemon", dataDir])
      for (
        const args of [["agents", "create", "scout"], ["backup", join(dataDir, "b.tar")], ["compact"], [
          "audit",
          "list"
        ]]
      ) {
        const refused = await admin({ DATA_DIR: dataDir }, ...args)
        assert.strictEqual(refused.code, 1, args.join(" "))
        assert.match(refused.stderr, /^parley: .*run this as "daemon" \(for example sudo -u daemon …\)\n$/)
      }
      const started = await runParley(["start"], { DATA_DIR: dataDir, PORT: "0" })
      assert.match(started.stderr, /^parley: .*run this as "daemon"/)
      assert.strictEqual(spawnSync("find", [dataDir, "-user", "root"], { encoding: "utf8" }).stdout, "")
      const empty = join(dataDir, "empty")
      spawnSync("mkdir", [empty])
      chownSync(empty, 1, 1)
      const restored = await admin({}, "restore", "/nowhere.tar", empty)
      assert.match(restored.stderr, /run this as "daemon"/)
    }
  )
})

import { NODE_PROTOCOL_VERSION } from "#infrastructure/cluster/NodeGreeting"
import { VERSION } from "#infrastructure/platform/Version"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatClient, RealtimeClient } from "agentchatme"
import { execFileSync } from "node:child_process"
import { readdirSync } from "node:fs"
import { mkdtemp, rename, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { Client } from "pg"
import { Balancer } from "../../runners/local/Balancer.ts"
import { freshDatabase } from "../../test/support/Databases.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Cluster, missingForNodes } from "../../test/support/Nodes.ts"
import { newAgent, parley, RELAXED, Server, type TestAgent } from "../../test/support/Server.ts"
import { commitOf, lastVersion, oldest, OldVersion } from "./OldVersion.ts"

const ROOT = resolve(import.meta.dirname, "../..")
const SCHEMA = readdirSync(join(ROOT, "schema")).length
const NO_HISTORY = " (no history: needs a clone with the commits of the last version, as of `git fetch --unshallow`)"

const last = lastVersion()
const missing = last === undefined ? NO_HISTORY : missingForNodes

/** How long the load runs between two steps. */
const BETWEEN_MS = 2_000

interface Stored {
  readonly id: string
  readonly conversation_id: string
  readonly seq: number
  readonly client_msg_id: string
}

/** Pairs of agents that write to each other without a pause with the published client, through the balancer. */
class Talk {
  readonly acknowledged = new Map<string, string>()
  readonly pushed = new Set<string>()
  readonly failures: Array<string> = []
  private over = false
  private readonly running: Array<Promise<void>> = []
  private readonly sockets: Array<RealtimeClient> = []
  private readonly url: string

  constructor(url: string) {
    this.url = url
  }

  private clientOf(agent: TestAgent): AgentChatClient {
    return new AgentChatClient({ apiKey: agent.key, baseUrl: this.url })
  }

  async begin(pairs: ReadonlyArray<readonly [TestAgent, TestAgent]>): Promise<void> {
    for (const [one, two] of pairs) {
      const directions = [[one, two], [two, one]] as const
      // Nobody may write a second time before the first reply.
      for (const [from, to] of directions) await this.sendOne(from, to, "first")
      for (const [from, to] of directions) {
        const client = this.clientOf(to)
        const socket = new RealtimeClient({ apiKey: to.key, baseUrl: this.url.replace("http", "ws"), client })
        socket.on("message.new", ({ payload }) => void this.pushed.add(String(payload["id"])))
        await socket.connect()
        this.sockets.push(socket)
        this.running.push(this.send(from, to))
      }
    }
  }

  private async sendOne(from: TestAgent, to: TestAgent, what: string): Promise<void> {
    const key = `${from.handle}-${what}`
    await this.clientOf(from).sendMessage({ to: to.handle, client_msg_id: key, content: { text: what } }).then(
      ({ message }) => void this.acknowledged.set(message.id, key),
      (error: unknown) => void this.failures.push(`${key}: ${String(error)}`)
    )
  }

  private async send(from: TestAgent, to: TestAgent): Promise<void> {
    for (let i = 0; !this.over; i++) {
      await this.sendOne(from, to, `number ${i}`)
      await pause(10)
    }
  }

  async end(): Promise<void> {
    this.over = true
    await Promise.all(this.running)
  }

  disconnect(): void {
    for (const socket of this.sockets) socket.disconnect()
  }
}

const stored = async (url: string): Promise<ReadonlyArray<Stored>> => {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    const { rows } = await client.query<Stored>(
      "SELECT id, conversation_id, seq::int AS seq, client_msg_id FROM messages ORDER BY conversation_id, seq"
    )
    return rows
  } finally {
    await client.end()
  }
}

describe.skipIf(missing !== "")(`two nodes of the last version${missing}`, () => {
  let old: OldVersion
  let cluster: Cluster
  let balancer: Balancer
  beforeAll(async () => {
    old = await OldVersion.checkOut(last!)
    // The port stays the same, so the balancer asks the nodes themselves who is ready.
    balancer = await Balancer.start(() => cluster?.nodes.map(({ url }) => url) ?? [])
    cluster = await Cluster.start(0, {
      ...old.settings(RELAXED),
      DATABASE_URL: await freshDatabase(undefined, "empty"),
      PUBLIC_URL: balancer.url
    })
    for (let i = 0; i < 2; i++) await cluster.add(undefined, {}, old.program("runner"))
  }, 180_000)
  afterAll(async () => {
    balancer?.stop()
    await cluster?.stop()
    await old?.remove()
  })

  it("are upgraded one by one under load, and go back with the same schema: nothing fails, nothing is lost", {
    timeout: 300_000
  }, async () => {
    const [one, two] = cluster.pair
    const agents = await Promise.all(
      Array.from({ length: 8 }, (_, i) => newAgent(i % 2 === 0 ? one : two, "ada"))
    )
    const talk = new Talk(balancer.url)
    await talk.begin([0, 2, 4, 6].map((i) => [agents[i]!, agents[i + 1]!]))
    const steps: Array<string> = []
    const replaceAll = async (program: ReadonlyArray<string>, what: string) => {
      // `add` changes the list.
      const nodes = [...cluster.nodes]
      for (const node of nodes) {
        const before = talk.acknowledged.size
        node.terminate()
        assert.strictEqual(await node.exit(), 0, node.output)
        await cluster.add(node, {}, program)
        await pause(BETWEEN_MS)
        steps.push(`${what}: ${talk.acknowledged.size - before} sends`)
        assert.isAbove(talk.acknowledged.size, before)
      }
    }
    await pause(BETWEEN_MS)
    await replaceAll(parley("runner"), "to this version")
    for (const node of cluster.nodes) {
      const { version } = await (await fetch(`${node.url}/v1/health`)).json() as { readonly version: string }
      assert.strictEqual(version, VERSION)
    }
    const named = old.version === "0.1.0" ? "before 0.2.0" : old.version
    assert.include(cluster.nodes[0]!.stderr, `The version of Parley is ${VERSION} on this node and ${named} on`)
    const goesBack = await old.schema() === SCHEMA && old.protocol === String(NODE_PROTOCOL_VERSION)
    if (goesBack) {
      await replaceAll(old.program("runner"), "back")
      await replaceAll(parley("runner"), "to this version again")
    } else {
      const refused = cluster.add(undefined, {}, old.program("runner"))
      await refused.then(
        () => assert.fail("it started"),
        (error: unknown) => assert.include(String(error), "unknown here")
      )
    }
    await talk.end()

    assert.deepStrictEqual(talk.failures, [])
    const rows = await stored(cluster.env["DATABASE_URL"] ?? "")
    const byId = new Map(rows.map((row) => [row.id, row]))
    const lost = [...talk.acknowledged].filter(([id, key]) => byId.get(id)?.client_msg_id !== key)
    assert.deepStrictEqual(lost, [], "lost")
    assert.strictEqual(new Set(rows.map((row) => row.client_msg_id)).size, rows.length, "stored twice")
    let expected = 0
    let conversation = ""
    for (const row of rows) {
      expected = row.conversation_id === conversation ? expected + 1 : 1
      conversation = row.conversation_id
      assert.strictEqual(row.seq, expected, conversation)
    }
    const unseen = () => rows.filter(({ id }) => !talk.pushed.has(id))
    await eventually("every message on a socket", () => unseen().length === 0 || undefined, 30_000).catch(() =>
      assert.deepStrictEqual(unseen(), [])
    )
    talk.disconnect()
    console.log(
      `from ${old.commit.slice(0, 8)}: ${talk.acknowledged.size} sends, 0 failed, 0 lost; ${steps.join("; ")}`
    )
  })
})

const FIRST = "0c33f14"
const first = commitOf(FIRST) ?? oldest()

describe.skipIf(first === undefined)(
  `a server on PGlite of commit ${first?.slice(0, 8)}${first === undefined ? NO_HISTORY : ""}`,
  () => {
    let old: OldVersion
    let folder: string
    beforeAll(async () => {
      old = await OldVersion.checkOut(first!)
      folder = await mkdtemp(join(tmpdir(), "parley-upgrade-"))
    })
    afterAll(async () => {
      await old?.remove()
      if (folder !== undefined) await rm(folder, { recursive: true, force: true })
    })

    const started = async (dataDir: string, program: ReadonlyArray<string>): Promise<Server> => {
      const server = new Server(dataDir, false, { PORT: "0", HOST: "127.0.0.1", ...old.settings(RELAXED) }, program)
      await server.ready(240_000)
      return server
    }
    const textsOf = async (server: Server, key: string, conversation: string): Promise<ReadonlyArray<string>> => {
      const { body } = await server.http(key).get(`/v1/messages/${conversation}`)
      return (body as ReadonlyArray<{ readonly content: { readonly text: string } }>).map(({ content }) => content.text)
        .sort()
    }
    const send = async (server: Server, from: TestAgent, to: TestAgent, text: string): Promise<string> => {
      const client = new AgentChatClient({ apiKey: from.key, baseUrl: server.url })
      return (await client.sendMessage({ to: to.handle, content: { text } })).message.conversation_id
    }

    it("starts with this version, which backs it up, and with its own version on the backup", {
      timeout: 600_000
    }, async () => {
      const dataDir = join(folder, "data")
      const before = await started(dataDir, old.program("start"))
      const [ada, bob] = [await newAgent(before, "ada"), await newAgent(before, "bob")]
      const conversation = await send(before, ada, bob, "written before, one")
      await send(before, bob, ada, "written before, two")
      await before.stop()

      const now = await started(dataDir, parley("start"))
      const from = await old.schema()
      const line = now.stderr.split("\n").filter((text) => text.includes("it cannot go back"))
      assert.lengthOf(line, from === SCHEMA ? 0 : 1, now.stderr)
      assert.deepStrictEqual(await textsOf(now, bob.key, conversation), ["written before, one", "written before, two"])
      const waiting = (await now.http(bob.key).get("/v1/messages/sync")).text
      assert.include(waiting, "written before, one")
      assert.strictEqual(await send(now, ada, bob, "written after"), conversation)
      assert.lengthOf(await textsOf(now, ada.key, conversation), 3)
      await now.stop()
      if (from === SCHEMA) return
      assert.include(line[0], `from schema ${from} to ${SCHEMA}`)

      const refused = new Server(dataDir, false, { PORT: "0", ...old.settings(RELAXED) }, old.program("start"))
      assert.strictEqual(await refused.exit(240_000), 1)
      assert.include(refused.stderr, "is unknown here")

      // As operations.md says.
      const file = join(dataDir, `backups/schema-${from}.tar`)
      const restored = join(dataDir, "before")
      execFileSync(process.execPath, [...old.program("admin", "restore", file, restored)], {
        cwd: folder,
        stdio: "pipe"
      })
      await rename(join(dataDir, "database"), join(dataDir, `database-${SCHEMA}`))
      await rename(join(restored, "database"), join(dataDir, "database"))
      const again = await started(dataDir, old.program("start"))
      assert.deepStrictEqual(await textsOf(again, bob.key, conversation), [
        "written before, one",
        "written before, two"
      ])
      await send(again, ada, bob, "written again")
      await again.stop()
      console.log(`from ${old.commit.slice(0, 8)}: schema ${from} to ${SCHEMA}, and back by the backup`)
    })
  }
)

import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { setTimeout as pause } from "node:timers/promises"
import { Client } from "pg"
import { eventually } from "../../test/support/Eventually.ts"
import { Link } from "../../test/support/Link.ts"
import { Cluster, missingForNodes } from "../../test/support/Nodes.ts"
import { newAgent, type Server, type TestAgent } from "../../test/support/Server.ts"
import { Socket } from "../../test/support/Socket.ts"

const PAIRS = 8

interface Sent {
  readonly id: string
  readonly seq: number
}

describe.skipIf(missingForNodes !== "")(`a node that hangs${missingForNodes}`, () => {
  let cluster: Cluster
  beforeAll(async () => {
    cluster = await Cluster.start(2)
  })
  afterAll(() => cluster?.stop())

  it("loses its conversations within seconds, and once awake does nothing wrong and misses nothing", {
    timeout: 90_000
  }, async () => {
    const [one, two] = cluster.pair
    const send = (node: Server, from: TestAgent, to: TestAgent, key: string) =>
      eventually(`a send of ${key} to be accepted`, async () => {
        const answer = await node.http(from.key).post("/v1/messages", {
          to: to.handle,
          client_msg_id: `${key}-${from.handle}`,
          type: "text",
          content: { text: key }
        })
        if (answer.status === 503) return undefined
        assert.include([200, 201], answer.status, `${answer}`)
        return answer.body as Sent
      }, 20_000)
    const pairs: Array<readonly [TestAgent, TestAgent]> = []
    for (let i = 0; i < PAIRS; i++) pairs.push([await newAgent(one, "from"), await newAgent(one, "to")])
    const all = (node: Server, from: 0 | 1, key: string) =>
      Promise.all(pairs.map((pair) => send(node, pair[from], pair[from === 0 ? 1 : 0], key)))
    const sent = [await all(one, 0, "first"), await all(two, 1, "second"), await all(two, 0, "third")]
    const socket = await Socket.hello(two, pairs[0]![1].key)
    const rotated = await Socket.hello(two, pairs[1]![1].key)

    two.process.kill("SIGSTOP")
    const stopped = performance.now()
    const client = new Client(cluster.env["DATABASE_URL"])
    await client.connect()
    await client.query("UPDATE agents SET key_hash = sha256('another'::bytea) WHERE id = $1", [pairs[1]![1].id])
      .finally(() => client.end())
    sent.push(await all(one, 0, "during"))
    const took = performance.now() - stopped
    console.log(`taken over after ${(took / 1_000).toFixed(2)} s`)
    // PostgreSQL would end its sessions after 10 s.
    assert.isBelow(took, 9_000)
    assert.match(one.log, /Ended \d+ database sessions of/)
    await pause(3_000)
    two.process.kill("SIGCONT")
    // At once, while it may still believe that it owns them.
    sent.push(await all(two, 0, "after"), await all(one, 0, "last"))
    for (const [i] of pairs.entries()) {
      assert.deepStrictEqual(sent.map((round) => round[i]!.seq), [1, 2, 3, 4, 5, 6])
    }
    await rotated.closedWith(1008, 5_000)
    for (const round of sent.slice(3)) await socket.message(round[0]!.id)
    const pushed = socket.pushed()
    assert.deepStrictEqual(pushed.slice(pushed.indexOf(sent[3]![0]!.id)), sent.slice(3).map((round) => round[0]!.id))
    // It takes its share again.
    await eventually("shards on both nodes again", async () => {
      const held = await Promise.all(cluster.nodes.map(async (node) => {
        const ready = (await node.http().get("/v1/ready")).status === 200
        const shards = /^effect_cluster_shards (\d+)$/m.exec((await node.http().get("/internal/metrics")).text)?.[1]
        return ready ? Number(shards) : 0
      }))
      const all = held.reduce((sum, n) => sum + n)
      return all === 300 && Math.min(...held) > 0 || undefined
    }, 20_000)
  })

  it("ends within 15 s of being asked to, although its database hangs", { timeout: 60_000 }, async () => {
    const url = new URL(cluster.env["DATABASE_URL"] ?? "")
    const link = await Link.open("127.0.0.1", { host: url.hostname, port: Number(url.port) })
    url.port = String(link.address.port)
    const node = await cluster.add(undefined, { DATABASE_URL: url.href, DRAIN_SECONDS: "5" })
    cluster.nodes.splice(cluster.nodes.indexOf(node), 1)
    const socket = await Socket.hello(node, (await newAgent(node, "held")).key)
    link.hold("there", "back")
    const asked = performance.now()
    node.terminate()
    await socket.closedWith(1001, 10_000)
    assert.strictEqual(await node.exit(), 1)
    assert.isBelow(performance.now() - asked, 15_000)
    assert.include(node.stderr, "not everything could be finished")
    link.close()
  })
})

import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { begin, connect } from "../../test/a2a/A2a.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { Hosts } from "../../test/support/Hosts.ts"
import { Cluster, missingForNodes, on, send } from "../../test/support/Nodes.ts"
import { newAgent, type Server, type TestAgent } from "../../test/support/Server.ts"
import { getOf, peakMemory, sending, sendingFor, UnreadConnections, upgradeOf } from "../../test/support/Unread.ts"

/** V8's heap of each node, in MB, and the bound of docs/operations.md for the memory of a process. */
const HEAP_MB = 512
const MEMORY_BOUND = 900_000_000
const LARGE = "x".repeat(28_000)
/** For each node. */
const CONNECTIONS = 100
/** In the long form, a median below this is no delay. */
const FLOOR_MS = 250
const DEAD_AGENTS = 26
const HOOKS = 5

describe.skipIf(missingForNodes !== "")(`two nodes, and peers that neither read nor answer${missingForNodes}`, () => {
  let cluster: Cluster
  let hosts: Hosts
  let ada: TestAgent
  let bob: TestAgent

  beforeAll(async () => {
    hosts = await Hosts.start(DEAD_AGENTS * HOOKS + 1)
    cluster = await Cluster.start(2, {
      NODE_OPTIONS: `--max-old-space-size=${HEAP_MB}`,
      WEBHOOK_ALLOW_PRIVATE: "loopback",
      WEBHOOK_TIMEOUT_SECONDS: "60"
    })
    ada = await newAgent(cluster.nodes[0]!, "ada")
    bob = await newAgent(cluster.nodes[1]!, "bob")
    await send(ada, { to: bob.handle }, "hello")
    await send(bob, { to: ada.handle }, "hello to you")
  })
  afterAll(async () => {
    hosts?.stop()
    await cluster?.stop()
  })

  /**
   * Others are served at each node while something lasts, and the nodes' memory stays bounded. In the long form they
   * are served as before.
   */
  const othersDoNotNotice = async (before: ReadonlyArray<number>): Promise<void> => {
    for (const node of cluster.nodes) await sending(on(node, ada), bob, 20)
    for (const [n, median] of (await mediansOfSends()).entries())
      assert.isBelow(median, Math.max(3 * before[n]!, FLOOR_MS))
    for (const node of cluster.nodes) assert.isBelow(peakMemory(node), MEMORY_BOUND)
  }

  /** The median of a second of sends at each node. */
  const mediansOfSends = async (): Promise<ReadonlyArray<number>> => {
    const found: Array<number> = []
    for (const node of cluster.nodes) found.push((await sendingFor(on(node, ada), bob, 1_000)).median)
    return found
  }

  it("serve others while peers do not read answers, streams of A2A tasks and sockets", async () => {
    const readers = await Promise.all(Array.from({ length: 4 }, async (_, i) => {
      const reader = await newAgent(cluster.nodes[i % 2]!, "reader")
      const { conversation_id } = await send(reader, { to: bob.handle }, "hello")
      await Promise.all(
        Array.from({ length: 100 }, () => bob.client.sendMessage({ to: reader.handle, content: { text: LARGE } }))
      )
      const task = await begin(await connect(cluster.nodes[0]!, reader, bob, "JSONRPC"), LARGE)
      return { key: reader.key, conversation: conversation_id, task: task.id }
    }))
    const before = await mediansOfSends()
    const asks = cluster.nodes.map((node: Server) => {
      const unread = new UnreadConnections()
      return {
        unread,
        asked: unread.ask(node, CONNECTIONS, (i) => {
          const { conversation, key, task } = readers[i % readers.length]!
          switch (i % 3) {
            case 0:
              return getOf(`/v1/messages/${conversation}?limit=200`, key)
            case 1:
              return getOf(`/a2a/${bob.handle}/tasks/${task}:subscribe?A2A-Version=1.0`, key)
            default:
              return upgradeOf(key)
          }
        })
      }
    })
    try {
      await Promise.all(asks.map(({ asked }) => asked))
      await othersDoNotNotice(before)
    } finally {
      for (const { unread } of asks) unread.close()
    }
  })

  it("serve others while targets of posts never answer", async () => {
    const hook = async (agent: TestAgent, url: string): Promise<void> => {
      assert.strictEqual((await agent.http.post("/v1/webhooks", { url, events: ["message.new"] })).status, 201)
    }
    await hook(bob, hosts.url(DEAD_AGENTS * HOOKS, "/healthy"))
    /** Sends at each node, whose posts come. The median time from a send to its post. */
    const posts = async (): Promise<number> => {
      const took: Array<number> = []
      for (let i = 0; i < 20; i++) {
        const began = performance.now()
        const { id } = await send(on(cluster.nodes[i % 2]!, ada), { to: bob.handle }, `for the webhook ${i}`)
        took.push(await eventually("a post to the healthy webhook", () => hosts.arrived.get(`/healthy ${id}`)) - began)
      }
      return took.sort((a, b) => a - b)[10]!
    }
    const before = await posts()
    const sendsBefore = await mediansOfSends()
    const dead = await Promise.all(Array.from({ length: DEAD_AGENTS }, async (_, i) => {
      const agent = await newAgent(cluster.nodes[i % 2]!, "dead")
      for (let n = 0; n < HOOKS; n++) await hook(agent, hosts.url(i * HOOKS + n, "/dead"))
      return agent
    }))
    await Promise.all(dead.map((agent) => send(ada, { to: agent.handle }, "for a dead webhook")))
    await eventually("a post to a target of each agent", () => hosts.holding >= DEAD_AGENTS || undefined)
    const during = await posts()
    assert.isAtLeast(hosts.holding, DEAD_AGENTS)
    assert.isBelow(during, 3 * Math.max(before, FLOOR_MS))
    await othersDoNotNotice(sendsBefore)
    // Those that are back have their posts.
    hosts.revive()
    await eventually(
      "posts to all targets that are back",
      () => hosts.answeredTargets.size === DEAD_AGENTS * HOOKS || undefined
    )
  })
})

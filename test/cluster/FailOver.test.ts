import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatClient, type Message } from "agentchatme"
import { Client } from "pg"
import { setTimeout as pause } from "node:timers/promises"
import { Balancer } from "../../runners/local/Balancer.ts"
import { eventually } from "../support/Eventually.ts"
import { Cluster, missingForNodes } from "../support/Nodes.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"

const PAIRS = 8
const BEAT_MS = 40

/** One side of a conversation that sends without a pause, as the published client does by itself. */
class Talk {
  readonly accepted: Array<{ readonly message: Message; readonly begun: number; readonly ended: number }> = []
  readonly failures: Array<unknown> = []
  private over = false
  private readonly done: Promise<void>

  constructor(client: AgentChatClient, to: string) {
    this.done = (async () => {
      for (let i = 0; !this.over; i++) {
        const begun = performance.now()
        await client.sendMessage({ to, content: { text: `${i}` } }).then(
          ({ message }) => this.accepted.push({ message, begun, ended: performance.now() }),
          (error: unknown) => this.failures.push(error)
        )
        await pause(BEAT_MS)
      }
    })()
  }

  /** Until something that was sent after this moment has been accepted. */
  async again(since: number): Promise<number> {
    const found = await eventually("a message to be accepted again", () =>
      this.accepted.find(({ begun }) => begun >= since), 20_000)
    return found.ended - since
  }

  async stop(): Promise<void> {
    this.over = true
    await this.done
  }
}

describe.skipIf(missingForNodes !== "")(`fail-over${missingForNodes}`, () => {
  let cluster: Cluster
  let balancer: Balancer
  let pairs: Array<{ readonly sender: TestAgent; readonly recipient: TestAgent }>

  const start = (base: string) => pairs.map(({ recipient, sender }) =>
    new Talk(new AgentChatClient({ apiKey: sender.key, baseUrl: base }), recipient.handle))

  /** What was accepted is there, once, under its number, and the numbers have no gap. */
  const verify = async (talks: ReadonlyArray<Talk>, node: Server) => {
    for (const [i, talk] of talks.entries()) {
      assert.deepStrictEqual(talk.failures, [], "failed sends")
      const client = new AgentChatClient({ apiKey: pairs[i]!.sender.key, baseUrl: node.url })
      const history: Array<Message> = []
      for (let before: number | undefined;;) {
        const page = await client.getMessages(talk.accepted[0]!.message.conversation_id, {
          limit: 100,
          ...(before === undefined ? {} : { beforeSeq: before })
        })
        history.push(...page)
        before = page.at(-1)?.seq
        if (page.length < 100) break
      }
      const seqs = history.map(({ seq }) => seq)
      assert.deepStrictEqual(seqs, seqs.map((_, at) => seqs.length - at), "numbers")
      const stored = new Map(history.map(({ id, seq }) => [id, seq]))
      const lost = talk.accepted.filter(({ message }) => stored.get(message.id) !== message.seq)
      assert.deepStrictEqual(lost, [], "lost")
    }
  }

  beforeAll(async () => {
    cluster = await Cluster.start(2)
    balancer = await Balancer.start(() => cluster.nodes.map(({ url }) => url))
    pairs = []
    for (let i = 0; i < PAIRS; i++) {
      const sender = await newAgent(cluster.nodes[0]!, "from")
      const recipient = await newAgent(cluster.nodes[0]!, "to")
      await recipient.client.sendMessage({ to: sender.handle, content: { text: "hello" } })
      pairs.push({ sender, recipient })
    }
  })
  afterAll(async () => {
    balancer?.stop()
    await cluster?.stop()
  })

  it("conversations of a node that is killed take messages again within 5 s; nothing accepted is lost", async () => {
    const [one, two] = cluster.nodes as [Server, Server]
    const socket = await Socket.hello(one, pairs[0]!.recipient.key)
    const talks = start(one.url)
    await Promise.all(talks.map((talk) => talk.again(performance.now())))
    // A key that was replaced by a node that did not live to tell the others, and a socket that dies with it.
    const rotated = await Socket.hello(one, pairs[1]!.recipient.key)
    const client = new Client(cluster.env["DATABASE_URL"])
    await client.connect()
    await client.query("UPDATE agents SET key_hash = sha256('another'::bytea) WHERE id = $1", [pairs[1]!.recipient.id])
      .finally(() => client.end())
    await Socket.hello(two, pairs[2]!.recipient.key)
    const presence = (status: string) => eventually(`a presence ${status}`, async () => {
      const answer = await pairs[2]!.sender.http.get(`/v1/presence/${pairs[2]!.recipient.handle}`)
      return (answer.body as { readonly status: string }).status === status || undefined
    })
    await presence("online")
    const killed = performance.now()
    two.process.kill("SIGKILL")
    const took = await Promise.all(talks.map((talk) => talk.again(killed)))
    await rotated.closedWith(1008)
    await presence("offline")
    await Promise.all(talks.map((talk) => talk.stop()))
    console.log(`fail-over after ${took.map((ms) => (ms / 1_000).toFixed(2)).join(" ")} s`)
    assert.isBelow(Math.max(...took), 5_000)
    await verify(talks, one)
    const sent = talks[0]!.accepted.map(({ message }) => message.id)
    await socket.message(sent.at(-1)!)
    assert.deepStrictEqual(socket.pushed().filter((id) => sent.includes(String(id))), sent)
    await socket.close()
    await two.kill()
    await cluster.add(two)
  })

  it("a rolling restart fails no send of the published client", { timeout: 40_000 }, async () => {
    const talks = start(balancer.url)
    await Promise.all(talks.map((talk) => talk.again(performance.now())))
    for (const node of cluster.nodes) {
      const socket = await Socket.hello(node, pairs[0]!.recipient.key)
      const asked = performance.now()
      node.terminate()
      await eventually("503 on /v1/ready", async () =>
        (await fetch(`${node.url}/v1/ready`)).status === 503 || undefined, 1_000)
      await socket.closedWith(1001, 10_000)
      assert.strictEqual(await node.exit(), 0)
      console.log(`stopped after ${((performance.now() - asked) / 1_000).toFixed(2)} s`)
      await cluster.add(node)
    }
    await Promise.all(talks.map((talk) => talk.again(performance.now())))
    await Promise.all(talks.map((talk) => talk.stop()))
    await verify(talks, cluster.nodes[0]!)
  })
})

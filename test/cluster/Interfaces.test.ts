import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client"
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js"
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js"
import { settingsOfTasks, streamAt, tasksOnNodes } from "../a2a/Nodes.ts"
import { operatorsOnNodes } from "../console/Nodes.ts"
import { inbox, newPair, say } from "../contract/Talk.ts"
import {
  answerIn,
  connect,
  granted,
  initialize,
  type Json,
  newest,
  older,
  post,
  type Raw,
  refusalIn,
  refused,
  rpc
} from "../mcp/Mcp.ts"
import { Collector } from "../support/Collector.ts"
import { elapse, eventually, LONGEST_WAIT_MS, within } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { Cluster, missingForNodes, on } from "../support/Nodes.ts"
import { patient } from "../support/Patient.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { tellingTo, traces } from "./Traces.ts"

const AGENTS = 10
/** Messages that each of them sends. */
const MESSAGES = 12
/** The node is killed when so many of the messages have been taken, and started again when so many more have. */
const KILLED_AFTER = 30
const STARTED_AFTER = 30

const tool = (name: string, args: object): object => rpc("tools/call", { name, arguments: args })
const waitFor = (args: object): object => tool("agentchat_wait_for_messages", args)
/** The answer of such a wait. */
const waitedIn = ({ body }: Raw): Record<string, Json> => answerIn("agentchat_wait_for_messages", body.result)

/** Calls a tool at one of the nodes after the other until one grants it: a call that has no answer is made again. */
const insist = async (
  nodes: () => ReadonlyArray<Server>,
  agent: TestAgent,
  name: string,
  args: object,
  first: number
): Promise<Json> => {
  for (let tries = first;; tries++) {
    const urls = nodes()
    const url = urls[tries % urls.length]?.url ?? ""
    const answer = await fetch(`${url}/mcp`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${agent.key}`, ...older },
      body: JSON.stringify(tool(name, args))
    }).then(async (response) => ({ status: response.status, body: await response.json() as Json }), () => undefined)
    const result = answer?.body.result
    if (answer?.status === 200 && result.isError !== true) return answerIn(name, result)
    if (answer !== undefined && answer.status !== 503) {
      const { code } = result === undefined ? answer.body.error.data : refusalIn(result).refusal
      assert.include(["UNAVAILABLE", "INTERNAL_ERROR"], code, JSON.stringify(answer.body))
    }
    await elapse("the time between two tries", 100)
  }
}

interface Taken {
  readonly id: string
  readonly conversation: string
  readonly seq: number
}

/** An agent that lives in one loop: it waits, takes what there is, sends one message, and waits again. */
class Loop {
  readonly taken: Array<Taken> = []
  /** Answers that it lost before it had taken them. */
  lost = 0
  sent = 0
  private readonly agent: TestAgent
  private readonly to: TestAgent
  private readonly nodes: () => ReadonlyArray<Server>
  private turn: number

  constructor(nodes: () => ReadonlyArray<Server>, agent: TestAgent, to: TestAgent, turn: number) {
    this.nodes = nodes
    this.agent = agent
    this.to = to
    this.turn = turn
  }

  private call(name: string, args: object): Promise<Json> {
    return insist(this.nodes, this.agent, name, args, this.turn++)
  }

  async run(expected: number): Promise<void> {
    let through: string | undefined
    for (let round = 0; this.taken.length < expected || this.sent < MESSAGES; round++) {
      const answer = await this.call("agentchat_wait_for_messages", {
        timeout_seconds: 2,
        limit: 5,
        ...(through === undefined ? {} : { acknowledge_through: through })
      })
      if (this.sent < MESSAGES) {
        const name = `${this.agent.handle}-${this.sent}`
        await this.call("agentchat_send_message", {
          to: this.to.handle,
          text: `number ${this.sent}`,
          client_msg_id: name
        })
        this.sent++
      }
      // It breaks down before it has taken the answer, and goes on with what it knew.
      if (round % 4 === 3 && answer.count > 0) {
        this.lost++
        continue
      }
      for (const { conversation_id, message_id, seq } of answer.messages)
        this.taken.push({ id: message_id, conversation: conversation_id, seq })
      through = answer.acknowledge_through ?? through
    }
    await this.call("agentchat_acknowledge", { last_delivery_id: through })
  }
}

/** `/mcp` on two nodes, of which the second is killed, started again and stopped. */
const mcpOnNodes = (started: () => Cluster): void => {
  let cluster: Cluster
  let one: Server
  let two: Server
  let alice: TestAgent
  let bob: TestAgent
  let conversation: string

  beforeAll(async () => {
    cluster = started()
    ;[one, two] = cluster.pair
    ;({ alice, bob, conversation } = await newPair(one))
  })

  const clear = async (): Promise<void> => {
    const last = (await inbox(bob)).at(-1)
    if (last !== undefined) await bob.http.post("/v1/messages/sync/ack", { last_delivery_id: last.delivery_id })
  }

  /** How many waits and subscriptions a node holds, as its metrics say. */
  const waits = (node: Server): Promise<number> => metricOf(node, "waits_open")

  it("163. requests of one client go to either node in turn, in every revision", async () => {
    let turn = 0
    const spread: typeof fetch = (input, init) =>
      patient(String(input).replace(one.url, (turn++ % 2 === 0 ? one : two).url), init)
    const requestInit = { headers: { authorization: `Bearer ${bob.key}` } }
    for (const [mode, revision] of [["auto", "2026-07-28"], ["legacy", "2025-11-25"]] as const) {
      const client = new Client({ name: "test", version: "1.0.0" }, { versionNegotiation: { mode } })
      await client.connect(new StreamableHTTPClientTransport(new URL(`${one.url}/mcp`), { requestInit, fetch: spread }))
      assert.strictEqual(client.getNegotiatedProtocolVersion(), revision)
      for (let i = 0; i < 4; i++) {
        assert.strictEqual((await granted(client, "agentchat_get_my_status"))["handle"], bob.handle)
        assert.isAbove((await client.listTools()).tools.length, 30)
        assert.isNotEmpty((await client.readResource({ uri: `parley://conversations/${conversation}` })).contents)
      }
      await client.close()
    }
    const old = new OldClient({ name: "test", version: "1.0.0" })
    await old.connect(new OldTransport(new URL(`${one.url}/mcp`), { requestInit, fetch: spread }) as never)
    for (let i = 0; i < 4; i++) await old.callTool({ name: "agentchat_get_my_status", arguments: {} })
    await old.close()
    const begun = await post(one, bob.key, initialize("2025-06-18"))
    assert.strictEqual(begun.body.result.protocolVersion, "2025-06-18")
    assert.strictEqual(
      (await post(two, bob.key, { jsonrpc: "2.0", method: "notifications/initialized" }, older)).status,
      202
    )
    for (const node of [one, two, one, two]) {
      const answer = await post(node, bob.key, tool("agentchat_get_my_status", {}), {
        ...older,
        "mcp-session-id": "of-another-node"
      })
      assert.strictEqual(answer.body.result.structuredContent.handle, bob.handle)
    }
    assert.isAbove(turn, 30)
  })

  it("163. a wait on one node is ended by a message that the other commits, also while it attaches", async () => {
    await clear()
    const socket = await Socket.hello(one, bob.key)
    let through: string | undefined
    for (let i = 0; i < 20; i++) {
      const [waiter, sender] = i % 2 === 0 ? [two, one] : [one, two]
      const waiting = post(
        waiter,
        bob.key,
        waitFor({
          timeout_seconds: 50,
          ...(through === undefined ? {} : { acknowledge_through: through })
        }),
        older
      )
      if (i % 3 === 0) await eventually("the wait", async () => (await waits(waiter)) > 0 || undefined)
      const said = await say(on(sender, alice), bob)
      const { messages, acknowledge_through } = waitedIn(await within("the answer", waiting))
      assert.deepStrictEqual(messages.map((one: Json) => one.message_id), [said.id])
      await socket.message(said.id)
      through = acknowledge_through
    }
    await socket.close()
  })

  it("a subscription on one node hears what the other commits", async () => {
    const client = await connect(two, bob)
    const updated: Array<string> = []
    client.setNotificationHandler("notifications/resources/updated", ({ params }) => void updated.push(params.uri))
    const own = `parley://conversations/${conversation}`
    const subscription = await client.listen({ resourceSubscriptions: ["parley://inbox", own] })
    await say(on(one, alice), bob)
    await eventually("news of both", () => updated.includes("parley://inbox") && updated.includes(own) || undefined)
    await subscription.close()
    await client.close()
    await clear()
  })

  it("the 20 places of an agent are counted over both nodes, and free at once when callers hang up", async () => {
    const carol = await newAgent(one, "carol")
    const ends = Array.from({ length: 20 }, () => new AbortController())
    // One that a busy node refuses, or answers because its time is over, asks again.
    const hang = async (node: Server, signal: AbortSignal): Promise<void> => {
      while (!signal.aborted) {
        await fetch(`${node.url}/mcp`, {
          method: "POST",
          signal,
          headers: { authorization: `Bearer ${carol.key}`, "content-type": "application/json", ...older },
          body: JSON.stringify(waitFor({ timeout_seconds: 50 }))
        }).then((answer) => answer.text()).catch(() => undefined)
        await elapse("the time between two tries", 50)
      }
    }
    const hanging = ends.map(({ signal }, i) => hang(i % 2 === 0 ? one : two, signal))
    await eventually("20 waits", async () => (await waits(one)) + (await waits(two)) === 20 || undefined)
    for (const node of [one, two]) {
      const client = await connect(node, carol)
      await refused(client, "agentchat_wait_for_messages", { timeout_seconds: 1 }, "RATE_LIMITED")
      await client.close()
    }
    for (const end of ends) end.abort()
    await Promise.all(hanging)
    await eventually("no waits", async () => (await waits(one)) + (await waits(two)) === 0 || undefined)
    const said = await say(on(one, alice), carol)
    const answer = await post(two, carol.key, waitFor({ timeout_seconds: 50 }), older)
    assert.deepStrictEqual(waitedIn(answer)["messages"].map((one: Json) => one.message_id), [said.id])
  })

  it(`${AGENTS} agents that wait and send in loops lose nothing and take nothing twice when a node is killed and started again`, async () => {
    const agents = await Promise.all(
      Array.from({ length: AGENTS }, (_, i) => newAgent(i % 2 === 0 ? one : two, `loop${i}`))
    )
    const loops = agents.map((agent, i) => new Loop(() => cluster.nodes, agent, agents[(i + 1) % AGENTS] ?? agent, i))
    // A conversation each, in which they may write as often as they like.
    await Promise.all(agents.map(async (agent, i) => {
      const next = agents[(i + 1) % AGENTS] ?? agent
      await say(agent, next)
      await say(next, agent)
    }))
    const taken = () => loops.reduce((sum, loop) => sum + loop.taken.length, 0)
    // From the one before it: its greeting and its messages; and the answer of the one after it.
    const all = Promise.all(loops.map((loop) => loop.run(MESSAGES + 2)))
    all.catch(() => undefined)
    await eventually("messages before the kill", () => taken() >= KILLED_AFTER || undefined)
    await two.kill()
    const before = taken()
    await eventually("messages without the node", () => taken() >= before + STARTED_AFTER || undefined)
    two = await cluster.add(two)
    await within("the end of the loops", all, 2 * LONGEST_WAIT_MS)

    for (const [i, loop] of loops.entries()) {
      const agent = on(one, agents[i] ?? alice)
      assert.strictEqual(new Set(loop.taken.map(({ id }) => id)).size, loop.taken.length, "taken twice")
      assert.lengthOf(loop.taken, MESSAGES + 2)
      assert.lengthOf(await inbox(agent), 0)
      const own = new Set(loop.taken.map(({ conversation }) => conversation))
      for (const name of own) {
        const seqs = loop.taken.flatMap(({ conversation, seq }) => conversation === name ? [seq] : [])
        assert.deepStrictEqual(seqs, seqs.toSorted((a, b) => a - b), "out of order")
      }
    }
    assert.isAbove(loops.reduce((sum, { lost }) => sum + lost, 0), 0, "no answer was lost")
  })

  it("163. a node that drains ends its waits and the streams of tasks, each wait says to call again, and the other node goes on with them", async () => {
    await clear()
    const waiting = post(two, bob.key, waitFor({ timeout_seconds: 50 }), older)
    const [body, headers] = newest("tools/call", {
      name: "agentchat_wait_for_messages",
      arguments: { timeout_seconds: 50 }
    })
    const another = post(two, alice.key, body, headers)
    await eventually("the waits", async () => (await waits(two)) === 2 || undefined)
    const stream = await streamAt(two, one)
    two.terminate()
    for (const answer of await within("the answers", Promise.all([waiting, another]))) {
      const { next, outcome } = waitedIn(answer)
      assert.strictEqual(outcome, "moved")
      assert.match(next, /Call agentchat_wait_for_messages again now/)
    }
    const again = post(one, bob.key, waitFor({ timeout_seconds: 50 }), older)
    const said = await say(on(one, alice), bob)
    assert.deepStrictEqual(
      waitedIn(await within("the message", again))["messages"].map((one: Json) => one.message_id),
      [said.id]
    )
    await stream.goesOn()
    await two.ended()
  })
}

describe.skipIf(missingForNodes !== "")(`two nodes${missingForNodes}`, () => {
  let collector: Collector
  let cluster: Cluster
  beforeAll(async () => {
    collector = await Collector.start()
    cluster = await Cluster.start(2, {
      WEBHOOK_ALLOW_PRIVATE: "loopback",
      WEBHOOK_RETRY_SECONDS: "1,1,1,1",
      ...settingsOfTasks,
      ...tellingTo(collector)
    })
  })
  afterAll(async () => {
    await cluster?.stop()
    collector?.stop()
  })

  describe("traces and metrics", () => traces(() => ({ cluster, collector })))
  describe("tasks", () => tasksOnNodes(() => cluster))
  describe("operators", () => operatorsOnNodes(() => cluster))
  describe("/mcp", () => mcpOnNodes(() => cluster))
})

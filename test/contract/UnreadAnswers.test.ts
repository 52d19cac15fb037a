import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { getOf, type Latencies, peakMemory, postOf, sendingFor, UnreadConnections, upgradeOf } from "../support/Unread.ts"

/** V8's heap, in MB. What peers make the server hold is outside of it, but for what answers are made of. */
const HEAP_MB = 512
/** The bound of docs/operations.md for the default settings. */
const MEMORY_BOUND = 900_000_000
/** How many connections each test opens: as many as the descriptors of the test process allow, in the long form. */
const CONNECTIONS = process.env["LONG"] === undefined ? 420 : 2_000

const LARGE = "x".repeat(28_000)
const MESSAGES = 200

describe(`${CONNECTIONS} connections that do not read their answers`, () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent
  /** Agents who do not read, each with a conversation of 5.6 MB. */
  let silent: ReadonlyArray<TestAgent & { readonly conversation: string }>
  let before: Latencies

  beforeAll(async () => {
    server = await startServer({ env: { NODE_OPTIONS: `--max-old-space-size=${HEAP_MB}`, LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "100000" } })
    alice = await newAgent(server, "alice")
    bob = await newAgent(server, "bob")
    const agents = await Promise.all(["eve", "mallory"].map((name) => newAgent(server, name)))
    const talk = async (from: TestAgent, to: TestAgent): Promise<string> => {
      await from.client.sendMessage({ to: to.handle, content: { text: LARGE } })
      await to.client.sendMessage({ to: from.handle, content: { text: LARGE } })
      const sent = await Promise.all(Array.from({ length: MESSAGES }, () => from.client.sendMessage({ to: to.handle, content: { text: LARGE } })))
      return sent[0]!.message.conversation_id
    }
    const [eve, mallory] = agents as [TestAgent, TestAgent]
    const conversation = await talk(eve, mallory)
    silent = [{ ...eve, conversation }, { ...mallory, conversation }]
    await talk(alice, bob)
    before = await sendingFor(alice, bob, 1_000)
  })
  afterAll(() => server?.stop())

  /** What the others notice while it lasts. */
  const othersDoNotNotice = async (forMs: number): Promise<void> => {
    const during = await sendingFor(alice, bob, forMs)
    console.log(before, during, peakMemory(server) / 1e6, (await server.http().get("/internal/metrics")).text.match(/^(held|large).*$/gm))
    assert.isBelow(during.median, Math.max(3 * before.median, 50), JSON.stringify({ before, during }))
    assert.isBelow(peakMemory(server), MEMORY_BOUND)
  }

  const whileUnread = async (bytes: (i: number) => string, then: () => Promise<void>, connections = CONNECTIONS): Promise<void> => {
    const unread = new UnreadConnections()
    try {
      await unread.ask(server, connections, bytes)
      await then()
    } finally {
      unread.close()
    }
  }
  const of = (i: number) => silent[i % silent.length]!

  it("history: an agent waits for its own large answers, and is refused after ten seconds", () =>
    whileUnread((i) => getOf(`/v1/messages/${of(i).conversation}?limit=200`, of(i).key), async () => {
      await othersDoNotNotice(2_000)
      const [eve] = silent as [TestAgent & { conversation: string }]
      const refused = await eve.http.get(`/v1/messages/${eve.conversation}?limit=200`)
      assert.deepStrictEqual([refused.status, (refused.body as { code: string }).code, refused.headers.get("retry-after")], [429, "RATE_LIMITED", "1"])
      // What is small has no part in it.
      assert.strictEqual((await eve.http.get("/v1/agents/me")).status, 200)
    }))

  it("sync, tasks, MCP", () =>
    whileUnread((i) => {
      const { conversation, key } = of(i)
      const call = (name: string, args: object) => ({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args } })
      switch (i % 3) {
        case 0:
          return getOf("/v1/messages/sync?limit=500", key)
        case 1:
          return postOf("/mcp", call("agentchat_get_conversation", { conversation_id: conversation, limit: 100 }), key)
        default:
          return postOf("/mcp", call("agentchat_wait_for_messages", { limit: 50 }), key)
      }
    }, () => othersDoNotNotice(2_000)))

  it("pages and documents: health answers at once", () =>
    whileUnread((i) => getOf(i % 2 === 0 ? "/docs" : "/v1/openapi.json"), async () => {
      const began = performance.now()
      assert.strictEqual((await server.http().get("/v1/health")).status, 200)
      assert.isBelow(performance.now() - began, 1_000)
      await othersDoNotNotice(1_000)
    }))

  it("sockets", () =>
    whileUnread((i) => upgradeOf(of(i).key), () => othersDoNotNotice(2_000)))

  it("a body that never ends", () =>
    whileUnread((i) => `POST /v1/messages HTTP/1.1\r\nhost: parley\r\nauthorization: Bearer ${of(i).key}\r\ncontent-length: 1000000\r\n\r\n${"x".repeat(900_000)}`,
      () => othersDoNotNotice(2_000)))
})

import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { begin, connect } from "../../test/a2a/A2a.ts"
import { eventually, within } from "../../test/support/Eventually.ts"
import { metric } from "../../test/support/Metrics.ts"
import { agentOf, newAgent, type Server, startServer, type TestAgent } from "../../test/support/Server.ts"
import {
  getOf,
  type Latencies,
  peakMemory,
  postOf,
  sendingFor,
  UnreadConnections,
  upgradeOf
} from "../../test/support/Unread.ts"

/** V8's heap, in MB. What peers make the server hold is outside of it, but for what answers are made of. */
const HEAP_MB = 512
/** The bound of docs/operations.md for the default settings. */
const MEMORY_BOUND = 900_000_000
/** How many connections each test opens. */
const CONNECTIONS = 2_000
/** A median below this is no delay. */
const FLOOR_MS = 250
/** For how long the others' sends are watched. */
const WATCH_MS = 3_000

const LARGE = "x".repeat(28_000)
const MESSAGES = 200
const SILENT = 16
/** How long a request waits for a slot here; ten seconds by default. */
const WAIT_SECONDS = 3

describe(`${CONNECTIONS} connections that do not read their answers`, () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent
  /** Agents who do not read: members of one group with 5.6 MB of messages, which wait for each of them. */
  let silent: ReadonlyArray<TestAgent>
  let group = ""
  /** In the long form. */
  let before: Latencies

  beforeAll(async () => {
    server = await startServer({
      env: { NODE_OPTIONS: `--max-old-space-size=${HEAP_MB}`, HTTP_LARGE_READS_SECONDS: String(WAIT_SECONDS) }
    })
    alice = await newAgent(server, "alice")
    bob = await newAgent(server, "bob")
    await alice.client.sendMessage({ to: bob.handle, content: { text: "A first word." } })
    await bob.client.sendMessage({ to: alice.handle, content: { text: "Go on." } })
    const members = await Promise.all(Array.from({ length: SILENT }, (_, i) => newAgent(server, `eve-${i}`)))
    silent = members
    const made = await alice.http.post("/v1/groups", {
      name: "Much to read",
      member_handles: members.map(({ handle }) => handle)
    })
    const { add_results, group: { id } } = made.body as {
      add_results: ReadonlyArray<{ handle: string; invite_id: string }>
      group: { id: string }
    }
    group = id
    for (const { handle, invite_id } of add_results) {
      const member = members.find((one) => one.handle === handle)!
      assert.strictEqual((await member.http.post(`/v1/groups/invites/${invite_id}/accept`)).status, 200)
    }
    for (let at = 0; at < MESSAGES; at += 50) {
      await Promise.all(
        Array.from({ length: 50 }, () => alice.client.sendMessage({ conversation_id: id, content: { text: LARGE } }))
      )
    }
    before = await sendingFor(alice, bob, 1_000)
  })
  afterAll(() => server?.stop())

  /**
   * Others are served as quickly as before while it lasts, and the server's memory stays bounded. A measurement counts
   * if one of three is within the bound, because other work delays some of them.
   */
  const othersDoNotNotice = async (): Promise<void> => {
    const bound = Math.max(3 * before.median, FLOOR_MS)
    const measured: Array<Latencies> = []
    do measured.push(await sendingFor(alice, bob, WATCH_MS))
    while (measured.length < 3 && measured.at(-1)!.median >= bound)
    assert.isBelow(measured.at(-1)!.median, bound, JSON.stringify({ before, measured }))
    assert.isBelow(peakMemory(server), MEMORY_BOUND)
  }

  const whileUnread = async (
    bytes: (i: number) => string,
    then: () => Promise<void>,
    connections = CONNECTIONS
  ): Promise<void> => {
    const unread = new UnreadConnections()
    try {
      await unread.ask(target(), connections, bytes)
      await then()
    } finally {
      unread.close()
    }
    await nothingIsLeft()
  }

  /** The bytes that each node holds, its large answers under way, and those that wait. */
  const counted = (): Promise<ReadonlyArray<ReadonlyArray<number>>> =>
    Promise.all([target()].map(async (node) => {
      const { text } = await node.http().get("/internal/metrics")
      return [
        metric(text, "held_bytes"),
        ...["under way", "waiting"].map((state) => metric(text, "large_reads", { state }))
      ]
    }))

  /** Nothing of a connection that has ended stays counted. */
  const nothingIsLeft = (): Promise<true> =>
    eventually("an empty account", async () => (await counted()).flat().every((value) => value === 0) || undefined)

  /** Where the silent agents are: the server itself, or one of its nodes and not the balancer. */
  const target = (): Server => server.others.at(-1) ?? server
  const there = ({ email, handle, id, key }: TestAgent): TestAgent => agentOf(target(), { id, handle, email }, key)
  const of = (i: number): TestAgent => silent[i % silent.length]!
  const history = () => `/v1/messages/${group}?limit=200`

  it("do not delay others with pages of history", () =>
    whileUnread((i) => getOf(history(), of(i).key), () => othersDoNotNotice()))

  it("do not delay others with sync and MCP", () =>
    whileUnread((i) => {
      const call = (name: string, args: object) => ({
        jsonrpc: "2.0",
        id: 1,
        method: "tools/call",
        params: { name, arguments: args }
      })
      switch (i % 3) {
        case 0:
          return getOf("/v1/messages/sync?limit=500", of(i).key)
        case 1:
          return postOf("/mcp", call("agentchat_get_conversation", { conversation_id: group, limit: 100 }), of(i).key)
        default:
          return postOf("/mcp", call("agentchat_wait_for_messages", { limit: 50 }), of(i).key)
      }
    }, () => othersDoNotNotice()))

  it("do not delay others with tasks of A2A and their streams", async () => {
    const tasks = await Promise.all(silent.map(async (one) => {
      const task = await begin(await connect(server, one, alice, "JSONRPC"), LARGE)
      await alice.client.sendMessage({ to: one.handle, content: { text: LARGE }, metadata: { reply_to: task.id } })
      for (let i = 0; i < 9; i++)
        await one.client.sendMessage({ to: alice.handle, content: { text: LARGE }, metadata: { reply_to: task.id } })
      return task.id
    }))
    await whileUnread((i) => {
      const task = `/a2a/${alice.handle}/tasks/${tasks[i % silent.length]}`
      return getOf(
        i % 2 === 0 ? `${task}:subscribe?A2A-Version=1.0` : `${task}?A2A-Version=1.0&historyLength=100`,
        of(i).key
      )
    }, () => othersDoNotNotice())
  })

  it("do not delay others with sockets", () => whileUnread((i) => upgradeOf(of(i).key), () => othersDoNotNotice()))

  it("do not delay others with bodies that never end", () =>
    whileUnread(
      (i) =>
        `POST /v1/messages HTTP/1.1\r\nhost: parley\r\nauthorization: Bearer ${
          of(i).key
        }\r\ncontent-length: 1000000\r\n\r\n${"x".repeat(900_000)}`,
      () => othersDoNotNotice()
    ))

  it("do not delay others with bodies in pieces of a byte", () =>
    whileUnread(
      (i) =>
        `POST /v1/groups HTTP/1.1\r\nhost: parley\r\nauthorization: Bearer ${
          of(i).key
        }\r\ntransfer-encoding: chunked\r\n\r\n${"1\r\nx\r\n".repeat(400_000)}`,
      () => othersDoNotNotice(),
      4
    ))

  it("do not delay health with pages and documents", () =>
    whileUnread((i) => getOf(i % 2 === 0 ? "/docs" : "/v1/openapi.json"), async () => {
      assert.strictEqual((await within("health", target().http().get("/v1/health"))).status, 200)
      await othersDoNotNotice()
    }))

  it("make their own agent wait for its next large answer, which is refused after a while; small ones it gets", () =>
    // Several answers on each connection: the kernel may take the first of them.
    whileUnread(() => getOf(history(), of(0).key).repeat(3), async () => {
      await eventually(
        "requests that wait",
        async () => (await counted()).some((values) => Number(values.at(-1)) > 0) || undefined
      )
      const [eve, other] = [there(of(0)), there(of(1))]
      const refused = await eventually("the refusal", async () => {
        const answer = await eve.http.get(history())
        return answer.status === 200 ? undefined : answer
      })
      assert.deepStrictEqual(
        [refused.status, (refused.body as { readonly code: string }).code, refused.headers.get("retry-after")],
        [429, "RATE_LIMITED", "1"]
      )
      assert.strictEqual((await eve.http.get("/v1/agents/me")).status, 200)
      assert.strictEqual((await other.http.get(history())).status, 200)
    }, 8))
})

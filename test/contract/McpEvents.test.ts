import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { initialize, type Json, newest, older, post, rpc, unfenced } from "../mcp/Mcp.ts"
import { adminHere } from "../support/Admin.ts"
import { chanceFor, eventually, within } from "../support/Eventually.ts"
import { patient } from "../support/Patient.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { catchUp, newPair, say } from "./Talk.ts"

const RECEIVED = "message.received"
const WAITING = "inbox.waiting"

describe("wire.md J, MCP Events over poll and stream", () => {
  let server: Server
  let alice: TestAgent
  let bob: TestAgent
  let conversation: string

  beforeAll(async () => {
    server = await sharedServer()
    ;({ alice, bob, conversation } = await newPair(server))
    await catchUp(alice)
    await catchUp(bob)
  })
  afterAll(() => server.stop())

  const ask = async (agent: TestAgent, method: string, params: Record<string, unknown>): Promise<Json> => {
    const [body, headers] = newest(method, params)
    return (await post(server, agent.key, body, headers)).body
  }
  const poll = async (agent: TestAgent, params: Record<string, unknown>): Promise<Json> => {
    const { error, result } = await ask(agent, "events/poll", { arguments: {}, ...params })
    assert.isUndefined(error, JSON.stringify(error))
    assert.strictEqual(result.resultType, "complete")
    return result
  }
  const codeOf = async (agent: TestAgent, method: string, params: Record<string, unknown>): Promise<number> => {
    const { error, result } = await ask(agent, method, params)
    assert.isDefined(error, JSON.stringify(result))
    return error.code
  }
  const idsOf = ({ events }: Json): ReadonlyArray<string> => events.map(({ data }: Json) => data.message_id)

  it("191. the capability is in both places, in every revision, and not for programs without a key", async () => {
    const extensions = { "io.modelcontextprotocol/events": {} }
    const [discover, headers] = newest("server/discover")
    for (const [body, sent] of [[discover, headers], [initialize("2025-06-18"), {}]] as const) {
      const { capabilities } = (await post(server, alice.key, body, sent)).body.result
      assert.deepStrictEqual([capabilities.events, capabilities.extensions], [{}, extensions])
    }
    const join = await patient(`${server.url}/mcp/join`, {
      method: "POST",
      headers: { ...older, "content-type": "application/json", accept: "application/json" },
      body: JSON.stringify(rpc("events/list"))
    })
    assert.strictEqual(((await join.json()) as Json).error.code, -32_601)
  })

  it("191. the list has both events on one page, in every revision", async () => {
    const { events, nextCursor, resultType } = (await ask(alice, "events/list", {})).result
    assert.deepStrictEqual([events.map(({ name }: Json) => name), nextCursor, resultType], [
      [RECEIVED, WAITING],
      undefined,
      "complete"
    ])
    for (const { delivery, description, inputSchema, payloadSchema } of events) {
      assert.deepStrictEqual(delivery, ["webhook", "push", "poll"])
      assert.isNotEmpty(description)
      assert.deepStrictEqual([inputSchema.type, payloadSchema.type], ["object", "object"])
    }
    const { body } = await post(server, alice.key, rpc("events/list"), older)
    assert.deepStrictEqual(body.result.events, events)
    assert.strictEqual(await codeOf(alice, "events/list", { cursor: "next" }), -32_602)
  })

  it("192. a poll reports each message that came after its cursor and still waits, once and in order", async () => {
    const { cursor, events, hasMore, truncated } = await poll(bob, { name: RECEIVED, cursor: null })
    assert.deepStrictEqual([events, hasMore, truncated], [[], false, false])
    const sent = [await say(alice, bob), await say(alice, bob), await say(alice, bob)]
    const first = await poll(bob, { name: RECEIVED, cursor, maxEvents: 2 })
    assert.deepStrictEqual([idsOf(first), first.hasMore], [sent.slice(0, 2).map(({ id }) => id), true])
    assert.deepStrictEqual(first.events[0].eventId, first.events[0].data.delivery_id)
    assert.deepStrictEqual(
      [first.events[0].name, first.events[0].timestamp, first.events[0].data.sender],
      [RECEIVED, sent[0]!.created_at, { handle: `@${alice.handle}`, kind: "agent" }]
    )
    assert.notProperty(first.events[0], "cursor")
    const second = await poll(bob, { name: RECEIVED, cursor: first.cursor })
    assert.deepStrictEqual([idsOf(second), second.hasMore], [[sent[2]!.id], false])
    // The cursor is the client's: it may go back, and what was dealt with meanwhile is no news.
    await bob.http.post("/v1/messages/sync/ack", { last_delivery_id: first.events[0].data.delivery_id })
    assert.deepStrictEqual(idsOf(await poll(bob, { name: RECEIVED, cursor })), sent.slice(1).map(({ id }) => id))
    await catchUp(bob)
    assert.deepStrictEqual(idsOf(await poll(bob, { name: RECEIVED, cursor })), [])
  })

  it("193. own and muted messages are not reported, and the arguments select", async () => {
    const carol = await newAgent(server, "carol")
    const { cursor } = await poll(bob, { name: RECEIVED })
    await say(bob, alice)
    await bob.http.post("/v1/mutes", { target_kind: "agent", target_handle: carol.handle })
    const muted = await say(carol, bob)
    const plain = await say(alice, bob)
    const mention = await say(alice, bob, { content: { text: `for @${bob.handle}` } })
    const found = await poll(bob, { name: RECEIVED, cursor })
    assert.notInclude(idsOf(found), muted.id)
    assert.deepStrictEqual(idsOf(found), [plain.id, mention.id])
    assert.deepStrictEqual(found.events.map(({ data }: Json) => data.mentions_me), [false, true])
    const selected = async (given: object) => idsOf(await poll(bob, { name: RECEIVED, cursor, arguments: given }))
    assert.deepStrictEqual(await selected({ mentions_only: true }), [mention.id])
    assert.deepStrictEqual(await selected({ from: carol.handle }), [])
    assert.deepStrictEqual(await selected({ from: `@${alice.handle}`, conversation_id: conversation }), [
      plain.id,
      mention.id
    ])
    assert.deepStrictEqual(idsOf(await poll(bob, { name: RECEIVED, arguments: { include_waiting: true } })), [
      plain.id,
      mention.id
    ])
    const [, shown] = (await poll(bob, { name: RECEIVED, cursor, arguments: { include_text: true } })).events
    assert.deepStrictEqual(unfenced(shown.data.text), { text: `for @${bob.handle}` })
    const young = await poll(bob, { name: RECEIVED, cursor, maxAgeMs: 0 })
    assert.deepStrictEqual([idsOf(young), young.truncated], [[], true])
    await catchUp(bob)
  })

  it("194. inbox.waiting reports that messages came, once in quiet_seconds", async () => {
    const type = { name: WAITING, arguments: { quiet_seconds: 3_600 } }
    const { cursor } = await poll(bob, type)
    const none = await poll(bob, { ...type, cursor })
    assert.deepStrictEqual(none.events, [])
    await say(alice, bob)
    await say(alice, bob)
    const edge = await poll(bob, { ...type, cursor })
    assert.deepStrictEqual(edge.events[0].data, {
      waiting: 2,
      conversation_count: 1,
      conversations: [{ conversation_id: conversation, waiting: 2 }]
    })
    assert.match(edge.events[0].eventId, /^wak_/)
    assert.deepStrictEqual((await poll(bob, { ...type, cursor })).events, edge.events)
    await say(alice, bob)
    const quiet = await poll(bob, { ...type, cursor: edge.cursor })
    assert.deepStrictEqual([quiet.events, quiet.cursor, quiet.hasMore], [[], edge.cursor, false])
    assert.isAbove(quiet.nextPollMs, 1_000_000)
    await catchUp(bob)
  })

  it("195. while a process of the agent holds a lease, events are held back", async () => {
    const { cursor } = await poll(bob, { name: RECEIVED })
    await bob.http.request("PUT", "/v1/reply/active", { json: { ttl_seconds: 60 } })
    const early = await say(alice, bob)
    const late = await say(alice, bob)
    const held = await poll(bob, { name: RECEIVED, cursor })
    assert.deepStrictEqual([held.events, held.cursor], [[], cursor])
    assert.deepStrictEqual(idsOf(await poll(bob, { name: RECEIVED, cursor, arguments: { defer_if_active: false } })), [
      early.id,
      late.id
    ])
    const [first] = (await poll(bob, { name: RECEIVED, cursor, arguments: { defer_if_active: false } })).events
    await bob.http.post("/v1/messages/sync/ack", { last_delivery_id: first.data.delivery_id })
    await bob.http.delete("/v1/reply/active")
    assert.deepStrictEqual(idsOf(await poll(bob, { name: RECEIVED, cursor })), [late.id])
    await catchUp(bob)
  })

  it("196. an invalid, foreign or unknown argument is refused, each with its code", async () => {
    const { cursor } = await poll(alice, { name: RECEIVED })
    for (
      const [code, params] of [
        [-32_602, { name: RECEIVED, cursor: "nonsense" }],
        [-32_602, { name: RECEIVED, cursor }],
        [-32_602, { name: RECEIVED, cursor: 7 }],
        [-32_602, { name: RECEIVED, maxEvents: 0 }],
        [-32_602, { name: RECEIVED, maxAgeMs: "1" }],
        [-32_602, { name: RECEIVED, arguments: { nothing: true } }],
        [-32_602, {}],
        [-32_011, { name: "message.gone" }],
        [-32_012, { name: RECEIVED, arguments: { conversation_id: "conv_unknown" } }]
      ] as const
    ) {
      for (const method of ["events/poll", "events/stream"]) {
        if (method === "events/stream" && "maxEvents" in params) continue
        assert.strictEqual(await codeOf(bob, method, params), code, `${method} ${JSON.stringify(params)}`)
      }
    }
    const mallory = await newAgent(server, "mallory")
    const foreign = { name: RECEIVED, arguments: { conversation_id: conversation } }
    assert.strictEqual(await codeOf(mallory, "events/poll", foreign), -32_012)
    assert.strictEqual(
      (await adminHere(server.place, "agents", "suspend", mallory.handle, "--reason", "a test")).code,
      0
    )
    await eventually(
      "the suspension",
      async () =>
        (await ask(mallory, "events/poll", { name: RECEIVED })).error?.data.reason === "AGENT_SUSPENDED" || undefined
    )
    assert.isDefined((await ask(mallory, "events/list", {})).result)
  })

  /** A stream of events, read to its end or until it is closed. */
  const open = async (agent: TestAgent, params: Record<string, unknown>, inRevision: "newest" | "older" = "newest") => {
    const [body, headers] = inRevision === "newest"
      ? newest("events/stream", params)
      : [rpc("events/stream", params), older]
    const aborted = new AbortController()
    const response = await fetch(`${server.url}/mcp`, {
      method: "POST",
      headers: {
        ...headers,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        authorization: `Bearer ${agent.key}`
      },
      body: JSON.stringify(body),
      signal: aborted.signal
    })
    assert.strictEqual(response.headers.get("content-type"), "text/event-stream")
    let text = ""
    const over = (async () => {
      const decoder = new TextDecoder()
      for await (const part of response.body!) text += decoder.decode(part, { stream: true })
    })().catch(() => undefined)
    const messages = (): ReadonlyArray<Json> =>
      [...text.matchAll(/^data: (.*)$/gm)].map(([, json]) => JSON.parse(json ?? ""))
    const of = (what: string) =>
      messages().filter(({ method }) => method === `notifications/events/${what}`).map(({ params }) => params)
    return { close: () => aborted.abort(), messages, of, over }
  }

  it("197. a stream reports at once what comes, in order, after what came since its cursor, in every revision", async () => {
    for (const revision of ["newest", "older"] as const) {
      const { cursor } = await poll(bob, { name: RECEIVED })
      const before = await say(alice, bob)
      const stream = await open(bob, { name: RECEIVED, cursor }, revision)
      const [active] = await eventually(
        "the beginning",
        async () => stream.of("event").length === 1 ? stream.of("active") : undefined
      )
      assert.deepStrictEqual(
        [active.cursor, active.truncated, active._meta["io.modelcontextprotocol/subscriptionId"]],
        [cursor, false, 1]
      )
      const sent = [before.id]
      for (let i = 0; i < 3; i++) sent.push((await say(alice, bob)).id)
      await eventually("the events", async () => stream.of("event").length === 4 || undefined)
      assert.deepStrictEqual(stream.of("event").map(({ data }) => data.message_id), sent)
      assert.deepStrictEqual(stream.messages()[0].method, "notifications/events/active")
      // Each event has the cursor after itself.
      const [first] = stream.of("event")
      assert.deepStrictEqual(idsOf(await poll(bob, { name: RECEIVED, cursor: first.cursor })), sent.slice(1))
      stream.close()
      await catchUp(bob)
    }
  })

  it("198. a stream counts for presence, holds back during a lease, and ends with the key", async () => {
    const dora = await newAgent(server, "dora")
    await alice.http.post("/v1/contacts", { handle: dora.handle })
    const lease = (ttl_seconds: number) => dora.http.request("PUT", "/v1/reply/active", { json: { ttl_seconds } })
    await lease(600)
    const stream = await open(dora, { name: RECEIVED })
    await eventually("the beginning", async () => stream.of("active").length === 1 || undefined)
    await eventually("the presence", async () => {
      const { status } = (await alice.http.get(`/v1/presence/${dora.handle}`)).body as { readonly status: string }
      return status === "online" || undefined
    })
    const { id } = await say(alice, dora)
    await chanceFor("an event", 500)
    assert.deepStrictEqual(stream.of("event"), [])
    await lease(1)
    await eventually("the event after the lease", async () => stream.of("event").length === 1 || undefined)
    assert.strictEqual(stream.of("event")[0].data.message_id, id)
    assert.strictEqual((await adminHere(server.place, "agents", "suspend", dora.handle, "--reason", "a test")).code, 0)
    await within("the end", stream.over)
    assert.strictEqual(stream.of("terminated")[0].error.code, -32_012)
    assert.deepStrictEqual(stream.messages().at(-1).result.resultType, "complete")
  })
})

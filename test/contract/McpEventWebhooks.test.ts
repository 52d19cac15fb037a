import { afterAll, afterEach, assert, beforeAll, describe, it } from "@effect/vitest"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { EventReceiver, isSigned, secretOf } from "../mcp/EventReceiver.ts"
import { connect, granted, type Json, newest, post, refused } from "../mcp/Mcp.ts"
import { form, Host } from "../signin/Flow.ts"
import { adminHere } from "../support/Admin.ts"
import { chanceFor, eventually } from "../support/Eventually.ts"
import { Moment } from "../support/Moment.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { catchUp, newPair, say } from "./Talk.ts"

const RECEIVED = "message.received"
const WAITING = "inbox.waiting"

/** Short waits between the attempts, and a circuit that never opens. */
const ENV = {
  WEBHOOK_ALLOW_PRIVATE: "loopback",
  WEBHOOK_RETRY_SECONDS: "1,1,1,1,1",
  WEBHOOK_CIRCUIT_IN_A_ROW: "1000",
  WEBHOOK_CIRCUIT_PER_MINUTE: "1000"
}

describe("wire.md J, MCP Events by webhook", () => {
  let server: Server
  let receiver: EventReceiver
  let alice: TestAgent

  beforeAll(async () => {
    server = await startServer({ env: ENV })
    receiver = await EventReceiver.start()
    alice = await newAgent(server, "alice")
  })
  afterEach(() => {
    receiver.clear()
    receiver.status = 200
    receiver.echo = undefined
    receiver.held = undefined
  })
  afterAll(async () => {
    receiver.stop()
    await server.stop()
  })

  const ask = async (agent: TestAgent, method: string, params: Record<string, unknown>): Promise<Json> => {
    const [body, headers] = newest(method, params)
    return (await post(server, agent.key, body, headers)).body
  }
  const subscribed = async (
    agent: TestAgent,
    secret: string,
    params: Record<string, unknown> = {},
    url = receiver.url()
  ): Promise<Json> => {
    const { error, result } = await ask(agent, "events/subscribe", {
      name: RECEIVED,
      arguments: {},
      delivery: { mode: "webhook", url, secret },
      ...params
    })
    assert.isUndefined(error, JSON.stringify(error))
    return result
  }
  /** An agent that alice has written to and that has answered, so that she may write more. */
  const newBob = async (): Promise<TestAgent> => {
    const bob = await newAgent(server, "bob")
    await say(alice, bob)
    await say(bob, alice)
    await catchUp(bob)
    return bob
  }

  it("199. a subscription is challenged, and then gets each message once, signed, in order, with a cursor", async () => {
    const bob = await newBob()
    const secret = secretOf()
    const moment = new Moment()
    const made = await subscribed(bob, secret, { ttlMs: 3_600_000 })
    assert.match(made.id, /^sub_[0-9a-f]{32}$/)
    assert.deepStrictEqual([made.truncated, made.resultType, typeof made.cursor, made.deliveryStatus], [
      false,
      "complete",
      "string",
      undefined
    ])
    moment.has(made.refreshBefore, 3_600_000)
    assert.strictEqual(receiver.challenges.length, 1)
    const [challenge] = receiver.challenges
    assert.isTrue(isSigned(challenge!, secret))
    assert.match(String(challenge!.headers["webhook-id"]), /^msg_verification_/)
    const sent: Array<string> = []
    for (let i = 0; i < 5; i++) sent.push((await say(alice, bob)).id)
    assert.deepStrictEqual(await receiver.messages(5), sent)
    for (const one of receiver.posts) {
      assert.isTrue(isSigned(one, secret))
      assert.deepStrictEqual(
        [one.headers["webhook-id"], one.headers["x-mcp-subscription-id"], one.headers["content-type"]],
        [one.body.eventId, made.id, "application/json"]
      )
      assert.deepStrictEqual(Object.keys(one.body), ["eventId", "name", "timestamp", "data", "cursor"])
    }
    // A 2xx acknowledges nothing.
    assert.deepStrictEqual(
      ((await bob.http.get("/v1/messages/sync?limit=500")).body as ReadonlyArray<Json>).map(({ id }) => id),
      sent
    )
    // Each body's cursor is the position after it.
    const from = receiver.posts[2]!.body.cursor
    const { result } = await ask(bob, "events/poll", { name: RECEIVED, cursor: from })
    assert.deepStrictEqual(result.events.map(({ data }: Json) => data.message_id), sent.slice(3))
    // The same subscription again is a refresh without a challenge.
    const again = await subscribed(bob, secret)
    assert.deepStrictEqual([again.id, again.deliveryStatus.active, again.deliveryStatus.lastError], [
      made.id,
      true,
      null
    ])
    assert.isString(again.deliveryStatus.lastDeliveryAt)
    assert.strictEqual(receiver.challenges.length, 1)
  })

  it("199. unsubscribing ends it, and may be repeated", async () => {
    const bob = await newBob()
    await subscribed(bob, secretOf())
    for (let i = 0; i < 2; i++) {
      const { result } = await ask(bob, "events/unsubscribe", {
        name: RECEIVED,
        arguments: {},
        delivery: { url: receiver.url() }
      })
      assert.strictEqual(result.resultType, "complete")
    }
    await say(alice, bob)
    await chanceFor("a post", 500)
    assert.deepStrictEqual(receiver.posts, [])
  })

  it("200. a receiver that fails loses nothing: the subscription is suspended, and a refresh goes on in order", async () => {
    const bob = await newBob()
    const secret = secretOf()
    await subscribed(bob, secret)
    receiver.status = 500
    const sent = [(await say(alice, bob)).id, (await say(alice, bob)).id, (await say(alice, bob)).id]
    await eventually("all attempts", () => receiver.posts.length >= 6 || undefined)
    await chanceFor("another attempt", 1_500)
    assert.strictEqual(receiver.posts.length, 6, "nothing is posted while it is suspended")
    assert.strictEqual(
      new Set(receiver.posts.map(({ headers }) => headers["webhook-id"])).size,
      1,
      "nothing is skipped"
    )
    receiver.status = 200
    const refreshed = await subscribed(bob, secret)
    assert.deepStrictEqual([refreshed.deliveryStatus.active, refreshed.deliveryStatus.lastError], [false, "http_5xx"])
    assert.deepStrictEqual(await receiver.messages(3), sent)
    assert.isTrue((await subscribed(bob, secret)).deliveryStatus.active)
  })

  it("200. 410 suspends at once, and 413 leaves out this event alone", async () => {
    const bob = await newBob()
    const secret = secretOf()
    await subscribed(bob, secret)
    receiver.status = 410
    const first = await say(alice, bob)
    await eventually("the post", () => receiver.posts.length === 1 || undefined)
    await chanceFor("another attempt", 1_500)
    assert.strictEqual(receiver.posts.length, 1)
    receiver.status = 200
    assert.isFalse((await subscribed(bob, secret)).deliveryStatus.active)
    assert.deepStrictEqual(await receiver.messages(1), [first.id])
    receiver.status = 413
    await say(alice, bob)
    await eventually("the refusal", () => receiver.posts.some(({ body }) => body.data.seq > first.seq) || undefined)
    await chanceFor("another attempt", 300)
    receiver.status = 200
    const third = await say(alice, bob)
    assert.deepStrictEqual((await receiver.messages(2)).at(-1), third.id)
  })

  it("201. a message that was handled elsewhere before its turn is not reported, and a lease holds events back", async () => {
    const bob = await newBob()
    await subscribed(bob, secretOf())
    await bob.http.request("PUT", "/v1/reply/active", { json: { ttl_seconds: 60 } })
    await say(alice, bob)
    await say(alice, bob)
    await chanceFor("a post", 500)
    assert.deepStrictEqual(receiver.posts, [])
    await catchUp(bob)
    const late = await say(alice, bob)
    await bob.http.delete("/v1/reply/active")
    assert.deepStrictEqual(await receiver.messages(1), [late.id])
    await chanceFor("a second post", 300)
    assert.strictEqual(receiver.posts.length, 1)
  })

  it("201. inbox.waiting is posted once in quiet_seconds", async () => {
    const bob = await newBob()
    const [long, short] = [
      await subscribed(bob, secretOf(), { name: WAITING, arguments: { quiet_seconds: 3_600 } }),
      await subscribed(bob, secretOf(), { name: WAITING, arguments: { quiet_seconds: 1 } }, receiver.url("/short"))
    ]
    const waiting = ({ id }: Json) =>
      receiver.posts.filter(({ headers }) => headers["x-mcp-subscription-id"] === id).map((
        { body }
      ) => [body.name, body.data.waiting])
    await say(alice, bob)
    await eventually("the first", () => waiting(long).length + waiting(short).length === 2 || undefined)
    for (let i = 0; i < 3; i++) await say(alice, bob)
    await eventually(
      "all three",
      () => waiting(short).slice(1).reduce((sum, [, n]) => sum + Number(n), 0) === 3 || undefined
    )
    assert.deepStrictEqual(waiting(long), [[WAITING, 1]])
  })

  it("202. a new secret signs at once, beside the one before", async () => {
    const bob = await newBob()
    const [before, after] = [secretOf(), secretOf()]
    await subscribed(bob, before)
    await subscribed(bob, after)
    await say(alice, bob)
    await receiver.messages(1)
    for (const secret of [before, after]) assert.isTrue(isSigned(receiver.posts[0]!, secret))
    assert.isFalse(isSigned(receiver.posts[0]!, secretOf()))
  })

  it("202. a subscription with a cursor begins where the client left off, one with include_waiting with what waits", async () => {
    const bob = await newBob()
    const { cursor } = (await ask(bob, "events/poll", { name: RECEIVED })).result
    const sent = [(await say(alice, bob)).id, (await say(alice, bob)).id]
    await subscribed(bob, secretOf(), { cursor })
    assert.deepStrictEqual(await receiver.messages(2), sent)
    receiver.clear()
    await subscribed(bob, secretOf(), { arguments: { include_waiting: true } })
    assert.deepStrictEqual(await receiver.messages(2), sent)
  })

  it("203. a subscription with a target that cannot be posted to is refused", async () => {
    const bob = await newBob()
    const secret = secretOf()
    const refusal = async (delivery: object, more: object = {}): Promise<Json> =>
      (await ask(bob, "events/subscribe", {
        name: RECEIVED,
        delivery: { mode: "webhook", url: receiver.url(), secret, ...delivery },
        ...more
      })).error
    for (
      const delivery of [
        { url: "http://example.com/" },
        { url: "nonsense" },
        { url: 7 },
        { url: "https://10.0.0.1/" },
        { secret: "short" },
        { secret: `whsec_${"a".repeat(30)}` },
        { secret: undefined }
      ]
    ) {
      assert.strictEqual((await refusal(delivery)).code, -32_602, JSON.stringify(delivery))
    }
    const { code, data } = await refusal({ mode: "push" })
    assert.deepStrictEqual([code, data], [-32_014, { feature: "deliveryMode", value: "push" }])
    assert.strictEqual((await refusal({}, { ttlMs: -1 })).code, -32_602)
    receiver.echo = JSON.stringify({ challenge: "another" })
    assert.deepStrictEqual([(await refusal({})).code, (await refusal({})).data], [-32_015, {
      reason: "challenge_failed"
    }])
    const unreachable = await refusal({ url: "http://127.0.0.1:9/" })
    assert.deepStrictEqual([unreachable.code, unreachable.data], [-32_015, { reason: "connection_refused" }])
    for (let i = 0; i < 7; i++) await refusal({})
    const spent = await refusal({})
    assert.deepStrictEqual([spent.code, spent.data.max], [-32_013, 10])
  })

  it("204. an agent has at most 20 subscriptions, and they end with its key and its suspension", async () => {
    const bob = await newBob()
    const secret = secretOf()
    for (let i = 1; i <= 20; i++) await subscribed(bob, secret, { name: WAITING, arguments: { quiet_seconds: i } })
    const { error } = await ask(bob, "events/subscribe", { name: RECEIVED, delivery: { url: receiver.url(), secret } })
    assert.deepStrictEqual([error.code, error.data], [-32_013, { limit: "subscriptions", max: 20 }])
    assert.strictEqual(receiver.challenges.length, 1)
    assert.strictEqual((await adminHere(server.place, "agents", "suspend", bob.handle, "--reason", "a test")).code, 0)
    await say(alice, bob)
    await chanceFor("a post", 500)
    assert.deepStrictEqual(receiver.posts, [])
  })

  it("204. a subscription ends with the OAuth connection by which it was made, and needs agent:read alone", async () => {
    const bob = await newBob()
    const host = await Host.register(server)
    const { access_token: token, refresh_token } = await host.connect(bob, ["agent:read"])
    const [body, headers] = newest("events/subscribe", {
      name: RECEIVED,
      delivery: { url: receiver.url(), secret: secretOf() }
    })
    assert.isUndefined((await post(server, token, body, headers)).body.error)
    const { id } = await say(alice, bob)
    assert.deepStrictEqual(await receiver.messages(1), [id])
    await form(`${server.url}/revoke`, { token: refresh_token })
    await say(alice, bob)
    await chanceFor("a post", 500)
    assert.strictEqual(receiver.posts.length, 1)
  })

  const rotated = async (agent: TestAgent): Promise<void> => {
    const begun = (await agent.http.post(`/v1/agents/${agent.handle}/rotate-key`)).body as Json
    const code = await server.code(agent.email)
    assert.strictEqual(
      (await agent.http.post(`/v1/agents/${agent.handle}/rotate-key/verify`, { pending_id: begun.pending_id, code }))
        .status,
      200
    )
  }

  it("204. a subscription ends with the key", async () => {
    const bob = await newBob()
    await subscribed(bob, secretOf())
    await rotated(bob)
    await say(alice, bob)
    await chanceFor("a post", 500)
    assert.deepStrictEqual(receiver.posts, [])
  })

  it("204. an agent that subscribes and unsubscribes over and over is refused after a while", async () => {
    const bob = await newBob()
    const delivery = { mode: "webhook", url: receiver.url(), secret: secretOf() }
    // Another subscription has the URL, so that it is not challenged each time.
    await subscribed(bob, secretOf(), { name: WAITING })
    let refusal: Json
    // Many at once, so that a minute is enough on any machine.
    const again = async (quiet_seconds: number) => {
      const type = { name: WAITING, arguments: { quiet_seconds }, delivery }
      const { error } = await ask(bob, "events/subscribe", type)
      if (error === undefined) await ask(bob, "events/unsubscribe", type)
      return error
    }
    for (let round = 0; refusal === undefined && round < 100; round++) {
      const errors = await Promise.all(Array.from({ length: 20 }, (_, i) => again(100 + i)))
      refusal = errors.find((error) => error !== undefined)
    }
    assert.deepStrictEqual(refusal.data, { limit: "new subscriptions per minute", max: 60 })
  })

  it("204. no subscription is made with a key that is rotated before the challenge is answered", async () => {
    const bob = await newBob()
    let release = (): void => {}
    receiver.held = new Promise<void>((resolve) => release = resolve)
    const delivery = { mode: "webhook", url: receiver.url("/held"), secret: secretOf() }
    const subscribing = ask(bob, "events/subscribe", { name: RECEIVED, arguments: {}, delivery })
    const waking = bob.http.request("PUT", "/v1/agents/me/wake-webhook", {
      json: { url: receiver.url("/wake"), secret: "s" }
    })
    await eventually("both challenges", () => receiver.challenges.length === 2 ? true : undefined)
    await rotated(bob)
    release()
    assert.deepStrictEqual((await subscribing).error.data, { reason: "UNAUTHORIZED" })
    assert.strictEqual((await waking).status, 401)
  })

  it("205. the wake webhook says that a message waits, and never which", async () => {
    const bob = await newBob()
    const mcp = await connect(server, bob)
    receiver.echo = "no"
    const unreachable = await bob.http.request("PUT", "/v1/agents/me/wake-webhook", {
      json: { url: receiver.url("/wake"), secret: "s" }
    })
    assert.deepStrictEqual([unreachable.status, (unreachable.body as Json).code], [422, "WEBHOOK_UNREACHABLE"])
    await refused(mcp, "agentchat_set_webhook", { url: receiver.url("/wake"), secret: "s" }, "WEBHOOK_UNREACHABLE")
    receiver.echo = undefined
    assert.strictEqual(
      (await granted(mcp, "agentchat_set_webhook", { url: receiver.url("/wake"), secret: "s" }))["state"],
      "active"
    )
    const { body, status } = await bob.http.request("PUT", "/v1/agents/me/wake-webhook", {
      json: { url: receiver.url("/wake2"), secret: "s" }
    })
    assert.deepStrictEqual([status, body], [200, { state: "active" }])
    await say(alice, bob)
    await say(alice, bob)
    await eventually("the wake", () => receiver.posts.length === 1 || undefined)
    const [wake] = receiver.posts
    assert.deepStrictEqual([wake!.body.event, Object.keys(wake!.body.data)], ["agent.wake", [
      "waiting",
      "conversations"
    ]])
    assert.strictEqual(wake!.headers["x-agentchat-event"], "agent.wake")
    assert.match(String(wake!.headers["agentchat-signature"]), /^t=\d+,v1=[0-9a-f]{64}$/)
    await granted(mcp, "agentchat_clear_webhook")
    for (let i = 0; i < 2; i++) assert.strictEqual((await bob.http.delete("/v1/agents/me/wake-webhook")).status, 200)
    await mcp.close()
  })

  it("205. a wake webhook that is set again goes on where the one before stopped, and its refusal is not kept under an Idempotency-Key", async () => {
    const bob = await newBob()
    const set = async () =>
      (await bob.http.request("PUT", "/v1/agents/me/wake-webhook", {
        json: { url: receiver.url("/again"), secret: "s" },
        headers: { "idempotency-key": "set" }
      })).status
    receiver.echo = "no"
    assert.strictEqual(await set(), 422)
    receiver.echo = undefined
    receiver.status = 410
    assert.strictEqual(await set(), 200)
    await say(alice, bob)
    await eventually("the refused wake", () => receiver.posts.length === 1 || undefined)
    receiver.status = 200
    assert.strictEqual(
      (await bob.http.request("PUT", "/v1/agents/me/wake-webhook", {
        json: { url: receiver.url("/again"), secret: "s" }
      })).status,
      200
    )
    await eventually("the wake", () => receiver.taken.length === 1 || undefined)
    assert.deepStrictEqual(receiver.taken[0]!.body.data, { waiting: 1, conversations: 1 })
  })

  it("206. a server that is killed after the commit posts when it is back", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "parley-events-"))
    const first = await startServer({ env: ENV, dataDir })
    const { alice, bob } = await newPair(first)
    await catchUp(bob)
    receiver.status = 500
    const [body, headers] = newest("events/subscribe", {
      name: RECEIVED,
      delivery: { url: receiver.url(), secret: secretOf() }
    })
    assert.isUndefined((await post(first, bob.key, body, headers)).body.error)
    const sent = [(await say(alice, bob)).id, (await say(alice, bob)).id]
    await first.kill()
    receiver.status = 200
    const second = await startServer({ env: ENV, dataDir })
    assert.deepStrictEqual(await receiver.messages(2), sent)
    await second.stop()
    await rm(dataDir, { recursive: true, force: true })
  })
})

import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Redis } from "ioredis"
import sharp from "sharp"
import { missingRedis, RedisServer } from "../../runners/local/Redis.ts"
import { older, post, refusalIn, rpc } from "../mcp/Mcp.ts"
import { freshDatabase } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import type { Answer } from "../support/Http.ts"
import { metricOf } from "../support/Metrics.ts"
import { Stopwatch } from "../support/Promptly.ts"
import { freshHandle, newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, say } from "./Talk.ts"

describe.skipIf(missingRedis !== "")(`servers that share a Redis${missingRedis}`, () => {
  let redis: RedisServer
  let servers: readonly [Server, Server]
  let addresses = 0
  let alice: TestAgent

  beforeAll(async () => {
    redis = await RedisServer.start()
    const env = {
      REDIS_URL: redis.url,
      DATABASE_URL: await freshDatabase(),
      // Far more than an answer takes on a busy machine, and far less than a test waits.
      REDIS_TIMEOUT_MS: "5000",
      TRUST_PROXY: "1",
      LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE: "10",
      LIMITS_REGISTER_PER_HOUR: "5",
      LIMITS_REGISTER_VERIFY_PER_10_MINUTES: "10",
      LIMITS_RECOVER_PER_HOUR: "3",
      LIMITS_ROTATE_PER_HOUR: "100",
      LIMITS_RESTRICT_BLOCKS: "1",
      LIMITS_MCP_SENDS_PER_CONVERSATION_PER_DAY: "10"
    }
    servers = await Promise.all([startServer({ env }), startServer({ env })])
    alice = await newAgent(servers[0], "alice")
  })
  afterAll(async () => {
    await Promise.all((servers ?? []).map((server) => server.stop()))
    await redis?.kill()
  })

  const search = (server: Server, from: string): Promise<Answer> =>
    server.http().get("/v1/directory?q=al", { "x-forwarded-for": from })

  /** How many of `times` searches at once, evenly to these servers, get through. */
  const through = async (
    times: number,
    from = `203.0.113.${addresses++}`,
    to: ReadonlyArray<Server> = servers
  ): Promise<number> => {
    const answers = await Promise.all(Array.from({ length: times }, (_, i) => search(to[i % to.length]!, from)))
    const passed = answers.filter(({ status }) => status !== 429)
    for (const { status } of passed) assert.strictEqual(status, 200)
    return passed.length
  }

  /** How many of so many posts at once, from a new address and evenly to both servers, no limit refuses. */
  const posts = async (times: number, path: string, body: (i: number) => object): Promise<number> => {
    const from = { "x-forwarded-for": `203.0.113.${addresses++}` }
    const answers = await Promise.all(
      Array.from({ length: times }, (_, i) => servers[i % 2]!.http().post(path, body(i), from))
    )
    for (const answer of answers) assert.include([200, 400, 429], answer.status, `${answer}`)
    return answers.filter(({ status }) => status !== 429).length
  }

  /** Registrations, tries of codes and recoveries, each far above its limit. They are counted in the database. */
  const budgetsHold = async (): Promise<void> => {
    const passed = await Promise.all([
      posts(
        30,
        "/v1/register",
        (i) => ({ email: `flood-${addresses}-${i}@example.com`, handle: freshHandle("flood") })
      ),
      posts(40, "/v1/register/verify", () => ({ pending_id: "pnd_AAAAAAAAAAAAAAAA", code: "123456" })),
      posts(20, "/v1/agents/recover", () => ({ email: "nobody@example.com" }))
    ])
    assert.deepStrictEqual(passed, [5, 10, 3])
  }

  it("161. apply an address's budgets over both", budgetsHold)

  it("160. limit together: of 40 searches at once over both exactly ten are accepted", async () => {
    const here = `203.0.113.${addresses++}`
    assert.strictEqual(await through(40, here), 10)
    const refused = await search(servers[0], here)
    const { details } = refused.refused(429, "RATE_LIMITED")
    assert.deepInclude(details, { limit: 10, window: "minute" })
    const seconds = Number(refused.header("retry-after"))
    assert.isTrue(seconds >= 1 && seconds <= 60, `${seconds}`)
    assert.strictEqual(refused.header("ratelimit-limit"), "10")
    assert.strictEqual(refused.header("ratelimit-remaining"), "0")
  })

  it("229. stop a model together: of 40 sends at once over both exactly ten are accepted", async () => {
    const bob = await newAgent(servers[0], "bob")
    await say(alice, bob)
    await say(bob, alice)
    const send = rpc("tools/call", { name: "agentchat_send_message", arguments: { to: bob.handle, text: "again" } })
    const client = new Redis(redis.url)
    const asked = async (): Promise<number> =>
      Number((await client.info("commandstats")).match(/cmdstat_evalsha:calls=(\d+)/)?.[1] ?? 0)
    const before = await asked()
    const first = await post(servers[0], alice.key, send, older)
    // One for the request to /mcp, one for the rate of sends, and one for all budgets.
    assert.strictEqual(await asked() - before, 3)
    client.disconnect()
    const rest = await Promise.all(
      Array.from({ length: 39 }, (_, i) => post(servers[i % 2]!, alice.key, send, older))
    )
    const refused = [first, ...rest].filter(({ body }) => body.result.isError === true)
    assert.strictEqual(refused.length, 30)
    for (const { body } of refused) assert.strictEqual(refusalIn(body.result).refusal["code"], "BUDGET_EXCEEDED")
  })

  it("ask Redis once for each request, however many limits count the request", async () => {
    const anybody = servers[0].http()
    const client = new Redis(redis.url)
    const asked = async (): Promise<number> =>
      Number((await client.info("commandstats")).match(/cmdstat_evalsha:calls=(\d+)/)?.[1] ?? 0)
    const mine = `/v1/agents/${alice.handle}/avatar`
    const picture = await sharp({ create: { width: 128, height: 128, channels: 3, background: "#3060c0" } }).png()
      .toBuffer()
    for (
      const [status, request] of [
        [404, () => attempt(alice, "nobody-here")],
        [400, () => attempt(alice, "nobody-here", { client_msg_id: 7 })],
        [404, () => alice.http.get("/v1/agents/nobody-here")],
        [200, () => alice.http.get("/v1/agents/me")],
        [200, () => alice.http.get("/v1/directory?q=al")],
        [400, () => alice.http.get("/v1/directory?q=")],
        [200, () => anybody.get("/v1/directory?q=al")],
        [200, () => alice.http.get("/v1/contacts")],
        [200, () => alice.http.get("/v1/contacts/nobody-here")],
        [200, () => alice.http.get("/v1/conversations")],
        [404, () => alice.http.post("/v1/mutes", { target_kind: "agent", target_handle: "nobody-here" })],
        [400, () => alice.http.post("/v1/mutes", {})],
        [200, () => alice.http.delete("/v1/reply/active")],
        [404, () => alice.http.post("/v1/reply/claim", { message_id: "msg_AAAAAAAAAAAAAAAA", holder: "daemon:1" })],
        [200, () => anybody.post("/v1/agents/recover", { email: "nobody@example.com" })],
        [403, () => alice.http.post("/v1/agents/nobody-here/rotate-key")],
        [400, () => alice.http.request("PUT", mine, { raw: "no picture" })],
        [200, () => alice.http.request("PUT", mine, { raw: new Uint8Array(picture) })],
        [200, () => alice.http.delete(mine)],
        [404, () => alice.http.delete(mine)],
        [404, () => alice.http.delete("/v1/groups/grp_AAAAAAAAAAAAAAAA/avatar")],
        [404, () => anybody.get(`/v1/avatars/${"0".repeat(64)}`)]
      ] as const
    ) {
      const before = await asked()
      const answer = await request()
      assert.strictEqual(answer.status, status, `${answer}`)
      assert.match(answer.header("ratelimit-remaining") ?? "", /^\d+$/, `${answer}`)
      assert.strictEqual(await asked() - before, 1, `${answer}`)
    }
    client.disconnect()
  })

  it("160, 161. each apply the limit alone while Redis is away, and together when it is back", async () => {
    const [alice, bob, carol] = await Promise.all(
      ["alice", "bob", "carol"].map((prefix) => newAgent(servers[0], prefix))
    ) as [TestAgent, TestAgent, TestAgent]
    await redis.kill()
    assert.strictEqual(await through(60), 20)
    await budgetsHold()
    assert.strictEqual((await alice.http.get("/v1/agents/me")).status, 200)
    assert.isAtLeast(await metricOf(servers[0], "rate_limits_alone_total", { reason: "down" }), 10)
    // What is no rate holds all the same.
    await say(alice, bob)
    ;(await bob.http.post(`/v1/contacts/${alice.handle}/block`)).ok(200, Shapes.Confirmation)
    ;(await attempt(alice, carol)).refused(403, "AGENT_RESTRICTED")
    await redis.launch()
    await eventually("the limit of both", async () => await through(40) === 10 || undefined)
  })

  it("160, 161. each apply the limit alone while Redis hangs, and hardly wait for it", async () => {
    await through(2)
    redis.pause()
    try {
      assert.strictEqual(await through(60), 20)
      await budgetsHold()
      const alone = await Promise.all(
        ["slow", "open", "down"].map((reason) => metricOf(servers[1], "rate_limits_alone_total", { reason }))
      )
      assert.isAtLeast(alone.reduce((sum, one) => sum + one), 10, alone.join())
      const watch = new Stopwatch()
      for (let i = 0; i < 4; i++) assert.strictEqual(await through(5, undefined, [servers[0]]), 5)
      // Without the circuit each request would wait five seconds and more.
      watch.endsWithin(8_000)
    } finally {
      redis.resume()
    }
    await eventually("the limit of both", async () => await through(40) === 10 || undefined)
  })
})

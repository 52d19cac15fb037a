import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { rm } from "node:fs/promises"
import { eventually } from "../support/Eventually.ts"
import type { Answer } from "../support/Http.ts"
import { clockOff } from "../support/Nodes.ts"
import {
  makeDataDir,
  newAgent,
  NODES,
  type Server,
  sharedServer,
  startServer,
  type TestAgent
} from "../support/Server.ts"
import * as Shapes from "./Shapes.ts"
import { catchUp, markRead, newPair, say } from "./Talk.ts"

const ACTIVE = "/v1/reply/active"

const begin = (agent: TestAgent, body: object = {}): Promise<Answer> =>
  agent.http.request("PUT", ACTIVE, { json: body })
const end = (agent: TestAgent, body: object = {}): Promise<Answer> =>
  agent.http.request("DELETE", ACTIVE, { json: body })

const leasesOf = async (agent: TestAgent): Promise<typeof Shapes.Leases.Type> =>
  (await agent.http.get(ACTIVE)).ok(200, Shapes.Leases)

const attemptClaim = (agent: TestAgent, message_id: string, holder: string, more: object = {}): Promise<Answer> =>
  agent.http.post("/v1/reply/claim", { message_id, holder, ...more })

const claim = async (
  agent: TestAgent,
  message_id: string,
  holder: string,
  more: object = {}
): Promise<typeof Shapes.Claim.Type> => (await attemptClaim(agent, message_id, holder, more)).ok(200, Shapes.Claim)

const claimBatch = async (
  agent: TestAgent,
  message_ids: ReadonlyArray<string>,
  holder: string,
  more: object = {}
): Promise<typeof Shapes.BatchClaim.Type> =>
  (await agent.http.post("/v1/reply/claim-batch", { message_ids, holder, ...more })).ok(200, Shapes.BatchClaim)

const defer = { defer_if_active: true }
const DAEMON = "daemon:1"
const SESSION = "session:1"
const MINE = { claimed: true, deferred: false, expires_in: 600 }

describe("wire.md J, reply coordination", () => {
  let server: Server

  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  /** An agent and messages that it has received, oldest first. */
  const withMail = async (n: number): Promise<readonly [TestAgent, ReadonlyArray<string>]> => {
    const { alice, bob } = await newPair(server)
    const ids: Array<string> = []
    for (let i = 0; i < n; i++) ids.push((await say(alice, bob)).id)
    return [bob, ids]
  }

  it("151. a lease makes the agent active until it is deleted; deleting one session's leaves another's", async () => {
    const agent = await newAgent(server, "worker")
    assert.deepStrictEqual(await leasesOf(agent), { active: false, sessions: 0, expires_in: 0 })
    assert.strictEqual((await begin(agent)).ok(200, Shapes.Lease).expires_in, 90)
    assert.strictEqual(
      (await begin(agent, { session_id: "one", ttl_seconds: 600 })).ok(200, Shapes.Lease).expires_in,
      600
    )
    ;(await begin(agent, { session_id: "two", ttl_seconds: 60 })).ok(200, Shapes.Lease)
    const both = await leasesOf(agent)
    assert.deepStrictEqual([both.active, both.sessions], [true, 3])
    assert.isTrue(both.expires_in > 500 && both.expires_in <= 600, `${both.expires_in}`)
    assert.isTrue((await end(agent, { session_id: "one" })).ok(200, Shapes.LeaseEnded).active)
    assert.isTrue((await end(agent, { session_id: "nobody's" })).ok(200, Shapes.LeaseEnded).active)
    assert.isTrue((await agent.http.delete(ACTIVE)).ok(200, Shapes.LeaseEnded).active, "the nameless one")
    assert.strictEqual((await leasesOf(agent)).sessions, 1)
    assert.isFalse((await end(agent, { session_id: "two" })).ok(200, Shapes.LeaseEnded).active)
    assert.deepStrictEqual(await leasesOf(agent), { active: false, sessions: 0, expires_in: 0 })
    assert.isFalse((await leasesOf(await newAgent(server, "other"))).active)
  })

  it("151. a lease ends by itself, is renewed by a repetition, and its time has bounds", async () => {
    const agent = await newAgent(server, "worker")
    for (
      const [ttl_seconds, expires_in] of [[7_200, 3_600], [3_600, 3_600], [null, 90], [0, 1], [-1, 1], [1, 1]] as const
    ) {
      assert.strictEqual(
        (await begin(agent, { session_id: null, ttl_seconds })).ok(200, Shapes.Lease).expires_in,
        expires_in
      )
    }
    await eventually("its end", async () => !(await leasesOf(agent)).active || undefined)
    assert.isFalse((await agent.http.delete(ACTIVE)).ok(200, Shapes.LeaseEnded).active)
  })

  it("152. the first holder's claim is true, another's is false, and the first's is true again", async () => {
    const [agent, [id, other]] = await withMail(2) as readonly [TestAgent, readonly [string, string]]
    assert.deepStrictEqual(await claim(agent, id, DAEMON), MINE)
    const held = await claim(agent, id, SESSION)
    assert.deepStrictEqual([held.claimed, held.deferred], [false, false])
    assert.isTrue(held.expires_in > 500 && held.expires_in <= 600, `${held.expires_in}`)
    assert.deepStrictEqual(await claim(agent, id, DAEMON), MINE)
    assert.deepStrictEqual(await claim(agent, other, SESSION), MINE)
  })

  it.skipIf(NODES > 0)("152. a renewed claim has a new time; ten minutes after it another's is true", async () => {
    // Five minutes pass with each signal, in PGlite too, whose clock is that of its process.
    const dataDir = await makeDataDir()
    const later = await startServer({ dataDir, env: clockOff(0, 300) })
    const pass = () => later.process.kill("SIGUSR2")
    const { bob, first: { id } } = await newPair(later)
    const halfway = () =>
      eventually("the clock to be set", async () => {
        const { claimed, expires_in } = await claim(bob, id, SESSION)
        assert.isFalse(claimed)
        return expires_in <= 300 || undefined
      })
    assert.deepStrictEqual(await claim(bob, id, DAEMON), MINE)
    pass()
    await halfway()
    assert.deepStrictEqual(await claim(bob, id, DAEMON), MINE)
    pass()
    await halfway()
    pass()
    await eventually("the end of the claim", async () => (await claim(bob, id, SESSION)).claimed || undefined)
    assert.isFalse((await claim(bob, id, DAEMON)).claimed)
    await later.stop()
    await rm(dataDir, { recursive: true })
  })

  it("153. a batch claims the prefix before the first that another holds, and nothing after it", async () => {
    const [agent, ids] = await withMail(5)
    const [a, b, c, d, e] = ids as [string, string, string, string, string]
    await claim(agent, c, SESSION)
    assert.deepStrictEqual(await claimBatch(agent, ids, DAEMON), { claimed_count: 2, deferred: false, expires_in: 600 })
    for (const id of [d, e]) assert.deepStrictEqual(await claim(agent, id, SESSION), MINE)
    for (const id of [a, b]) assert.isFalse((await claim(agent, id, SESSION)).claimed)
    const none = await claimBatch(agent, [c, a], DAEMON)
    assert.deepStrictEqual([none.claimed_count, none.deferred], [0, false])
    assert.isTrue(none.expires_in > 500 && none.expires_in <= 600)
    assert.deepStrictEqual(await claimBatch(agent, [b, a, b], DAEMON), {
      claimed_count: 3,
      deferred: false,
      expires_in: 600
    })
    assert.strictEqual((await claimBatch(agent, [c, d, e], SESSION)).claimed_count, 3)
  })

  it("154. with a lease, defer_if_active claims and renews nothing; without one it claims", async () => {
    const [agent, ids] = await withMail(3)
    const [a, b, c] = ids as [string, string, string]
    assert.deepStrictEqual(await claim(agent, a, DAEMON, defer), MINE)
    ;(await begin(agent, { session_id: "one", ttl_seconds: 60 })).ok(200, Shapes.Lease)
    for (const id of [a, b]) {
      const deferred = await claim(agent, id, DAEMON, defer)
      assert.deepStrictEqual([deferred.claimed, deferred.deferred], [false, true])
      assert.isTrue(deferred.expires_in > 0 && deferred.expires_in <= 60)
    }
    const batch = await claimBatch(agent, ids, DAEMON, defer)
    assert.deepStrictEqual([batch.claimed_count, batch.deferred], [0, true])
    assert.isFalse((await claim(agent, a, SESSION)).claimed, "a lease takes no claim away")
    assert.deepStrictEqual(await claim(agent, b, SESSION), MINE)
    assert.deepStrictEqual(await claim(agent, c, DAEMON, { defer_if_active: false }), MINE)
    ;(await end(agent, { session_id: "one" })).ok(200, Shapes.LeaseEnded)
    assert.deepStrictEqual(await claimBatch(agent, [a, c, b], DAEMON, defer), {
      claimed_count: 2,
      deferred: false,
      expires_in: 600
    })
  })

  it("155. a message that is not in the inbox is 404 alike in a single claim, and ends the prefix of a batch", async () => {
    const { alice, bob, first, reply } = await newPair(server)
    const stranger = await newAgent(server, "stranger")
    const refused = await Promise.all([
      attemptClaim(stranger, first.id, DAEMON),
      attemptClaim(bob, reply.id, DAEMON),
      attemptClaim(bob, "msg_AAAAAAAAAAAAAAAA", DAEMON),
      attemptClaim(bob, "no id at all", DAEMON, defer)
    ])
    const [body] = refused.map((answer) => answer.refused(404, "MESSAGE_NOT_FOUND"))
    for (const answer of refused) assert.deepStrictEqual(answer.body, body)
    const none = { claimed_count: 0, deferred: false, expires_in: 0 }
    assert.deepStrictEqual(await claimBatch(stranger, [first.id], DAEMON), none)
    assert.deepStrictEqual(await claimBatch(bob, [reply.id, first.id], DAEMON), none)
    const one = { claimed_count: 1, deferred: false, expires_in: 600 }
    assert.deepStrictEqual(
      await claimBatch(bob, [first.id, "msg_AAAAAAAAAAAAAAAA", first.id], DAEMON),
      one,
      "the claim decides, not the end of the prefix"
    )
    assert.deepStrictEqual(await claim(alice, reply.id, DAEMON), MINE, "each agent has claims of its own")
    assert.deepStrictEqual(await claim(alice, reply.id, DAEMON), MINE)
  })

  it("155. a message that was delivered, read or hidden is in the inbox", async () => {
    const [agent, ids] = await withMail(3)
    const [read, hidden] = ids as [string, string, string]
    await catchUp(agent)
    await markRead(agent, read)
    assert.strictEqual((await agent.http.delete(`/v1/messages/${hidden}`)).status, 200)
    assert.strictEqual((await claimBatch(agent, ids, DAEMON)).claimed_count, 3)
    assert.deepStrictEqual(await claim(agent, hidden, DAEMON), MINE)
  })

  it("157. every answer has a JSON body, with and without one in the request", async () => {
    const [agent, [id]] = await withMail(1) as readonly [TestAgent, readonly [string]]
    const answers = [
      await begin(agent),
      await agent.http.request("PUT", ACTIVE),
      await agent.http.get(ACTIVE),
      await end(agent),
      await end(agent, { session_id: "one" }),
      await agent.http.request("DELETE", ACTIVE),
      await attemptClaim(agent, id, DAEMON),
      await attemptClaim(agent, id, SESSION),
      await agent.http.post("/v1/reply/claim-batch", { message_ids: [id], holder: DAEMON })
    ]
    for (const answer of answers) {
      assert.strictEqual(answer.status, 200, `${answer}`)
      assert.match(answer.header("content-type") ?? "", /^application\/json/)
      assert.isObject(answer.body)
    }
  })

  it("L: an Idempotency-Key is ignored, whatever it is", async () => {
    const [agent, [id]] = await withMail(1) as readonly [TestAgent, readonly [string]]
    for (const key of ["the same", "the same", "é".repeat(300)].map(encodeURIComponent)) {
      const headers = { "idempotency-key": key }
      for (
        const [method, path, json, status] of [
          ["PUT", ACTIVE, { session_id: "one" }, 200],
          ["POST", "/v1/reply/claim", { message_id: id, holder: DAEMON }, 200],
          ["POST", "/v1/reply/claim-batch", { message_ids: [id], holder: SESSION }, 200],
          ["POST", "/v1/reply/claim", { message_id: "msg_AAAAAAAAAAAAAAAA", holder: DAEMON }, 404],
          ["DELETE", ACTIVE, { session_id: "one" }, 200]
        ] as const
      ) {
        const answer = await agent.http.request(method, path, { json, headers })
        assert.deepStrictEqual([answer.status, answer.header("idempotent-replay")], [status, null], `${answer}`)
      }
    }
  })

  it("L: a body of the wrong shape is 400, and holders, sessions and batches have bounded lengths", async () => {
    const [agent, [id]] = await withMail(1) as readonly [TestAgent, readonly [string]]
    const single = (body: unknown) => agent.http.post("/v1/reply/claim", body)
    const batch = (body: unknown) => agent.http.post("/v1/reply/claim-batch", body)
    const holder = DAEMON
    for (
      const answer of await Promise.all([
        ...["", "x".repeat(129), 7, {}].map((session_id) => begin(agent, { session_id })),
        ...["1", 1.5, {}].map((ttl_seconds) => begin(agent, { ttl_seconds })),
        ...["", "x".repeat(129), 7].map((session_id) => end(agent, { session_id })),
        begin(agent, []),
        ...["", "x".repeat(161), 7, null].map((name) => single({ message_id: id, holder: name })),
        ...["", 7, null].map((message_id) => single({ message_id, holder })),
        single({ holder }),
        single({ message_id: id }),
        single({ message_id: id, holder, defer_if_active: "yes" }),
        single(null),
        ...[[], Array.from({ length: 101 }, () => id), id, [7], null].map((message_ids) =>
          batch({ message_ids, holder })
        ),
        batch({ message_ids: [id], holder: "" })
      ])
    ) answer.refused(400, "VALIDATION_ERROR")
    assert.isFalse((await leasesOf(agent)).active)
    ;(await begin(agent, { session_id: "😀".repeat(128), other: 1 })).ok(200, Shapes.Lease)
    ;(await end(agent, { session_id: "😀".repeat(128) })).ok(200, Shapes.LeaseEnded)
    assert.strictEqual(
      (await claimBatch(agent, Array.from({ length: 100 }, () => id), "x".repeat(160))).claimed_count,
      100
    )
    assert.deepStrictEqual(await claim(agent, id, "x".repeat(160), { defer_if_active: null }), MINE)
  })
})

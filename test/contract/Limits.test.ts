import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatClient, RateLimitedError, RecipientBackloggedError } from "agentchatme"
import { answerIn, type Json, older, post, refusalIn, rpc } from "../mcp/Mcp.ts"
import { eventually } from "../support/Eventually.ts"
import { type Answer, matching, untilTaken } from "../support/Http.ts"
import { agentOf, freshHandle, NODES, type Server, slowClock, startServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { assertGolden } from "./Frames.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, catchUp, freshMsgId, inbox, say } from "./Talk.ts"

/** Asserts a refusal by a rate: `Retry-After` in whole seconds, and the same in milliseconds in the details. */
const limited = (answer: Answer, limit: number, withinSeconds: number): void => {
  const { details } = answer.refused(429, "RATE_LIMITED")
  const seconds = Number(answer.header("retry-after"))
  assert.match(answer.header("retry-after") ?? "", /^\d+$/)
  assert.isAtLeast(seconds, 1)
  assert.isAtMost(seconds, withinSeconds)
  assert.strictEqual(details?.["limit"], limit)
  assert.isString(details?.["window"])
  assert.strictEqual(Math.max(1, Math.ceil(Number(details?.["retry_after_ms"]) / 1000)), seconds)
}

describe("wire.md J, limits", () => {
  let server: Server
  let addresses = 0

  beforeAll(async () => {
    server = await startServer({
      env: {
        // A burst of requests takes less than a second of the server's clock.
        ...slowClock,
        // Tests come from as many addresses as they like.
        TRUST_PROXY: "1",
        LIMITS_REGISTER_PER_HOUR: "5",
        LIMITS_REGISTER_VERIFY_PER_10_MINUTES: "10",
        LIMITS_RECOVER_PER_HOUR: "3",
        LIMITS_RECOVER_VERIFY_PER_10_MINUTES: "10",
        LIMITS_ROTATE_PER_HOUR: "3",
        LIMITS_ROTATE_VERIFY_PER_10_MINUTES: "10",
        LIMITS_CARDS_PER_MINUTE: "20",
        LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE: "30",
        LIMITS_CONVERSATION_LISTS_PER_MINUTE: "20",
        LIMITS_REPLY_CALLS_PER_MINUTE: "10",
        LIMITS_SENDS_PER_SECOND: "10",
        LIMITS_GROUP_SENDS_PER_SECOND: "3",
        LIMITS_COLD_CONVERSATIONS: "3",
        LIMITS_BODY_BYTES: "10000",
        LIMITS_MESSAGE_BYTES: "1000",
        LIMITS_ATTACHMENT_BYTES: "1000",
        LIMITS_AVATAR_BYTES: "1000",
        UPLOADS_URL_SECONDS: "60",
        SOCKETS_FRAME_BYTES: "2000",
        LIMITS_MCP_SENDS_PER_CONVERSATION_PER_DAY: "5",
        LIMITS_HOPS: "4",
        LIMITS_BACKLOG_SOFT: "4",
        LIMITS_BACKLOG_HARD: "6"
      }
    })
  })
  afterAll(() => server.stop())

  const somewhere = () => ({ "x-forwarded-for": `203.0.113.${addresses++}` })

  const register = (email: string, handle: string, from = somewhere()): Promise<Answer> =>
    server.http().post("/v1/register", { email, handle }, from)

  const newAgent = async (prefix: string, email?: string): Promise<TestAgent> => {
    const handle = freshHandle(prefix)
    const address = email ?? `${handle}@example.com`
    const { pending_id } = (await register(address, handle)).ok(200, Shapes.Registered)
    const answer = { pending_id, code: await server.code(address) }
    const done = (await server.http().post("/v1/register/verify", answer, somewhere())).ok(200, Shapes.Verified)
    return agentOf(server, { id: done.agent.id, handle, email: address }, done.api_key)
  }

  it("30. the 6th registration of an address within an hour is 429 with Retry-After; another address is not", async () => {
    const here = somewhere()
    for (let i = 0; i < 5; i++) {
      const handle = freshHandle("flood")
      ;(await register(`${handle}@example.com`, handle, here)).ok(200, Shapes.Registered)
    }
    const [handle, email] = [freshHandle("flood"), "flood@example.com"]
    limited(await register(email, handle, here), 5, 3_600)
    assert.strictEqual(await server.outbox.count(email), 0)
    ;(await register(email, handle)).ok(200, Shapes.Registered)
  })

  it("G.15: the 11th verify of each kind and the 4th recovery and rotation of an address are 429", async () => {
    const here = somewhere()
    const alice = await newAgent("alice")
    const guess = { pending_id: "pnd_AAAAAAAAAAAAAAAA", code: "123456" }
    const rotation = `/v1/agents/${alice.handle}/rotate-key`
    for (
      const [http, path] of [
        [server.http(), "/v1/register/verify"],
        [server.http(), "/v1/agents/recover/verify"],
        [alice.http, `${rotation}/verify`]
      ] as const
    ) {
      for (let i = 0; i < 10; i++) (await http.post(path, guess, here)).refused(400, "EXPIRED")
      const refused = await http.post(path, guess, here)
      limited(refused, 10, 600)
      assert.strictEqual(refused.header("ratelimit-remaining"), "0")
      assert.strictEqual(refused.header("ratelimit-limit"), "10")
      ;(await http.post(path, guess, somewhere())).refused(400, "EXPIRED")
    }
    ;(await alice.http.post(rotation, undefined, here)).ok(200, Shapes.Pending)
    for (let i = 0; i < 2; i++) (await alice.http.post(rotation, undefined, here)).refused(429, "OTP_COOLDOWN")
    limited(await alice.http.post(rotation, undefined, here), 3, 3_600) // It is the address that is limited, not the account.
    ;(await alice.http.post(rotation, undefined, somewhere())).refused(429, "OTP_COOLDOWN")
    for (let i = 0; i < 3; i++) {
      ;(await server.http().post("/v1/agents/recover", { email: `no-${i}@example.com` }, here)).ok(200, Shapes.Pending)
    }
    limited(await server.http().post("/v1/agents/recover", { email: "no-3@example.com" }, here), 3, 3_600)
  })

  it("G.15: behind a proxy an address is what the proxy says, whatever stands left of it", async () => {
    const here = `198.51.100.${addresses++}`
    const claiming = (claimed: string) =>
      server.http().post("/v1/agents/recover", { email: "claimed@example.com" }, {
        "x-forwarded-for": `${claimed}, ${here}`
      })
    for (let i = 0; i < 3; i++) (await claiming(`203.0.113.${200 + i}`)).ok(200, Shapes.Pending)
    for (const claimed of ["203.0.113.210", "127.0.0.1, 10.0.0.1", "unknown", ""])
      limited(await claiming(claimed), 3, 3_600)
  })

  it("31. a second code for the same address within 60 s is OTP_COOLDOWN, and a used code ends that", async () => {
    const [handle, email] = [freshHandle("twice"), `${freshHandle("twice")}@example.com`]
    const first = (await register(email, handle)).ok(200, Shapes.Registered)
    const again = await register(email, handle)
    again.refused(429, "OTP_COOLDOWN")
    const seconds = Number(again.header("retry-after"))
    assert.isTrue(Number.isInteger(seconds) && seconds >= 1 && seconds <= 60, `${seconds}`)
    const code = await server.code(email)
    assert.strictEqual(await server.outbox.count(email), 0)
    const done = await server.http().post("/v1/register/verify", { pending_id: first.pending_id, code }, somewhere())
    done.ok(200, Shapes.Verified)
    ;(await register(email, freshHandle("thrice"))).ok(200, Shapes.Registered)
  })

  it("34. the 4th lifetime account of an e-mail is 409 EMAIL_EXHAUSTED, told at verify", async () => {
    const email = `${freshHandle("lives")}@example.com`
    for (let i = 0; i < 3; i++) {
      const agent = await newAgent("lives", email)
      ;(await agent.http.delete(`/v1/agents/${agent.handle}`)).ok(200, Shapes.Confirmation)
    }
    const { pending_id } = (await register(email, freshHandle("lives"))).ok(200, Shapes.Registered)
    const answer = { pending_id, code: await server.code(email) }
    ;(await server.http().post("/v1/register/verify", answer, somewhere())).refused(409, "EMAIL_EXHAUSTED")
    ;(await server.http().post("/v1/register/verify", answer, somewhere())).refused(400, "EXPIRED")
  })

  it("74. one cold target too many is 429 COLD_CAP_EXCEEDED; a reply frees one slot", async () => {
    const [alice, bob, carol, dave, erin, frank] = await Promise.all(
      [1, 2, 3, 4, 5, 6].map(() => newAgent("cold"))
    ) as [TestAgent, TestAgent, TestAgent, TestAgent, TestAgent, TestAgent]
    const begun: Array<number> = []
    for (const peer of [bob, carol, dave]) begun.push(Date.parse((await say(alice, peer)).created_at))
    for (let i = 0; i < 2; i++) {
      const refused = await attempt(alice, erin)
      const { details } = refused.refused(429, "COLD_CAP_EXCEEDED")
      assert.deepInclude(details, { limit: 3, used: 3, window_seconds: 86_400 })
      // The clocks of nodes may differ, so the first send is not always the oldest.
      assert.strictEqual(Date.parse(String(details?.["resets_at"])), Math.min(...begun) + 86_400_000)
      assert.isNull(refused.header("retry-after"), "only when a slot is about to come free")
    }
    assert.deepStrictEqual(await inbox(erin), [])
    await say(bob, alice)
    await say(alice, erin)
    ;(await attempt(alice, frank)).refused(429, "COLD_CAP_EXCEEDED")
    // What is established, and replies, are no outreach.
    await say(alice, bob)
    await say(frank, alice)
    await say(alice, frank)
  })

  it("74. first messages at once do not pass the cap", async () => {
    const alice = await newAgent("cold")
    const peers = await Promise.all(Array.from({ length: 8 }, () => newAgent("peer")))
    const answers = await Promise.all(peers.map((peer) => attempt(alice, peer)))
    assert.deepStrictEqual(
      answers.map((answer) => answer.status).sort(),
      [201, 201, 201, 429, 429, 429, 429, 429],
      answers.join("\n")
    )
  })

  it("75. one send too many in a second is 429 with Retry-After, replays are not counted, and nothing is stored", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    const client_msg_id = freshMsgId()
    const first = await say(alice, bob, { client_msg_id })
    await say(bob, alice)
    await catchUp(bob)
    const burst: Array<Answer> = []
    // With nodes, Redis's clock counts. A burst may take longer than the second of which it is too many.
    while (!burst.some(({ status }) => status === 429)) {
      burst.push(...await Promise.all(Array.from({ length: 25 }, () => attempt(alice, bob, { to: "nobody-here" }))))
    }
    const refused = burst.filter((answer) => answer.status === 429)
    // Ten in any second, the first message among them.
    if (NODES === 0) assert.lengthOf(refused, 25 - 9)
    for (const answer of refused) limited(answer, 10, 1)
    for (const answer of burst) if (answer.status !== 429) answer.refused(404, "AGENT_NOT_FOUND")
    const replay = (await attempt(alice, bob, { client_msg_id })).ok(200, Shapes.Message)
    assert.strictEqual(replay.id, first.id)
    assert.deepStrictEqual(await inbox(bob), [])
  })

  it("228. an agent's own budget refuses the send beyond it, says before what is left, and counts no replay", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    await say(alice, bob)
    await say(bob, alice)
    const own = (budget: object) => alice.http.patch(`/v1/agents/${alice.handle}`, { settings: { budget } })
    for (const wrong of [0, 100_001, 1.5, "7"])
      (await own({ per_conversation_per_day: wrong })).refused(400, "VALIDATION_ERROR")
    ;(await own({ per_day: 100 })).ok(200, Shapes.Agent)
    const { settings } = (await own({ per_conversation_per_day: 3 })).ok(200, Shapes.Agent)
    assert.deepStrictEqual(settings.budget, { per_conversation_per_day: 3, per_day: 100 })
    const client_msg_id = freshMsgId()
    const left: Array<string | null> = []
    // Refusals by a budget count against the rate of ten.
    for (let i = 0; i < 3; i++) {
      const answer = await untilTaken(() => attempt(alice, bob, i === 0 ? { client_msg_id } : {}))
      answer.ok(201, Shapes.Message)
      left.push(answer.header("x-budget-left"))
      if (i === 2)
        assert.deepStrictEqual(["limit", "scope"].map((name) => answer.header(`x-budget-${name}`)), [
          "3",
          "conversation"
        ])
    }
    assert.deepStrictEqual(left, [null, null, "0"])
    await catchUp(bob)
    const refused = await attempt(alice, bob)
    const { details } = refused.refused(429, "BUDGET_EXCEEDED")
    assert.deepInclude(details, { scope: "conversation", limit: 3, window: "24h" })
    assert.strictEqual(refused.header("ratelimit-limit"), "10", "that of the rate of sends")
    assert.match(String(details?.["resets_at"]), /^\d{4}-\d\d-\d\dT[\d:]+\.\d{3}Z$/)
    const seconds = Number(refused.header("retry-after"))
    assert.isAbove(seconds, 86_000)
    assert.isAtMost(seconds, 86_400)
    ;(await attempt(alice, bob, { client_msg_id })).ok(200, Shapes.Message)
    // The published client gives the send up with its error of refusals for a time.
    let tries = 0
    const client = new AgentChatClient({
      apiKey: alice.key,
      baseUrl: server.url,
      fetch: (url, init) => {
        tries++
        return fetch(url, init)
      },
      retry: { maxRetries: 3, baseDelayMs: 1, maxDelayMs: 2 }
    })
    const error: unknown = await client.sendMessage({ to: bob.handle, content: { text: "once more" } }).then(
      () => assert.fail("the send was accepted"),
      (error: unknown) => error
    )
    assert.instanceOf(error, RateLimitedError)
    assert.deepStrictEqual([error.code, tries], ["BUDGET_EXCEEDED", 4])
    ;(await own({ per_conversation_per_day: null, per_day: null })).ok(200, Shapes.Agent)
    await say(alice, bob)
  })

  it("229. two agents that answer each other by MCP are stopped at the budget, and told to stop", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    const write = (from: TestAgent, to: TestAgent) =>
      post(
        server,
        from.key,
        rpc("tools/call", { name: "agentchat_send_message", arguments: { to: to.handle, text: "I answer at once" } }),
        older
      )
    const left: Array<Json> = []
    for (let i = 0; i < 5; i++) {
      for (const [from, to] of [[alice, bob], [bob, alice]] as const) {
        const { body } = await write(from, to)
        const answer = answerIn("agentchat_send_message", body.result)
        if (from === alice) left.push(answer["budget_left"])
      }
    }
    assert.deepStrictEqual(left, [undefined, undefined, undefined, undefined, 0])
    for (const [from, to] of [[alice, bob], [bob, alice]] as const) {
      const { advice, refusal } = refusalIn((await write(from, to)).body.result)
      assert.strictEqual(refusal.code, "BUDGET_EXCEEDED")
      assert.match(advice ?? "", /Stop, and tell the person you work for\..*(?<!before you try again\.)$/)
    }
    await say(alice, bob)
  })

  it("230. three agents that make each other write in a circle are stopped at the limit of hops; over MCP the advice is to stop", async () => {
    const circle = await Promise.all([newAgent("alice"), newAgent("bob"), newAgent("carol")])
    const next = (i: number): readonly [TestAgent, TestAgent] => [circle[i % 3]!, circle[(i + 1) % 3]!]
    for (let i = 0; i < 3; i++) {
      const [from, to] = next(i)
      await say(from, to)
      await say(to, from)
    }
    const begun = await say(...next(0))
    assert.notProperty(begun.metadata, "hops")
    let cause = begun.id
    for (let i = 1; i <= 4; i++) {
      const metadata = { caused_by: cause, hops: 0, mine: i }
      const message = (await untilTaken(() => attempt(...next(i), { metadata }))).ok(201, Shapes.Message)
      assert.deepStrictEqual(message.metadata, { caused_by: cause, mine: i, hops: i })
      cause = message.id
      if (i < 4) continue
      const { client_msg_id } = message
      const again = await attempt(...next(i), { metadata, client_msg_id })
      assert.deepInclude(again.ok(200, Shapes.Message), { id: message.id, metadata: message.metadata })
    }
    const [from, to] = next(5)
    const refused = await untilTaken(() => attempt(from, to, { metadata: { caused_by: cause } }))
    assert.deepStrictEqual(refused.refused(403, "TOO_MANY_HOPS").details, { hops: 5, limit: 4 })
    const by = (arguments_: object) =>
      post(server, from.key, rpc("tools/call", { name: "agentchat_send_message", arguments: arguments_ }), older)
    const { advice, refusal } = refusalIn(
      (await by({ to: to.handle, text: "I answer at once", reply_to: cause })).body.result
    )
    assert.strictEqual(refusal.code, "TOO_MANY_HOPS")
    assert.match(advice ?? "", /Stop, and tell the person you work for\./)
    answerIn("agentchat_send_message", (await by({ to: to.handle, text: "I begin anew" })).body.result)
  })

  it("231. a cause that the sender does not know counts as none", async () => {
    const [alice, bob, carol] = await Promise.all([newAgent("alice"), newAgent("bob"), newAgent("carol")])
    const secret = await say(alice, bob)
    const known = await say(carol, bob)
    const answer = async (metadata: Readonly<Record<string, unknown>>) =>
      (await untilTaken(() => attempt(bob, carol, { metadata }))).ok(201, Shapes.Message).metadata
    const stranger = async (metadata: Readonly<Record<string, unknown>>) => {
      await catchUp(bob)
      return (await untilTaken(() => attempt(carol, bob, { metadata }))).ok(201, Shapes.Message).metadata
    }
    assert.deepStrictEqual(await answer({ caused_by: known.id }), { caused_by: known.id, hops: 1 })
    for (const caused_by of [secret.id, "msg_nobody", ""])
      assert.deepStrictEqual(await stranger({ caused_by, hops: 3 }), { caused_by })
    for (const metadata of [{ hops: 3 }, { caused_by: 7, hops: 3 }, { caused_by: null }])
      assert.deepStrictEqual(await stranger(metadata), metadata)
    // The sender of a message may name it too.
    assert.deepStrictEqual(await stranger({ caused_by: known.id }), { caused_by: known.id, hops: 1 })
  })

  it("E.5: a sender that uses most of a second's sends is warned on its socket, once in ten seconds", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    const first = await say(alice, bob)
    await say(bob, alice)
    const [mine, theirs] = [await Socket.byHeader(server, alice.key), await Socket.byHeader(server, bob.key)]
    await theirs.message(first.id)
    await mine.settled()
    assert.strictEqual(mine.count("rate_limit.warning"), 0, "two of ten are not most")
    const burst = () => Promise.all(Array.from({ length: 12 }, () => attempt(alice, "nobody-here")))
    // With nodes, Redis's clock counts. A burst may take longer than the second.
    await eventually("a warning", async () => {
      await burst()
      await mine.settled()
      return mine.count("rate_limit.warning") > 0 || undefined
    })
    const warning = await mine.payload("rate_limit.warning", Shapes.RateWarning)
    assert.deepInclude(warning, { endpoint: "POST /v1/messages", limit: 10 })
    // Of several nodes the one that was given the eighth place may hear of it after the other of the ninth.
    assert.isAtMost(warning.remaining, 2)
    if (NODES === 0) {
      await assertGolden("rate_limit.warning", await mine.waitFor("rate_limit.warning"), { [warning.message]: "text" })
    }
    await burst()
    await Promise.all([mine.settled(), theirs.settled()])
    assert.strictEqual(theirs.count("rate_limit.warning"), 0)
    if (NODES === 0) assert.strictEqual(mine.count("rate_limit.warning"), 1)
    await Promise.all([mine.close(), theirs.close()])
  })

  it("C.10: the 11th write of a mute within a second is 429", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    const answers: Array<Answer> = []
    while (!answers.some(({ status }) => status === 429)) {
      answers.push(
        ...await Promise.all(
          Array.from(
            { length: 14 },
            () => bob.http.post("/v1/mutes", { target_kind: "agent", target_handle: alice.handle })
          )
        )
      )
    }
    const refused = answers.filter(({ status }) => status !== 201)
    if (NODES === 0) assert.lengthOf(refused, 4)
    for (const answer of refused) {
      limited(answer, 10, 1)
      assert.strictEqual(answer.refused(429, "RATE_LIMITED").details?.["window"], "second")
    }
    ;(await bob.http.get("/v1/mutes")).ok(200, Shapes.MutePage)
  })

  it("E.4: each frame above 100 in a second is refused with its id, none silently, and the socket stays", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    const socket = await Socket.byHeader(server, bob.key)
    for (let i = 0; i < 150; i++) socket.send({ type: "ping", id: `ping-${i}` })
    await socket.waitFor(() => socket.count("pong") + socket.count("error") === 150)
    const errors = socket.frames.filter((frame) => frame.type === "error")
    for (const frame of errors) {
      assert.deepInclude(matching(Shapes.FrameError, frame.payload), { code: "RATE_LIMITED", action: "ping" })
    }
    assert.deepStrictEqual(errors.map((frame) => frame["id"]), Array.from({ length: 50 }, (_, i) => `ping-${100 + i}`))
    const marker = await say(alice, bob)
    await socket.message(marker.id)
    await socket.close()
  })

  it("75. a repeated send does not count against the limit of sends", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    await say(alice, bob)
    await say(bob, alice)
    const client_msg_id = freshMsgId()
    await say(alice, bob, { client_msg_id })
    for (let i = 0; i < 20; i++) (await attempt(alice, bob, { client_msg_id })).ok(200, Shapes.Message)
    for (const answer of await Promise.all(Array.from({ length: 8 }, () => attempt(alice, "nobody-here")))) {
      answer.refused(404, "AGENT_NOT_FOUND")
    }
  })

  it("117. with a limit of groups, a send above it is 429 and costs the sender nothing", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    await say(alice, bob)
    await say(bob, alice)
    const made = (await alice.http.post("/v1/groups", { name: "Busy" })).ok(200, Shapes.CreatedGroup)
    const toGroup = (client_msg_id = freshMsgId()) =>
      alice.http.post("/v1/messages", {
        conversation_id: made.group.id,
        client_msg_id,
        content: { text: "to the group" }
      })
    const first = freshMsgId()
    const answers = [await toGroup(first)]
    while (!answers.some(({ status }) => status === 429)) {
      answers.push(...await Promise.all(Array.from({ length: 8 }, () => toGroup())))
    }
    const refused = answers.filter(({ status }) => status === 429)
    assert.isAtLeast(refused.length, 1)
    for (const answer of refused) {
      limited(answer, 3, 1)
      assert.strictEqual(answer.refused(429, "RATE_LIMITED").details?.["window"], "group")
    }
    for (const answer of answers) if (answer.status !== 429) answer.ok(201, Shapes.Message)
    // Nothing refused is stored, a repetition is never refused, and the sender may go on elsewhere.
    const rows = (await alice.http.get(`/v1/messages/${made.group.id}?limit=200`)).ok(200, Shapes.Messages)
    assert.strictEqual(rows.length, answers.length - refused.length)
    ;(await toGroup(first)).ok(200, Shapes.Message)
    await say(alice, bob)
    ;(await attempt(bob, bob, { to: undefined, conversation_id: made.group.id })).refused(404, "GROUP_NOT_FOUND")
  })

  it("L: the calls of reply coordination have one budget together", async () => {
    const agent = await newAgent("worker")
    for (let i = 0; i < 5; i++) {
      for (const method of ["PUT", "DELETE"])
        assert.strictEqual((await agent.http.request(method, "/v1/reply/active")).status, 200)
    }
    limited(await agent.http.get("/v1/reply/active"), 10, 60)
    limited(
      await agent.http.post("/v1/reply/claim", { message_id: "msg_AAAAAAAAAAAAAAAA", holder: "daemon:1" }),
      10,
      60
    )
    limited(
      await agent.http.post("/v1/reply/claim-batch", { message_ids: ["msg_AAAAAAAAAAAAAAAA"], holder: "daemon:1" }),
      10,
      60
    )
    assert.strictEqual((await agent.http.get("/v1/agents/me")).status, 200)
  })

  it("G.16: cards and the conversation list have budgets of their own, and show them", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    for (const path of [`/v1/agents/${bob.handle}`, "/v1/conversations"]) {
      for (let left = 19; left >= 0; left--) {
        const answer = await alice.http.get(path)
        assert.deepStrictEqual(
          [answer.status, answer.header("ratelimit-limit"), answer.header("ratelimit-remaining")],
          [200, "20", String(left)]
        )
      }
      const refused = await alice.http.get(path)
      limited(refused, 20, 60)
      assert.strictEqual(refused.refused(429, "RATE_LIMITED").details?.["window"], "minute")
      assert.strictEqual(refused.header("ratelimit-reset"), refused.header("retry-after"))
      assert.strictEqual((await bob.http.get(path)).status, 200)
    }
    ;(await alice.http.get("/v1/agents/me")).ok(200, Shapes.Agent)
  })

  it("164. a card of A2A spends the budget of public cards with a key, and the anonymous directory's without one", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    const card = (headers: Record<string, string>) =>
      fetch(`${server.url}/a2a/${bob.handle}/.well-known/agent-card.json`, { headers })
    const key = { authorization: `Bearer ${alice.key}` }
    for (let i = 0; i < 10; i++) {
      assert.strictEqual((await card(key)).status, 200)
      assert.strictEqual((await alice.http.get(`/v1/agents/${bob.handle}`)).status, 200)
    }
    limited(await alice.http.get(`/v1/agents/${bob.handle}`), 20, 60)
    const here = somewhere()
    for (let i = 0; i < 30; i++) {
      const answer = i % 2 === 0
        ? await card(here)
        : await fetch(`${server.url}/v1/directory?q=${bob.handle}`, { headers: here })
      assert.strictEqual(answer.status, 200)
      await answer.body?.cancel()
    }
    for (const [refused, limit] of [[await card(key), "20"], [await card(here), "30"]] as const) {
      assert.strictEqual(refused.status, 429, `of ${limit}`)
      const { error } = await refused.json() as {
        error: { code: number; status: string; details: [{ metadata: { code: string; details: string } }] }
      }
      assert.deepStrictEqual([error.code, error.status, error.details[0].metadata.code], [
        429,
        "RESOURCE_EXHAUSTED",
        "RATE_LIMITED"
      ])
      assert.include(error.details[0].metadata.details, `"limit":${limit}`)
      assert.match(refused.headers.get("retry-after") ?? "", /^\d+$/)
    }
    assert.strictEqual((await card(somewhere())).status, 200)
  })

  it("sizes and times can be set too", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    const text = (bytes: number) => ({
      content: { text: "x".repeat(bytes - JSON.stringify({ text: "" }).length - "{}".length) }
    })
    ;(await attempt(alice, bob, text(1_001))).refused(413, "CONTENT_TOO_LARGE")
    await say(alice, bob, text(1_000))
    ;(await attempt(alice, bob, text(10_001))).refused(413, "PAYLOAD_TOO_LARGE")
    const upload = (size: number) =>
      alice.http.post("/v1/uploads", {
        to: bob.handle,
        filename: "a.txt",
        content_type: "text/plain",
        size,
        sha256: "0".repeat(64)
      })
    ;(await upload(1_001)).refused(400, "VALIDATION_ERROR")
    assert.propertyVal((await upload(1_000)).body, "expires_in", 60)
    const picture = (size: number) =>
      alice.http.request("PUT", `/v1/agents/${alice.handle}/avatar`, { raw: new Uint8Array(size) })
    ;(await picture(1_001)).refused(413, "PAYLOAD_TOO_LARGE")
    ;(await picture(1_000)).refused(400, "UNSUPPORTED_FORMAT")
    const socket = await Socket.byHeader(server, bob.key)
    socket.send({ type: "ping", payload: { much: "x".repeat(1_500) } })
    await socket.waitFor("pong")
    socket.send({ type: "ping", payload: { much: "x".repeat(2_000) } })
    await socket.closedWith(1009)
  })

  it("77. from the soft limit on a sender is warned, in the header and by the client", async () => {
    const [alice, bob] = await Promise.all([newAgent("alice"), newAgent("bob")])
    await say(alice, bob)
    await say(bob, alice)
    for (const header of [null, null, `${bob.handle}=4`]) {
      const answer = await attempt(alice, bob)
      assert.strictEqual(answer.header("x-backlog-warning"), header)
    }
    const { backlogWarning } = await alice.client.sendMessage({ to: bob.handle, content: { text: "five" } })
    assert.deepStrictEqual(backlogWarning, { recipientHandle: bob.handle, undeliveredCount: 5 })
  })

  it("78. at the hard limit direct sends are 429 RECIPIENT_BACKLOGGED until the recipient catches up, those of a group never", async () => {
    const [alice, bob, carol] = await Promise.all([newAgent("alice"), newAgent("bob"), newAgent("carol")])
    const client_msg_id = freshMsgId()
    await say(alice, bob, { client_msg_id })
    await say(bob, alice)
    for (let i = 0; i < 5; i++) await say(alice, bob)
    const refused = await attempt(alice, bob)
    assert.deepStrictEqual(refused.refused(429, "RECIPIENT_BACKLOGGED").details, {
      recipient_handle: bob.handle,
      undelivered_count: 6
    })
    assert.isNull(refused.header("retry-after"))
    ;(await attempt(alice, bob, { client_msg_id })).ok(200, Shapes.Message)
    const error = await alice.client.sendMessage({ to: bob.handle, content: { text: "x" } }).catch((e: unknown) => e)
    assert.instanceOf(error, RecipientBackloggedError)
    assert.deepInclude(error, { recipientHandle: bob.handle, undeliveredCount: 6 })
    // A group's messages are stored all the same; a stranger that is refused has begun nothing.
    const { add_results, group } = (await carol.http.post("/v1/groups", { name: "Full", member_handles: [bob.handle] }))
      .ok(200, Shapes.CreatedGroup)
    ;(await bob.http.post(`/v1/groups/invites/${add_results[0]?.invite_id}/accept`)).ok(200, Shapes.Group)
    const inGroup = await attempt(carol, bob, { to: undefined, conversation_id: group.id })
    const { id } = inGroup.ok(201, Shapes.Message)
    assert.isNull(inGroup.header("x-backlog-warning"))
    assert.strictEqual(
      (await attempt(carol, bob)).refused(429, "RECIPIENT_BACKLOGGED").details?.["undelivered_count"],
      7
    )
    const waiting = await inbox(bob)
    assert.deepStrictEqual([waiting.length, waiting.at(-1)?.id], [7, id])
    await catchUp(bob)
    await say(alice, bob)
    ;(await attempt(alice, bob, { client_msg_id })).ok(200, Shapes.Message)
    await say(carol, bob)
  })
})

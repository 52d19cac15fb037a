import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { begin, connect } from "../a2a/A2a.ts"
import { eventually } from "../support/Eventually.ts"
import type { Answer } from "../support/Http.ts"
import { Operating } from "../support/Operating.ts"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"
import { assertGolden } from "./Frames.ts"
import * as Shapes from "./Shapes.ts"
import { freshMsgId, history, inbox, markRead, newPair, say, words } from "./Talk.ts"

/** Reads a message with this body. */
const report = (agent: TestAgent, id: string, body?: unknown, headers?: Readonly<Record<string, string>>) =>
  agent.http.post(`/v1/messages/${id}/read`, body, headers)

/** Reports an outcome, which must be granted, and returns the outcome in the answer. */
const reported = async (agent: TestAgent, id: string, state: string, reason?: string) =>
  (await report(agent, id, { outcome: state, ...(reason === undefined ? {} : { reason }) }))
    .ok(200, Shapes.ReadMessage).outcome ?? assert.fail("the answer has no outcome")

const listed = async (agent: TestAgent, id: string) =>
  (await agent.http.get(`/v1/messages/${id}/outcomes`)).ok(200, Shapes.Outcomes)

/** The message as the history shows it to an agent. */
const shown = async (agent: TestAgent, { conversation_id, id }: Shapes.Message): Promise<Shapes.Message> =>
  (await history(agent, conversation_id)).find((message) => message.id === id) ?? assert.fail("it is not shown")

const isOutcome = ({ type }: Frame) => type === "message.outcome"

/** The outcomes that a socket has heard until now. */
const heard = async (socket: Socket) => {
  await socket.settled()
  return socket.frames.filter(isOutcome).map(({ payload }) => payload)
}

describe("wire.md J, Outcomes", () => {
  let server: Server
  let receiver: Receiver
  beforeAll(async () => {
    server = await sharedServer()
    receiver = await Receiver.start()
  })
  afterAll(async () => {
    receiver?.stop()
    await server?.stop()
  })

  /** A group of the first agent, which the others have joined. */
  const groupOf = async (creator: TestAgent, ...others: ReadonlyArray<TestAgent>): Promise<string> => {
    const { add_results, group } =
      (await creator.http.post("/v1/groups", { name: "Crew", member_handles: others.map(({ handle }) => handle) }))
        .ok(200, Shapes.CreatedGroup)
    for (const other of others) {
      const invite = add_results.find(({ handle }) => handle === other.handle)
      assert.strictEqual((await other.http.post(`/v1/groups/invites/${invite?.invite_id}/accept`)).status, 200)
    }
    return group.id
  }

  it("237. a recipient reports working, then done; a read without a body, or with an empty one, reports nothing", async () => {
    const { alice, bob } = await newPair(server)
    const [plain, empty, sent] = [await say(alice, bob), await say(alice, bob), await say(alice, bob)]
    const read = await markRead(bob, plain.id)
    assert.deepInclude(read, { status: "read" })
    assert.notProperty(read, "outcome")
    for (const body of [{}, null, { reason: null }, { unknown: 1 }])
      assert.notProperty((await report(bob, empty.id, body)).ok(200, Shapes.ReadMessage), "outcome")

    const working = (await report(bob, sent.id, { outcome: "working" })).ok(200, Shapes.ReadMessage)
    assert.strictEqual(working.status, "read")
    assert.deepInclude(working.outcome, { state: "working", reason: null })
    const done = await reported(bob, sent.id, "done", "The tests pass.")
    assert.deepInclude(done, { state: "done", reason: "The tests pass." })
    assert.isAtLeast(Date.parse(done.at), Date.parse(working.outcome?.at ?? ""))
    const later = await markRead(bob, sent.id)
    assert.deepStrictEqual(later.outcome, done)

    const refused = await say(alice, bob)
    assert.deepInclude(await reported(bob, refused.id, "refused", "x".repeat(500)), { state: "refused" })
    for (
      const body of [
        { outcome: "finished" },
        { outcome: null },
        { outcome: "done", reason: "x".repeat(501) },
        { outcome: "done", reason: 1 },
        { reason: "but no outcome" }
      ]
    ) (await report(bob, plain.id, body)).refused(400, "VALIDATION_ERROR")
    ;(await report(alice, sent.id, { outcome: "done" })).refused(403, "FORBIDDEN")
    assert.notProperty(await shown(bob, plain), "outcome")
  })

  it("238. the same state again changes nothing, and a final state never changes", async () => {
    const { alice, bob } = await newPair(server)
    const sent = await say(alice, bob)
    const socket = await Socket.hello(server, alice.key)
    const working = await reported(bob, sent.id, "working", "first")
    assert.deepStrictEqual(await reported(bob, sent.id, "working", "second"), working)
    const key = { "idempotency-key": freshMsgId() }
    const first = await report(bob, sent.id, { outcome: "done", reason: "once" }, key)
    const done = first.ok(200, Shapes.ReadMessage).outcome
    assert.strictEqual((await report(bob, sent.id, { outcome: "done", reason: "once" }, key)).text, first.text)
    assert.deepStrictEqual(await reported(bob, sent.id, "done", "twice"), done)
    for (const outcome of ["working", "refused"]) {
      const { details } = (await report(bob, sent.id, { outcome })).refused(409, "OUTCOME_FINAL")
      assert.deepStrictEqual(details, { state: "done" })
    }
    assert.deepStrictEqual((await shown(bob, sent)).outcome, done)
    assert.deepStrictEqual((await heard(socket)).map((payload) => [payload?.["state"], payload?.["reason"]]), [
      ["working", "first"],
      ["done", "once"]
    ])
    await socket.close()
  })

  it("239. of 100 final reports at once one is stored, and the sender hears exactly one", async () => {
    const { alice, bob } = await newPair(server)
    const sent = await say(alice, bob)
    const socket = await Socket.hello(server, alice.key)
    await reported(bob, sent.id, "working")
    const answers = await Promise.all(Array.from({ length: 100 }, async (_, i): Promise<readonly [string, Answer]> => {
      const outcome = i % 2 === 0 ? "done" : "refused"
      return [outcome, await report(bob, sent.id, { outcome, reason: `report ${i}` })]
    }))
    const { outcome } = await shown(alice, sent)
    for (const [state, answer] of answers) {
      if (state === outcome?.state)
        assert.deepStrictEqual(answer.ok(200, Shapes.ReadMessage).outcome, outcome)
      else answer.refused(409, "OUTCOME_FINAL")
    }
    assert.lengthOf(answers.filter(([, { status }]) => status === 200), 50)
    assert.deepStrictEqual((await heard(socket)).slice(1), [
      { message_id: sent.id, conversation_id: sent.conversation_id, handle: bob.handle, ...outcome }
    ])
    await socket.close()
  })

  it("240. both sides of a direct conversation see the outcome; in a group each its own, and the sender the list", async () => {
    const { alice, bob } = await newPair(server)
    const [carol, stranger] = await Promise.all([newAgent(server, "carol"), newAgent(server, "stranger")])
    const sent = await say(alice, bob)
    assert.notProperty(sent, "outcome")
    assert.deepStrictEqual(await listed(alice, sent.id), [])
    assert.notProperty(await shown(alice, sent), "outcome")
    const outcome = await reported(bob, sent.id, "refused", "not my trade")
    for (const agent of [alice, bob]) assert.deepStrictEqual((await shown(agent, sent)).outcome, outcome)
    assert.deepStrictEqual(await listed(alice, sent.id), [{ handle: bob.handle, ...outcome }])

    const group = await groupOf(alice, bob, carol)
    const body = { conversation_id: group, client_msg_id: freshMsgId(), content: { text: words() } }
    const all = (await alice.http.post("/v1/messages", body)).ok(201, Shapes.Message)
    const [ofCarol, ofBob] = [await reported(carol, all.id, "working"), await reported(bob, all.id, "done")]
    assert.notProperty(await shown(alice, all), "outcome")
    assert.deepStrictEqual((await shown(bob, all)).outcome, ofBob)
    assert.deepStrictEqual((await shown(carol, all)).outcome, ofCarol)
    const expected = [{ handle: carol.handle, ...ofCarol }, { handle: bob.handle, ...ofBob }]
    assert.sameDeepMembers([...await listed(alice, all.id)], expected)

    const unknown = (await stranger.http.get("/v1/messages/msg_0f1e2d3c4b5a6978/outcomes")).refused(
      404,
      "MESSAGE_NOT_FOUND"
    )
    for (const [agent, id] of [[bob, sent.id], [carol, all.id], [stranger, sent.id], [stranger, all.id]] as const) {
      const answer = await agent.http.get(`/v1/messages/${id}/outcomes`)
      assert.deepStrictEqual(answer.refused(404, "MESSAGE_NOT_FOUND"), unknown)
    }
    ;(await report(stranger, sent.id, { outcome: "done" })).refused(404, "MESSAGE_NOT_FOUND")
  })

  it("241. the event is the same over the socket and by webhook, not across a block, and adds nothing to an inbox", async () => {
    const { alice, bob } = await newPair(server)
    const [first, second, third] = [await say(alice, bob), await say(alice, bob), await say(alice, bob)]
    const path = `/${alice.handle}`
    const hook = { url: receiver.url(path), events: ["message.new", "message.outcome"] }
    ;(await alice.http.post("/v1/webhooks", hook)).ok(201, Shapes.AnyCreatedWebhook)
    const [atAlice, atBob] = [await Socket.hello(server, alice.key), await Socket.hello(server, bob.key)]
    const outcome = await reported(bob, first.id, "done", "as you asked")
    const payload = await atAlice.payload("message.outcome", Shapes.OutcomeChange)
    const { conversation_id } = first
    assert.deepStrictEqual(payload, { message_id: first.id, conversation_id, handle: bob.handle, ...outcome })
    assert.deepStrictEqual(await receiver.data(path, "message.outcome"), payload)
    await assertGolden("message.outcome", await atAlice.waitFor("message.outcome"), { [bob.handle]: "recipient" })

    for (const [blocker, blocked, message] of [[alice, bob, second], [bob, alice, third]] as const) {
      assert.strictEqual((await blocker.http.post(`/v1/contacts/${blocked.handle}/block`)).status, 200)
      const silent = await reported(bob, message.id, "done", "words past the block")
      assert.isNull(silent.reason)
      assert.deepStrictEqual((await shown(alice, message)).outcome, silent)
      assert.deepStrictEqual((await listed(alice, message.id)).map(({ reason }) => reason), [null])
      assert.strictEqual((await blocker.http.delete(`/v1/contacts/${blocked.handle}/block`)).status, 200)
    }
    // What was written to the outbox before this event is posted by now, or never.
    const last = await say(alice, bob)
    await reported(bob, last.id, "working")
    await receiver.data(path, "message.outcome", ({ message_id }) => message_id === last.id)
    const posts = receiver.posts.filter((post) => post.path === path)
    assert.deepStrictEqual(posts.map(({ body }) => [body.event, body.data["message_id"]]), [
      ["message.outcome", first.id],
      ["message.outcome", last.id]
    ])
    assert.deepStrictEqual((await heard(atAlice)).map((one) => one?.["message_id"]), [first.id, last.id])
    assert.isEmpty(await heard(atBob))
    assert.isEmpty(await inbox(alice))
    assert.strictEqual((await history(alice, conversation_id))[0]?.id, last.id)
    await Promise.all([atAlice.close(), atBob.close()])
  })

  it("242. a system message has no outcome, and a message of an A2A task only working", async () => {
    const { alice, bob } = await newPair(server)
    const group = await groupOf(alice, bob)
    const joined = (await history(alice, group)).find(({ type }) => type === "system") ?? assert.fail("nobody joined")
    ;(await report(alice, joined.id, { outcome: "working" })).refused(400, "VALIDATION_ERROR")
    assert.notStrictEqual((await shown(alice, joined)).status, "read")
    assert.strictEqual((await markRead(alice, joined.id)).status, "read")

    const task = await begin(await connect(server, alice, bob, "JSONRPC"), "a task")
    for (const outcome of ["done", "refused"])
      (await report(bob, task.id, { outcome })).refused(400, "VALIDATION_ERROR")
    const working = await reported(bob, task.id, "working", "on it")
    assert.deepStrictEqual((await history(alice, task.contextId)).find(({ id }) => id === task.id)?.outcome, working)
  })

  it("243. a removal of the message removes the reasons, and an erasure of the recipient its outcomes", async () => {
    const operator = await Operating.program(server)
    const { alice, bob } = await newPair(server)
    const [removed, other] = [await say(alice, bob), await say(alice, bob)]
    const { at } = await reported(bob, removed.id, "working", "the unspeakable heliotrope")
    await reported(bob, other.id, "done", "stays")
    await operator.ok("POST", `/messages/${removed.id}/remove`, { reason: "a test" })
    for (const agent of [alice, bob])
      assert.deepStrictEqual((await shown(agent, removed)).outcome, { state: "working", reason: null, at })
    assert.deepInclude(await reported(bob, removed.id, "done", "a reason that is not stored"), {
      state: "done",
      reason: null
    })
    assert.lengthOf(await listed(alice, other.id), 1)
    await operator.ok("POST", `/agents/${bob.handle}/erase`, { confirm: bob.handle })
    for (const message of [removed, other]) {
      await eventually(
        "the end of the outcome",
        async () => (await listed(alice, message.id)).length === 0 || undefined
      )
      assert.notProperty(await shown(alice, message), "outcome")
    }
  })
})

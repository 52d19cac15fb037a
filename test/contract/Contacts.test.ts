import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatError, NotFoundError } from "agentchatme"
import type { Answer } from "../support/Http.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, contextOf, history, markRead, newPair, say } from "./Talk.ts"

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(() => assert.fail("it was accepted"), (error: unknown) => error)

describe("wire.md J, Contacts", () => {
  let server: Server

  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  const pair = (): Promise<[TestAgent, TestAgent]> => Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
  const add = (agent: TestAgent, handle: string, notes?: unknown): Promise<Answer> =>
    agent.http.post("/v1/contacts", notes === undefined ? { handle } : { handle, notes })
  const check = async (agent: TestAgent, handle: string): Promise<typeof Shapes.ContactCheck.Type> =>
    (await agent.http.get(`/v1/contacts/${handle}`)).ok(200, Shapes.ContactCheck)

  it("54. adding is 201, again 200 and unchanged; it is one-sided and nobody is told", async () => {
    const [alice, bob] = await pair()
    const socket = await Socket.hello(server, bob.key)
    const contact = (await add(alice, `@${bob.handle.toUpperCase()}`, "the one from the fair")).ok(201, Shapes.Contact)
    assert.deepInclude(contact, { handle: bob.handle, status: "active", notes: "the one from the fair" })
    assert.deepStrictEqual((await add(alice, bob.handle, "other")).ok(200, Shapes.Contact), contact)
    assert.isFalse((await check(bob, alice.handle)).is_contact)
    await say(bob, alice)
    await socket.settled()
    assert.deepStrictEqual(
      socket.frames.map(({ type }) => type).filter((type) =>
        type !== "hello.ok" && type !== "message.new" && type !== "pong"
      ),
      []
    )
    await socket.close()
    const [carol] = await pair()
    assert.deepInclude(await alice.client.addContact(carol.handle), { handle: carol.handle, notes: null })
  })

  it("55. adding oneself or no handle is refused with 400, an unknown or deleted handle with 404", async () => {
    const [alice, bob] = await pair()
    ;(await add(alice, alice.handle)).refused(400, "VALIDATION_ERROR")
    for (const body of [{}, { handle: 7 }, { handle: null }, { handle: bob.handle, notes: 7 }]) {
      ;(await alice.http.post("/v1/contacts", body)).refused(400, "VALIDATION_ERROR")
    }
    ;(await add(alice, bob.handle, "x".repeat(1_001))).refused(400, "VALIDATION_ERROR")
    ;(await alice.http.post("/v1/contacts")).refused(400, "VALIDATION_ERROR")
    ;(await add(alice, "nobody-here")).refused(404, "AGENT_NOT_FOUND")
    ;(await bob.http.delete(`/v1/agents/${bob.handle}`)).ok(200, Shapes.Confirmation)
    ;(await add(alice, bob.handle)).refused(404, "AGENT_NOT_FOUND")
    ;(await server.http().get("/v1/contacts")).refused(401, "UNAUTHORIZED")
    assert.instanceOf(await failure(alice.client.addContact("nobody-here")), NotFoundError)
  })

  it("56. the list is by handle with total and next_cursor, by offset and by cursor; deleted accounts are absent", async () => {
    const alice = await newAgent(server, "alice")
    const others = await Promise.all(Array.from({ length: 5 }, (_, i) => newAgent(server, `peer${i}`)))
    for (const other of others.toReversed()) (await add(alice, other.handle)).ok(201, Shapes.Contact)
    const handles = others.map(({ handle }) => handle).sort()
    const list = async (query: string): Promise<typeof Shapes.ContactPage.Type> =>
      (await alice.http.get(`/v1/contacts${query}`)).ok(200, Shapes.ContactPage)
    const whole = await list("")
    assert.deepInclude(whole, { total: 5, limit: 50, offset: 0, next_cursor: null })
    assert.deepStrictEqual(whole.contacts.map(({ handle }) => handle), handles)
    assert.strictEqual((await list("?limit=1000")).limit, 200)
    assert.deepStrictEqual((await list("?limit=2&offset=3")).contacts.map(({ handle }) => handle), handles.slice(3))
    const seen: Array<string> = []
    let cursor: string | null = ""
    while (cursor !== null) {
      const page = await list(`?limit=2${cursor === "" ? "" : `&cursor=${encodeURIComponent(cursor)}`}`)
      seen.push(...page.contacts.map(({ handle }) => handle))
      cursor = page.next_cursor
    }
    assert.deepStrictEqual(seen, handles)
    for (
      const query of [
        "limit=0",
        "limit=x",
        "offset=-1",
        "cursor=x",
        "cursor=e30",
        `offset=0&cursor=${(await list("?limit=1")).next_cursor}`
      ]
    ) {
      for (const path of ["/v1/contacts", "/v1/contacts/blocks"]) {
        ;(await alice.http.get(`${path}?${query}`)).refused(400, "VALIDATION_ERROR")
      }
    }
    const byClient: Array<string> = []
    for await (const contact of alice.client.contacts({ pageSize: 2 })) byClient.push(contact.handle)
    assert.deepStrictEqual(byClient, handles)
    const gone = others[2] ?? assert.fail()
    ;(await gone.http.delete(`/v1/agents/${gone.handle}`)).ok(200, Shapes.Confirmation)
    const left = await list("")
    assert.deepStrictEqual([left.total, left.contacts.length], [4, 4])
    assert.isFalse((await check(alice, gone.handle)).is_contact)
  })

  it("57. a look-up of an agent that is no contact, or of an unknown handle, is 200 with is_contact false", async () => {
    const [alice, bob] = await pair()
    const no = { is_contact: false, added_at: null, notes: null }
    assert.deepStrictEqual(await check(alice, bob.handle), { handle: bob.handle, ...no })
    assert.deepStrictEqual(await check(alice, "%40Nobody-Here"), { handle: "nobody-here", ...no })
    const { added_at } = (await add(alice, bob.handle, "n")).ok(201, Shapes.Contact)
    assert.deepStrictEqual(await check(alice, bob.handle), {
      handle: bob.handle,
      is_contact: true,
      added_at,
      notes: "n"
    })
    assert.deepInclude(await alice.client.checkContact(bob.handle), { is_contact: true })
  })

  it("58. notes are set and cleared, seen in the context too; 1001 characters are 400", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const path = `/v1/contacts/${bob.handle}`
    const long = "\u{1f98a}".repeat(1_000)
    ;(await alice.http.patch(path, { notes: long })).ok(200, Shapes.Confirmation)
    assert.strictEqual((await check(alice, bob.handle)).notes, long)
    assert.strictEqual((await contextOf(alice, conversation)).relationship.note, long)
    assert.isNull((await contextOf(bob, conversation)).relationship.note)
    for (const body of [{ notes: `${long}x` }, {}, { notes: 7 }, { notes: "\u0000" }]) {
      ;(await alice.http.patch(path, body)).refused(400, "VALIDATION_ERROR")
    }
    ;(await alice.http.patch(path, { notes: null })).ok(200, Shapes.Confirmation)
    assert.isNull((await check(alice, bob.handle)).notes)
    const outsider = await newAgent(server, "carol")
    ;(await alice.http.patch(`/v1/contacts/${outsider.handle}`, { notes: "x" })).refused(404, "NOT_FOUND")
    ;(await alice.http.patch("/v1/contacts/nobody-here", { notes: "x" })).refused(404, "AGENT_NOT_FOUND")
    await alice.client.updateContactNotes(bob.handle, "by the client")
    assert.strictEqual((await check(alice, bob.handle)).notes, "by the client")
  })

  it("59. removing is 200, again 404", async () => {
    const [alice, bob] = await pair()
    ;(await add(alice, bob.handle)).ok(201, Shapes.Contact)
    ;(await alice.http.delete(`/v1/contacts/${bob.handle}`)).ok(200, Shapes.Confirmation)
    ;(await alice.http.delete(`/v1/contacts/${bob.handle}`)).refused(404, "NOT_FOUND")
    ;(await alice.http.delete("/v1/contacts/nobody-here")).refused(404, "AGENT_NOT_FOUND")
    assert.instanceOf(await failure(alice.client.removeContact(bob.handle)), NotFoundError)
  })

  it("60. a block stops both directions with BLOCKED, established and new; typing and receipts stop with it", async () => {
    const { alice, bob, conversation, first } = await newPair(server)
    const socket = await Socket.hello(server, alice.key)
    const theirs = await Socket.hello(server, bob.key)
    const unread = await say(alice, bob)
    await theirs.message(unread.id)
    ;(await bob.http.post(`/v1/contacts/${alice.handle}/block`)).ok(200, Shapes.Confirmation)
    ;(await attempt(alice, bob)).refused(403, "BLOCKED")
    ;(await attempt(bob, alice)).refused(403, "BLOCKED")
    ;(await attempt(alice, bob, { client_msg_id: first.client_msg_id })).ok(200, Shapes.Message)
    theirs.send({ type: "typing.start", payload: { conversation_id: conversation } })
    socket.send({ type: "typing.start", payload: { conversation_id: conversation } })
    await markRead(bob, unread.id)
    await Promise.all([socket.settled(), theirs.settled()])
    // What came before a message from somebody else has come.
    const carol = await newAgent(server, "carol")
    await Promise.all([socket.message((await say(carol, alice)).id), theirs.message((await say(carol, bob)).id)])
    for (const one of [socket, theirs])
      assert.deepStrictEqual([one.count("typing.start"), one.count("message.read")], [0, 0])
    assert.strictEqual((await history(alice, conversation)).length, 3)
    await Promise.all([socket.close(), theirs.close()])

    const dave = await newAgent(server, "dave")
    ;(await dave.http.post(`/v1/contacts/${carol.handle}/block`)).ok(200, Shapes.Confirmation)
    ;(await attempt(carol, dave)).refused(403, "BLOCKED")
    ;(await attempt(dave, carol)).refused(403, "BLOCKED")
    assert.strictEqual(
      (await failure(carol.client.sendMessage({ to: dave.handle, content: { text: "hello there" } })) as AgentChatError)
        .code,
      "BLOCKED"
    )
  })

  it("61. blocking again changes nothing, unblocking twice is 404, and then it is as before", async () => {
    const { alice, bob } = await newPair(server)
    const path = `/v1/contacts/${bob.handle}/block`
    ;(await alice.http.post(path)).ok(200, Shapes.Confirmation)
    const blocks = async (): Promise<typeof Shapes.BlockPage.Type> =>
      (await alice.http.get("/v1/contacts/blocks")).ok(200, Shapes.BlockPage)
    const before = await blocks()
    assert.deepInclude(before, { total: 1, limit: 50, offset: 0, next_cursor: null })
    assert.deepInclude(before.blocks[0], { handle: bob.handle })
    ;(await alice.http.post(path)).ok(200, Shapes.Confirmation)
    await alice.client.blockAgent(bob.handle)
    assert.deepStrictEqual(await blocks(), before)
    ;(await bob.http.delete(`/v1/contacts/${alice.handle}/block`)).refused(404, "NOT_FOUND")
    ;(await alice.http.delete(path)).ok(200, Shapes.Confirmation)
    ;(await alice.http.delete(path)).refused(404, "NOT_FOUND")
    assert.instanceOf(await failure(alice.client.unblockAgent(bob.handle)), NotFoundError)
    assert.deepInclude(await blocks(), { blocks: [], total: 0 })
    assert.strictEqual((await say(bob, alice)).seq, 3)
    ;(await alice.http.post(`/v1/contacts/${alice.handle}/block`)).refused(400, "VALIDATION_ERROR")
    ;(await alice.http.post("/v1/contacts/nobody-here/block")).refused(404, "AGENT_NOT_FOUND")
    ;(await alice.http.delete("/v1/contacts/nobody-here/block")).refused(404, "AGENT_NOT_FOUND")
  })

  it("61. the list of blocks has only the own ones, newest first", async () => {
    const alice = await newAgent(server, "alice")
    const others = await Promise.all([1, 2, 3].map(() => newAgent(server, "peer")))
    for (const other of others)
      (await alice.http.post(`/v1/contacts/${other.handle}/block`)).ok(200, Shapes.Confirmation)
    const page = (await alice.http.get("/v1/contacts/blocks?limit=2")).ok(200, Shapes.BlockPage)
    const rest = (await alice.http.get(`/v1/contacts/blocks?limit=2&cursor=${page.next_cursor}`)).ok(
      200,
      Shapes.BlockPage
    )
    assert.deepStrictEqual([page.total, rest.total, rest.next_cursor], [3, 3, null])
    const found = [...page.blocks, ...rest.blocks]
    assert.sameMembers(found.map(({ handle }) => handle), others.map(({ handle }) => handle))
    const times = found.map(({ blocked_at }) => blocked_at)
    assert.deepStrictEqual(times, times.toSorted().toReversed())
    const blocked = others[0] ?? assert.fail()
    assert.strictEqual((await blocked.http.get("/v1/contacts/blocks")).ok(200, Shapes.BlockPage).total, 0)
  })

  it("62. a report blocks, with a reason, an empty object or no body; the second is ALREADY_REPORTED for ever", async () => {
    for (const body of [{ reason: "spam" }, {}, undefined]) {
      const [alice, bob] = await pair()
      const path = `/v1/contacts/${bob.handle}/report`
      ;(await alice.http.post(path, body)).ok(200, Shapes.Confirmation)
      ;(await attempt(bob, alice)).refused(403, "BLOCKED")
      ;(await alice.http.post(path, body)).refused(409, "ALREADY_REPORTED")
      ;(await alice.http.delete(`/v1/contacts/${bob.handle}/block`)).ok(200, Shapes.Confirmation)
      ;(await alice.http.post(path, body)).refused(409, "ALREADY_REPORTED")
      await say(bob, alice)
    }
    const [alice, bob] = await pair()
    const path = `/v1/contacts/${bob.handle}/report`
    for (const body of [{ reason: "x".repeat(1_001) }, { reason: 7 }]) {
      ;(await alice.http.post(path, body)).refused(400, "VALIDATION_ERROR")
    }
    ;(await alice.http.post(`/v1/contacts/${alice.handle}/report`)).refused(400, "VALIDATION_ERROR")
    ;(await alice.http.post("/v1/contacts/nobody-here/report")).refused(404, "AGENT_NOT_FOUND")
    await say(bob, alice)
    await alice.client.reportAgent(bob.handle)
    assert.deepInclude(await failure(alice.client.reportAgent(bob.handle, "again")), {
      code: "ALREADY_REPORTED",
      status: 409
    })
  })

  it("63. a contact survives block and unblock", async () => {
    const [alice, bob] = await pair()
    const contact = (await add(alice, bob.handle, "kept")).ok(201, Shapes.Contact)
    await alice.client.blockAgent(bob.handle)
    assert.deepStrictEqual((await add(alice, bob.handle)).ok(200, Shapes.Contact), contact)
    await alice.client.unblockAgent(bob.handle)
    assert.deepInclude(await check(alice, bob.handle), { is_contact: true, notes: "kept", added_at: contact.added_at })
  })

  it("73. a reply establishes, direct_state changes, and both are contacts", async () => {
    const [alice, bob] = await pair()
    const { conversation_id } = await say(alice, bob)
    assert.deepInclude((await contextOf(alice, conversation_id)).direct_state, {
      state: "cold",
      initiated_by_self: true
    })
    assert.deepInclude((await contextOf(bob, conversation_id)).direct_state, {
      state: "cold",
      initiated_by_self: false
    })
    for (const [one, other] of [[alice, bob], [bob, alice]] as const) {
      assert.isFalse((await check(one, other.handle)).is_contact)
    }
    await say(bob, alice)
    for (const [one, other] of [[alice, bob], [bob, alice]] as const) {
      const context = await contextOf(one, conversation_id)
      assert.strictEqual(context.direct_state.state, "established")
      const { added_at, is_contact } = await check(one, other.handle)
      assert.isTrue(is_contact)
      assert.deepStrictEqual(context.relationship, { is_contact: true, added_at, note: null })
    } // Whoever is removed afterwards stays so, however much is written.

    ;(await alice.http.delete(`/v1/contacts/${bob.handle}`)).ok(200, Shapes.Confirmation)
    for (const [one, other] of [[alice, bob], [bob, alice]] as const) await say(one, other)
    assert.isFalse((await check(alice, bob.handle)).is_contact)
    assert.isTrue((await check(bob, alice.handle)).is_contact)
  })

  it("G.16: lists and look-ups each have a budget of their own", async () => {
    const alice = await newAgent(server, "alice")
    for (const path of ["/v1/contacts", "/v1/contacts/nobody-here"]) {
      for (let i = 0; i < 30; i++) assert.strictEqual((await alice.http.get(path)).status, 200)
      const refused = await alice.http.get(path)
      assert.deepInclude(refused.refused(429, "RATE_LIMITED").details, { limit: 30, window: "minute" })
      assert.isAtLeast(Number(refused.header("retry-after")), 1)
    }
  })
})

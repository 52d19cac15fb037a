import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { eventually } from "../support/Eventually.ts"
import type { Answer } from "../support/Http.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { conversationsOf, idsOf, inbox, newPair, say } from "./Talk.ts"

const mutesOf = async (agent: TestAgent, query = ""): Promise<typeof Shapes.MutePage.Type> =>
  (await agent.http.get(`/v1/mutes${query}`)).ok(200, Shapes.MutePage)

const muteAgent = (agent: TestAgent, target: string, until?: string | null): Promise<Answer> =>
  agent.http.post("/v1/mutes", {
    target_kind: "agent",
    target_handle: target,
    ...(until === undefined ? {} : { muted_until: until })
  })

const muteConversation = (agent: TestAgent, id: string): Promise<Answer> =>
  agent.http.post("/v1/mutes", { target_kind: "conversation", target_id: id })

const inSeconds = (seconds: number): string => new Date(Date.now() + seconds * 1_000).toISOString()

describe("wire.md J, mutes", () => {
  let server: Server
  let stranger: TestAgent

  beforeAll(async () => {
    server = await sharedServer()
    stranger = await newAgent(server, "stranger")
  })
  afterAll(() => server.stop())

  it("122. a muted message is not pushed, neither live nor on connect; sync, history and unread have it", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const socket = await Socket.hello(server, bob.key)
    const mute = (await muteAgent(bob, `@${alice.handle.toUpperCase()}`)).ok(201, Shapes.Mute)
    assert.deepStrictEqual({ ...mute, created_at: "" }, {
      muter_agent_id: bob.id,
      target_kind: "agent",
      target_id: alice.id,
      target_handle: alice.handle,
      muted_until: null,
      created_at: ""
    })
    const muted = [await say(alice, bob), await say(alice, bob)] as const
    const dave = await newAgent(server, "dave")
    const marker = await say(dave, bob)
    await socket.message(marker.id)
    assert.deepStrictEqual(socket.pushed(), [marker.id], "what is not muted goes out past what is")
    assert.deepStrictEqual(idsOf(await inbox(bob)), idsOf([...muted, marker]))
    const listed = (await conversationsOf(bob)).find((row) => row.id === conversation)
    assert.deepInclude(listed, { is_muted: true, unread_count: 3, oldest_unread_seq: 1, newest_unread_seq: 4 })
    assert.strictEqual((await conversationsOf(alice))[0]?.is_muted, false, "the sender is not told")

    const second = await Socket.hello(server, bob.key)
    await second.message(marker.id)
    assert.deepStrictEqual(second.pushed(), [marker.id])
    ;(await bob.http.delete(`/v1/mutes/agent/${alice.handle}`)).ok(200, Shapes.Confirmation)
    const live = await say(alice, bob)
    await Promise.all([socket.message(live.id), second.message(live.id)])
    assert.deepStrictEqual(
      socket.pushed(),
      [marker.id, live.id],
      "what came while it stood is in sync, not pushed afterwards"
    )
    const third = await Socket.hello(server, bob.key)
    await third.message(live.id)
    assert.deepStrictEqual(third.pushed(), idsOf([...muted, marker, live]), "and in the next backlog")
    assert.isFalse((await conversationsOf(bob)).find((row) => row.id === conversation)?.is_muted)
    for (const one of [socket, second, third]) await one.close()
  })

  it("122. a muted conversation is silent in both modes, its typing too; receipts and other conversations are not", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const [mine, legacy] = [await Socket.hello(server, bob.key), await Socket.hello(server, bob.key, [])]
    const theirs = await Socket.hello(server, alice.key)
    const mute = (await muteConversation(bob, conversation)).ok(201, Shapes.Mute)
    assert.deepStrictEqual([mute.target_kind, mute.target_id, mute.target_handle], ["conversation", conversation, null])
    const own = await say(bob, alice)
    await theirs.message(own.id)
    theirs.send({ type: "typing.start", payload: { conversation_id: conversation } })
    theirs.send({ type: "message.read_ack", payload: { conversation_id: conversation, through_seq: own.seq } })
    const muted = await say(alice, bob)
    const dave = await newAgent(server, "dave")
    const marker = await say(dave, bob)
    for (const socket of [mine, legacy]) {
      await socket.message(marker.id)
      await socket.waitFor("message.read")
      assert.notInclude(socket.pushed(), muted.id)
      assert.strictEqual(socket.count("typing.start"), 0)
    }
    await legacy.settled()
    assert.include(idsOf(await inbox(bob)), muted.id, "not shown is not delivered")
    for (const socket of [mine, legacy, theirs]) await socket.close()
  })

  it("123. a muted_until that has passed or is no date is 400", async () => {
    const { alice, bob } = await newPair(server)
    const dave = await newAgent(server, "dave")
    for (
      const until of [
        "2020-01-01T00:00:00Z",
        inSeconds(-1),
        "tomorrow",
        "",
        "2031-02-30T00:00:00Z",
        "2031-01-01T00:00:00",
        "2031-01-01T24:00:00Z",
        7,
        {}
      ]
    ) {
      const body = { target_kind: "agent", target_handle: alice.handle, muted_until: until }
      ;(await dave.http.post("/v1/mutes", body)).refused(400, "VALIDATION_ERROR")
    }
    assert.deepStrictEqual((await mutesOf(dave)).mutes, [])
    const mute = (await muteAgent(bob, alice.handle, "2131-02-28T01:30:00+01:00")).ok(201, Shapes.Mute)
    assert.strictEqual(mute.muted_until, "2131-02-28T00:30:00.000Z")
  })

  it("123. an expired mute is not listed and pushes again", async () => {
    const { alice, bob } = await newPair(server)
    const socket = await Socket.hello(server, bob.key)
    ;(await muteAgent(bob, alice.handle, inSeconds(600))).ok(201, Shapes.Mute)
    const muted = await say(alice, bob)
    assert.strictEqual((await mutesOf(bob)).total, 1)
    // The same mute ends soon. On a busy machine the second may be over before the server reads the request.
    await eventually(
      "a short mute",
      async () => (await muteAgent(bob, alice.handle, inSeconds(1))).status === 201 || undefined
    )
    await eventually("the end of the mute", async () => (await mutesOf(bob)).mutes.length === 0 || undefined)
    const live = await say(alice, bob)
    await socket.message(live.id)
    assert.deepStrictEqual(socket.pushed(), [live.id])
    assert.deepStrictEqual(idsOf(await inbox(bob)), idsOf([muted, live]))
    assert.deepStrictEqual(await mutesOf(bob), { mutes: [], total: 0, limit: 200, offset: 0, next_cursor: null })
    ;(await bob.http.get(`/v1/mutes/agent/${alice.handle}`)).refused(404, "NOT_FOUND")
    assert.isFalse((await conversationsOf(bob))[0]?.is_muted)
    await socket.close()
  })

  it("124. the status of an agent that is not muted is 404, a second unmute is 404, muting oneself is SELF_MUTE", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const paths = [`/v1/mutes/agent/${alice.handle}`, `/v1/mutes/conversation/${conversation}`]
    for (const path of [...paths, "/v1/mutes/agent/nobody-here", "/v1/mutes/conversation/conv_AAAAAAAAAAAAAAAA"]) {
      ;(await bob.http.get(path)).refused(404, "NOT_FOUND")
      ;(await bob.http.delete(path)).refused(404, "NOT_FOUND")
    }
    const made = [
      (await muteAgent(bob, alice.handle)).ok(201, Shapes.Mute),
      (await muteConversation(bob, conversation)).ok(201, Shapes.Mute)
    ]
    for (const [i, path] of paths.entries()) {
      assert.deepStrictEqual((await bob.http.get(path)).ok(200, Shapes.Mute), made[i])
      ;(await alice.http.get(path)).refused(404, "NOT_FOUND")
      ;(await bob.http.delete(path)).ok(200, Shapes.Confirmation)
      ;(await bob.http.delete(path)).refused(404, "NOT_FOUND")
    }
    ;(await muteAgent(alice, alice.handle)).refused(400, "SELF_MUTE")
    ;(await alice.http.post("/v1/mutes", { target_kind: "agent", target_id: alice.id })).refused(400, "SELF_MUTE")
  })

  it("C.10: a mute of an unknown target is refused", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const outsider = await newAgent(server, "outsider")
    const post = (body: unknown) => outsider.http.post("/v1/mutes", body)
    ;(await post({ target_kind: "agent", target_handle: "nobody-here" })).refused(404, "AGENT_NOT_FOUND")
    ;(await post({ target_kind: "agent", target_id: "agt_AAAAAAAAAAAAAAAA" })).refused(404, "AGENT_NOT_FOUND")
    const foreign = (await post({ target_kind: "conversation", target_id: conversation })).refused(
      404,
      "CONVERSATION_NOT_FOUND"
    )
    const unknown = (await post({ target_kind: "conversation", target_id: "conv_AAAAAAAAAAAAAAAA" }))
      .refused(404, "CONVERSATION_NOT_FOUND")
    assert.deepStrictEqual(foreign, unknown)
    for (const body of [{}, { target_kind: "group", target_id: conversation }, { target_kind: "agent" }]) {
      ;(await post(body)).refused(400, "VALIDATION_ERROR")
    }
    const invalid = await newAgent(server, "invalid")
    ;(await invalid.http.post("/v1/mutes", { target_kind: "conversation" })).refused(400, "VALIDATION_ERROR")
    ;(await invalid.http.post("/v1/mutes", { target_kind: "conversation", target_id: "\0" })).refused(
      400,
      "VALIDATION_ERROR"
    )
    ;(await invalid.http.get("/v1/mutes?kind=group")).refused(400, "VALIDATION_ERROR")
    ;(await server.http().get("/v1/mutes")).refused(401, "UNAUTHORIZED")
    ;(await muteAgent(bob, alice.handle)).ok(201, Shapes.Mute)
    ;(await alice.http.delete(`/v1/agents/${alice.handle}`)).ok(200, Shapes.Confirmation)
    assert.strictEqual((await mutesOf(bob)).total, 0, "a deleted agent is muted by nobody")
  })

  it("C.10: the list is newest first, and the published client reads and writes it", async () => {
    const { alice, bob, conversation } = await newPair(server)
    await bob.client.muteAgent(alice.handle)
    await bob.client.muteAgent(`@${stranger.handle}`, { mutedUntil: inSeconds(60) })
    await bob.client.muteConversation(conversation)
    const all = await mutesOf(bob)
    assert.deepStrictEqual(all.mutes.map((mute) => mute.target_id), [conversation, stranger.id, alice.id])
    assert.deepStrictEqual(
      await bob.client.listMutes({ kind: "agent" }).then(({ mutes }) => mutes.map((mute) => mute.target_id)),
      [
        stranger.id,
        alice.id
      ]
    )
    const page = await mutesOf(bob, "?limit=2")
    const rest = await mutesOf(bob, `?limit=500&cursor=${page.next_cursor}`)
    assert.deepStrictEqual([...page.mutes, ...rest.mutes], all.mutes)
    assert.deepStrictEqual([rest.limit, rest.next_cursor, rest.total], [200, null, 3])
    ;(await bob.http.get("/v1/mutes?offset=1&cursor=x")).refused(400, "VALIDATION_ERROR")
    ;(await bob.http.get("/v1/mutes?cursor=garbage")).refused(400, "VALIDATION_ERROR")
    assert.strictEqual((await bob.client.getAgentMuteStatus(stranger.handle))?.muted_until, all.mutes[1]?.muted_until)
    await bob.client.unmuteConversation(conversation)
    assert.isNull(await bob.client.getConversationMuteStatus(conversation))
  })
})

import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { NotFoundError } from "agentchatme"
import type { Answer } from "../support/Http.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { catchUp, contextOf, conversationsOf, history, idsOf, inbox, markRead, newPair, say, seqsOf } from "./Talk.ts"

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(() => assert.fail("it was accepted"), (error: unknown) => error)

describe("wire.md J, Conversations", () => {
  let server: Server
  let outsider: TestAgent

  beforeAll(async () => {
    server = await sharedServer()
    outsider = await newAgent(server, "carol")
  })
  afterAll(() => server.stop())

  /** An agent that wrote to five others, one after the other. */
  const newHub = async () => {
    const hub = await newAgent(server, "hub")
    const peers = await Promise.all(Array.from({ length: 5 }, () => newAgent(server, "peer")))
    const ids: Array<string> = []
    for (const peer of peers) ids.unshift((await say(hub, peer)).conversation_id)
    return { hub, ids, peers: peers.toReversed() }
  }

  it("98. the client's header makes an array, a plain call an object, offset an array, cursor an object", async () => {
    const { hub, ids } = await newHub()
    const ask = (query: string, headers: Record<string, string> = {}): Promise<Answer> =>
      hub.http.get(`/v1/conversations${query}`, headers)
    const client = { "x-agentchat-client": "typescript_sdk" }
    const cursor = (await ask("?limit=2")).ok(200, Shapes.ConversationPage).next_cursor ?? assert.fail("no cursor")
    const next = `cursor=${encodeURIComponent(cursor)}`

    const arrays: ReadonlyArray<readonly [Answer, ReadonlyArray<string>, boolean]> = [
      [await ask("", client), ids, false],
      [await ask("", { "x-agentchat-client": "anything" }), ids, false],
      [await ask("", { "user-agent": "agentchat-ts/0.9.0 node/20" }), ids, false],
      [await ask("", { "user-agent": "agentchatme-py/1.0" }), ids, false],
      [await ask("?limit=2", client), ids.slice(0, 2), true],
      [await ask("?offset=0"), ids, false],
      [await ask("?offset=0&limit=2"), ids.slice(0, 2), true],
      [await ask("?offset=3&limit=2"), ids.slice(3), false],
      [await ask("?offset=4&limit=2", client), ids.slice(4), false],
      [await ask("?offset=5"), [], false],
      [await ask("?offset=1000", client), [], false]
    ]
    for (const [answer, expected, more] of arrays) {
      assert.deepStrictEqual(idsOf(answer.ok(200, Shapes.Conversations)), expected, `${answer}`)
      assert.strictEqual(answer.header("x-total-count"), "5")
      assert.strictEqual(answer.header("x-next-cursor") !== null, more, `X-Next-Cursor of ${answer.request}`)
    }

    const objects: ReadonlyArray<readonly [Answer, ReadonlyArray<string>, boolean]> = [
      [await ask(""), ids, false],
      [await ask("", { "x-agentchat-client": "" }), ids, false],
      [await ask("", { "user-agent": "curl/8 agentchat-ts/1" }), ids, false],
      [await ask("?limit=2"), ids.slice(0, 2), true],
      [await ask(`?limit=2&${next}`), ids.slice(2, 4), true],
      [await ask(`?limit=2&${next}`, client), ids.slice(2, 4), true],
      [await ask(`?${next}`, { "user-agent": "agentchat-ts/1" }), ids.slice(2), false]
    ]
    for (const [answer, expected, more] of objects) {
      const page = answer.ok(200, Shapes.ConversationPage)
      assert.deepStrictEqual(idsOf(page.conversations), expected, `${answer}`)
      assert.strictEqual(page.total, 5)
      assert.strictEqual(page.next_cursor !== null, more)
      assert.strictEqual(answer.header("x-next-cursor"), page.next_cursor)
    }
    for (const [answer] of [...arrays, ...objects]) {
      const vary = (answer.header("vary") ?? "").toLowerCase().split(",").map((name) => name.trim())
      assert.includeMembers(vary, ["x-agentchat-client", "user-agent"])
    }
  })

  it("98. an array's X-Next-Cursor goes on where the array ended", async () => {
    const { hub, ids } = await newHub()
    const first = await hub.http.get("/v1/conversations?offset=1&limit=2")
    const cursor = encodeURIComponent(first.header("x-next-cursor") ?? "")
    const page = (await hub.http.get(`/v1/conversations?cursor=${cursor}`)).ok(200, Shapes.ConversationPage)
    assert.deepStrictEqual(idsOf(page.conversations), ids.slice(3))
  })

  it("98. pages by cursor repeat nothing while activity reorders the list, and miss nothing that stayed", async () => {
    const { hub, ids, peers } = await newHub()
    const [shown, , moved, stayed, last] = peers as [TestAgent, TestAgent, TestAgent, TestAgent, TestAgent]
    const seen: Array<string> = []
    let cursor: string | null = null
    // Before the second page: what was shown, what was not and what is new come to the top; before the third, the very
    // last.
    for (const comes of [[], [shown, moved, await newAgent(server, "new")], [last, shown], []]) {
      for (const peer of comes) await say(peer, hub)
      const query: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`
      const page = (await hub.http.get(`/v1/conversations?limit=1${query}`)).ok(200, Shapes.ConversationPage)
      seen.push(...idsOf(page.conversations))
      cursor = page.next_cursor
      if (cursor === null) break
    }
    assert.isNull(cursor)
    assert.deepStrictEqual(
      seen,
      [ids[0], ids[1], ids[3]],
      `${stayed.handle} stayed, ${moved.handle} and ${last.handle} moved up`
    )
    const afresh = (await hub.http.get("/v1/conversations")).ok(200, Shapes.ConversationPage)
    assert.deepStrictEqual([afresh.total, new Set(idsOf(afresh.conversations)).size], [6, 6])
  })

  it("98. the published client pages by limit and offset", async () => {
    const { hub, ids } = await newHub()
    assert.deepStrictEqual(idsOf(await hub.client.listConversations()), ids)
    assert.deepStrictEqual(idsOf(await hub.client.listConversations({ limit: 2 })), ids.slice(0, 2))
    assert.deepStrictEqual(idsOf(await hub.client.listConversations({ limit: 2, offset: 2 })), ids.slice(2, 4))
    assert.deepStrictEqual(idsOf(await hub.client.listConversations({ limit: 2, offset: 4 })), ids.slice(4))
  })

  it("98. the conversation with the newest activity comes first; each shows its counterparty and last message", async () => {
    const { alice, bob, conversation } = await newPair(server)
    await bob.http.patch(`/v1/agents/${bob.handle}`, { display_name: "Bob" })
    const elsewhere = await say(alice, await newAgent(server, "dave"))
    assert.deepStrictEqual(idsOf(await conversationsOf(alice)), [elsewhere.conversation_id, conversation])
    const last = await say(bob, alice, { content: { text: "  white \n\n space\t " } })
    const [top] = await conversationsOf(alice)
    assert.deepStrictEqual(top, {
      id: conversation,
      type: "direct",
      participants: [{ handle: bob.handle, display_name: "Bob", avatar_url: null }],
      group_name: null,
      group_avatar_url: null,
      group_member_count: null,
      last_message_preview: "white space",
      last_message_is_own: false,
      last_message_type: "text",
      last_message_at: last.created_at,
      updated_at: top?.updated_at ?? "",
      unread_count: 2,
      oldest_unread_seq: 2,
      newest_unread_seq: 3,
      is_muted: false
    })
    const own = await say(alice, bob, { content: { text: "\u{1f98a}".repeat(300) } })
    const next = (await conversationsOf(alice))[0] ?? assert.fail("no conversation")
    // At most 140 characters, whatever marks the cut.
    assert.match(next.last_message_preview ?? "", /^\u{1f98a}{130,140}/u)
    assert.isAtMost([...next.last_message_preview ?? ""].length, 140)
    assert.deepInclude(next, {
      last_message_is_own: true,
      last_message_at: own.created_at,
      unread_count: 2
    })
    await say(alice, bob, { type: "structured", content: { data: { secret: "in the data" } } })
    const labelled = (await conversationsOf(alice))[0] ?? assert.fail("no conversation")
    assert.strictEqual(labelled.last_message_type, "structured")
    assert.notInclude(labelled.last_message_preview ?? "", "in the data")
    assert.deepStrictEqual(await conversationsOf(outsider), [])
  })

  it("99. the unread fields are those of the envelopes, in the list and in the context", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const check = async (count: number, oldest: number | null, newest: number | null) => {
      assert.deepInclude((await conversationsOf(bob))[0], {
        unread_count: count,
        oldest_unread_seq: oldest,
        newest_unread_seq: newest
      })
      assert.deepStrictEqual((await contextOf(bob, conversation)).unread, {
        count,
        oldest_seq: oldest,
        newest_seq: newest
      })
    }
    // Delivered is not read.
    await check(1, 1, 1)
    const sent: Array<Shapes.Message> = []
    for (let i = 0; i < 4; i++) sent.push(await say(alice, bob))
    await check(5, 1, 6)
    await catchUp(bob)
    await check(5, 1, 6)
    // Own messages never count.
    await say(bob, alice)
    await check(5, 1, 6)
    await markRead(bob, sent[1]?.id ?? "")
    await check(4, 1, 6)
    await markRead(bob, sent[3]?.id ?? "")
    await check(3, 1, 5)
    ;(await bob.http.delete(`/v1/messages/${sent[2]?.id}`)).ok(200, Shapes.Confirmation)
    await check(2, 1, 3)
    const socket = await Socket.hello(server, bob.key)
    socket.send({ type: "message.read_ack", payload: { conversation_id: conversation, through_seq: 6 } })
    // Comes while the one before is looked at, and takes nothing back.
    socket.send({ type: "message.read_ack", payload: { conversation_id: conversation, message_id: sent[0]?.id ?? "" } })
    await socket.settled()
    await socket.close()
    await check(0, null, null)
    assert.deepInclude((await conversationsOf(alice))[0], {
      unread_count: 2,
      oldest_unread_seq: 2,
      newest_unread_seq: 7
    })
  })

  it("100. a hidden conversation disappears, returns on a new message, and older messages stay hidden", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const third = await say(alice, bob, { content: { text: "the third message" } })
    assert.deepStrictEqual(idsOf(await inbox(bob)), [third.id])
    ;(await bob.http.delete(`/v1/conversations/${conversation}`)).ok(200, Shapes.Hidden)
    assert.deepStrictEqual(await conversationsOf(bob), [])
    assert.strictEqual((await bob.http.get("/v1/conversations")).header("x-total-count"), "0")
    assert.deepStrictEqual(await history(bob, conversation), [])
    assert.deepStrictEqual(await history(bob, conversation, "?after_seq=0"), [])
    assert.deepStrictEqual(await inbox(bob), [])
    assert.deepStrictEqual((await contextOf(bob, conversation)).unread, {
      count: 0,
      oldest_seq: null,
      newest_seq: null
    })

    // The other side keeps all of it; what was waiting counts as delivered.
    const theirs = await history(alice, conversation)
    assert.deepStrictEqual(theirs.map((row) => [row.seq, row.status]), [[3, "delivered"], [2, "delivered"], [
      1,
      "delivered"
    ]])
    assert.deepInclude((await conversationsOf(alice))[0], {
      id: conversation,
      last_message_preview: "the third message"
    })

    const fourth = await say(alice, bob, { content: { text: "the fourth message" } })
    assert.strictEqual(fourth.seq, 4)
    assert.deepInclude((await conversationsOf(bob))[0], {
      id: conversation,
      last_message_preview: "the fourth message",
      unread_count: 1,
      oldest_unread_seq: 4,
      newest_unread_seq: 4
    })
    assert.deepStrictEqual(seqsOf(await history(bob, conversation)), [4])
    assert.deepStrictEqual(seqsOf(await history(bob, conversation, "?before_seq=4")), [])
    assert.deepStrictEqual(seqsOf(await history(bob, conversation, "?after_seq=0")), [4])
    ;(await bob.http.get(`/v1/messages/${conversation}?around_message_id=${third.id}`)).refused(
      404,
      "MESSAGE_NOT_FOUND"
    )
    assert.deepStrictEqual(idsOf(await inbox(bob)), [fourth.id]) // Once more, and an own message brings it back too.
    ;(await bob.http.delete(`/v1/conversations/${conversation}`)).ok(200, Shapes.Hidden)
    ;(await bob.http.delete(`/v1/conversations/${conversation}`)).ok(200, Shapes.Hidden)
    assert.deepStrictEqual(await conversationsOf(bob), [])
    await say(bob, alice, { content: { text: "the fifth message" } })
    assert.deepInclude((await conversationsOf(bob))[0], {
      id: conversation,
      last_message_preview: "the fifth message",
      last_message_is_own: true,
      unread_count: 0
    })
    assert.deepStrictEqual(seqsOf(await history(bob, conversation)), [5])
    assert.deepStrictEqual(seqsOf(await history(alice, conversation)), [5, 4, 3, 2, 1])
    // Hiding is no goodbye: the conversation is still established.
    assert.strictEqual((await contextOf(alice, conversation)).direct_state.state, "established")
  })

  it("100. hiding is for oneself alone, pushes nothing, and works with the published client", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const [mine, theirs] = [await Socket.hello(server, bob.key), await Socket.hello(server, alice.key)]
    assert.deepInclude(await bob.client.hideConversation(conversation), { ok: true })
    const marker = await say(alice, bob)
    await Promise.all([mine.message(marker.id), theirs.message(marker.id)])
    for (const socket of [mine, theirs]) {
      // Each of the two is the other's contact, so they may hear that the other is there.
      const told = socket.frames.map((frame) => frame.type).filter((type) => type !== "presence.update")
      assert.deepStrictEqual(told, ["hello.ok", "message.new"])
      await socket.close()
    }
  })

  it("100. hiding is the same 404 for an outsider and for an unknown id", async () => {
    const { conversation, first } = await newPair(server)
    const theirs = (await outsider.http.delete(`/v1/conversations/${conversation}`)).refused(
      404,
      "CONVERSATION_NOT_FOUND"
    )
    for (const id of ["conv_AAAAAAAAAAAAAAAA", "grp_AAAAAAAAAAAAAAAA", "nonsense", first.id]) {
      assert.deepStrictEqual(
        (await outsider.http.delete(`/v1/conversations/${id}`)).refused(404, "CONVERSATION_NOT_FOUND"),
        theirs
      )
    }
  })

  it("101. a context has exactly the seven keys and what the seed puts into them", async () => {
    const { alice, bob, conversation, reply } = await newPair(server)
    await bob.http.patch(`/v1/agents/${bob.handle}`, { display_name: "Bob" })
    const answer = await alice.http.get(`/v1/conversations/${conversation}/context`)
    const context = answer.ok(200, Shapes.DirectContext)
    assert.deepStrictEqual(context, {
      conversation_id: conversation,
      type: "direct",
      group: null,
      counterparty: { handle: bob.handle, display_name: "Bob", avatar_url: null },
      relationship: { is_contact: true, added_at: context.relationship.added_at, note: null },
      direct_state: { state: "established", initiated_by_self: true, last_message_at: reply.created_at },
      unread: { count: 1, oldest_seq: 2, newest_seq: 2 }
    })
    assert.deepStrictEqual(await alice.client.getConversationContext(conversation) as unknown, context)
  })

  it("101. an outsider gets the same 404 as for an unknown id", async () => {
    const { conversation } = await newPair(server)
    const theirs = (await outsider.http.get(`/v1/conversations/${conversation}/context`)).refused(
      404,
      "CONVERSATION_NOT_FOUND"
    )
    for (const id of ["conv_AAAAAAAAAAAAAAAA", "grp_AAAAAAAAAAAAAAAA", "nonsense"]) {
      const unknown = (await outsider.http.get(`/v1/conversations/${id}/context`)).refused(
        404,
        "CONVERSATION_NOT_FOUND"
      )
      assert.deepStrictEqual(unknown, theirs)
    }
    assert.instanceOf(await failure(outsider.client.getConversationContext(conversation)), NotFoundError)
  })

  it("102. the participants of a direct conversation are the one other side", async () => {
    const { alice, bob, conversation } = await newPair(server)
    await alice.http.patch(`/v1/agents/${alice.handle}`, { display_name: "Alice" })
    const seen = async (agent: TestAgent) =>
      (await agent.http.get(`/v1/conversations/${conversation}/participants`)).ok(200, Shapes.Participants)
    const shown = [{ handle: alice.handle, display_name: "Alice", avatar_url: null }]
    assert.deepStrictEqual(await seen(bob), shown)
    assert.deepStrictEqual(await seen(alice), [{ handle: bob.handle, display_name: bob.handle, avatar_url: null }])
    assert.deepStrictEqual(await bob.client.getConversationParticipants(conversation) as unknown, shown)
  })

  it("102. participants are the same 404 for an outsider and for an unknown id", async () => {
    const { conversation } = await newPair(server)
    const path = (id: string) => `/v1/conversations/${id}/participants`
    const theirs = (await outsider.http.get(path(conversation))).refused(404, "CONVERSATION_NOT_FOUND")
    for (const id of ["conv_AAAAAAAAAAAAAAAA", "grp_AAAAAAAAAAAAAAAA", "nonsense"]) {
      assert.deepStrictEqual((await outsider.http.get(path(id))).refused(404, "CONVERSATION_NOT_FOUND"), theirs)
    }
  })
})

import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AwaitingReplyError, ForbiddenError, type MessageType, NotFoundError, ValidationError } from "agentchatme"
import type { Answer } from "../support/Http.ts"
import { Moment } from "../support/Moment.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import {
  attempt,
  catchUp,
  contextOf,
  conversationsOf,
  freshMsgId,
  history,
  idsOf,
  inbox,
  newPair,
  say,
  seqsOf,
  words
} from "./Talk.ts"

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(() => assert.fail("it was accepted"), (error: unknown) => error)

describe("wire.md J, Sending", () => {
  let server: Server

  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  it("64. a first send is 201 with every field of a Message, seq 1, stored", async () => {
    const moment = new Moment()
    const [alice, bob] = await Promise.all([
      newAgent(server, "alice", { display_name: "Alice" }),
      newAgent(server, "bob")
    ])
    const client_msg_id = freshMsgId()
    const text = words()
    const answer = await alice.http.post("/v1/messages", { to: bob.handle, client_msg_id, content: { text } })
    const message = answer.ok(201, Shapes.Message)
    assert.deepInclude(message, {
      sender: alice.handle,
      client_msg_id,
      seq: 1,
      type: "text",
      content: { text },
      metadata: {},
      status: "stored",
      delivered_at: null,
      read_at: null,
      delivery_id: null
    })
    assert.match(message.conversation_id, /^conv_/)
    moment.has(message.created_at)
    assert.isNull(answer.header("x-backlog-warning"))
    const rows: ReadonlyArray<Shapes.Message> = await inbox(bob)
    assert.deepStrictEqual(rows.map((row) => ({ ...row, delivery_id: null })), [message])
  })

  it("64. every type, data and metadata come back as they were sent", async () => {
    const { alice, bob } = await newPair(server)
    const data = {
      "": 0,
      n: -1.5e-7,
      big: [Number.MAX_SAFE_INTEGER, 1e300],
      list: [1, [2, [null, true]], {}],
      "\u00fcml\u00e4ut \u{1f98a}": '\u2028 " \\ / \u0001 \u{1f98a}',
      constructor: 1,
      nested: { a: { b: { c: [] } } }
    }
    const metadata = { trace: "x", tags: ["a", "b"], "": null, deep: { k: 1 } }
    for (const type of ["text", "structured", "file"] as const) {
      const message = await say(alice, bob, { type, content: { text: "both", data }, metadata })
      assert.deepInclude(message, { type, content: { text: "both", data }, metadata })
      const stored = (await history(bob, message.conversation_id, "?limit=1"))[0]
      assert.deepInclude(stored, { type, content: { text: "both", data }, metadata })
    }
    const own = JSON.parse(`{"__proto__":{"admin":true},"a":1}`) as object
    const answer = await attempt(alice, bob, { content: { data: own } })
    assert.include(answer.text, `"__proto__":{"admin":true}`)
    for (
      const text of [
        "  leading and trailing  ",
        "line\nbreak\ttab\u0007",
        "\u{1f98a}".repeat(100),
        "e\u0301 stays as it is"
      ]
    ) {
      assert.strictEqual((await say(alice, bob, { content: { text } })).content.text, text)
    }
  })

  it("220. a number that a double would change is refused with its path, and nothing is sent", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const before = await history(bob, conversation)
    const send = (content: string, more = "") =>
      alice.http.request("POST", "/v1/messages", {
        raw: `{"to":"${bob.handle}","client_msg_id":"${freshMsgId()}","content":${content}${more}}`
      })
    const cases: ReadonlyArray<readonly [path: string, answer: Answer]> = [
      ["content.data.id", await send(`{"data":{"id":9007199254740993,"tiny":1e-400}}`)],
      ["content.data.tiny", await send(`{"data":{"id":1,"tiny":1e-400}}`)],
      ["content.data.list.1.huge", await send(`{"data":{"list":[0,{"huge":1e400}]}}`)],
      ["metadata.trace", await send(`{"text":"x"}`, `,"metadata":{"trace":12345678901234567890}`)],
      ["unknown", await send(`{"text":"x"}`, `,"unknown":9007199254740992`)],
      ["limit", await alice.http.request("PUT", "/v1/reply/active", { raw: `{"limit":-9007199254740993}` })],
      [
        "size",
        await alice.http.request("POST", "/v1/uploads", {
          raw: `{"size":1e999}`,
          headers: { "idempotency-key": freshMsgId() }
        })
      ]
    ]
    for (const [path, answer] of cases) {
      const { details, message } = answer.refused(400, "VALIDATION_ERROR")
      assert.match(message, /: the number [-\de+]+ cannot be kept exactly: write it as a string$/)
      assert.deepStrictEqual(Object.keys(details?.["fields"] as object), [path], `${answer}`)
    }
    assert.deepStrictEqual(await history(bob, conversation), before)
    // Numbers that are rounded in the usual way, and digits in texts, are sent.
    const kept =
      `{"data":{"n":[0.1,1e308,1e-300,-0,9007199254740991,3.14159265358979323846],"9007199254740993":"9007199254740993 and 1e999"}}`
    const sent = await send(kept)
    assert.strictEqual(sent.status, 201, `${sent}`)
    assert.include(
      sent.text,
      `{"n":[0.1,1e+308,1e-300,0,9007199254740991,3.141592653589793],"9007199254740993":"9007199254740993 and 1e999"}`
    )
  })

  it("64. unknown keys of content are dropped, unknown fields ignored", async () => {
    const { alice, bob } = await newPair(server)
    const message = await say(alice, bob, {
      content: { type: "text", text: "kept", html: "<b>" },
      id: "msg_AAAAAAAAAAAAAAAA",
      seq: 99,
      sender: "root",
      status: "read",
      created_at: "2000-01-01T00:00:00.000Z"
    })
    assert.deepStrictEqual(message.content, { text: "kept" })
    assert.deepInclude(message, { sender: alice.handle, seq: 3, status: "stored" })
    assert.isAbove(Date.parse(message.created_at), Date.parse("2020-01-01"))
  })

  it("64. client_msg_id is required, 1 to 128 characters", async () => {
    const { alice, bob } = await newPair(server)
    for (const client_msg_id of [undefined, null, "", 7, {}, "x".repeat(129)]) {
      ;(await attempt(alice, bob, { client_msg_id })).refused(400, "VALIDATION_ERROR")
    }
    for (const client_msg_id of ["x", "x".repeat(128), "\u{1f98a}".repeat(128), "with space / and ' \""]) {
      assert.strictEqual((await say(alice, bob, { client_msg_id })).client_msg_id, client_msg_id)
    }
  })

  it("64. the published client sends a message", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const text = words()
    const { message, backlogWarning } = await alice.client.sendMessage({ to: `@${bob.handle}`, content: { text } })
    assert.deepInclude(message, { sender: alice.handle, seq: 1, content: { text }, status: "stored" })
    assert.match(message.client_msg_id, /^[0-9a-f-]{36}$/)
    assert.isNull(backlogWarning)
  })

  it("65. the same client_msg_id is 200 with the same message, whatever the rest says, and pushes nothing", async () => {
    const { alice, bob, first } = await newPair(server)
    const [mine, theirs] = [await Socket.hello(server, alice.key), await Socket.hello(server, bob.key)]
    const client_msg_id = freshMsgId()
    const original = await say(alice, bob, { client_msg_id, metadata: { a: 1 } })
    await Promise.all([mine.message(original.id), theirs.message(original.id)])
    const group = (await alice.http.post("/v1/groups", { name: "Elsewhere" })).ok(200, Shapes.CreatedGroup).group.id
    const [carol, dave] = [await newAgent(server, "carol"), await newPair(server)]
    const replays: ReadonlyArray<readonly [fields: object, conflict: string | null]> = [
      [{ client_msg_id, metadata: { a: 1 } }, null],
      [{ client_msg_id, content: { text: words() }, type: "structured", metadata: {} }, null],
      [{ client_msg_id, to: `@${bob.handle.toUpperCase()}` }, null],
      [{ client_msg_id, to: undefined, conversation_id: original.conversation_id }, null],
      [{ client_msg_id, to: carol.handle }, "conversation"],
      [{ client_msg_id, to: "nobody-here" }, "conversation"],
      [{ client_msg_id, to: alice.handle }, "conversation"],
      [{ client_msg_id, to: undefined, conversation_id: group }, "conversation"],
      [{ client_msg_id, to: undefined, conversation_id: dave.conversation }, "conversation"],
      [{ client_msg_id, to: undefined, conversation_id: "grp_AAAAAAAAAAAAAAAA" }, "conversation"]
    ]
    for (const [fields, conflict] of replays) {
      const replay = await attempt(alice, bob, fields)
      assert.deepStrictEqual(replay.ok(200, Shapes.Message), original)
      assert.deepStrictEqual(
        [replay.header("idempotent-replay"), replay.header("x-client-msg-id-conflict")],
        ["true", conflict],
        JSON.stringify(fields)
      )
    }
    ;(await attempt(alice, bob, { client_msg_id: first.client_msg_id })).ok(200, Shapes.Message)
    // Whatever the replays pushed would have come before this.
    const marker = await say(alice, bob)
    assert.strictEqual(marker.seq, original.seq + 1)
    await Promise.all([mine.message(marker.id), theirs.message(marker.id)])
    assert.deepStrictEqual(mine.pushed(), [original.id, marker.id])
    assert.deepStrictEqual(theirs.pushed(), [original.id, marker.id])
    await Promise.all([mine.close(), theirs.close()])
  })

  it("65. a message of a group is another conversation for a direct send and for other groups, a deleted recipient is the same", async () => {
    const { alice, bob } = await newPair(server)
    const newGroup = async () =>
      (await alice.http.post("/v1/groups", { name: "Harbour" })).ok(200, Shapes.CreatedGroup).group.id
    const [one, other] = [await newGroup(), await newGroup()]
    const inGroup = freshMsgId()
    const sent = (await attempt(alice, bob, { client_msg_id: inGroup, to: undefined, conversation_id: one })).ok(
      201,
      Shapes.Message
    )
    const conflictOf = async (original: Shapes.Message, fields: object) => {
      const replay = await attempt(alice, bob, { client_msg_id: original.client_msg_id, ...fields })
      assert.strictEqual(replay.ok(200, Shapes.Message).id, original.id)
      return replay.header("x-client-msg-id-conflict")
    }
    assert.isNull(await conflictOf(sent, { to: undefined, conversation_id: one }))
    assert.strictEqual(await conflictOf(sent, { to: undefined, conversation_id: other }), "conversation")
    assert.strictEqual(await conflictOf(sent, {}), "conversation")

    const direct = await say(alice, bob)
    assert.strictEqual((await bob.http.delete(`/v1/agents/${bob.handle}`)).status, 200)
    assert.isNull(await conflictOf(direct, {}))
    assert.strictEqual(await conflictOf(direct, { to: "nobody-here" }), "conversation")
    assert.strictEqual((await alice.http.post(`/v1/groups/${one}/leave`)).status, 200)
    assert.isNull(await conflictOf(sent, { to: undefined, conversation_id: one }))
  })

  it("65. a replay says how far the original has got", async () => {
    const { alice, bob } = await newPair(server)
    const client_msg_id = freshMsgId()
    const original = await say(alice, bob, { client_msg_id })
    ;(await bob.http.post(`/v1/messages/${original.id}/read`)).ok(200, Shapes.ReadMessage)
    const replay = (await attempt(alice, bob, { client_msg_id })).ok(200, Shapes.Message)
    assert.deepStrictEqual({ ...replay, status: "stored", delivered_at: null, read_at: null }, original)
  })

  it("65. repeated sends at once store one message, also when they name different recipients", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const carol = await newAgent(server, "carol")
    const same = freshMsgId()
    const answers = await Promise.all(Array.from({ length: 10 }, () => attempt(alice, bob, { client_msg_id: same })))
    assert.deepStrictEqual(answers.map((answer) => answer.status).sort(), [
      200,
      200,
      200,
      200,
      200,
      200,
      200,
      200,
      200,
      201
    ])
    for (const answer of answers)
      assert.strictEqual(answer.header("idempotent-replay"), answer.status === 200 ? "true" : null)
    const shapes = answers.map((answer) => answer.ok(answer.status, Shapes.Message))
    assert.strictEqual(new Set(shapes.map((message) => message.id)).size, 1)
    assert.deepStrictEqual(seqsOf(await history(bob, conversation)), [3, 2, 1])

    const mixed = freshMsgId()
    const targets = [bob, carol, bob, carol, bob, carol]
    const either = await Promise.all(targets.map((to) => attempt(alice, to, { client_msg_id: mixed })))
    assert.deepStrictEqual(
      either.map((answer) => answer.status).sort(),
      [200, 200, 200, 200, 200, 201],
      either.join("\n")
    )
    assert.strictEqual(new Set(either.map((answer) => answer.ok(answer.status, Shapes.Message).id)).size, 1)
    const stored = [...await inbox(bob), ...await inbox(carol)].filter((row) => row.client_msg_id === mixed)
    assert.strictEqual(stored.length, 1)
    const toBob = stored[0]?.conversation_id === conversation
    assert.deepStrictEqual(
      either.map((answer) => answer.header("x-client-msg-id-conflict")),
      targets.map((to) => (to === bob) === toBob ? null : "conversation")
    )
  })

  it("65. another sender may use the same client_msg_id", async () => {
    const { alice, bob } = await newPair(server)
    const client_msg_id = freshMsgId()
    const [one, two] = [await say(alice, bob, { client_msg_id }), await say(bob, alice, { client_msg_id })]
    assert.notStrictEqual(one.id, two.id)
  })

  it("66. the replay of a cold message is the message, not AWAITING_REPLY", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const client_msg_id = freshMsgId()
    const cold = await say(alice, bob, { client_msg_id })
    assert.deepStrictEqual((await attempt(alice, bob, { client_msg_id })).ok(200, Shapes.Message), cold)
    const both = await Promise.all([attempt(alice, bob, { client_msg_id }), attempt(alice, bob)])
    assert.deepStrictEqual(both[0].ok(200, Shapes.Message), cold)
    both[1].refused(403, "AWAITING_REPLY")
  })

  it("67. a send with both targets or none is 400", async () => {
    const { alice, bob, conversation } = await newPair(server)
    for (const conversation_id of [conversation, "grp_AAAAAAAAAAAAAAAA"]) {
      ;(await attempt(alice, bob, { conversation_id })).refused(400, "VALIDATION_ERROR")
    }
    ;(await attempt(alice, bob, { to: undefined })).refused(400, "VALIDATION_ERROR")
    for (const to of [7, null, ""]) {
      const refusal = await attempt(alice, bob, { to })
      if (to === "") assert.include([400, 404], refusal.status)
      else refusal.refused(400, "VALIDATION_ERROR")
    }
  })

  it("68. a send with empty content is 400", async () => {
    const { alice, bob } = await newPair(server)
    const empty = [
      undefined,
      null,
      "text",
      7,
      [],
      {},
      { text: "" },
      { html: "x" },
      { text: null },
      { text: 7 },
      { data: null },
      { data: [] },
      { data: "x" },
      { attachment_id: 7 },
      { attachment_id: "" },
      { text: "", data: null }
    ]
    for (const content of empty) (await attempt(alice, bob, { content })).refused(400, "VALIDATION_ERROR")
    for (const metadata of [[], "x", 7]) (await attempt(alice, bob, { metadata })).refused(400, "VALIDATION_ERROR")
    await say(alice, bob, { content: { data: {} } })
    await say(alice, bob, { content: { text: " " } })
    await say(alice, bob, { content: { text: "x" }, type: "structured" })
    assert.instanceOf(await failure(alice.client.sendMessage({ to: bob.handle, content: {} })), ValidationError)
  })

  it("69. a send of type system is 400, and so is one of an unknown type", async () => {
    const { alice, bob } = await newPair(server)
    for (const type of ["system", "image", "", "TEXT", 1, null]) {
      ;(await attempt(alice, bob, { type })).refused(400, "VALIDATION_ERROR")
    }
    const forged = alice.client.sendMessage({ to: bob.handle, type: "system" as MessageType, content: { text: "x" } })
    assert.instanceOf(await failure(forged), ValidationError)
  })

  it("70. 32 768 bytes of content and metadata pass, 32 769 are 413 CONTENT_TOO_LARGE", async () => {
    const { alice, bob } = await newPair(server)
    // {"text":""} and {} are 13 bytes.
    const text = (bytes: number) => ({ content: { text: "x".repeat(bytes - 13) } })
    const wide = (bytes: number) => ({ content: { text: "\u00fc".repeat((bytes - 13) / 2) } })
    const meta = (bytes: number) => ({
      content: { text: "" + "x".repeat(87) },
      metadata: { m: "x".repeat(bytes - 98 - 8) }
    })
    await say(alice, bob, text(32_768))
    ;(await attempt(alice, bob, text(32_769))).refused(413, "CONTENT_TOO_LARGE")
    await say(alice, bob, wide(32_767))
    ;(await attempt(alice, bob, wide(32_769))).refused(413, "CONTENT_TOO_LARGE")
    await say(alice, bob, meta(32_768))
    ;(await attempt(alice, bob, meta(32_769))).refused(413, "CONTENT_TOO_LARGE")
    // What is dropped does not count.
    await say(alice, bob, { content: { text: "small", dropped: "x".repeat(40_000) } })
    const rows = await inbox(bob)
    assert.deepStrictEqual(seqsOf(rows), [3, 4, 5, 6])
  })

  it("71. a send to oneself is 400, to an unknown handle 404", async () => {
    const alice = await newAgent(server, "alice")
    for (const to of [alice.handle, `@${alice.handle.toUpperCase()}`]) {
      ;(await attempt(alice, to)).refused(400, "VALIDATION_ERROR")
    }
    for (const to of ["nobody-here", alice.id, "x", "root"]) (await attempt(alice, to)).refused(404, "AGENT_NOT_FOUND")
    assert.deepStrictEqual(await conversationsOf(alice), [])
    assert.instanceOf(
      await failure(alice.client.sendMessage({ to: "nobody-here", content: { text: "x" } })),
      NotFoundError
    )
  })

  it("72. a second cold message is 403 AWAITING_REPLY with whom and since when, and leaves nothing behind", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const cold = await say(alice, bob)
    for (let i = 0; i < 2; i++) {
      const refused = await attempt(alice, bob)
      assert.deepStrictEqual(refused.refused(403, "AWAITING_REPLY").details, {
        recipient_handle: bob.handle,
        waiting_since: cold.created_at
      })
      assert.isNull(refused.header("retry-after"))
    }
    const error = await failure(alice.client.sendMessage({ to: bob.handle, content: { text: "again" } }))
    assert.instanceOf(error, AwaitingReplyError)
    assert.deepInclude(error, { recipientHandle: bob.handle, waitingSince: cold.created_at })
    assert.deepStrictEqual(seqsOf(await history(alice, cold.conversation_id)), [1])
    assert.deepStrictEqual(seqsOf(await inbox(bob)), [1]) // Neither reading nor hiding it is a reply.
    ;(await bob.http.post(`/v1/messages/${cold.id}/read`)).ok(200, Shapes.ReadMessage)
    ;(await attempt(alice, bob)).refused(403, "AWAITING_REPLY")
    // Others are not concerned.
    await say(alice, await newAgent(server, "carol"))
    await say(await newAgent(server, "dave"), bob)
    // The refused ones took no seq.
    assert.strictEqual((await say(bob, alice)).seq, 2)
    assert.strictEqual((await say(alice, bob)).seq, 3)
  })

  it("72. of many first messages at once exactly one is stored", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const answers = await Promise.all(Array.from({ length: 10 }, () => attempt(alice, bob)))
    const [stored, ...more] = answers.filter((answer) => answer.status === 201)
    assert.deepStrictEqual(more, [])
    const since = stored?.ok(201, Shapes.Message).created_at
    for (const answer of answers) {
      if (answer === stored) continue
      assert.deepStrictEqual(answer.refused(403, "AWAITING_REPLY").details, {
        recipient_handle: bob.handle,
        waiting_since: since
      })
    }
    assert.strictEqual((await inbox(bob)).length, 1)
  })

  it("73. a reply establishes: direct_state changes and each is the other's contact", async () => {
    const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
    const cold = await say(alice, bob)
    const id = cold.conversation_id
    assert.deepStrictEqual((await contextOf(alice, id)).direct_state, {
      state: "cold",
      initiated_by_self: true,
      last_message_at: cold.created_at
    })
    assert.deepStrictEqual((await contextOf(bob, id)).direct_state, {
      state: "cold",
      initiated_by_self: false,
      last_message_at: cold.created_at
    })
    for (const agent of [alice, bob]) {
      assert.deepStrictEqual((await contextOf(agent, id)).relationship, {
        is_contact: false,
        added_at: null,
        note: null
      })
    }
    const reply = await say(bob, alice)
    assert.deepInclude(reply, { conversation_id: id, seq: 2, sender: bob.handle })
    for (const [agent, initiated_by_self] of [[alice, true], [bob, false]] as const) {
      const context = await contextOf(agent, id)
      assert.deepStrictEqual(context.direct_state, {
        state: "established",
        initiated_by_self,
        last_message_at: reply.created_at
      })
      assert.deepInclude(context.relationship, { is_contact: true, note: null })
      assert.isNotNull(context.relationship.added_at)
    }
    for (const from of [alice, alice, bob, bob]) await say(from, from === alice ? bob : alice)
    assert.strictEqual((await contextOf(alice, id)).direct_state.state, "established")
  })

  it("73. when both write first at once, one of the two is the reply", async () => {
    for (let i = 0; i < 5; i++) {
      const [alice, bob] = await Promise.all([newAgent(server, "alice"), newAgent(server, "bob")])
      const [one, two] = await Promise.all([say(alice, bob), say(bob, alice)])
      assert.strictEqual(one.conversation_id, two.conversation_id)
      assert.deepStrictEqual([one.seq, two.seq].sort(), [1, 2])
      const context = await contextOf(alice, one.conversation_id)
      assert.deepInclude(context.direct_state, { state: "established", initiated_by_self: one.seq === 1 })
    }
  })

  it("76. contacts_only refuses a stranger, and no contact, no reply and no established conversation", async () => {
    const [alice, bob, carol, dave, erin, frank] = await Promise.all(
      ["alice", "bob", "carol", "dave", "erin", "frank"].map((name) => newAgent(server, name))
    ) as [TestAgent, TestAgent, TestAgent, TestAgent, TestAgent, TestAgent]
    const inboxMode = async (inbox_mode: string) =>
      (await bob.http.patch(`/v1/agents/${bob.handle}`, { settings: { inbox_mode } })).ok(200, Shapes.Agent)
    await say(dave, bob)
    await say(bob, dave)
    const cold = await say(erin, bob)
    await inboxMode("contacts_only") // The reply made them contacts; an established conversation does not need that.
    ;(await bob.http.delete(`/v1/contacts/${dave.handle}`)).ok(200, Shapes.Confirmation)
    const established = await say(dave, bob) // That alice holds bob is not enough.
    ;(await alice.http.post("/v1/contacts", { handle: bob.handle })).ok(201, Shapes.Contact)
    for (const stranger of [alice, erin]) {
      const refused = (await attempt(stranger, bob)).refused(403, "INBOX_RESTRICTED")
      assert.deepStrictEqual(refused.details, { recipient_handle: bob.handle })
    }
    const error = await failure(alice.client.sendMessage({ to: bob.handle, content: { text: "let me in" } }))
    assert.instanceOf(error, ForbiddenError)
    assert.deepInclude(error, { code: "INBOX_RESTRICTED", status: 403 })
    assert.deepStrictEqual(await conversationsOf(alice), [])
    ;(await attempt(erin, bob, { client_msg_id: cold.client_msg_id })).ok(200, Shapes.Message)
    ;(await bob.http.post("/v1/contacts", { handle: carol.handle })).ok(201, Shapes.Contact)
    const contact = await say(carol, bob)
    await say(bob, frank)
    const reply = await say(frank, bob)
    assert.deepStrictEqual(idsOf(await inbox(bob)).slice(1), idsOf([cold, established, contact, reply]))
    await inboxMode("open")
    await say(alice, bob)
  })

  it("79. a direct id as conversation_id is 400 for its participants, 404 for others", async () => {
    const { alice, bob, conversation } = await newPair(server)
    for (const agent of [alice, bob]) {
      const refusal = (await attempt(agent, "x", { to: undefined, conversation_id: conversation }))
        .refused(400, "VALIDATION_ERROR")
      assert.include(refusal.message, "to")
    }
    const outsider = await newAgent(server, "carol")
    const theirs = (await attempt(outsider, "x", { to: undefined, conversation_id: conversation }))
      .refused(404, "GROUP_NOT_FOUND")
    for (const conversation_id of ["conv_AAAAAAAAAAAAAAAA", "grp_AAAAAAAAAAAAAAAA", "nonsense"]) {
      const unknown = (await attempt(alice, "x", { to: undefined, conversation_id })).refused(404, "GROUP_NOT_FOUND")
      assert.deepStrictEqual(unknown, theirs)
    }
  })

  it("148. context is the same on send, history, sync and push", async () => {
    const { alice, bob, conversation } = await newPair(server)
    await alice.http.patch(`/v1/agents/${alice.handle}`, { display_name: "Alice \u{1f98a}" })
    const [mine, theirs] = [await Socket.hello(server, alice.key), await Socket.hello(server, bob.key)]
    const text = `hello @${bob.handle}`
    const sent = await say(alice, bob, { content: { text } })
    const expected: Shapes.Message["context"] = {
      sender: { handle: alice.handle, display_name: "Alice \u{1f98a}", kind: "agent" },
      conversation: { type: "direct", group_name: null, member_count: null },
      mentions: [bob.handle]
    }
    assert.deepStrictEqual(sent.context, expected)
    for (const agent of [alice, bob]) assert.deepStrictEqual((await history(agent, conversation))[0]?.context, expected)
    assert.deepStrictEqual((await inbox(bob)).at(-1)?.context, expected)
    for (const socket of [mine, theirs]) {
      assert.deepStrictEqual((await socket.message(sent.id)).payload?.["context"], expected)
    }
    const read = (await bob.http.post(`/v1/messages/${sent.id}/read`)).ok(200, Shapes.ReadMessage)
    assert.deepStrictEqual(read.context, expected)
    await Promise.all([mine.close(), theirs.close()])
  })

  it("148. the sender's names are those of the moment of showing", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const sent = await say(alice, bob)
    assert.strictEqual(sent.context.sender.display_name, alice.handle)
    await alice.http.patch(`/v1/agents/${alice.handle}`, { display_name: "Renamed" })
    assert.strictEqual((await history(bob, conversation))[0]?.context.sender.display_name, "Renamed")
    assert.strictEqual((await inbox(bob)).at(-1)?.context.sender.display_name, "Renamed")
  })

  it("149. mentions are handles after @, at word boundaries, lower-cased, once, in order, at most 50", async () => {
    const { alice, bob } = await newPair(server)
    const table: ReadonlyArray<readonly [string, ReadonlyArray<string>]> = [
      ["@bob, hi", ["bob"]],
      ["@bob", ["bob"]],
      ["(@bob)", ["bob"]],
      ["hi @bob.", ["bob"]],
      ["hi @bob-", ["bob"]],
      ["@BOB and @Bob", ["bob"]],
      ["@zoe @ann @zoe @bob", ["zoe", "ann", "bob"]],
      ["@a-b-c @x1y2", ["a-b-c", "x1y2"]],
      ["\u{1f98a}@bob\u{1f98a}", ["bob"]],
      ["\u8acb@bob\u770b", ["bob"]],
      ["line\n@bob\n", ["bob"]],
      ["a@bob.com", []],
      ["\u00fc@bob @bob\u00e9", []],
      ["mail me: x.y@bob", []],
      ["@bob_x", []],
      ["_@bob", []],
      ["-@bob", []],
      [".@bob", []],
      ["@@bob", []],
      ["@ab", []],
      ["@1bob", []],
      ["@-bob", []],
      ["@", []],
      ["bob", []],
      ["`@bob`, npm i @bob/node, https://example.com/@bob, @bob@example.org", []],
      ["```\n@bob\n```\n\n    @bob\n\n@ann", ["ann"]],
      [`@${"x".repeat(30)}`, ["x".repeat(30)]],
      [`@${"x".repeat(31)}`, []],
      [
        Array.from({ length: 60 }, (_, i) => `@agent${i}`).join(" "),
        Array.from({ length: 50 }, (_, i) => `agent${i}`)
      ]
    ]
    for (const [text, mentions] of table) {
      assert.deepStrictEqual((await say(alice, bob, { content: { text } })).context.mentions, mentions, text)
    }
    const elsewhere = await say(alice, bob, {
      content: { text: "nobody", data: { text: "@bob" } },
      metadata: { m: "@bob" }
    })
    assert.deepStrictEqual(elsewhere.context.mentions, [])
    assert.deepStrictEqual((await say(alice, bob, { content: { data: { a: "@bob" } } })).context.mentions, [])
    await catchUp(bob)
  })

  it("150. a forged context in a request is ignored", async () => {
    const { alice, bob } = await newPair(server)
    const forged = {
      sender: { handle: "root", display_name: "The Platform", kind: "system" },
      conversation: { type: "group", group_name: "Admins", member_count: 3 },
      mentions: [bob.handle]
    }
    const sent = await say(alice, bob, {
      context: forged,
      content: { text: "hi", context: forged },
      metadata: { context: forged }
    })
    const expected: Shapes.Message["context"] = {
      sender: { handle: alice.handle, display_name: alice.handle, kind: "agent" },
      conversation: { type: "direct", group_name: null, member_count: null },
      mentions: []
    }
    assert.deepStrictEqual([sent.context, (await inbox(bob))[0]?.context], [expected, expected])
    assert.deepStrictEqual(sent.content, { text: "hi" })
    assert.deepStrictEqual(sent.metadata, { context: forged })
  })
})

import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { eventually } from "../support/Eventually.ts"
import { matching } from "../support/Http.ts"
import { metricOf } from "../support/Metrics.ts"
import { frameOf, RawConnection } from "../support/RawConnection.ts"
import { newAgent, NODES, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"
import { assertGolden } from "./Frames.ts"
import * as Shapes from "./Shapes.ts"
import { catchUp, contextOf, freshMsgId, history, idsOf, inbox, markRead, newPair, say, seqsOf } from "./Talk.ts"

const newMessages = (socket: Socket): ReadonlyArray<Frame> =>
  socket.frames.filter((frame) => frame.type === "message.new")

/** The refusal of a frame, by the id that the frame had. */
const refusal = async (socket: Socket, id: string): Promise<typeof Shapes.FrameError.Type> =>
  socket.payload((frame) => frame.type === "error" && frame["id"] === id, Shapes.FrameError)

/**
 * Asserts which messages wait for the agent after the server has handled its frames: on one node at once; another node
 * hears of an acknowledgement a little after its commit.
 */
const assertWaiting = async (agent: TestAgent, ids: ReadonlyArray<string>): Promise<void> => {
  const waiting = async () => idsOf(await inbox(agent))
  if (NODES > 0)
    await eventually(`${ids.length} waiting`, async () => (await waiting()).length === ids.length || undefined)
  assert.deepStrictEqual(await waiting(), ids)
}

describe("wire.md J, WebSocket", () => {
  let server: Server
  let outsider: TestAgent
  /** Connected at the start and never sent a HELLO. */
  let silent: Socket

  beforeAll(async () => {
    server = await sharedServer()
    silent = await Socket.open(server)
    outsider = await newAgent(server, "carol")
  })
  afterAll(() => server.stop())

  it("131. HELLO is answered by hello.ok, before anything else", async () => {
    const { alice, bob } = await newPair(server)
    const waiting = await say(alice, bob)
    const socket = await Socket.hello(server, bob.key)
    await socket.message(waiting.id)
    const [first] = socket.frames
    assert.deepStrictEqual(matching(Shapes.HelloOk, first), {
      type: "hello.ok",
      capabilities: ["ack"],
      agent: { handle: bob.handle },
      heartbeat_interval_ms: 30_000
    })
    await socket.close()
  })

  it("131. capabilities granted are those asked for that exist", async () => {
    const agent = await newAgent(server, "asker")
    const table: ReadonlyArray<readonly [object, ReadonlyArray<string>]> = [
      [{ api_key: agent.key }, []],
      [{ api_key: agent.key, capabilities: [] }, []],
      [{ api_key: agent.key, capabilities: ["ack"] }, ["ack"]],
      [{ api_key: agent.key, capabilities: ["zip", "ack", "ack"] }, ["ack"]],
      [{ api_key: agent.key, capabilities: ["zip"] }, []],
      [{ token: agent.key, capabilities: ["ack"] }, ["ack"]],
      [{ api_key: agent.key, client: "mine", client_version: "1", more: { a: [1] } }, []]
    ]
    for (const [hello, capabilities] of table) {
      const socket = await Socket.open(server)
      socket.send({ type: "hello", ...hello })
      assert.deepStrictEqual(matching(Shapes.HelloOk, await socket.waitFor("hello.ok")).capabilities, capabilities)
      await socket.close()
    }
  })

  it("159. malformed capabilities of a live key count as none, in a HELLO and in the upgrade's header", async () => {
    const agent = await newAgent(server, "asker")
    const deep = `${"[".repeat(20_000)}${"]".repeat(20_000)}`
    const malformed = [
      `"ack"`,
      `{"ack":true}`,
      `{"0":"ack","length":1}`,
      "null",
      "7",
      "true",
      `[7]`,
      `["ack",7]`,
      `["ack",null]`,
      `[["ack"]]`,
      `{"a":{"b":["ack"]}}`,
      deep,
      `["${"x".repeat(60_000)}",1]`
    ]
    for (const capabilities of malformed) {
      const socket = await Socket.open(server)
      socket.raw(`{"type":"hello","api_key":"${agent.key}","capabilities":${capabilities}}`)
      const what = capabilities.slice(0, 40)
      assert.deepStrictEqual(matching(Shapes.HelloOk, await socket.waitFor("hello.ok")).capabilities, [], what)
      await socket.settled()
      await socket.close()
    }
    const headers = [
      ["", []],
      [",,,", []],
      [`["ack"]`, []],
      ["ACK", []],
      ["\u00e4ck", []],
      ["ack;q=1", []],
      ["x".repeat(8_000), []],
      [" , ack ,", ["ack"]]
    ] as const
    for (const [header, capabilities] of headers) {
      const socket = await Socket.open(server, {
        authorization: `Bearer ${agent.key}`,
        "x-agentchat-capabilities": header
      })
      assert.deepStrictEqual(matching(Shapes.HelloOk, await socket.waitFor("hello.ok")).capabilities, capabilities)
      await socket.close()
    }
    const bad = await Socket.open(server)
    bad.send({ type: "hello", api_key: `ac_${"A".repeat(43)}`, capabilities: "ack" })
    await bad.closedWith(1008)
  })

  it("131. a key in the upgrade's header needs no HELLO", async () => {
    const { alice, bob } = await newPair(server)
    const waiting = await say(alice, bob)
    for (const [header, capabilities] of [["ack", ["ack"]], ["zip, ack", ["ack"]], ["zip", []]] as const) {
      const socket = await Socket.open(server, {
        authorization: `Bearer ${bob.key}`,
        "x-agentchat-capabilities": header
      })
      const first = matching(Shapes.HelloOk, await socket.waitFor(() => true))
      assert.deepStrictEqual(first.capabilities, capabilities)
      assert.strictEqual(first.agent.handle, bob.handle)
      await socket.message(waiting.id)
      await socket.close()
    }
    // The last one was no ack-mode socket: accepting the frame delivered it.
    await assertWaiting(bob, [])
    const plain = await Socket.open(server, { authorization: `Bearer ${bob.key}` })
    assert.deepStrictEqual(matching(Shapes.HelloOk, await plain.waitFor(() => true)).capabilities, [])
    await plain.close()
  })

  it("132. a bad key closes with 1008", async () => {
    const { alice } = await newPair(server)
    const deleted = await newAgent(server, "deleted")
    ;(await deleted.http.delete(`/v1/agents/${deleted.handle}`)).ok(200, Shapes.Confirmation)
    for (
      const api_key of ["", "garbage", `ac_${"A".repeat(43)}`, `${alice.key}x`, deleted.key, undefined, null, 7, [
        alice.key
      ]]
    ) {
      const socket = await Socket.open(server)
      socket.send({ type: "hello", api_key, capabilities: ["ack"] })
      const closed = await socket.closedWith(1008)
      assert.isNotEmpty(closed.reason)
      assert.strictEqual(socket.count("hello.ok"), 0)
    }
  })

  it("132. a first frame that is no HELLO closes with 1008", async () => {
    const { alice } = await newPair(server)
    const frames = [
      JSON.stringify({ type: "ping" }),
      JSON.stringify({ type: "ack", message_id: "msg_AAAAAAAAAAAAAAAA" }),
      JSON.stringify({ api_key: alice.key }),
      "[]",
      "null",
      "not json",
      "",
      new Uint8Array([1, 2, 3])
    ]
    for (const frame of frames) {
      const socket = await Socket.open(server)
      socket.raw(frame)
      await socket.closedWith(1008)
      assert.strictEqual(socket.count("hello.ok"), 0)
    }
  })

  it("133. a bad key in the header is HTTP 401 with the wire's body, and no upgrade", async () => {
    const reference = (await server.http().get("/v1/agents/me")).refused(401, "UNAUTHORIZED")
    for (const authorization of ["Bearer garbage", `Bearer ac_${"A".repeat(43)}`, "Bearer", `Basic ${outsider.key}`]) {
      const answer = await Socket.refusal(server, { authorization, "x-request-id": "refused-upgrade" })
      assert.deepStrictEqual(answer.refused(401, "UNAUTHORIZED"), reference)
      assert.strictEqual(answer.header("x-request-id"), "refused-upgrade")
      assert.strictEqual(answer.header("www-authenticate"), "Bearer")
    }
  })

  it("E: a request without an upgrade is 426, an upgrade elsewhere 404", async () => {
    ;(await server.http().get("/v1/ws")).refused(426, "UPGRADE_REQUIRED")
    ;(await outsider.http.get("/v1/ws")).refused(426, "UPGRADE_REQUIRED")
    ;(await Socket.refusal(server, {}, "/v1/nope")).refused(404, "NOT_FOUND")
  })

  it("134. ack mode: what is not acknowledged stays in the inbox, what is leaves it", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const socket = await Socket.hello(server, bob.key)
    const [one, two, three] = [await say(alice, bob), await say(alice, bob), await say(alice, bob)]
    const pushed = matching(Shapes.Pushed, (await socket.message(three.id)).payload)
    assert.deepStrictEqual({ ...pushed, delivery_id: null } as Shapes.Message, three)
    assert.deepStrictEqual(idsOf(await inbox(bob)), idsOf([one, two, three]))
    assert.deepStrictEqual(newMessages(socket).map((frame) => frame.payload) as unknown, await inbox(bob))

    socket.ack(two.id)
    await socket.settled()
    await assertWaiting(bob, idsOf([one, three]))
    const seen = await history(alice, conversation, "?limit=3")
    assert.deepStrictEqual(seen.map((row) => row.status), ["stored", "delivered", "stored"])

    // An ack on another socket of the agent counts too, and twice is once.
    const other = await Socket.hello(server, bob.key)
    await other.message(three.id)
    assert.deepStrictEqual(other.pushed(), [one.id, three.id], "offered again on a new socket")
    other.ack(one.id)
    other.ack(one.id)
    socket.ack(one.id)
    await Promise.all([other.settled(), socket.settled()])
    await assertWaiting(bob, [three.id])
    // On the same socket nothing is pushed a second time.
    const marker = await say(alice, bob)
    await socket.message(marker.id)
    assert.deepStrictEqual(socket.pushed(), idsOf([one, two, three, marker]))
    await Promise.all([socket.close(), other.close()])
  })

  it("135. legacy mode: delivered when pushed", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const waiting = await say(alice, bob)
    const socket = await Socket.hello(server, bob.key, [])
    await socket.message(waiting.id)
    const live = await say(alice, bob)
    await socket.message(live.id)
    // Said after the push; the shape of a push says `stored` all the same.
    matching(Shapes.Pushed, (await socket.message(live.id)).payload)
    await socket.settled()
    await assertWaiting(bob, [])
    const seen = await history(alice, conversation, "?limit=2")
    assert.deepStrictEqual(seen.map((row) => [row.id, row.status]), [[live.id, "delivered"], [waiting.id, "delivered"]])
    await socket.close()
    const again = await Socket.hello(server, bob.key, [])
    const marker = await say(alice, bob)
    await again.message(marker.id)
    assert.deepStrictEqual(again.pushed(), [marker.id])
    await again.close()
  })

  it("136. the backlog comes before what is sent meanwhile, everything once and in order", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const dave = await newAgent(server, "dave")
    const theirs = (await say(dave, bob)).conversation_id
    await say(bob, dave)
    await Promise.all([alice, bob, dave].map(catchUp))
    for (let round = 0; round < 20; round++) {
      await Promise.all([alice, dave, alice, dave, alice, dave, alice].map((from) => say(from, bob)))
      const backlog = await inbox(bob)
      assert.strictEqual(backlog.length, 7)

      const socket = await Socket.open(server)
      const live = [alice, dave, alice, bob, dave, alice, bob].map((from) => say(from, from === bob ? alice : bob))
      socket.send({ type: "hello", api_key: bob.key, capabilities: ["ack"] })
      const more = [alice, bob, dave, alice].map((from) => say(from, from === bob ? alice : bob))
      const sent = await Promise.all([...live, ...more])
      const forBob = sent.filter((message) => message.sender !== bob.handle)
      await Promise.all(forBob.map((message) => socket.message(message.id)))

      const rows = newMessages(socket).map((frame) => frame.payload as unknown as Shapes.Message)
      assert.strictEqual(socket.frames[0]?.type, "hello.ok")
      const received = rows.filter((row) => row.sender !== bob.handle)
      // The inbox's own order, beginning with the backlog.
      assert.deepStrictEqual(idsOf(received), idsOf(await inbox(bob)))
      assert.deepStrictEqual(idsOf(received.slice(0, 7)), idsOf(backlog))
      for (const id of [conversation, theirs]) {
        const seqs = seqsOf(rows.filter((row) => row.conversation_id === id))
        assert.deepStrictEqual(seqs, seqs.toSorted((a, b) => a - b), `round ${round}: own messages included`)
        assert.strictEqual(new Set(seqs).size, seqs.length)
      }
      for (const row of received) socket.ack(row.id)
      await socket.settled()
      assert.deepStrictEqual(await inbox(bob), [])
      await socket.close()
      await catchUp(alice)
    }
  })

  it("136. a reader that is slow gets a long backlog whole and in order, what is sent meanwhile behind it", async () => {
    const { alice, bob } = await newPair(server)
    // More than fits into the buffers on the way, so that the server has to stop in the middle.
    const text = "x".repeat(32_000)
    for (let i = 0; i < 16; i++)
      await Promise.all(Array.from({ length: 30 }, () => say(alice, bob, { content: { text } })))
    const socket = await Socket.open(server)
    socket.pause()
    socket.send({ type: "hello", api_key: bob.key, capabilities: ["ack"] })
    const other = await Socket.hello(server, bob.key)
    // Once another socket of the same agent has all of it, this one has what it can take.
    await other.waitFor(() => newMessages(other).length === 480)
    // Own messages have no place in the backlog, yet they may not overtake it either.
    const meanwhile = [await say(alice, bob), await say(bob, alice), await say(alice, bob), await say(bob, alice)]
    await Promise.all(meanwhile.map((message) => other.message(message.id)))
    socket.resume()
    await Promise.all(meanwhile.map((message) => socket.message(message.id)))
    const seqs = Array.from({ length: 484 }, (_, i) => i + 3)
    for (const reader of [socket, other]) {
      assert.deepStrictEqual(newMessages(reader).map((frame) => frame.payload?.["seq"]), seqs)
      await reader.close()
    }
  })

  it("137. every socket of the recipient and of the sender gets the message, the sender's with delivery_id null", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const mine = [await Socket.hello(server, alice.key), await Socket.hello(server, alice.key, [])]
    const theirs = [await Socket.hello(server, bob.key), await Socket.hello(server, bob.key)]
    const bystander = await Socket.hello(server, outsider.key)
    const sent = await say(alice, bob)
    for (const socket of mine) {
      const own = matching(Shapes.Echoed, (await socket.message(sent.id)).payload)
      assert.deepStrictEqual(own as Shapes.Message, sent)
      // An ack for an own message is ignored.
      socket.ack(sent.id)
      await socket.settled()
    }
    const deliveries = await Promise.all(
      theirs.map(async (socket) => matching(Shapes.Pushed, (await socket.message(sent.id)).payload).delivery_id)
    )
    assert.deepStrictEqual(new Set(deliveries).size, 1)
    assert.strictEqual((await history(alice, conversation, "?limit=1"))[0]?.status, "stored")
    const marker = await say(await newAgent(server, "marker"), outsider)
    await bystander.message(marker.id)
    assert.deepStrictEqual(bystander.pushed(), [marker.id])
    for (const socket of [...mine, ...theirs]) assert.deepStrictEqual(socket.pushed(), [sent.id])
    for (const socket of [...mine, ...theirs, bystander]) await socket.close()
    // An own message is no part of a backlog.
    const later = await Socket.hello(server, alice.key)
    const next = await say(bob, alice)
    await later.message(next.id)
    assert.deepStrictEqual(later.pushed(), [next.id])
    await later.close()
  })

  it("138. read_ack reads everything up to through_seq and tells the sender once", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const sent = [await say(alice, bob), await say(alice, bob), await say(alice, bob), await say(alice, bob)] as const
    const [mine, theirs] = [await Socket.hello(server, alice.key), await Socket.hello(server, bob.key)]
    theirs.send({ type: "message.read_ack", payload: { conversation_id: conversation, through_seq: 5 } })
    const receipt = await mine.payload("message.read", Shapes.Receipt)
    const rows = await history(bob, conversation)
    assert.deepStrictEqual(rows.map((row) => [row.seq, row.status]), [
      [6, "stored"],
      [5, "read"],
      [4, "read"],
      [3, "read"],
      [2, "delivered"],
      [1, "read"]
    ])
    assert.deepStrictEqual(receipt, {
      message_id: sent[2].id,
      conversation_id: conversation,
      seq: 5,
      read_by: bob.handle,
      reader: bob.handle,
      read_at: rows[1]?.read_at ?? "",
      at: rows[1]?.read_at ?? "",
      through_seq: 5
    })
    assert.deepStrictEqual((await contextOf(bob, conversation)).unread, { count: 1, oldest_seq: 6, newest_seq: 6 })
    assert.deepStrictEqual(idsOf(await inbox(bob)), [sent[3].id], "read is delivered")

    // The same again, and less, change nothing.
    for (const through_seq of [5, 3, 0]) {
      theirs.send({ type: "message.read_ack", payload: { conversation_id: conversation, through_seq } })
    }
    await theirs.settled()
    // By message id, and through a seq that is not there yet.
    theirs.send({ type: "message.read_ack", payload: { conversation_id: conversation, message_id: sent[3].id } })
    const next = await mine.payload(
      (frame) => frame.type === "message.read" && frame.payload?.["message_id"] === sent[3].id,
      Shapes.Receipt
    )
    assert.deepInclude(next, { seq: 6, through_seq: 6 })
    assert.strictEqual(mine.count("message.read"), 2, "one event per change")
    assert.strictEqual(theirs.count("message.read"), 0, "the reader is not told")
    const last = await say(alice, bob)
    theirs.send({ type: "message.read_ack", payload: { conversation_id: conversation, through_seq: 1_000 } })
    const beyond = await mine.payload(
      (frame) => frame.type === "message.read" && frame.payload?.["message_id"] === last.id,
      Shapes.Receipt
    )
    assert.strictEqual(beyond.seq, 7)
    assert.strictEqual((await history(alice, conversation, "?limit=1"))[0]?.status, "read")
    await Promise.all([mine.close(), theirs.close()])
  })

  it("138. read_ack of a conversation that is not the caller's is CONVERSATION_NOT_FOUND, bad payloads VALIDATION_ERROR", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const unread = await say(alice, bob)
    const [theirs, owner] = [await Socket.hello(server, outsider.key), await Socket.hello(server, bob.key)]
    for (const conversation_id of [conversation, "conv_AAAAAAAAAAAAAAAA", "nonsense"]) {
      theirs.send({ type: "message.read_ack", id: conversation_id, payload: { conversation_id, through_seq: 9 } })
      assert.deepInclude(await refusal(theirs, conversation_id), {
        code: "CONVERSATION_NOT_FOUND",
        action: "message.read_ack"
      })
    }
    const bad = [
      {},
      undefined,
      null,
      { conversation_id: conversation },
      { conversation_id: 7, through_seq: 1 },
      { conversation_id: conversation, through_seq: -1 },
      { conversation_id: conversation, through_seq: "3" },
      { conversation_id: conversation, through_seq: 1.5 }
    ]
    for (const [index, payload] of bad.entries()) {
      owner.send({ type: "message.read_ack", id: `bad-${index}`, payload })
      assert.deepInclude(await refusal(owner, `bad-${index}`), { code: "VALIDATION_ERROR", action: "message.read_ack" })
    }
    assert.strictEqual((await history(bob, conversation, "?limit=1"))[0]?.status, "stored", `${unread.id} is unread`)
    await Promise.all([theirs.close(), owner.close()])
  })

  it("139. typing reaches the other participant only", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const carol = await newAgent(server, "carol")
    await say(carol, alice)
    await say(alice, carol)
    const typist = await Socket.hello(server, alice.key)
    const other = await Socket.hello(server, alice.key)
    const theirs = [await Socket.hello(server, bob.key), await Socket.hello(server, bob.key, [])]
    const bystander = await Socket.hello(server, carol.key)
    for (const type of ["typing.start", "typing.stop"]) {
      typist.send({ type, payload: { conversation_id: conversation } })
      for (const socket of theirs) {
        assert.deepStrictEqual(await socket.payload(type, Shapes.Typing), {
          conversation_id: conversation,
          sender: alice.handle
        })
      }
    }
    const markers = [await say(alice, bob), await say(alice, carol)] as const
    await Promise.all([...theirs.map((socket) => socket.message(markers[0].id)), bystander.message(markers[1].id)])
    await Promise.all([typist.message(markers[1].id), other.message(markers[1].id)])
    for (const socket of [typist, other, bystander]) {
      assert.deepStrictEqual([socket.count("typing.start"), socket.count("typing.stop")], [0, 0])
    }
    for (const socket of theirs)
      assert.deepStrictEqual([socket.count("typing.start"), socket.count("typing.stop")], [1, 1])
    for (const socket of [typist, other, bystander, ...theirs]) await socket.close()
  })

  it("139. typing in a conversation that is not the caller's is an error frame, and relayed to nobody", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const [theirs, participant] = [await Socket.hello(server, outsider.key), await Socket.hello(server, bob.key)]
    for (const conversation_id of [conversation, "conv_AAAAAAAAAAAAAAAA"]) {
      for (const type of ["typing.start", "typing.stop"]) {
        theirs.send({ type, id: type + conversation_id, payload: { conversation_id } })
        assert.deepInclude(await refusal(theirs, type + conversation_id), {
          code: "CONVERSATION_NOT_FOUND",
          action: type
        })
      }
    }
    theirs.send({ type: "typing.start", id: "bad", payload: {} })
    assert.deepInclude(await refusal(theirs, "bad"), { code: "VALIDATION_ERROR", action: "typing.start" })
    const marker = await say(alice, bob)
    await participant.message(marker.id)
    assert.strictEqual(participant.count("typing.start"), 0)
    await Promise.all([theirs.close(), participant.close()])
  })

  it("140. a malformed frame is answered by an error frame, and the socket stays", async () => {
    const { alice, bob } = await newPair(server)
    const socket = await Socket.hello(server, bob.key)
    const bad = [
      "not json",
      "",
      "{",
      "null",
      "7",
      `"text"`,
      "[]",
      "{}",
      `{"type":7}`,
      `{"type":null}`,
      `{"type":"ack"}`,
      `{"type":"ack","message_id":7}`,
      new Uint8Array([0x7b, 0x7d]),
      new TextEncoder().encode(JSON.stringify({ type: "ping" }))
    ]
    for (const [index, frame] of bad.entries()) {
      socket.raw(frame)
      await socket.waitFor(() => socket.count("error") === index + 1)
    }
    for (const frame of socket.frames.slice(1)) {
      assert.strictEqual(frame.type, "error")
      assert.strictEqual(matching(Shapes.FrameError, frame.payload).code, "VALIDATION_ERROR")
    }
    for (const type of ["message.delete", "", "__proto__", "constructor", "hello.ok"]) {
      socket.send({ type, id: `of-${type}`, payload: {} })
      const error = await refusal(socket, `of-${type}`)
      assert.include(["UNSUPPORTED_ACTION", "VALIDATION_ERROR"], error.code)
      assert.strictEqual(error.action, type)
    }
    const marker = await say(alice, bob)
    await socket.message(marker.id)
    await socket.close()
  })

  it("141. message.send is UNSUPPORTED_ACTION, and nothing is sent", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const socket = await Socket.hello(server, alice.key)
    socket.send({
      type: "message.send",
      id: "my-frame",
      payload: { to: bob.handle, client_msg_id: freshMsgId(), content: { text: "over the socket" } }
    })
    assert.deepInclude(await refusal(socket, "my-frame"), { code: "UNSUPPORTED_ACTION", action: "message.send" })
    assert.strictEqual((await say(alice, bob)).seq, 3)
    assert.strictEqual((await history(bob, conversation)).length, 3)
    await socket.close()
  })

  it("142. acks that mean nothing are ignored without a word", async () => {
    const { alice, bob, first, reply } = await newPair(server)
    const unread = await say(alice, bob)
    const [socket, theirs] = [
      await Socket.hello(server, bob.key),
      await Socket.hello(server, (await newAgent(server, "dave")).key)
    ]
    await socket.message(unread.id)
    // Unknown, no message id, own, delivered before; and somebody else's message.
    for (const id of ["msg_AAAAAAAAAAAAAAAA", "nonsense", reply.id, first.id]) socket.ack(id)
    theirs.ack(unread.id)
    await Promise.all([socket.settled(), theirs.settled()])
    assert.deepStrictEqual(socket.frames.map((frame) => frame.type), ["hello.ok", "message.new", "pong"])
    assert.deepStrictEqual(theirs.frames.map((frame) => frame.type), ["hello.ok", "pong"])
    assert.deepStrictEqual(idsOf(await inbox(bob)), [unread.id])
    await Promise.all([socket.close(), theirs.close()])
  })

  it("E.4: a ping frame gets a pong", async () => {
    const socket = await Socket.hello(server, outsider.key)
    socket.send({ type: "ping" })
    assert.deepStrictEqual(await socket.waitFor("pong"), { type: "pong" })
    await socket.close()
  })

  it("E.4: 64 KiB are a frame, one byte more closes with 1009", async () => {
    const socket = await Socket.hello(server, outsider.key)
    const frame = (bytes: number) => `{"type":"ping","pad":"${"x".repeat(bytes - 24)}"}`
    assert.strictEqual(frame(65_536).length, 65_536)
    socket.raw(frame(65_536))
    await socket.waitFor("pong")
    socket.raw(frame(65_537))
    await socket.closedWith(1009)
    assert.strictEqual(socket.count("pong"), 1)
  })

  it("E.4: the 21st socket of an agent closes with 1013, the others stay", async () => {
    const agent = await newAgent(server, "many")
    const sockets = await Promise.all(Array.from({ length: 20 }, () => Socket.hello(server, agent.key)))
    const byHello = await Socket.open(server)
    byHello.send({ type: "hello", api_key: agent.key })
    await byHello.closedWith(1013)
    assert.strictEqual(byHello.count("hello.ok"), 0)
    const byHeader = await Socket.open(server, { authorization: `Bearer ${agent.key}` })
    await byHeader.closedWith(1013)
    await Promise.all(sockets.map((socket) => socket.settled()))
    await sockets.pop()?.close()
    sockets.push(await Socket.hello(server, agent.key))
    await Promise.all(sockets.map((socket) => socket.close()))
  })

  it("E.4: a flood of bad frames is answered more slowly, each of them, and then closed with 1013; other sockets stay", async () => {
    const { alice, bob } = await newPair(server)
    const other = await Socket.hello(server, bob.key)
    const flooding = await RawConnection.upgraded(server, bob.key)
    const nonsense = [
      frameOf({ opcode: 1, payload: "no json" }),
      frameOf({ opcode: 1, payload: `{"type":"ack"}` }),
      frameOf({ opcode: 1, payload: `{"type":"typing.start"}` }),
      frameOf({ opcode: 2, payload: "{}" }),
      frameOf({ opcode: 1, payload: `{"type":"ping"}` })
    ]
    const flood = (frames: number) =>
      flooding.write(Buffer.concat(Array.from({ length: frames }, (_, i) => nonsense[i % nonsense.length]!)))
    const count = (text: string) => flooding.received.split(text).length - 1
    const answered = () => count(`"type":"error"`) + count(`"type":"pong"`)
    flood(1_000)
    await eventually("an answer to each frame of a burst", () => answered() === 1_000 || undefined)
    // What comes behind it waits until a part of the allowance is back, and is answered then.
    flooding.frame({ opcode: 1, payload: `{"type":"typing.start","id":"behind"}` })
    await eventually("an answer behind it", () => count("behind") === 1 || undefined)
    flood(20_000)
    assert.strictEqual(await flooding.closeCode(), 1013)
    assert.include(flooding.received, "too many refused frames")
    // Each was answered as long as it was open. How many are too many is in test/realtime/ClientFrames.test.ts.
    assert.isAtLeast(count("VALIDATION_ERROR"), 80)
    assert.isAtLeast(count(`"type":"error"`), 1_000)
    const sent = await say(alice, bob)
    await other.message(sent.id)
    await other.close()
    // It may come back at once.
    const again = await Socket.hello(server, bob.key)
    await again.message(sent.id)
    await again.close()
  })

  it("E.4: a reader that stalls closes with 1013 once more than 4 MiB wait for it, and loses nothing", async () => {
    const { alice, bob } = await newPair(server)
    const [stalled, reading] = [await Socket.hello(server, bob.key), await Socket.hello(server, bob.key)]
    const slow = () => metricOf(server, "sockets_slow_total")
    const before = await slow()
    stalled.pause()
    // Each is answered by an error frame that has its id, which fills the buffers of the machine and then the server's.
    for (let i = 0; i < 500; i++) stalled.send({ type: "nonsense", id: `${i}`.padEnd(64_000, "x") })
    await stalled.sent()
    const sent = await say(alice, bob)
    await reading.message(sent.id)
    await eventually("the close", async () => await slow() > before || undefined)
    stalled.resume()
    const { reason } = await stalled.closedWith(1013)
    assert.include(reason, "too slow")
    assert.deepStrictEqual(stalled.pushed(), [])
    // What it got is the beginning, in order and whole.
    const got = stalled.frames.filter(({ type }) => type === "error").map(({ id }) =>
      Number(String(id).replaceAll("x", ""))
    )
    assert.deepStrictEqual(got, Array.from(got.keys()))
    assert.isAbove(got.length * 64_000, 4_194_304)
    assert.isBelow(got.length, 500)
    assert.deepStrictEqual(idsOf(await inbox(bob)), [sent.id])
    await reading.close()
    const again = await Socket.hello(server, bob.key)
    await again.message(sent.id)
    await again.close()
  })

  it("E.4: ack and message.read_ack are exempt from the limit of frames", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const sent = await say(alice, bob)
    const socket = await Socket.hello(server, bob.key)
    await socket.message(sent.id)
    for (let i = 0; i < 200; i++) {
      socket.ack("msg_AAAAAAAAAAAAAAAA")
      socket.send({ type: "message.read_ack", payload: { conversation_id: conversation, through_seq: i % 3 } })
    }
    socket.ack(sent.id)
    await socket.settled()
    assert.deepStrictEqual(socket.frames.map((frame) => frame.type), ["hello.ok", "message.new", "pong"])
    await assertWaiting(bob, [])
    await socket.close()
  })

  it("the frames are the reviewed ones", async () => {
    const [writer, reader] = [
      await newAgent(server, "writer", { display_name: "The Writer" }),
      await newAgent(server, "reader")
    ]
    const names = { [writer.handle]: "writer", [reader.handle]: "reader" }
    const first = await say(writer, reader)
    await say(reader, writer)
    await Promise.all([catchUp(reader), catchUp(writer)])
    await markRead(reader, first.id)
    const [mine, theirs] = [await Socket.hello(server, writer.key), await Socket.hello(server, reader.key)]
    await assertGolden("hello.ok", await theirs.waitFor("hello.ok"), names)

    const sent = await say(writer, reader, {
      client_msg_id: "golden",
      content: { text: "Hello @bob", data: { n: 1 } },
      metadata: { trace: "golden" }
    })
    const pushed = await theirs.message(sent.id)
    await assertGolden("message.new", pushed, names)
    assert.deepStrictEqual(await mine.message(sent.id), {
      ...pushed,
      payload: { ...pushed.payload, delivery_id: null }
    })

    theirs.send({ type: "message.read_ack", payload: { conversation_id: sent.conversation_id, through_seq: sent.seq } })
    await assertGolden("message.read", await mine.waitFor("message.read"), names)

    for (const type of ["typing.start", "typing.stop"]) {
      theirs.send({ type, payload: { conversation_id: sent.conversation_id } })
      await assertGolden(type, await mine.waitFor(type), names)
    }
    mine.send({ type: "message.send", id: "golden", payload: {} })
    const error = await mine.waitFor("error")
    await assertGolden("error", error, { ...names, [String(error.payload?.["message"])]: "text" })
    mine.send({ type: "ping" })
    await assertGolden("pong", await mine.waitFor("pong"), names)
    await Promise.all([mine.close(), theirs.close()])
  })

  it("132. without a HELLO within 5 s the socket closes with 1013", async () => {
    const closed = await silent.end()
    assert.strictEqual(closed.code, 1013)
    assert.deepStrictEqual(silent.frames, [])
  })
})

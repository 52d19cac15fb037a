import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { ForbiddenError, NotFoundError } from "agentchatme"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import {
  catchUp,
  contextOf,
  conversationsOf,
  history,
  idsOf,
  inbox,
  markRead,
  newPair,
  type Pair,
  say,
  seqsOf
} from "./Talk.ts"

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(() => assert.fail("it was accepted"), (error: unknown) => error)

/** Whole numbers from one to the other, downwards too. */
const range = (from: number, to: number): ReadonlyArray<number> =>
  Array.from({ length: Math.abs(to - from) + 1 }, (_, i) => from < to ? from + i : from - i)

describe("wire.md J, History, read, hide and Sync", () => {
  let server: Server
  let outsider: TestAgent
  /** A conversation of 550 messages, all from alice but seq 2; bob has fetched none of those from 3 on. */
  let long: Pair

  beforeAll(async () => {
    server = await sharedServer()
    outsider = await newAgent(server, "carol")
    long = await newPair(server)
    while ((await say(long.alice, long.bob)).seq < 500) {
      await Promise.all(Array.from({ length: 40 }, () => say(long.alice, long.bob)))
    }
    const last = await history(long.alice, long.conversation, "?limit=1")
    for (let seq = last[0]?.seq ?? 0; seq < 550; seq++) await say(long.alice, long.bob)
  })
  afterAll(() => server.stop())

  it("80. history has the 50 newest messages of both sides, newest first", async () => {
    const { alice, bob, conversation } = long
    const rows = await history(alice, conversation)
    assert.deepStrictEqual(seqsOf(rows), range(550, 501))
    assert.deepStrictEqual(idsOf(await history(bob, conversation)), idsOf(rows))
    assert.deepStrictEqual(seqsOf(await history(alice, conversation, "?limit=3")), [550, 549, 548])
    const byClient = await alice.client.getMessages(conversation)
    assert.deepStrictEqual(byClient as unknown, rows)
  })

  it("80. the caller's own envelope id is there, and null on own messages", async () => {
    const { alice, bob, conversation } = await newPair(server)
    await say(alice, bob)
    const rows = await history(bob, conversation)
    assert.deepStrictEqual(rows.map((row) => row.delivery_id !== null), [true, false, true])
    assert.strictEqual(rows[0]?.delivery_id, (await inbox(bob))[0]?.delivery_id)
    assert.deepStrictEqual((await history(alice, conversation)).map((row) => row.delivery_id !== null), [
      false,
      true,
      false
    ])
  })

  it("9. a history limit above 200 and a sync limit above 500 are clamped", async () => {
    const { alice, bob, conversation } = long
    assert.deepStrictEqual(seqsOf(await history(alice, conversation, "?limit=200")), range(550, 351))
    assert.deepStrictEqual(seqsOf(await history(alice, conversation, "?limit=201")), range(550, 351))
    assert.strictEqual((await history(alice, conversation, "?limit=100000&after_seq=0")).length, 200)
    for (
      const [query, length] of [["", 200], ["?limit=500", 500], ["?limit=501", 500], ["?limit=9999999", 500]] as const
    ) {
      const rows = (await bob.http.get(`/v1/messages/sync${query}`)).ok(200, Shapes.SyncRows)
      assert.deepStrictEqual(seqsOf(rows), range(3, 2 + length))
    }
  })

  it("81. before_seq is newest first and below, after_seq oldest first and above", async () => {
    const { alice, conversation } = long
    const seqs = async (query: string) => seqsOf(await history(alice, conversation, query))
    assert.deepStrictEqual(await seqs("?before_seq=501"), range(500, 451))
    assert.deepStrictEqual(await seqs("?before_seq=4"), [3, 2, 1])
    assert.deepStrictEqual(await seqs("?before_seq=1"), [])
    assert.deepStrictEqual(await seqs("?before_seq=0"), [])
    assert.deepStrictEqual(await seqs("?before_seq=100&limit=2"), [99, 98])
    assert.deepStrictEqual(await seqs("?before_seq=999999999&limit=2"), [550, 549])
    assert.deepStrictEqual(await seqs("?after_seq=0"), range(1, 50))
    assert.deepStrictEqual(await seqs("?after_seq=100&limit=3"), [101, 102, 103])
    assert.deepStrictEqual(await seqs("?after_seq=547"), [548, 549, 550])
    assert.deepStrictEqual(await seqs("?after_seq=550"), [])
    assert.deepStrictEqual(await seqs("?after_seq=999999999"), [])
    // Empty and null mean absent.
    for (
      const query of [
        "?before_seq=",
        "?before_seq=null",
        "?after_seq=",
        "?after_seq=null",
        "?before_seq=&after_seq=null"
      ]
    ) {
      assert.deepStrictEqual(await seqs(query), range(550, 501), query)
    }
    assert.deepStrictEqual(await seqs("?before_seq=&after_seq=548"), [549, 550])
    const client = long.alice.client
    assert.deepStrictEqual(seqsOf(await client.getMessages(conversation, { beforeSeq: 10, limit: 2 })), [9, 8])
    assert.deepStrictEqual(seqsOf(await client.getMessages(conversation, { afterSeq: 10, limit: 2 })), [11, 12])
  })

  it("81. walking with either cursor meets every message once", async () => {
    const { bob, conversation } = long
    const forward: Array<number> = []
    for (let page = 0; page < 6; page++) {
      forward.push(...seqsOf(await history(bob, conversation, `?limit=110&after_seq=${forward.at(-1) ?? 0}`)))
    }
    assert.deepStrictEqual(forward, range(1, 550))
    const backward: Array<number> = []
    for (let page = 0; page < 6; page++) {
      backward.push(...seqsOf(await history(bob, conversation, `?limit=110&before_seq=${backward.at(-1) ?? ""}`)))
    }
    assert.deepStrictEqual(backward, range(550, 1))
  })

  it("82. after_seq includes the caller's own messages", async () => {
    const { alice, bob, conversation } = await newPair(server)
    for (const [from, to] of [[alice, bob], [bob, alice], [alice, bob]] as const) await say(from, to)
    for (const agent of [alice, bob]) {
      const rows = await history(agent, conversation, "?after_seq=0")
      assert.deepStrictEqual(seqsOf(rows), [1, 2, 3, 4, 5])
      assert.deepStrictEqual(rows.map((row) => row.sender), [alice, bob, alice, bob, alice].map(({ handle }) => handle))
    }
  })

  it("83. around_message_id is newest first and ends at that message", async () => {
    const { alice, conversation } = long
    const anchor = (await history(alice, conversation, "?after_seq=99&limit=1"))[0] ?? assert.fail("no such message")
    assert.strictEqual(anchor.seq, 100)
    assert.deepStrictEqual(
      seqsOf(await history(alice, conversation, `?around_message_id=${anchor.id}`)),
      range(100, 51)
    )
    assert.deepStrictEqual(seqsOf(await history(alice, conversation, `?around_message_id=${anchor.id}&limit=2`)), [
      100,
      99
    ])
    const byClient = await alice.client.getMessages(conversation, { aroundMessageId: anchor.id, limit: 3 })
    assert.deepStrictEqual(seqsOf(byClient), [100, 99, 98])
  })

  it("83. an anchor that is unknown, elsewhere or hidden is 404 MESSAGE_NOT_FOUND", async () => {
    const { alice, bob, conversation, first, reply } = await newPair(server)
    const hidden = await say(alice, bob)
    ;(await alice.http.delete(`/v1/messages/${hidden.id}`)).ok(200, Shapes.Confirmation)
    for (const id of ["msg_AAAAAAAAAAAAAAAA", "nonsense", long.first.id, hidden.id]) {
      ;(await alice.http.get(`/v1/messages/${conversation}?around_message_id=${id}`)).refused(404, "MESSAGE_NOT_FOUND")
    }
    assert.deepStrictEqual(seqsOf(await history(bob, conversation, `?around_message_id=${hidden.id}`)), [3, 2, 1])
    assert.deepStrictEqual(idsOf(await history(alice, conversation)), [reply.id, first.id])
  })

  it("232. a thread has a message and all that answer it, directly or not, oldest first", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const answer = (from: TestAgent, to: TestAgent, reply_to: string) => say(from, to, { metadata: { reply_to } })
    const root = await say(alice, bob)
    const other = await say(alice, bob)
    const first = await answer(bob, alice, root.id)
    const elsewhere = await answer(bob, alice, other.id)
    const second = await answer(alice, bob, first.id)
    const also = await say(bob, alice, { metadata: { about: { reply_to: other.id }, reply_to: root.id, more: "…" } })
    await say(alice, bob, { content: { text: `"reply_to":"${root.id}"` } })
    await say(alice, bob, { metadata: { about: { reply_to: root.id } } })
    const numbered = await say(alice, bob, { metadata: { 1: { reply_to: other.id }, reply_to: root.id } })
    assert.deepStrictEqual(numbered.metadata, { 1: { reply_to: other.id }, reply_to: root.id })
    await say(alice, bob, { metadata: { reply_to: `msg_${"x".repeat(10_000)}` } })
    const third = await answer(alice, bob, second.id)
    const thread = async (of: string, more = "", reader = alice) =>
      idsOf(await history(reader, conversation, `?thread=${of}${more}`))
    const all = [root, first, second, also, numbered, third].map(({ id }) => id)
    assert.deepStrictEqual(await thread(root.id), all)
    assert.deepStrictEqual(await thread(root.id, "", bob), all)
    assert.deepStrictEqual(await thread(first.id), [first.id, second.id, third.id])
    assert.deepStrictEqual(await thread(third.id), [third.id])
    assert.deepStrictEqual(await thread(other.id), [other.id, elsewhere.id])
    assert.deepStrictEqual(await thread(root.id, "&limit=2"), all.slice(0, 2))
    assert.deepStrictEqual(await thread(root.id, `&limit=2&after_seq=${first.seq}`), all.slice(2, 4))
    assert.deepStrictEqual(await thread(root.id, `&after_seq=${third.seq}`), []) // A hidden message is not shown, but what answers it is.
    ;(await alice.http.delete(`/v1/messages/${second.id}`)).ok(200, Shapes.Confirmation)
    assert.deepStrictEqual(await thread(root.id), all.filter((id) => id !== second.id))
    assert.deepStrictEqual(await thread(root.id, "", bob), all)
    // The rows are those of the history.
    assert.deepStrictEqual(
      await history(bob, conversation, `?thread=${root.id}&limit=1`),
      (await history(bob, conversation, "?after_seq=0")).filter(({ id }) => id === root.id)
    )
  })

  it("233. a thread with another cursor is 400, and one of a message that is not there is 404", async () => {
    const { alice, conversation, first } = long
    for (const cursor of ["before_seq=5", `around_message_id=${first.id}`]) {
      ;(await alice.http.get(`/v1/messages/${conversation}?thread=${first.id}&${cursor}`))
        .refused(400, "VALIDATION_ERROR")
    }
    const elsewhere = await newPair(server)
    const hidden = await say(elsewhere.alice, elsewhere.bob)
    ;(await elsewhere.alice.http.delete(`/v1/messages/${hidden.id}`)).ok(200, Shapes.Confirmation)
    for (const id of ["msg_AAAAAAAAAAAAAAAA", "nonsense", first.id, hidden.id]) {
      ;(await elsewhere.alice.http.get(`/v1/messages/${elsewhere.conversation}?thread=${id}`))
        .refused(404, "MESSAGE_NOT_FOUND")
    }
    ;(await outsider.http.get(`/v1/messages/${conversation}?thread=${first.id}`)).refused(404, "CONVERSATION_NOT_FOUND")
    assert.lengthOf(await history(alice, conversation, "?thread=&limit=3"), 3, "an empty one counts as absent")
  })

  it("84. a request with two cursors is 400", async () => {
    const { alice, conversation, first } = long
    const cursors = ["before_seq=5", "after_seq=5", `around_message_id=${first.id}`]
    for (const one of cursors) {
      for (const other of cursors) {
        if (one === other) continue
        ;(await alice.http.get(`/v1/messages/${conversation}?${one}&${other}`)).refused(400, "VALIDATION_ERROR")
      }
    }
    ;(await alice.http.get(`/v1/messages/${conversation}?${cursors.join("&")}`)).refused(400, "VALIDATION_ERROR")
  })

  it("85. history is the same 404 for an outsider and for an unknown id", async () => {
    const theirs = (await outsider.http.get(`/v1/messages/${long.conversation}`)).refused(404, "CONVERSATION_NOT_FOUND")
    for (const id of ["conv_AAAAAAAAAAAAAAAA", "grp_AAAAAAAAAAAAAAAA", "nonsense", long.first.id]) {
      const unknown = (await outsider.http.get(`/v1/messages/${id}`)).refused(404, "CONVERSATION_NOT_FOUND")
      assert.deepStrictEqual(unknown, theirs)
    }
    const anchored = await outsider.http.get(`/v1/messages/${long.conversation}?around_message_id=${long.first.id}`)
    anchored.refused(404, "CONVERSATION_NOT_FOUND")
    assert.instanceOf(await failure(outsider.client.getMessages(long.conversation)), NotFoundError)
  })

  it("86. read returns the Message with ok and read_at, and the sender sees it read", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const socket = await Socket.hello(server, alice.key)
    const sent = await say(alice, bob)
    const read = await markRead(bob, sent.id)
    assert.deepInclude(read, { id: sent.id, seq: 3, status: "read", content: sent.content, ok: true })
    assert.isNotNull(read.read_at)
    assert.isNotNull(read.delivered_at)
    assert.isAtLeast(Date.parse(read.read_at ?? ""), Date.parse(sent.created_at))
    // The reader and the sender see the same times, on the envelope and on the message.
    const [mine] = await history(alice, conversation, "?limit=1")
    const [theirs] = await history(bob, conversation, "?limit=1")
    for (const row of [mine, theirs]) {
      assert.deepInclude(row, { id: sent.id, status: "read", read_at: read.read_at, delivered_at: read.delivered_at })
    }
    assert.deepStrictEqual(await inbox(bob), [])
    const receipt = await socket.payload("message.read", Shapes.Receipt)
    assert.deepStrictEqual(receipt, {
      message_id: sent.id,
      conversation_id: conversation,
      seq: 3,
      read_by: bob.handle,
      reader: bob.handle,
      read_at: read.read_at,
      at: read.read_at,
      // Seq 1 was fetched and acknowledged, but never read.
      through_seq: 0
    })
    await socket.close()
    assert.deepInclude(await bob.client.markAsRead(long.first.id).catch((error: unknown) => error), { status: 404 })
    assert.deepInclude(await alice.client.markAsRead((await say(bob, alice)).id), { ok: true })
  })

  it("87. a repeated read keeps read_at and notifies no agent", async () => {
    const { alice, bob } = await newPair(server)
    const socket = await Socket.hello(server, alice.key)
    const sent = await say(alice, bob)
    const read = await markRead(bob, sent.id)
    const again = await Promise.all([markRead(bob, sent.id), markRead(bob, sent.id), markRead(bob, sent.id)])
    for (const repeat of again) assert.deepStrictEqual(repeat, read)
    const next = await say(alice, bob)
    await markRead(bob, next.id)
    await socket.waitFor((frame) => frame.type === "message.read" && frame.payload?.["message_id"] === next.id)
    assert.strictEqual(socket.count("message.read"), 2)
    await socket.close()
  })

  it("87. reads at once send one event", async () => {
    const { alice, bob } = await newPair(server)
    const socket = await Socket.hello(server, alice.key)
    const sent = await say(alice, bob)
    const reads = await Promise.all(Array.from({ length: 8 }, () => markRead(bob, sent.id)))
    assert.strictEqual(new Set(reads.map((read) => read.read_at)).size, 1)
    const next = await say(alice, bob)
    await markRead(bob, next.id)
    await socket.waitFor((frame) => frame.type === "message.read" && frame.payload?.["message_id"] === next.id)
    assert.strictEqual(socket.count("message.read"), 2)
    await socket.close()
  })

  it("88. the sender reading its own is 403, an outsider the same 404 as for an unknown id", async () => {
    const { alice, bob, first } = await newPair(server)
    ;(await alice.http.post(`/v1/messages/${first.id}/read`)).refused(403, "FORBIDDEN")
    assert.instanceOf(await failure(alice.client.markAsRead(first.id)), ForbiddenError)
    const theirs = (await outsider.http.post(`/v1/messages/${first.id}/read`)).refused(404, "MESSAGE_NOT_FOUND")
    for (const id of ["msg_AAAAAAAAAAAAAAAA", "nonsense"]) {
      const unknown = (await bob.http.post(`/v1/messages/${id}/read`)).refused(404, "MESSAGE_NOT_FOUND")
      assert.deepStrictEqual(unknown, theirs)
    }
  })

  it("89. reading one message leaves the earlier ones unread", async () => {
    const { alice, bob, conversation, first } = await newPair(server)
    const [third, fourth, fifth] = [await say(alice, bob), await say(alice, bob), await say(alice, bob)]
    const socket = await Socket.hello(server, alice.key)
    await markRead(bob, fourth.id)
    assert.deepStrictEqual((await contextOf(bob, conversation)).unread, { count: 3, oldest_seq: 1, newest_seq: 5 })
    const rows = await history(bob, conversation)
    assert.deepStrictEqual(rows.map((row) => [row.seq, row.status]), [
      [5, "stored"],
      [4, "read"],
      [3, "stored"],
      // Own messages show how far they have got with the other side, which fetched this one.
      [2, "delivered"],
      [1, "delivered"]
    ])
    // Through which seq everything is read: own messages have no envelope that could be unread.
    await markRead(bob, first.id)
    await markRead(bob, third.id)
    await markRead(bob, fifth.id)
    const receiptOf = (message: { readonly id: string }) =>
      socket.payload(
        (frame) => frame.type === "message.read" && frame.payload?.["message_id"] === message.id,
        Shapes.Receipt
      )
    assert.deepStrictEqual(
      await Promise.all([fourth, first, third, fifth].map(async (message) => (await receiptOf(message)).through_seq)),
      [0, 2, 4, 5]
    )
    assert.deepStrictEqual((await contextOf(bob, conversation)).unread, {
      count: 0,
      oldest_seq: null,
      newest_seq: null
    })
    await socket.close()
  })

  it("90. hiding a message removes the own copy only, also from sync, preview and unread", async () => {
    const { alice, bob, conversation } = await newPair(server)
    const socket = await Socket.hello(server, alice.key)
    const kept = await say(alice, bob)
    const hidden = await say(alice, bob)
    assert.strictEqual((await conversationsOf(bob))[0]?.last_message_preview, hidden.content.text)

    for (let i = 0; i < 2; i++) (await bob.http.delete(`/v1/messages/${hidden.id}`)).ok(200, Shapes.Confirmation)
    assert.deepStrictEqual(seqsOf(await history(bob, conversation)), [3, 2, 1])
    assert.deepStrictEqual(seqsOf(await history(bob, conversation, "?after_seq=2")), [3])
    assert.deepStrictEqual(idsOf(await inbox(bob)), [kept.id])
    assert.deepInclude((await conversationsOf(bob))[0], {
      last_message_preview: kept.content.text ?? null,
      unread_count: 2,
      newest_unread_seq: 3
    })
    assert.deepStrictEqual((await contextOf(bob, conversation)).unread, { count: 2, oldest_seq: 1, newest_seq: 3 })

    // The other side keeps it, sees it delivered and is not told.
    const theirs = await history(alice, conversation)
    assert.deepStrictEqual(seqsOf(theirs), [4, 3, 2, 1])
    assert.deepInclude(theirs[0], { id: hidden.id, status: "delivered", read_at: null })
    assert.strictEqual((await conversationsOf(alice))[0]?.last_message_preview, hidden.content.text)
    const marker = await say(bob, alice)
    await socket.message(marker.id)
    assert.deepStrictEqual(
      socket.frames.map((frame) => frame.type),
      ["hello.ok", "message.new", "message.new", "message.new"],
      "two echoes, the marker, and nothing about the hidden one"
    )
    await socket.close()
  })

  it("90. a sender hides its own message from itself alone; an outsider gets 404", async () => {
    const { alice, bob, conversation, first, reply } = await newPair(server)
    const own = await say(alice, bob)
    assert.hasAllKeys(await alice.client.deleteMessage(own.id), ["ok", "message"])
    assert.deepStrictEqual(idsOf(await history(alice, conversation)), [reply.id, first.id])
    assert.deepStrictEqual(idsOf(await history(bob, conversation)), [own.id, reply.id, first.id])
    assert.deepInclude((await inbox(bob))[0], { id: own.id, status: "stored" })
    const theirs = (await outsider.http.delete(`/v1/messages/${own.id}`)).refused(404, "MESSAGE_NOT_FOUND")
    const unknown = (await outsider.http.delete("/v1/messages/msg_AAAAAAAAAAAAAAAA")).refused(404, "MESSAGE_NOT_FOUND")
    assert.deepStrictEqual(unknown, theirs)
  })

  it("91. sync is a bare array, oldest delivery first over all conversations, with del_ ids", async () => {
    const bob = await newAgent(server, "bob")
    const senders = await Promise.all(["one", "two", "three"].map((prefix) => newAgent(server, prefix)))
    const sent: Array<Shapes.Message> = []
    for (const sender of senders) sent.push(await say(sender, bob))
    for (const sender of senders) await say(bob, sender)
    for (const sender of senders.toReversed()) sent.push(await say(sender, bob))
    // The shape asserts that each is stored and has a delivery id of the right form.
    const rows = await inbox(bob)
    assert.deepStrictEqual(idsOf(rows), idsOf(sent))
    assert.strictEqual(new Set(rows.map((row) => row.delivery_id)).size, 6)
    assert.deepStrictEqual(rows.map((row) => ({ ...row, delivery_id: null })) as unknown, sent)
    assert.deepStrictEqual(await inbox(await newAgent(server, "nobody")), [])
    assert.deepStrictEqual(idsOf(await bob.client.sync()), idsOf(sent))
  })

  it("92. reading the inbox changes nothing: a repeated GET returns the same rows", async () => {
    const { bob } = long
    const path = "/v1/messages/sync?limit=40"
    const texts = await Promise.all([1, 2, 3].map(async () => (await bob.http.get(path)).text))
    assert.strictEqual(new Set(texts).size, 1)
    assert.strictEqual((await history(long.alice, long.conversation, "?limit=1"))[0]?.status, "stored")
  })

  it("93. after pages forward without committing anything", async () => {
    const { bob } = long
    const seen: Array<number> = []
    let after = ""
    for (let page = 0; page < 20; page++) {
      const rows = (await bob.http.get(`/v1/messages/sync?limit=100${after}`)).ok(200, Shapes.SyncRows)
      seen.push(...seqsOf(rows))
      const last = rows.at(-1)
      if (last === undefined) break
      after = `&after=${last.delivery_id}`
      if (rows.length < 100) break
    }
    assert.deepStrictEqual(seen, range(3, 550))
    assert.deepStrictEqual(seqsOf((await bob.http.get(`/v1/messages/sync?limit=1`)).ok(200, Shapes.SyncRows)), [3])
    const [row] = await bob.client.sync({ limit: 1 })
    const next = await bob.client.sync({ limit: 2, after: row?.delivery_id ?? "" })
    assert.deepStrictEqual(next.map((item) => item.seq), [4, 5])
  })

  it("94. ack marks everything at or before the cursor and says how many; a repeat marks none", async () => {
    const { alice, bob, conversation } = await newPair(server)
    for (let i = 0; i < 5; i++) await say(alice, bob)
    const rows = await inbox(bob)
    const ack = async (last_delivery_id: string | undefined) =>
      (await bob.http.post("/v1/messages/sync/ack", { last_delivery_id })).ok(200, Shapes.Acked).acked
    assert.strictEqual(await ack(rows[2]?.delivery_id), 3)
    assert.strictEqual(await ack(rows[2]?.delivery_id), 0)
    assert.strictEqual(await ack(rows[0]?.delivery_id), 0)
    assert.deepStrictEqual(seqsOf(await inbox(bob)), [6, 7])
    const seen = await history(alice, conversation, "?limit=5")
    assert.deepStrictEqual(seen.map((row) => row.status), ["stored", "stored", "delivered", "delivered", "delivered"])
    for (const row of seen.slice(2)) {
      assert.isAtLeast(Date.parse(row.delivered_at ?? ""), Date.parse(row.created_at))
    }
    // One that was read in between is not counted again.
    await markRead(bob, rows[3]?.id ?? "")
    assert.deepStrictEqual(await bob.client.syncAck(rows[4]?.delivery_id ?? ""), { acked: 1 })
    assert.deepStrictEqual(await inbox(bob), [])
    // Timestamps are never written again.
    const before = await history(bob, conversation)
    assert.strictEqual(await ack(rows[4]?.delivery_id), 0)
    assert.deepStrictEqual(await history(bob, conversation), before)
  })

  it("94. ack without a cursor is 400", async () => {
    for (const body of [{}, { last_delivery_id: 7 }, { last_delivery_id: null }]) {
      ;(await long.bob.http.post("/v1/messages/sync/ack", body)).refused(400, "VALIDATION_ERROR")
    }
  })

  it("95. with an unknown cursor sync returns [] and ack marks 0", async () => {
    const { alice, bob } = await newPair(server)
    await say(alice, bob)
    for (
      const cursor of [`del_${"0".repeat(32)}`, `del_${"f".repeat(32)}`, "del_", "nonsense", "1", "\u{1f98a}", " "]
    ) {
      const rows = await bob.http.get(`/v1/messages/sync?after=${encodeURIComponent(cursor)}`)
      assert.deepStrictEqual(rows.ok(200, Shapes.SyncRows), [], cursor)
      const ack = await bob.http.post("/v1/messages/sync/ack", { last_delivery_id: cursor })
      assert.deepStrictEqual(ack.ok(200, Shapes.Acked), { acked: 0 }, cursor)
    }
    assert.strictEqual((await inbox(bob)).length, 1)
  })

  it("96. another agent's cursor shows and acks nothing, for either of them", async () => {
    const { alice, bob } = await newPair(server)
    await say(bob, alice)
    await say(alice, bob)
    const [mine, theirs] = [await inbox(alice), await inbox(bob)]
    const foreign = theirs.at(-1)?.delivery_id ?? assert.fail("no row")
    assert.deepStrictEqual((await alice.http.get(`/v1/messages/sync?after=${foreign}`)).ok(200, Shapes.SyncRows), [])
    const ack = await alice.http.post("/v1/messages/sync/ack", { last_delivery_id: foreign })
    assert.deepStrictEqual(ack.ok(200, Shapes.Acked), { acked: 0 })
    assert.deepStrictEqual([await inbox(alice), await inbox(bob)], [mine, theirs])
  })

  it("97. a page is full whenever there are enough rows, whatever is filtered out between", async () => {
    const { alice, bob } = await newPair(server)
    const sent: Array<Shapes.Message> = []
    for (let i = 0; i < 14; i++) sent.push(await say(alice, bob))
    for (const index of [0, 1, 4])
      (await bob.http.delete(`/v1/messages/${sent[index]?.id}`)).ok(200, Shapes.Confirmation)
    for (const index of [2, 6]) await markRead(bob, sent[index]?.id ?? "")
    const socket = await Socket.hello(server, bob.key)
    socket.ack(sent[7]?.id ?? "")
    await socket.settled()
    await socket.close()
    const left = sent.filter((_, index) => ![0, 1, 4, 2, 6, 7].includes(index))
    assert.deepStrictEqual(idsOf(await inbox(bob)), idsOf(left))
    const pages: Array<ReadonlyArray<string>> = []
    let after = ""
    for (let i = 0; i < 3; i++) {
      const rows = (await bob.http.get(`/v1/messages/sync?limit=4${after}`)).ok(200, Shapes.SyncRows)
      pages.push(idsOf(rows))
      after = `&after=${rows.at(-1)?.delivery_id ?? ""}`
      if (rows.length === 0) break
    }
    assert.deepStrictEqual(pages, [idsOf(left.slice(0, 4)), idsOf(left.slice(4)), []])
    await catchUp(bob)
  })
})

import { makeDeliveryIds } from "#domain/deliveries/Delivery"
import type { StoredMessage } from "#domain/messages/Message"
import { decodeCursor, encodeCursor } from "#interfaces/mcp/events/EventCursor"
import { type EventType, eventTypeOf, listed, storedEventType } from "#interfaces/mcp/events/EventTypes"
import { isSelected, mentions, type ReadCandidate, received, waiting } from "#interfaces/mcp/events/Occurrence"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { unfenced } from "./Mcp.ts"

const typeOf = (name: string, given: unknown): EventType => {
  const type = eventTypeOf(name, given)
  if (!("canonical" in type)) throw new Error(type.message)
  return type
}

const codeOf = (name: unknown, given: unknown): number | undefined => {
  const type = eventTypeOf(name, given)
  return "canonical" in type ? undefined : type.code
}

const ids = makeDeliveryIds(Buffer.from("a key"))
const owner = { id: "agt_owner", handle: "owner" }

const messageOf = (inboxNo: number, fields: Partial<StoredMessage> = {}, senderHandle = "ada"): ReadCandidate => ({
  inboxNo,
  senderHandle,
  message: {
    id: `msg_${inboxNo}`,
    conversationId: "conv_1",
    seq: inboxNo,
    senderId: "agt_ada",
    clientMsgId: `c${inboxNo}`,
    type: "text",
    content: `{"text":"hello"}`,
    metadata: "{}",
    createdAt: Date.UTC(2026, 10, 25),
    ...fields
  }
})

describe("the arguments of events", () => {
  it("have one canonical form, whatever their order and whichever defaults are written out", () => {
    const written = { mentions_only: false, from: "@Ada", conversation_id: null, include_text: true }
    assert.strictEqual(typeOf("message.received", written).canonical, `{"from":"ada","include_text":true}`)
    assert.strictEqual(
      typeOf("message.received", { include_text: true, from: "ada" }).canonical,
      `{"from":"ada","include_text":true}`
    )
    for (const none of [undefined, null, {}]) assert.strictEqual(typeOf("inbox.waiting", none).canonical, "{}")
    assert.deepStrictEqual(
      storedEventType("message.received", `{"from":"ada"}`),
      typeOf("message.received", { from: "ada" })
    )
    assert.isUndefined(storedEventType("message.gone", "{}"))
  })

  it("are refused if the event has no such argument or it has the wrong form; an unknown event is not found", () => {
    for (
      const given of [
        [],
        "x",
        { nothing: 1 },
        { constructor: 1 },
        { mentions_only: "yes" },
        { from: "" },
        { from: "@" },
        { conversation_id: 7 },
        { from: "x".repeat(257) },
        { quiet_seconds: 5 }
      ]
    ) {
      assert.strictEqual(codeOf("message.received", given), -32_602, JSON.stringify(given))
    }
    for (const quiet_seconds of [0, 3_601, 1.5, "10"])
      assert.strictEqual(codeOf("inbox.waiting", { quiet_seconds }), -32_602)
    assert.strictEqual(codeOf("inbox.waiting", { include_text: true }), -32_602)
    assert.strictEqual(codeOf(7, {}), -32_602)
    assert.strictEqual(codeOf("message.gone", {}), -32_011)
  })

  it("are those of the input schema that the list shows", () => {
    for (const { inputSchema, name } of listed) {
      for (const [argument, schema] of Object.entries(inputSchema.properties)) {
        const value = schema["default"] ?? "ada"
        assert.isUndefined(codeOf(name, { [argument]: value }), `${name} ${argument}`)
      }
    }
  })
})

describe("the cursor", () => {
  it("holds the number and the time for its agent, and is no cursor of another agent", () => {
    fc.assert(
      fc.property(fc.nat(2 ** 31), fc.option(fc.nat(2 ** 31).map((seconds) => seconds * 1_000)), (no, reportedAt) => {
        const cursor = encodeCursor(ids, owner.id, { no, reportedAt })
        assert.deepStrictEqual(decodeCursor(ids, owner.id, cursor), { no, reportedAt })
        assert.isUndefined(decodeCursor(ids, "agt_other", cursor))
      })
    )
    for (
      const cursor of [
        "",
        "evc_",
        "del_" + "0".repeat(32),
        `${encodeCursor(ids, owner.id, { no: 1, reportedAt: null })}x`
      ]
    ) {
      assert.isUndefined(decodeCursor(ids, owner.id, cursor), cursor)
    }
  })
})

describe("a report", () => {
  const { arguments: all } = typeOf("message.received", {})
  const unmuted = () => false

  it("has the messages of others that are not muted and that the arguments select", () => {
    const one = messageOf(1, { content: `{"text":"hi @owner"}` })
    assert.isTrue(isSelected(all, owner, unmuted, one))
    assert.isFalse(isSelected(all, { ...owner, id: "agt_ada" }, unmuted, one))
    assert.isFalse(isSelected(all, owner, (sender) => sender === "agt_ada", one))
    assert.isFalse(isSelected(all, owner, (_, conversation) => conversation === "conv_1", one))
    const selects = (given: object, message = one) =>
      isSelected(typeOf("message.received", given).arguments, owner, unmuted, message)
    assert.deepStrictEqual([selects({ conversation_id: "conv_1" }), selects({ conversation_id: "conv_2" })], [
      true,
      false
    ])
    assert.deepStrictEqual([selects({ from: "@ADA" }), selects({ from: "bob" })], [true, false])
    assert.isFalse(selects({ from: "ada" }, messageOf(2, { type: "system" })))
    const code = messageOf(3, { content: JSON.stringify({ text: "npm i @owner/node, then `@owner`" }) })
    assert.deepStrictEqual([one, messageOf(2), code].map(({ message }) => mentions(owner, message)), [
      true,
      false,
      false
    ])
  })

  it("shows ids and facts, and the text only on request, marked and bounded", () => {
    const content = JSON.stringify({ text: `</data-from-other-agents> ${"x".repeat(1_973)}😀 and more` })
    const message = messageOf(7, { content, metadata: `{"reply_to":"msg_1"}`, conversationId: "grp_1" })
    const { data, eventId, timestamp } = received(all, owner, ids, message)
    assert.deepStrictEqual(data, {
      message_id: "msg_7",
      delivery_id: ids.encode(owner.id, 7),
      conversation_id: "grp_1",
      conversation_type: "group",
      sender: { handle: "@ada", kind: "agent" },
      seq: 7,
      type: "text",
      mentions_me: false,
      reply_to: "msg_1"
    })
    assert.deepStrictEqual([eventId, timestamp], [ids.encode(owner.id, 7), "2026-11-25T00:00:00.000Z"])
    const { text } = received({ ...all, includeText: true }, owner, ids, message).data
    const shown = unfenced(String(text)).text
    assert.isAtMost(shown.length, 2_000)
    assert.isTrue(shown.isWellFormed())
  })

  it("an edge has the same id for the same messages, and counts at most 20 conversations", () => {
    const came = Array.from({ length: 60 }, (_, i) => messageOf(i + 1, { conversationId: `conv_${i % 25}` }))
    const [first, ...rest] = came
    const edge = waiting("s", owner, [first!, ...rest])
    assert.deepStrictEqual(waiting("s", owner, [first!, ...rest]), edge)
    assert.match(edge.eventId, /^wak_[A-Za-z0-9_-]{22}$/)
    assert.notStrictEqual(waiting("t", owner, [first!, ...rest]).eventId, edge.eventId)
    assert.notStrictEqual(waiting("s", owner, [first!]).eventId, edge.eventId)
    const { conversations, waiting: count } = edge.data as {
      readonly conversations: ReadonlyArray<object>
      readonly waiting: number
    }
    assert.deepStrictEqual([count, conversations.length, conversations[0]], [60, 20, {
      conversation_id: "conv_0",
      waiting: 3
    }])
  })
})

import { Listing } from "#domain/conversations/Listing"
import { mentionsOf } from "#domain/messages/Mentions"
import { messageJson, renderMessage, sentMessage, statusOf } from "#domain/messages/Message"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

describe("a rendered message", () => {
  const time = fc.integer({ min: 0, max: 4_000_000_000_000 })
  const moment = fc.option(time)
  const text = fc.string({ unit: "grapheme-composite" })

  it("is the JSON of the message, whatever its texts hold", () => {
    fc.assert(fc.property(
      fc.record({
        clientMsgId: text,
        seq: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
        type: fc.constantFrom("text" as const, "structured" as const, "file" as const),
        content: fc.record({ text, data: fc.dictionary(text, fc.jsonValue()), attachment_id: text }, {
          requiredKeys: []
        }),
        metadata: fc.dictionary(text, fc.jsonValue()),
        createdAt: time,
        deliveredAt: moment,
        readAt: moment,
        outcome: fc.option(
          fc.record({
            state: fc.constantFrom("working" as const, "done" as const, "refused" as const),
            reason: fc.option(text),
            at: time
          }),
          { nil: undefined }
        ),
        displayName: fc.option(text),
        deliveryId: fc.constantFrom(null, "del_1")
      }),
      (
        { clientMsgId, content, createdAt, deliveredAt, deliveryId, displayName, metadata, outcome, readAt, seq, type }
      ) => {
        const progress = { deliveredAt, readAt, outcome }
        const json = messageJson(
          renderMessage(
            sentMessage(
              { clientMsgId, type, content: JSON.stringify(content), metadata: JSON.stringify(metadata) },
              { id: "msg_1", conversationId: "conv_1", seq, senderId: "agt_1", createdAt }
            ),
            { senderHandle: "bob", senderDisplayName: displayName, group: null },
            progress
          ),
          deliveryId
        )
        const iso = (at: number | null) => at === null ? null : new Date(at).toISOString()
        assert.deepStrictEqual(
          JSON.parse(json),
          JSON.parse(JSON.stringify({
            id: "msg_1",
            conversation_id: "conv_1",
            sender: "bob",
            client_msg_id: clientMsgId,
            seq,
            type,
            content,
            metadata,
            status: statusOf(progress),
            created_at: iso(createdAt),
            delivered_at: iso(deliveredAt),
            read_at: iso(readAt),
            ...(outcome === undefined ? {} : { outcome: { ...outcome, at: iso(outcome.at) } }),
            delivery_id: deliveryId,
            context: {
              sender: { handle: "bob", display_name: displayName, kind: "agent" },
              conversation: { type: "direct", group_name: null, member_count: null },
              mentions: mentionsOf(content.text)
            }
          }))
        )
      }
    ))
  })

  it("is read before it is delivered, and delivered before it is stored", () => {
    assert.strictEqual(statusOf({ deliveredAt: null, readAt: null }), "stored")
    assert.strictEqual(statusOf({ deliveredAt: 1, readAt: null }), "delivered")
    assert.strictEqual(statusOf({ deliveredAt: 1, readAt: 2 }), "read")
  })
})

describe("a preview in the list", () => {
  const preview = (text: string) => Listing.preview("text", JSON.stringify({ text }))

  it("collapses white space and keeps 140 characters whole", () => {
    assert.strictEqual(preview("  a \n\t b  "), "a b")
    assert.strictEqual(preview("x".repeat(140)), "x".repeat(140))
    assert.strictEqual(preview("x".repeat(141)), `${"x".repeat(139)}…`)
    assert.strictEqual(preview("😀".repeat(140)), "😀".repeat(140))
    assert.strictEqual(preview("😀".repeat(141)), `${"😀".repeat(139)}…`)
  })

  it("is a label for a message without text", () => {
    assert.strictEqual(preview("   "), "Message")
    assert.strictEqual(Listing.preview("text", '{"data":{}}'), "Message")
    assert.strictEqual(Listing.preview("structured", '{"text":"hidden"}'), "Structured message")
    assert.strictEqual(Listing.preview("file", "{}"), "File")
    assert.strictEqual(Listing.preview("system", "{}"), "System message")
  })

  it("never has more than 140 characters, a line break or half a character", () => {
    fc.assert(fc.property(fc.string({ unit: "grapheme-composite", maxLength: 400, size: "max" }), (text) => {
      const shown = preview(text)
      assert.isAtMost(Array.from(shown).length, 140)
      assert.notMatch(shown, /[\n\r\t]|\s\s/)
      assert.isTrue(shown.isWellFormed())
      assert.isAbove(shown.length, 0)
    }))
  })
})

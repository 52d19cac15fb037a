import type { Message, Outgoing } from "#interfaces/pages/client/Wire"
import { assert, describe, it } from "@effect/vitest"
import { Api } from "../../src/interfaces/pages/client/Api.js"
import { Outbox } from "../../src/interfaces/pages/client/Outbox.js"
import { Timers } from "../../src/interfaces/pages/client/Timers.js"
import { eventually } from "../support/Eventually.ts"
import { message } from "./Messages.ts"

describe("the outbox", () => {
  it("keeps a message that was not sent because its client_msg_id belongs to a message elsewhere, and sends it with another id", async () => {
    const ids: Array<string> = []
    const api = new Api("ac_key")
    api.sendOnce = async (body) => {
      const { client_msg_id } = body as Pick<Outgoing, "client_msg_id">
      ids.push(client_msg_id)
      return { message: message(1, { client_msg_id }), isElsewhere: ids.length === 1 }
    }
    const stored: Array<Message> = []
    const outbox: Outbox = new Outbox(api, new Timers(), (message, outgoing) => {
      stored.push(message)
      outbox.remove(outgoing.client_msg_id)
    })
    outbox.send({ to: "bob", content: { text: "hello" } }, "hello", null)
    const failed = await eventually("the refusal", () => outbox.messages.peek().find(({ state }) => state === "failed"))
    assert.match(failed.why ?? "", /^Not sent, .* in another conversation\.$/)
    assert.deepStrictEqual(stored, [])
    outbox.again(failed.client_msg_id)
    await eventually("the message", () => stored[0])
    assert.deepStrictEqual(outbox.messages.peek(), [])
    assert.strictEqual(new Set(ids).size, 2)
  })
})

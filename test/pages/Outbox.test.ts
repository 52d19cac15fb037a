import type { BudgetLeft, Message, Outgoing } from "#interfaces/pages/client/Wire"
import { assert, describe, it } from "@effect/vitest"
import { Api, Refused } from "../../src/interfaces/pages/client/Api.js"
import { Outbox } from "../../src/interfaces/pages/client/Outbox.js"
import { Timers } from "../../src/interfaces/pages/client/Timers.js"
import { eventually } from "../support/Eventually.ts"
import { message } from "./Messages.ts"

describe("the outbox", () => {
  it("keeps a message that was not sent because its client_msg_id belongs to a message elsewhere, and sends it with another id", async () => {
    const ids: Array<string> = []
    const { fetch } = globalThis
    // Both answers are 200. Only the header says that the first message is in another conversation.
    Object.assign(globalThis, {
      fetch: async (_url: string, { body }: { readonly body: string }) => {
        const { client_msg_id } = JSON.parse(body) as Pick<Outgoing, "client_msg_id">
        ids.push(client_msg_id)
        return Response.json(
          message(1, { client_msg_id }),
          ids.length === 1 ? { headers: { "X-Client-Msg-Id-Conflict": "conversation" } } : {}
        )
      }
    })
    try {
      const stored: Array<Message> = []
      const outbox: Outbox = new Outbox(new Api("ac_key"), new Timers(), (message, outgoing) => {
        stored.push(message)
        outbox.remove(outgoing.client_msg_id)
      })
      outbox.send({ to: "bob", content: { text: "hello" } }, "hello", null)
      const isFailed = ({ state }: Outgoing) => state === "failed"
      const failed = await eventually("the refusal", () => outbox.messages.peek().find(isFailed))
      assert.match(failed.why ?? "", /^Not sent, .* in another conversation\.$/)
      assert.deepStrictEqual(stored, [])
      outbox.again(failed.client_msg_id)
      await eventually("the message", () => stored[0])
      assert.deepStrictEqual(outbox.messages.peek(), [])
      assert.strictEqual(new Set(ids).size, 2)
    } finally {
      Object.assign(globalThis, { fetch })
    }
  })

  it("knows what is left of a budget, of one conversation or of the agent, until there is more", async () => {
    const api = new Api("ac_key")
    const answers: Array<BudgetLeft | null | Refused> = [
      { left: 3, limit: 20, scope: "conversation" },
      { left: 2, limit: 50, scope: "agent" },
      new Refused("BUDGET_EXCEEDED", "Stop.", 429, 3600, { scope: "conversation", limit: 20 }),
      null
    ]
    api.sendOnce = async (body) => {
      const next = answers.shift()
      if (next instanceof Refused) throw next
      const { client_msg_id } = body as Pick<Outgoing, "client_msg_id">
      return { message: message(1, { client_msg_id }), isElsewhere: false, budget: next }
    }
    const timers = new Timers()
    const outbox: Outbox = new Outbox(api, timers, (_, outgoing) => outbox.remove(outgoing.client_msg_id))
    const send = async () => {
      outbox.send({ to: "bob", content: { text: "hello" } }, "hello", null)
      await eventually(
        "the end of the send",
        () => outbox.messages.peek().every(({ state }) => state === "failed") || undefined
      )
    }
    await send()
    assert.deepStrictEqual(outbox.budgetOf("@bob"), { left: 3, limit: 20, scope: "conversation" })
    assert.isUndefined(outbox.budgetOf("@eve"))
    await send()
    for (const target of ["@bob", "@eve"])
      assert.deepStrictEqual(outbox.budgetOf(target), { left: 2, limit: 50, scope: "agent" })
    await send()
    assert.deepStrictEqual(outbox.budgetOf("@bob"), { left: 0, limit: 20, scope: "conversation" })
    assert.deepStrictEqual(outbox.messages.peek().map(({ why }) => why), ["Stop."], "it does not wait for a day")
    await send()
    assert.isUndefined(outbox.budgetOf("@bob"))
    timers.end()
  })
})

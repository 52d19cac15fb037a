import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type Server, sharedServer } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { freshMsgId, history, inbox, say, words } from "./Talk.ts"

const nameOf = (message: unknown): unknown => (message as Shapes.Message).context.sender.display_name

describe("wire.md I, the sender's display name", () => {
  let receiver: Receiver
  let server: Server
  beforeAll(async () => {
    receiver = await Receiver.start()
    server = await sharedServer()
  })
  afterAll(async () => {
    await server?.stop()
    receiver?.stop()
  })

  /** A pair that writes to each other and shares a group; sockets of both, and a webhook of the second. */
  const meet = async () => {
    const alice = await newAgent(server, "alice", { display_name: "Alice" })
    const bob = await newAgent(server, "bob")
    await say(alice, bob)
    await say(bob, alice)
    const made = (await alice.http.post("/v1/groups", { name: "Band", member_handles: [bob.handle] }))
      .ok(200, Shapes.CreatedGroup)
    const accepted = await bob.http.post(`/v1/groups/invites/${made.add_results[0]?.invite_id}/accept`)
    assert.strictEqual(accepted.status, 200, `${accepted}`)
    const hook = `/${bob.handle}`
    ;(await bob.http.post("/v1/webhooks", { url: receiver.url(hook), events: ["message.new"] }))
      .ok(201, Shapes.CreatedWebhook)
    const [atAlice, atBob] = [await Socket.hello(server, alice.key), await Socket.hello(server, bob.key)]
    const targets = [{ to: bob.handle }, { conversation_id: made.group.id }]
    /** What everybody has been shown of a message. */
    const shown = async ({ id }: { readonly id: string }) => [
      nameOf((await atBob.message(id)).payload),
      nameOf((await atAlice.message(id)).payload),
      nameOf(await receiver.data(hook, "message.new", (data) => data["id"] === id))
    ]
    const done = () => Promise.all([atAlice.close(), atBob.close()])
    return { alice, bob, targets, shown, done }
  }

  it("is the new one from the answer to its change on, in the answer, pushes, webhooks and repeats", async () => {
    const { alice, bob, done, shown, targets } = await meet()
    for (const name of ["Alice the Second", null, "Alice the Third"]) {
      for (const target of targets) {
        // What the cache has now is older than the change.
        assert.strictEqual((await alice.http.get("/v1/agents/me")).status, 200)
        const changed = await alice.http.patch(`/v1/agents/${alice.handle}`, { display_name: name })
        assert.strictEqual(changed.status, 200, `${changed}`)
        const body = { ...target, client_msg_id: freshMsgId(), content: { text: words() } }
        const sent = (await alice.http.post("/v1/messages", body)).ok(201, Shapes.Message)
        const again = (await alice.http.post("/v1/messages", body)).ok(200, Shapes.Message)
        const wanted = name ?? alice.handle
        assert.deepStrictEqual([nameOf(sent), nameOf(again), ...(await shown(sent))], [
          wanted,
          wanted,
          wanted,
          wanted,
          wanted
        ])
        const waiting = (await inbox(bob)).find(({ id }) => id === sent.id)
        const [kept] = await history(bob, sent.conversation_id)
        assert.deepStrictEqual([nameOf(waiting ?? kept), nameOf(kept)], [wanted, wanted])
      }
    }
    await done()
  })
})

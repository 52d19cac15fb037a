import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { freshMsgId, inbox, markRead, newPair, say, words } from "./Talk.ts"

/** Events for which `data` of a webhook is the payload of the frame (wire.md C.12). */
const EVENTS = [
  "message.new",
  "message.read",
  "message.outcome",
  "presence.update",
  "group.invite.received",
  "group.deleted"
]

describe("wire.md E.5, an event is the same object over the socket, by webhook and over HTTP", () => {
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

  /** Hears everything of an agent over a socket that acknowledges nothing, and by webhook. */
  const listen = async (agent: TestAgent) => {
    const path = `/${agent.handle}`
    ;(await agent.http.post("/v1/webhooks", { url: receiver.url(path), events: [...EVENTS, "contact.blocked"] }))
      .ok(201, Shapes.AnyCreatedWebhook)
    const socket = await Socket.hello(server, agent.key)
    /** The first event of this kind that this accepts, after both ways were found to say the same. */
    const heard = async (
      event: string,
      wants: (payload: Readonly<Record<string, unknown>>) => boolean = () => true
    ) => {
      const frame = await socket.waitFor(({ payload, type }: Frame) => type === event && wants(payload ?? {}))
      assert.deepStrictEqual(await receiver.data(path, event, wants), frame.payload, `${event}: webhook and socket`)
      return frame.payload
    }
    const posted = (event: string) => receiver.data(path, event)
    return { heard, posted, close: () => socket.close() }
  }

  it("a direct message.new is the same in push, post, inbox row, answer to the sender and echo", async () => {
    const { alice, bob } = await newPair(server)
    const sent = await say(alice, bob, {
      content: { text: `for @${bob.handle} from the inbox` },
      metadata: { a: [1, null] }
    })
    const row = (await inbox(bob)).find(({ id }) => id === sent.id)
    const [atAlice, atBob] = [await Socket.hello(server, alice.key), await listen(bob)]
    // The one that waited is shown from storage, the other one as it is committed.
    const live = await say(alice, bob, { content: { text: words() }, type: "structured" })
    assert.deepStrictEqual((await atAlice.message(live.id)).payload, live as unknown as Record<string, unknown>)
    const pushed = await atBob.heard("message.new", ({ id }) => id === live.id)
    assert.deepStrictEqual(pushed, { ...live, delivery_id: pushed?.["delivery_id"] })
    const waiting = await Socket.hello(server, bob.key)
    if (row !== undefined) {
      assert.deepStrictEqual<unknown>(row, { ...sent, delivery_id: row.delivery_id })
      assert.deepStrictEqual((await waiting.message(sent.id)).payload, row as unknown as Record<string, unknown>)
    } else assert.fail("it does not wait in the inbox")
    await Promise.all([atAlice.close(), atBob.close(), waiting.close()])
  })

  it("group.invite.received, message.new and group.deleted of a group are the same everywhere", async () => {
    const [alice, bob, carol] = await Promise.all(["alice", "bob", "carol"].map((name) => newAgent(server, name))) as [
      TestAgent,
      TestAgent,
      TestAgent
    ]
    const [atAlice, atBob, atCarol] = [await listen(alice), await listen(bob), await listen(carol)]
    const invitesOf = async (agent: TestAgent) =>
      (await agent.http.get("/v1/groups/invites")).ok(200, Shapes.GroupInvites)
    const plain = (value: unknown) => value as Record<string, unknown>

    const described = { name: "Band", description: "we play", avatar_url: "https://example.com/a.png" }
    const { add_results, group } = (await alice.http.post("/v1/groups", { ...described, member_handles: [bob.handle] }))
      .ok(200, Shapes.CreatedGroup)
    const [invite] = await invitesOf(bob)
    assert.deepStrictEqual(await atBob.heard("group.invite.received"), plain(invite))
    assert.deepInclude(plain(invite), {
      id: add_results[0]?.invite_id,
      group_description: "we play",
      group_avatar_url: "https://example.com/a.png",
      inviter_handle: alice.handle
    })
    // What a group has not set is an empty text.
    const bare = (await alice.http.post("/v1/groups", { name: "Bare", member_handles: [bob.handle] })).ok(
      200,
      Shapes.CreatedGroup
    )
    const ofBare = (payload: Readonly<Record<string, unknown>>) => payload["group_id"] === bare.group.id
    const second = (await invitesOf(bob)).find(ofBare)
    assert.deepStrictEqual(await atBob.heard("group.invite.received", ofBare), plain(second))
    assert.deepInclude(second, { group_description: "", group_avatar_url: "" })

    await bob.http.post(`/v1/groups/invites/${invite?.id}/accept`)
    const joined = await atAlice.heard("message.new", ({ type }) => type === "system")
    const kept = (await alice.http.get(`/v1/messages/${group.id}`)).ok(200, Shapes.Messages).find(({ id }) =>
      id === joined?.["id"]
    )
    assert.deepStrictEqual(plain({ ...kept, status: "stored", delivered_at: null }), joined)
    // Somebody who is added, to a group of two.
    const added = (await alice.http.post(`/v1/groups/${group.id}/members`, { handle: carol.handle })).ok(
      200,
      Shapes.AddResult
    )
    const [third] = await invitesOf(carol)
    assert.deepStrictEqual(await atCarol.heard("group.invite.received"), plain(third))
    assert.deepInclude(plain(third), { id: added.invite_id, group_member_count: 2 })

    const body = { conversation_id: group.id, client_msg_id: freshMsgId(), content: { text: words() } }
    const sent = (await alice.http.post("/v1/messages", body)).ok(201, Shapes.Message)
    const pushed = await atBob.heard("message.new", ({ id }) => id === sent.id)
    assert.deepStrictEqual(pushed, { ...sent, delivery_id: pushed?.["delivery_id"] })

    const { deleted_at } = (await alice.http.delete(`/v1/groups/${group.id}`)).ok(200, Shapes.DeletedGroup)
    const deletion = await atBob.heard("group.deleted")
    assert.deepStrictEqual(deletion, { group_id: group.id, deleted_by_handle: alice.handle, deleted_at })
    await atBob.heard("message.new", ({ content }) => JSON.stringify(content).includes("group_deleted"))
    const upload = {
      conversation_id: group.id,
      filename: "a.txt",
      content_type: "text/plain",
      size: 1,
      sha256: "0".repeat(64)
    }
    const refusals = [
      await bob.http.get(`/v1/groups/${group.id}`),
      await bob.http.get(`/v1/messages/${group.id}`),
      await bob.http.post("/v1/messages", { ...body, client_msg_id: freshMsgId() }),
      await bob.http.post("/v1/uploads", upload)
    ]
    for (const refusal of refusals) {
      assert.deepStrictEqual(refusal.refused(410, "GROUP_DELETED").details, deletion, `${refusal}`)
    }
    await Promise.all([atAlice.close(), atBob.close(), atCarol.close()])
  })

  it("message.read is the same after a request and after a frame", async () => {
    const { alice, bob, first: opener } = await newPair(server)
    await markRead(bob, opener.id)
    const atAlice = await listen(alice)
    const [first, second] = [await say(alice, bob), await say(alice, bob)]
    const read = await markRead(bob, first.id)
    const receipt = await atAlice.heard("message.read")
    assert.deepStrictEqual(receipt, {
      message_id: first.id,
      conversation_id: first.conversation_id,
      seq: first.seq,
      read_by: bob.handle,
      read_at: read.read_at,
      reader: bob.handle,
      at: read.read_at,
      through_seq: first.seq
    })
    const atBob = await Socket.hello(server, bob.key)
    atBob.send({
      type: "message.read_ack",
      payload: { conversation_id: first.conversation_id, through_seq: second.seq }
    })
    const last = await atAlice.heard("message.read", ({ seq }) => seq === second.seq)
    const shown = (await alice.http.get(`/v1/messages/${first.conversation_id}`)).ok(200, Shapes.Messages)[0]
    assert.deepInclude(last, {
      message_id: shown?.id,
      read_at: shown?.read_at,
      at: shown?.read_at,
      through_seq: second.seq
    })
    await Promise.all([atAlice.close(), atBob.close()])
  })

  it("presence.update is the same as the answer to the agent and as what its contacts read", async () => {
    // Who has written to each other holds each other as a contact.
    const { alice, bob } = await newPair(server)
    const atAlice = await listen(alice)
    const said =
      (await bob.http.request("PUT", "/v1/presence", { json: { status: "busy", custom_message: "in a call" } }))
        .ok(200, Shapes.Presence)
    assert.deepStrictEqual(await atAlice.heard("presence.update"), { ...said })
    assert.deepStrictEqual((await alice.http.get(`/v1/presence/${bob.handle}`)).ok(200, Shapes.Presence), said)
    await atAlice.close()
  })

  it("contact.blocked, which only webhooks post, is what the agent that blocked reads", async () => {
    const { alice, bob } = await newPair(server)
    const atAlice = await listen(alice)
    ;(await bob.http.post(`/v1/contacts/${alice.handle}/block`)).ok(200, Shapes.Confirmation)
    const { blocks: [block] } = (await bob.http.get("/v1/contacts/blocks")).ok(200, Shapes.BlockPage)
    assert.deepStrictEqual(await atAlice.posted("contact.blocked"), {
      blocked_by: bob.handle,
      blocked_at: block?.blocked_at
    })
    await atAlice.close()
  })
})

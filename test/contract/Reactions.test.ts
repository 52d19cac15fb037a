import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { createServer } from "node:http"
import { eventually } from "../support/Eventually.ts"
import type { Answer } from "../support/Http.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import { assertGolden } from "./Frames.ts"
import * as Shapes from "./Shapes.ts"
import { catchUp, contextOf, freshMsgId, history, inbox, newPair, say } from "./Talk.ts"

const path = (message: string, emoji: string): string =>
  `/v1/messages/${message}/reactions/${encodeURIComponent(emoji)}`
const attempt = (agent: TestAgent, message: string, emoji: string): Promise<Answer> =>
  agent.http.request("PUT", path(message, emoji))
const react = async (agent: TestAgent, message: string, emoji: string) =>
  (await attempt(agent, message, emoji)).ok(200, Shapes.Reactions).reactions
const takeBack = async (agent: TestAgent, message: string, emoji: string) =>
  (await agent.http.delete(path(message, emoji))).ok(200, Shapes.Reactions).reactions
/** The reactions to a message in an agent's history, or undefined if the field is absent. */
const shown = async (agent: TestAgent, { conversation_id, id }: Shapes.Message) =>
  (await history(agent, conversation_id, `?around_message_id=${id}&limit=1`))[0]?.reactions

describe("wire.md J, reactions", () => {
  let server: Server

  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  /** A group with these members, and a message of the first. */
  const group = async (...members: ReadonlyArray<TestAgent>) => {
    const [creator, ...others] = members as [TestAgent, ...ReadonlyArray<TestAgent>]
    const made = await creator.http.post("/v1/groups", {
      name: "Reactions",
      member_handles: others.map(({ handle }) => handle)
    })
    const { add_results, group } = made.body as {
      readonly add_results: ReadonlyArray<{ readonly invite_id: string }>
      readonly group: { readonly id: string }
    }
    for (const [i, agent] of others.entries())
      await agent.http.post(`/v1/groups/invites/${add_results[i]!.invite_id}/accept`)
    const message = (await creator.http.post("/v1/messages", {
      conversation_id: group.id,
      client_msg_id: freshMsgId(),
      content: { text: "What do you think?" }
    })).ok(201, Shapes.Message)
    return { id: group.id, message }
  }

  it("234. a reaction is shown to all who see the message and pushed to them once; it makes nothing unread", async () => {
    const { alice, bob } = await newPair(server)
    const message = await say(alice, bob)
    await catchUp(bob)
    const sockets = await Promise.all([alice, bob].map(({ key }) => Socket.byHeader(server, key)))
    const before = await contextOf(alice, message.conversation_id)
    assert.isUndefined(await shown(alice, message))
    assert.deepStrictEqual(await react(bob, message.id, "👍🏽"), [{ emoji: "👍🏽", count: 1, mine: true }])
    assert.deepStrictEqual(await react(bob, message.id, "👍🏽"), [{ emoji: "👍🏽", count: 1, mine: true }])
    for (const socket of sockets) {
      await assertGolden("message.reaction", await socket.waitFor("message.reaction"), { [bob.handle]: "bob" })
      await socket.settled()
      assert.strictEqual(socket.count("message.reaction"), 1)
    }
    await react(alice, message.id, "👍🏽")
    await react(alice, message.id, "thanks")
    const seen = (mine: ReadonlyArray<boolean>) => [
      { emoji: "👍🏽", count: 2, mine: mine[0]! },
      { emoji: "thanks", count: 1, mine: mine[1]! }
    ]
    assert.deepStrictEqual(await shown(alice, message), seen([true, true]))
    assert.deepStrictEqual(await shown(bob, message), seen([true, false]))
    // Nothing arrived: no message, no unread message, no later start of the conversation.
    assert.deepStrictEqual(await inbox(alice), [])
    assert.deepStrictEqual(await inbox(bob), [])
    assert.deepStrictEqual(await contextOf(alice, message.conversation_id), before)
    for (const socket of sockets) assert.strictEqual(socket.count("message.new"), 0)
    await takeBack(bob, message.id, "👍🏽")
    assert.deepStrictEqual(await takeBack(bob, message.id, "👍🏽"), [
      { emoji: "👍🏽", count: 1, mine: false },
      { emoji: "thanks", count: 1, mine: false }
    ])
    const gone = await sockets[0]!.waitFor(({ payload, type }) =>
      type === "message.reaction" && payload?.["added"] === false
    )
    assert.deepInclude(gone.payload, { handle: bob.handle, emoji: "👍🏽" })
    await takeBack(alice, message.id, "👍🏽")
    await takeBack(alice, message.id, "thanks")
    assert.isUndefined(await shown(bob, message))
    for (const emoji of ["+1", "👩🏽‍🚀", "🇵🇹", "1️⃣", "👩🏻‍❤️‍💋‍👨🏿"]) await react(bob, message.id, emoji)
    for (const wrong of ["👍👍", "like", "👍 ", "❤", "<b>", "1", "%"])
      (await attempt(alice, message.id, wrong)).refused(400, "VALIDATION_ERROR")
  })

  it("234. a webhook gets the reactions of others, and an agent in a group those to messages that it sees", async () => {
    const [alice, bob, carol] = await Promise.all(["alice", "bob", "carol"].map((name) => newAgent(server, name))) as [
      TestAgent,
      TestAgent,
      TestAgent
    ]
    const posts: Array<{ readonly event: string; readonly data: Readonly<Record<string, unknown>> }> = []
    const receiver = createServer((request, response) => {
      let body = ""
      request.setEncoding("utf8").on("data", (part: string) => body += part).on("end", () => {
        posts.push(JSON.parse(body))
        response.end()
      })
    })
    await new Promise<void>((resolve) => receiver.listen(0, "127.0.0.1", resolve))
    const address = receiver.address()
    const url = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}/`
    // The published client does not know the event, so its shape of a webhook has no place for it.
    assert.strictEqual((await alice.http.post("/v1/webhooks", { url, events: ["message.reaction"] })).status, 201)
    const { id, message } = await group(alice, bob)
    await alice.http.post(`/v1/groups/${id}/members`, { handle: carol.handle })
    const [invite] = (await carol.http.get("/v1/groups/invites")).body as ReadonlyArray<{ readonly id: string }>
    await carol.http.post(`/v1/groups/invites/${invite!.id}/accept`)
    const [alices, carols] = [await Socket.byHeader(server, alice.key), await Socket.byHeader(server, carol.key)] // Carol joined after the message.
    ;(await attempt(carol, message.id, "seen")).refused(404, "MESSAGE_NOT_FOUND")
    await react(alice, message.id, "seen")
    await react(bob, message.id, "seen")
    await alices.waitFor(({ payload, type }) => type === "message.reaction" && payload?.["handle"] === bob.handle)
    await eventually("the post", () => posts[0])
    assert.deepStrictEqual(posts.map(({ data, event }) => [event, data]), [["message.reaction", {
      message_id: message.id,
      conversation_id: id,
      handle: bob.handle,
      emoji: "seen",
      added: true
    }]])
    await carols.settled()
    assert.strictEqual(carols.count("message.reaction"), 0)
    receiver.close()
  })

  it("235. an agent gives a message at most 5 reactions and a message has at most 20 different ones, also at once", async () => {
    const members = await Promise.all(Array.from({ length: 6 }, () => newAgent(server, "many")))
    const { message } = await group(...members)
    const emojis = Array.from({ length: 30 }, (_, i) => String.fromCodePoint(0x1F34A + i))
    const statuses = (answers: ReadonlyArray<Answer>) => answers.map(({ status }) => status).sort()
    const [first, ...others] = members as [TestAgent, ...ReadonlyArray<TestAgent>]
    const own = await Promise.all(emojis.slice(0, 8).map((emoji) => attempt(first, message.id, emoji)))
    assert.deepStrictEqual(statuses(own), [200, 200, 200, 200, 200, 400, 400, 400])
    own.find(({ status }) => status === 400)!.refused(400, "LIMIT_REACHED")
    const all = await Promise.all(
      others.flatMap((agent, i) =>
        emojis.slice(8 + i * 4, 12 + i * 4).map((emoji) => attempt(agent, message.id, emoji))
      )
    )
    assert.strictEqual(all.filter(({ status }) => status === 200).length, 15)
    const reactions = (await shown(first, message))!
    assert.strictEqual(reactions.length, 20)
    // One that is there already can still be given, and one that is taken back makes room.
    const last = others.at(-1)!
    const there = reactions.find(({ mine }) => mine)!.emoji
    await react(last, message.id, there)
    ;(await attempt(last, message.id, "done")).refused(400, "LIMIT_REACHED")
    await takeBack(last, message.id, there)
    await takeBack(first, message.id, there)
    await react(last, message.id, "done")
  })

  it("236. reactions stop at blocks and mutes, at system messages and at what the caller does not see", async () => {
    const { alice, bob } = await newPair(server)
    const [stranger, message] = [await newAgent(server, "stranger"), await say(alice, bob)]
    const hidden = await say(alice, bob)
    for (const id of [message.id, "msg_AAAAAAAAAAAAAAAA", "nonsense"]) {
      ;(await attempt(stranger, id, "seen")).refused(404, "MESSAGE_NOT_FOUND")
      ;(await stranger.http.delete(path(id, "seen"))).refused(404, "MESSAGE_NOT_FOUND")
    }
    ;(await bob.http.delete(`/v1/messages/${hidden.id}`)).ok(200, Shapes.Confirmation)
    ;(await attempt(bob, hidden.id, "seen")).refused(404, "MESSAGE_NOT_FOUND")
    const sockets = await Promise.all([alice, bob].map(({ key }) => Socket.byHeader(server, key)))
    await alice.http.post("/v1/mutes", { target_kind: "agent", target_handle: bob.handle })
    await react(bob, message.id, "seen")
    await sockets[1]!.waitFor("message.reaction")
    await sockets[0]!.settled()
    assert.strictEqual(sockets[0]!.count("message.reaction"), 0, "muted")
    await alice.http.delete(`/v1/mutes/agent/${bob.handle}`)
    ;(await alice.http.post(`/v1/contacts/${bob.handle}/block`)).ok(200, Shapes.Confirmation)
    for (const agent of [alice, bob]) (await attempt(agent, message.id, "+1")).refused(403, "BLOCKED")
    // A reaction can still be taken back. The other side is not told.
    assert.deepStrictEqual(await takeBack(bob, message.id, "seen"), [])
    await sockets[0]!.settled()
    assert.strictEqual(sockets[0]!.count("message.reaction"), 0)
    const { id } = await group(alice, stranger)
    const joined = (await history(alice, id)).find(({ type }) => type === "system")!
    ;(await attempt(alice, joined.id, "seen")).refused(400, "VALIDATION_ERROR")
  })
})

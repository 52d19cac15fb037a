import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { AgentChatError, BlockedError, ForbiddenError, GroupDeletedError, NotFoundError } from "agentchatme"
import { createHash } from "node:crypto"
import type { Answer } from "../support/Http.ts"
import { newAgent, type Server, startServer, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"
import { assertGolden } from "./Frames.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, catchUp, freshMsgId, history, inbox, markRead, newPair, say, seqsOf, words } from "./Talk.ts"

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(() => assert.fail("it was accepted"), (error: unknown) => error)

const create = async (creator: TestAgent, members: ReadonlyArray<TestAgent> = [], fields: object = {}) =>
  (await creator.http.post("/v1/groups", {
    name: "The band",
    member_handles: members.map(({ handle }) => handle),
    ...fields
  })).ok(200, Shapes.CreatedGroup)

const invitesOf = async (agent: TestAgent) => (await agent.http.get("/v1/groups/invites")).ok(200, Shapes.GroupInvites)

const accept = async (agent: TestAgent, inviteId: string | undefined) =>
  (await agent.http.post(`/v1/groups/invites/${inviteId}/accept`)).ok(200, Shapes.Group)

const groupOf = async (agent: TestAgent, id: string) => (await agent.http.get(`/v1/groups/${id}`)).ok(200, Shapes.Group)

/** A group in which everybody has accepted, in this order; inboxes empty. */
const joined = async (creator: TestAgent, ...members: ReadonlyArray<TestAgent>): Promise<string> => {
  const { add_results, group } = await create(creator, members)
  for (const [i, member] of members.entries()) await accept(member, add_results[i]?.invite_id)
  for (const agent of [creator, ...members]) await catchUp(agent)
  return group.id
}

const attemptTo = (from: TestAgent, group: string, fields: object = {}): Promise<Answer> =>
  attempt(from, "", { to: undefined, conversation_id: group, ...fields })

const sayTo = async (from: TestAgent, group: string, fields: object = {}): Promise<Shapes.Message> =>
  (await attemptTo(from, group, fields)).ok(201, Shapes.Message)

const eventsOf = (messages: ReadonlyArray<Pick<Shapes.Message, "content">>) =>
  messages.map(({ content }) => content.data?.["event"])

const isSystem = (event: string) => (frame: Frame): boolean =>
  frame.type === "message.new" &&
  (frame.payload as { content: { data?: { event?: string } } }).content.data?.event === event

describe("wire.md J, Groups", () => {
  let server: Server

  beforeAll(async () => {
    server = await startServer({ env: { LIMITS_GROUP_MEMBERS: "4", LIMITS_GROUP_INVITES_PER_DAY: "40" } })
  })
  afterAll(() => server.stop())

  const agents = (n: number): Promise<ReadonlyArray<TestAgent>> =>
    Promise.all(["alice", "bob", "carol", "dave", "erin"].slice(0, n).map((name) => newAgent(server, name)))
  const three = async () => (await agents(3)) as unknown as [TestAgent, TestAgent, TestAgent]

  it("103. creating is 200 with the creator as only member and admin, the others invited", async () => {
    const [alice, bob, carol] = await three()
    const { add_results, group, skipped } = await create(alice, [bob, carol, bob, alice], {
      name: "  The band  ",
      description: "we play",
      avatar_url: "https://example.com/a.png",
      settings: { who_can_invite: "admin" }
    })
    assert.deepInclude(group, {
      name: "The band",
      description: "we play",
      avatar_url: "https://example.com/a.png",
      created_by: alice.handle,
      member_count: 1,
      last_message_at: null,
      your_role: "admin"
    })
    assert.deepStrictEqual(group.members.map(({ handle, role }) => [handle, role]), [[alice.handle, "admin"]])
    assert.deepStrictEqual(add_results.map(({ handle, outcome }) => [handle, outcome]), [
      [bob.handle, "invited"],
      [carol.handle, "invited"]
    ])
    assert.deepStrictEqual(skipped, [])
    assert.deepStrictEqual(await groupOf(alice, group.id), group)
    // Without a message it is in its creator's list all the same.
    const page = (await alice.http.get("/v1/conversations")).ok(200, Shapes.GroupConversationPage)
    assert.deepInclude(page.conversations[0], {
      id: group.id,
      group_name: "The band",
      group_member_count: 1,
      last_message_at: null
    })
    const byClient = await alice.client.createGroup({ name: "Another", member_handles: [bob.handle] })
    assert.strictEqual(byClient.group.name, "Another")
    assert.strictEqual(byClient.add_results[0]?.outcome, "invited")
  })

  it("103. a group is refused with a wrong name or wrong invitees", async () => {
    const [alice] = await agents(1) as unknown as [TestAgent]
    const bad = [
      {},
      { name: "" },
      { name: "   " },
      { name: "x".repeat(101) },
      { name: "two\nlines" },
      { name: "turned \u202earound" },
      { name: "\u200b" },
      { name: "n", description: "x".repeat(501) },
      { name: "n", avatar_url: "ftp://example.com/a" },
      { name: "n", avatar_url: "no url" },
      { name: "n", avatar_url: `https://example.com/${"x".repeat(2048)}` },
      { name: "n", member_handles: Array.from({ length: 256 }, (_, i) => `agent-${i}`) },
      { name: "n", settings: { who_can_invite: "member" } }
    ]
    for (const fields of bad) (await alice.http.post("/v1/groups", fields)).refused(400, "VALIDATION_ERROR")
    const { group } = await create(alice, [], { name: "\u{1f98a}".repeat(100) })
    assert.strictEqual(group.description, null)
    for (const name of ["a\u2028b", "a\u2066b", "a\u0007b", "\u3164"]) {
      ;(await alice.http.patch(`/v1/groups/${group.id}`, { name })).refused(400, "VALIDATION_ERROR")
    }
    assert.strictEqual((await create(alice, [], { name: "\u05d0\u200e1 \n" })).group.name, "\u05d0\u200e1")
  })

  it("103. a group's name loses characters that nobody sees, when it is created and when it is changed", async () => {
    const [alice] = await agents(1) as unknown as [TestAgent]
    const { group } = await create(alice, [], { name: " The\u200b \u2060band\ufeff " })
    assert.strictEqual(group.name, "The band")
    ;(await alice.http.patch(`/v1/groups/${group.id}`, { name: "\u00adThe\u200d choir " })).ok(200, Shapes.Group)
    assert.strictEqual((await groupOf(alice, group.id)).name, "The choir")
  })

  it("104. an unknown handle is skipped; more invites than the budget holds are refused as a whole", async () => {
    const [alice, bob] = await three()
    const handles = Array.from({ length: 255 }, (_, i) => `nobody-${i}`)
    const { add_results, skipped } = await create(alice, [], {
      member_handles: [...handles.slice(1), `@${bob.handle.toUpperCase()}`]
    })
    assert.deepStrictEqual(add_results.map(({ handle }) => handle), [bob.handle])
    assert.strictEqual(skipped.length, 254)
    assert.deepStrictEqual(skipped[0], { handle: "nobody-1", code: "AGENT_NOT_FOUND" })
    const first = (await groupOf(alice, (await create(alice)).group.id)).id
    for (let i = 0; i < 39; i++) await create(alice, [bob])
    const refusal = await alice.http.post("/v1/groups", { name: "n", member_handles: [bob.handle] })
    assert.deepInclude(refusal.refused(429, "RATE_LIMITED").details, { limit: 40, window: "day" })
    assert.isAbove(Number(refusal.header("retry-after")), 86_000)
    ;(await alice.http.post(`/v1/groups/${first}/members`, { handle: bob.handle })).refused(429, "RATE_LIMITED")
    assert.strictEqual((await invitesOf(bob)).length, 40)
  })

  it("105. an invitee is notified, lists the invite and accepts it; the others get member_joined live", async () => {
    const [alice, bob, carol] = await three()
    const sockets = await Promise.all([alice, bob, carol].map((agent) => Socket.hello(server, agent.key)))
    const [mine, bobs, carols] = sockets as [Socket, Socket, Socket]
    const { add_results, group } = await create(alice, [bob, carol], { description: "we play" })
    const told = await bobs.payload("group.invite.received", Shapes.GroupInvite)
    assert.deepStrictEqual(await invitesOf(bob), [told])
    assert.deepInclude(told, {
      id: add_results[0]?.invite_id ?? "",
      group_id: group.id,
      group_name: "The band",
      group_description: "we play",
      group_avatar_url: "",
      group_member_count: 1,
      inviter_handle: alice.handle
    })
    const names = { [alice.handle]: "alice", [bob.handle]: "bob", [carol.handle]: "carol" }
    await assertGolden("group.invite.received", await bobs.waitFor("group.invite.received"), names)
    const group2 = await bob.client.acceptGroupInvite(told.id)
    assert.deepStrictEqual(group2.members.map(({ handle, role }) => [handle, role]), [
      [alice.handle, "admin"],
      [bob.handle, "member"]
    ])
    assert.strictEqual(group2.your_role, "member")
    const message = await mine.payload(isSystem("member_joined"), Shapes.Pushed)
    assert.strictEqual(message.client_msg_id, `sys_${message.id}`)
    assert.deepStrictEqual(message.content, {
      data: { schema_version: 1, event: "member_joined", agent_handle: bob.handle }
    })
    // The joiner hears of itself as of any own message; who is only invited hears nothing.
    await bobs.message(message.id)
    await accept(carol, add_results[1]?.invite_id)
    await bobs.waitFor(isSystem("member_joined"))
    await carols.waitFor(isSystem("member_joined"))
    assert.strictEqual(carols.count("message.new"), 1)
    assert.deepStrictEqual(await bob.client.listGroupInvites(), [])
    await Promise.all(sockets.map((socket) => socket.close()))
  })

  it("106. accepting twice is 404, so is accepting after a refusal, and somebody else's invite", async () => {
    const [alice, bob, carol] = await three()
    const { add_results, group } = await create(alice, [bob, carol])
    const [bobs, carols] = add_results.map(({ invite_id }) => invite_id)
    ;(await carol.http.post(`/v1/groups/invites/${bobs}/accept`)).refused(404, "INVITE_NOT_FOUND")
    ;(await carol.http.delete(`/v1/groups/invites/${bobs}`)).refused(404, "INVITE_NOT_FOUND")
    ;(await carol.http.post("/v1/groups/invites/gri_AAAAAAAAAAAAAAAA/accept")).refused(404, "INVITE_NOT_FOUND")
    await accept(bob, bobs)
    ;(await bob.http.post(`/v1/groups/invites/${bobs}/accept`)).refused(404, "INVITE_NOT_FOUND")
    assert.isString((await carol.client.rejectGroupInvite(carols ?? "")).message)
    ;(await carol.http.post(`/v1/groups/invites/${carols}/accept`)).refused(404, "INVITE_NOT_FOUND")
    const again = await alice.http.post(`/v1/groups/${group.id}/members`, { handle: carol.handle })
    assert.deepInclude(again.refused(429, "RATE_LIMITED").details, { limit: 1, window: "day" })
    assert.isAbove(Number(again.header("retry-after")), 86_000)
    assert.instanceOf(await failure(carol.client.acceptGroupInvite(carols ?? "")), NotFoundError)
  })

  it("107. adding again gives the same invite, silently; admins list and cancel what is pending", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob)
    const socket = await Socket.hello(server, carol.key)
    const add = (from: TestAgent, handle: string) => from.http.post(`/v1/groups/${group}/members`, { handle })
    const first = (await add(alice, carol.handle)).ok(200, Shapes.AddResult)
    assert.deepInclude(first, { handle: carol.handle, outcome: "invited" })
    assert.isString(first.invite_id)
    assert.deepStrictEqual(await alice.client.addGroupMember(group, carol.handle), first)
    await socket.settled()
    assert.strictEqual(socket.count("group.invite.received"), 1)
    for (const handle of [bob.handle, alice.handle]) {
      assert.deepStrictEqual((await add(alice, handle)).ok(200, Shapes.AddResult), {
        handle,
        outcome: "already_member"
      })
    }
    ;(await add(alice, "nobody-here")).refused(404, "AGENT_NOT_FOUND")
    ;(await add(bob, carol.handle)).refused(403, "FORBIDDEN")
    const page = (await alice.http.get(`/v1/groups/${group}/invites?limit=1`)).ok(200, Shapes.PendingInvites)
    assert.deepStrictEqual(page.invites.map(({ handle, id, inviter_handle }) => [id, handle, inviter_handle]), [
      [first.invite_id, carol.handle, alice.handle]
    ])
    assert.deepInclude(page, { total: 1, limit: 1, offset: 0, next_cursor: null })
    ;(await alice.http.get(`/v1/groups/${group}/invites?offset=0&cursor=x`)).refused(400, "VALIDATION_ERROR")
    ;(await bob.http.get(`/v1/groups/${group}/invites`)).refused(403, "FORBIDDEN")
    ;(await bob.http.delete(`/v1/groups/${group}/invites/${first.invite_id}`)).refused(403, "FORBIDDEN")
    ;(await alice.http.delete(`/v1/groups/${group}/invites/${first.invite_id}`)).ok(200, Shapes.Confirmation)
    ;(await alice.http.delete(`/v1/groups/${group}/invites/${first.invite_id}`)).refused(404, "INVITE_NOT_FOUND")
    ;(await carol.http.post(`/v1/groups/invites/${first.invite_id}/accept`)).refused(404, "INVITE_NOT_FOUND")
    await socket.close()
  })

  it("108. outsiders and invitees get the 404 of an unknown group everywhere", async () => {
    const [alice, bob, carol] = await three()
    const { group } = await create(alice, [carol])
    const unknown = "grp_AAAAAAAAAAAAAAAA"
    const routes: ReadonlyArray<readonly [string, string, unknown?]> = [
      ["GET", "/v1/groups/ID"],
      ["PATCH", "/v1/groups/ID", { name: "x" }],
      ["DELETE", "/v1/groups/ID"],
      ["POST", "/v1/groups/ID/members", { handle: alice.handle }],
      ["DELETE", `/v1/groups/ID/members/${alice.handle}`],
      ["POST", `/v1/groups/ID/members/${alice.handle}/promote`],
      ["POST", `/v1/groups/ID/members/${alice.handle}/demote`],
      ["POST", "/v1/groups/ID/leave"],
      ["GET", "/v1/groups/ID/invites"],
      ["DELETE", "/v1/groups/ID/invites/gri_AAAAAAAAAAAAAAAA"]
    ]
    for (const [method, path, json] of routes) {
      for (const agent of [bob, carol]) {
        const [there, nowhere] = await Promise.all(
          [group.id, unknown].map((id) =>
            agent.http.request(method, path.replace("ID", id), json === undefined ? {} : { json })
          )
        )
        assert.deepStrictEqual(there?.refused(404, "GROUP_NOT_FOUND"), nowhere?.refused(404, "GROUP_NOT_FOUND"))
      }
    }
    for (const id of [group.id, unknown]) {
      ;(await attemptTo(bob, id)).refused(404, "GROUP_NOT_FOUND")
      for (
        const path of [`/v1/messages/${id}`, `/v1/conversations/${id}/context`, `/v1/conversations/${id}/participants`]
      ) {
        ;(await bob.http.get(path)).refused(404, "CONVERSATION_NOT_FOUND")
      }
      ;(await bob.http.delete(`/v1/conversations/${id}`)).refused(404, "CONVERSATION_NOT_FOUND")
    }
    assert.instanceOf(await failure(bob.client.getGroup(group.id)), NotFoundError)
    assert.instanceOf(await failure(bob.client.leaveGroup(group.id)), NotFoundError)
  })

  it("79. a direct id as conversation_id is 400", async () => {
    const { alice, conversation } = await newPair(server)
    ;(await attemptTo(alice, conversation)).refused(400, "VALIDATION_ERROR")
  })

  it("109. a member cannot change the group; an admin's change is said field by field", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob, carol)
    ;(await bob.http.patch(`/v1/groups/${group}`, { name: "x" })).refused(403, "FORBIDDEN")
    assert.instanceOf(await failure(bob.client.updateGroup(group, { name: "x" })), ForbiddenError)
    const changed = (await alice.http.patch(`/v1/groups/${group}`, {
      name: "New",
      description: "told",
      avatar_url: "https://example.com/b.png",
      settings: { who_can_invite: "admin" }
    })).ok(200, Shapes.Group)
    assert.deepInclude(changed, { name: "New", description: "told", avatar_url: "https://example.com/b.png" })
    const said = await inbox(bob)
    const by = { schema_version: 1, actor_handle: alice.handle }
    assert.deepStrictEqual(said.map(({ content, sender, type }) => ({ data: content.data, sender, type })), [
      { data: { ...by, event: "name_changed", new_name: "New" }, sender: alice.handle, type: "system" },
      { data: { ...by, event: "description_changed" }, sender: alice.handle, type: "system" },
      { data: { ...by, event: "avatar_changed" }, sender: alice.handle, type: "system" }
    ])
    assert.deepStrictEqual(said[0]?.context.conversation, { type: "group", group_name: "New", member_count: 3 })
    // Nothing really changes: nothing is said.
    await alice.client.updateGroup(group, { name: "New" })
    assert.strictEqual((await inbox(bob)).length, 3)
    const cleared = await alice.client.updateGroup(group, { description: null, avatar_url: null })
    assert.deepInclude(cleared, { description: null, avatar_url: null })
    for (const fields of [{ name: "" }, { settings: { who_can_invite: "all" } }, { description: 1 }]) {
      ;(await alice.http.patch(`/v1/groups/${group}`, fields)).refused(400, "VALIDATION_ERROR")
    }
  })

  it("232. a thread that began before a member joined is not its own, but what answers a message that it sees is", async () => {
    const [alice, bob, carol] = await three()
    const { add_results, group } = await create(alice, [bob, carol])
    await accept(bob, add_results[0]?.invite_id)
    const early = await sayTo(alice, group.id)
    await accept(carol, add_results[1]?.invite_id)
    const answer = await sayTo(bob, group.id, { metadata: { reply_to: early.id } })
    const again = await sayTo(alice, group.id, { metadata: { reply_to: answer.id } })
    const thread = async (of: TestAgent, { id }: Shapes.Message) => seqsOf(await history(of, group.id, `?thread=${id}`))
    ;(await carol.http.get(`/v1/messages/${group.id}?thread=${early.id}`)).refused(404, "MESSAGE_NOT_FOUND")
    assert.deepStrictEqual(await thread(carol, answer), [answer.seq, again.seq])
    assert.deepStrictEqual(await thread(alice, early), [early.seq, answer.seq, again.seq])
  })

  it("101, 102, 110. a new member sees nothing earlier; context, participants, list and unread are its own", async () => {
    const [alice, bob, carol] = await three()
    const { add_results, group } = await create(alice, [bob, carol])
    await accept(bob, add_results[0]?.invite_id)
    const early = await sayTo(alice, group.id)
    await accept(carol, add_results[1]?.invite_id)
    const late = await sayTo(alice, group.id, { content: { text: "hello @bob, welcome" } })
    assert.deepStrictEqual(late.context.conversation, { type: "group", group_name: "The band", member_count: 3 })
    assert.deepStrictEqual(seqsOf(await history(carol, group.id)), [late.seq, late.seq - 1])
    assert.deepStrictEqual(seqsOf(await history(carol, group.id, "?after_seq=0")), [late.seq - 1, late.seq])
    ;(await carol.http.get(`/v1/messages/${group.id}?around_message_id=${early.id}`)).refused(404, "MESSAGE_NOT_FOUND")
    assert.deepStrictEqual(seqsOf(await history(bob, group.id, "?after_seq=0")), [1, 2, 3, 4])
    assert.deepStrictEqual((await inbox(carol)).map(({ id }) => id), [late.id])
    const participants = (await bob.http.get(`/v1/conversations/${group.id}/participants`)).ok(200, Shapes.Participants)
    assert.deepStrictEqual(participants.map(({ handle }) => handle), [alice.handle, bob.handle, carol.handle])
    const context = (await carol.http.get(`/v1/conversations/${group.id}/context`)).ok(200, Shapes.GroupContext)
    assert.deepStrictEqual([context.group, context.unread], [
      { name: "The band", description: null, member_count: 3, your_role: "member" },
      { count: 1, oldest_seq: late.seq, newest_seq: late.seq }
    ])
    const listed = async () =>
      (await carol.http.get("/v1/conversations")).ok(200, Shapes.GroupConversationPage).conversations
    assert.deepInclude((await listed())[0], {
      id: group.id,
      group_name: "The band",
      group_member_count: 3,
      last_message_preview: "hello @bob, welcome",
      last_message_is_own: false,
      unread_count: 1
    })
    ;(await carol.http.delete(`/v1/conversations/${group.id}`)).ok(200, Shapes.Hidden)
    assert.deepStrictEqual([await listed(), await inbox(carol)], [[], []])
    const back = await sayTo(bob, group.id)
    assert.deepStrictEqual(seqsOf(await history(carol, group.id)), [back.seq])
    assert.strictEqual((await listed()).length, 1)
    assert.strictEqual((await history(alice, group.id)).length, 5)
  })

  it("149. the mentions of a message in a group are of members, on send, history, sync and push", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob)
    const socket = await Socket.hello(server, bob.key)
    const text =
      `@${carol.handle} is no member; @${bob.handle.toUpperCase()} and @${alice.handle} are, and \`@${alice.handle}\` is code`
    const client_msg_id = freshMsgId()
    const sent = await sayTo(alice, group, { client_msg_id, content: { text } })
    const members = [bob.handle, alice.handle]
    const mentionsIn = (
      messages: ReadonlyArray<{ readonly id: string; readonly context: Shapes.Message["context"] }>
    ) => messages.find(({ id }) => id === sent.id)?.context.mentions
    assert.deepStrictEqual(sent.context.mentions, members)
    assert.deepStrictEqual(
      (await attemptTo(alice, group, { client_msg_id })).ok(200, Shapes.Message).context.mentions,
      members
    )
    assert.deepStrictEqual((await socket.message(sent.id)).payload?.["context"], sent.context)
    assert.deepStrictEqual(mentionsIn(await history(bob, group)), members)
    assert.deepStrictEqual(mentionsIn(await inbox(bob)), members)
    assert.deepStrictEqual((await markRead(bob, sent.id)).context.mentions, members)
    const direct = await say(alice, bob, { content: { text } })
    assert.deepStrictEqual(direct.context.mentions, [carol.handle, ...members])
    assert.strictEqual((await bob.http.post(`/v1/groups/${group}/leave`)).status, 200)
    assert.deepStrictEqual(mentionsIn(await history(alice, group)), [alice.handle])
    await socket.close()
  })

  it("110. messages reach every member once, live and in order; typing and reads too", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob, carol)
    const sockets = await Promise.all([alice, bob, carol].map((agent) => Socket.hello(server, agent.key)))
    const [mine, bobs, carols] = sockets as [Socket, Socket, Socket]
    const client_msg_id = freshMsgId()
    const message = await sayTo(alice, group, { client_msg_id })
    assert.deepStrictEqual(
      (await attemptTo(alice, group, { client_msg_id, content: { text: words() } })).ok(200, Shapes.Message),
      message
    )
    await mine.message(message.id)
    for (const socket of [bobs, carols]) {
      const pushed = (await socket.message(message.id)).payload
      assert.isString(pushed?.["delivery_id"])
      assert.deepStrictEqual<unknown>({ ...pushed, delivery_id: null }, message)
    }
    assert.deepStrictEqual(message.context, {
      sender: { handle: alice.handle, display_name: alice.handle, kind: "agent" },
      conversation: { type: "group", group_name: "The band", member_count: 3 },
      mentions: []
    })
    const statusOf = async () => (await history(alice, group)).find(({ id }) => id === message.id)?.status
    assert.strictEqual(await statusOf(), "stored")
    assert.strictEqual((await markRead(bob, message.id)).status, "read")
    const receipt = await mine.payload("message.read", Shapes.Receipt)
    assert.deepInclude(receipt, { message_id: message.id, conversation_id: group, read_by: bob.handle })
    assert.strictEqual(await statusOf(), "stored")
    carols.send({ type: "message.read_ack", payload: { conversation_id: group, through_seq: message.seq } })
    await mine.waitFor((frame) => frame.type === "message.read" && frame.payload?.["read_by"] === carol.handle)
    assert.strictEqual(await statusOf(), "read")
    ;(await alice.http.post(`/v1/messages/${message.id}/read`)).refused(403, "FORBIDDEN")
    carols.send({ type: "typing.start", payload: { conversation_id: group } })
    for (const socket of [mine, bobs]) {
      assert.deepStrictEqual(await socket.payload("typing.start", Shapes.Typing), {
        conversation_id: group,
        sender: carol.handle
      })
    }
    await carols.settled()
    assert.strictEqual(carols.count("typing.start"), 0)
    for (const socket of sockets) assert.strictEqual(socket.pushed().filter((id) => id === message.id).length, 1)
    await Promise.all(sockets.map((socket) => socket.close()))
  })

  it("111. the creator cannot be removed, nobody removes itself, a non-member is 404", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob)
    const remove = (from: TestAgent, handle: string) => from.http.delete(`/v1/groups/${group}/members/${handle}`)
    ;(await remove(bob, alice.handle)).refused(403, "FORBIDDEN")
    ;(await alice.http.post(`/v1/groups/${group}/members/${bob.handle}/promote`)).ok(200, Shapes.Confirmation)
    ;(await remove(bob, alice.handle)).refused(403, "FORBIDDEN")
    ;(await remove(bob, bob.handle)).refused(400, "VALIDATION_ERROR")
    ;(await remove(bob, carol.handle)).refused(404, "NOT_MEMBER")
    ;(await remove(bob, "nobody-here")).refused(404, "NOT_MEMBER")
    assert.instanceOf(await failure(alice.client.removeGroupMember(group, carol.handle)), NotFoundError)
  })

  it("112. the last admin is not demoted, promoting twice is ok, the creator stays one", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob, carol)
    const roles = async () => (await groupOf(carol, group)).members.map(({ role }) => role)
    const role = (from: TestAgent, handle: string, what: "promote" | "demote") =>
      from.http.post(`/v1/groups/${group}/members/${handle}/${what}`)
    ;(await role(alice, alice.handle, "demote")).refused(400, "LAST_ADMIN")
    ;(await role(alice, bob.handle, "demote")).refused(400, "NOT_ADMIN")
    ;(await role(bob, carol.handle, "promote")).refused(403, "FORBIDDEN")
    ;(await role(alice, "nobody-here", "promote")).refused(404, "NOT_MEMBER")
    assert.isString((await alice.client.promoteGroupMember(group, bob.handle)).message)
    ;(await role(alice, bob.handle, "promote")).ok(200, Shapes.Confirmation)
    assert.deepStrictEqual(await roles(), ["admin", "admin", "member"])
    ;(await role(bob, alice.handle, "demote")).refused(403, "FORBIDDEN")
    assert.isString((await alice.client.demoteGroupMember(group, bob.handle)).message)
    assert.deepStrictEqual(await roles(), ["admin", "member", "member"])
    const by = { schema_version: 1, agent_handle: bob.handle, actor_handle: alice.handle }
    assert.deepStrictEqual((await inbox(carol)).map(({ content }) => content.data), [
      { ...by, event: "admin_promoted" },
      { ...by, event: "admin_demoted" }
    ])
    assert.instanceOf(await failure(alice.client.demoteGroupMember(group, bob.handle)), AgentChatError)
  })

  it("113. when the last admin leaves, the member that joined first becomes admin, and all members are notified of both", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob, carol)
    const left = (await alice.http.post(`/v1/groups/${group}/leave`)).ok(200, Shapes.LeftGroup)
    assert.strictEqual(left.promoted_handle, bob.handle)
    const said = await inbox(carol)
    assert.deepStrictEqual(said.map(({ content, sender }) => [sender, content.data]), [
      [alice.handle, { schema_version: 1, event: "member_left", agent_handle: alice.handle }],
      [alice.handle, { schema_version: 1, event: "admin_promoted", agent_handle: bob.handle, actor_handle: null }]
    ])
    assert.strictEqual((await groupOf(bob, group)).your_role, "admin")
    // The creator's rights are gone with it, also when it comes back: any admin may remove it, and delete.
    const add = async () =>
      (await bob.http.post(`/v1/groups/${group}/members`, { handle: alice.handle })).ok(200, Shapes.AddResult)
    assert.strictEqual((await accept(alice, (await add()).invite_id)).your_role, "member")
    ;(await alice.http.delete(`/v1/groups/${group}`)).refused(403, "FORBIDDEN")
    ;(await bob.http.delete(`/v1/groups/${group}/members/${alice.handle}`)).ok(200, Shapes.Confirmation)
    assert.strictEqual((await carol.client.leaveGroup(group)).promoted_handle, null)
    assert.match((await bob.client.deleteGroup(group)).deleted_at, /Z$/)
    const error = await failure(alice.client.getGroup(group))
    assert.instanceOf(error, GroupDeletedError)
    assert.strictEqual((error as GroupDeletedError).deletedByHandle, bob.handle)
  })

  it("114. a removed member is notified last, and gets nothing more of the group", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob, carol)
    const socket = await Socket.hello(server, bob.key)
    const waiting = await sayTo(alice, group)
    assert.isString((await alice.client.removeGroupMember(group, bob.handle)).message)
    const last = await socket.payload(isSystem("member_removed"), Shapes.Pushed)
    assert.deepStrictEqual(last.content.data, {
      schema_version: 1,
      event: "member_removed",
      agent_handle: bob.handle,
      actor_handle: alice.handle
    })
    assert.deepStrictEqual(eventsOf(await inbox(bob)), ["member_removed"])
    // What it got is still its own to read and to hide; what it never got is nothing to it.
    assert.strictEqual((await markRead(bob, last.id)).status, "read")
    assert.strictEqual((await markRead(bob, waiting.id)).id, waiting.id)
    ;(await bob.http.delete(`/v1/messages/${waiting.id}`)).ok(200, Shapes.Confirmation)
    assert.deepStrictEqual(await inbox(bob), [])
    const unheard = await sayTo(carol, group)
    assert.deepStrictEqual(await inbox(bob), [])
    ;(await bob.http.post(`/v1/messages/${unheard.id}/read`)).refused(404, "MESSAGE_NOT_FOUND")
    ;(await bob.http.delete(`/v1/messages/${unheard.id}`)).refused(404, "MESSAGE_NOT_FOUND")
    await socket.settled()
    assert.notInclude(socket.pushed(), unheard.id)
    ;(await bob.http.get(`/v1/groups/${group}`)).refused(404, "GROUP_NOT_FOUND")
    ;(await attemptTo(bob, group)).refused(404, "GROUP_NOT_FOUND")
    ;(await bob.http.get(`/v1/messages/${group}`)).refused(404, "CONVERSATION_NOT_FOUND")
    assert.deepStrictEqual(
      (await bob.http.get("/v1/conversations")).ok(200, Shapes.GroupConversationPage).conversations,
      []
    )
    assert.include((await inbox(carol)).map(({ id }) => id), waiting.id)
    // Invited again it is a member like any other, from here on.
    const { invite_id } = (await alice.http.post(`/v1/groups/${group}/members`, { handle: bob.handle })).ok(
      200,
      Shapes.AddResult
    )
    assert.strictEqual((await accept(bob, invite_id)).your_role, "member")
    assert.deepStrictEqual(eventsOf(await history(bob, group)), ["member_joined"])
    await socket.close()
  })

  it("115. only the creator deletes; ex-members get 410 with details, outsiders 404", async () => {
    const [alice, bob, carol, dave] = (await agents(4)) as unknown as [TestAgent, TestAgent, TestAgent, TestAgent]
    const group = await joined(alice, bob, carol)
    ;(await alice.http.post(`/v1/groups/${group}/members/${bob.handle}/promote`)).ok(200, Shapes.Confirmation)
    ;(await carol.http.post(`/v1/groups/${group}/leave`)).ok(200, Shapes.LeftGroup)
    ;(await bob.http.delete(`/v1/groups/${group}`)).refused(403, "FORBIDDEN")
    const { invite_id } = (await alice.http.post(`/v1/groups/${group}/members`, { handle: dave.handle })).ok(
      200,
      Shapes.AddResult
    )
    const socket = await Socket.hello(server, bob.key)
    const flushed = await sayTo(alice, group)
    await socket.message(flushed.id)
    const { deleted_at } = (await alice.http.delete(`/v1/groups/${group}`)).ok(200, Shapes.DeletedGroup)
    const details = { group_id: group, deleted_by_handle: alice.handle, deleted_at }
    assert.deepStrictEqual(await socket.payload("group.deleted", Shapes.GroupDeletion), details)
    const types = socket.frames.map(({ payload, type }) =>
      `${type} ${String((payload as { type?: string } | undefined)?.type)}`
    )
    assert.deepStrictEqual(types.slice(-2), ["message.new system", "group.deleted undefined"])
    await assertGolden("group.deleted", await socket.waitFor("group.deleted"), { [alice.handle]: "alice" })
    assert.deepStrictEqual(eventsOf(await inbox(bob)), ["group_deleted"])
    for (const agent of [alice, bob, carol]) {
      assert.deepStrictEqual(
        (await agent.http.get(`/v1/groups/${group}`)).refused(410, "GROUP_DELETED").details,
        details
      )
      assert.deepStrictEqual((await attemptTo(agent, group)).refused(410, "GROUP_DELETED").details, details)
      assert.deepStrictEqual(
        (await agent.http.get(`/v1/messages/${group}`)).refused(410, "GROUP_DELETED").details,
        details
      )
      ;(await agent.http.delete(`/v1/groups/${group}`)).refused(410, "GROUP_DELETED")
      ;(await agent.http.get(`/v1/conversations/${group}/context`)).refused(404, "CONVERSATION_NOT_FOUND")
    }
    ;(await dave.http.get(`/v1/groups/${group}`)).refused(404, "GROUP_NOT_FOUND")
    ;(await attemptTo(dave, group)).refused(404, "GROUP_NOT_FOUND")
    ;(await dave.http.post(`/v1/groups/invites/${invite_id}/accept`)).refused(404, "INVITE_NOT_FOUND")
    assert.deepStrictEqual(await invitesOf(dave), [])
    await socket.close()
  })

  it("116. an agent that takes invites from contacts only, or that is blocked, is not invited", async () => {
    const [alice, bob, carol] = await three()
    const { group } = await create(alice)
    ;(await bob.http.patch(`/v1/agents/${bob.handle}`, { settings: { group_invite_policy: "contacts_only" } })).ok(
      200,
      Shapes.Agent
    )
    const add = (handle: string) => alice.http.post(`/v1/groups/${group.id}/members`, { handle })
    assert.deepStrictEqual((await add(bob.handle)).refused(403, "INBOX_RESTRICTED").details, {
      recipient_handle: bob.handle
    })
    ;(await bob.http.post("/v1/contacts", { handle: alice.handle })).ok(201, Shapes.Contact)
    assert.strictEqual((await add(bob.handle)).ok(200, Shapes.AddResult).outcome, "invited")
    ;(await carol.http.post(`/v1/contacts/${alice.handle}/block`)).ok(200, Shapes.Confirmation)
    ;(await add(carol.handle)).refused(403, "BLOCKED")
    assert.deepStrictEqual((await create(alice, [carol])).skipped, [{ handle: carol.handle, code: "BLOCKED" }])
    assert.instanceOf(await failure(alice.client.addGroupMember(group.id, carol.handle)), BlockedError)
  })

  it("117. without a limit of its own, one agent may send 60 in a second to one group", async () => {
    const [alice, bob] = await three()
    const group = await joined(alice, bob)
    const sent = await Promise.all(Array.from({ length: 60 }, () => sayTo(alice, group)))
    assert.deepStrictEqual(seqsOf(sent).toSorted((a, b) => a - b), Array.from({ length: 60 }, (_, i) => i + 2))
    assert.deepStrictEqual(seqsOf(await inbox(bob)), Array.from({ length: 60 }, (_, i) => i + 2))
  })

  it("118. when every seat is taken no invite is made, and an existing one waits", async () => {
    const [alice, bob, carol, dave, erin] = (await agents(5)) as unknown as [
      TestAgent,
      TestAgent,
      TestAgent,
      TestAgent,
      TestAgent
    ]
    const { add_results, group } = await create(alice, [bob, carol, dave, erin])
    const ids = add_results.map(({ invite_id }) => invite_id)
    await accept(bob, ids[0])
    await accept(carol, ids[1])
    const answers = await Promise.all(
      [dave, erin].map((agent, i) => agent.http.post(`/v1/groups/invites/${ids[i + 2]}/accept`))
    )
    assert.deepStrictEqual(answers.map(({ status }) => status).toSorted((a, b) => a - b), [200, 409])
    const loser = answers[0]?.status === 409 ? dave : erin
    answers.find(({ status }) => status === 409)?.refused(409, "GROUP_FULL")
    const outsider = await newAgent(server, "frank")
    ;(await alice.http.post(`/v1/groups/${group.id}/members`, { handle: outsider.handle })).refused(409, "GROUP_FULL")
    ;(await bob.http.post(`/v1/groups/${group.id}/leave`)).ok(200, Shapes.LeftGroup)
    const [kept] = await invitesOf(loser)
    assert.strictEqual((await accept(loser, kept?.id)).member_count, 4)
  })

  it("119. members that block each other still get each other's messages in the group, and nowhere else", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob, carol)
    ;(await alice.http.post(`/v1/contacts/${bob.handle}/block`)).ok(200, Shapes.Confirmation)
    const socket = await Socket.hello(server, bob.key)
    const message = await sayTo(bob, group)
    assert.deepStrictEqual((await inbox(alice)).map(({ id }) => id), [message.id])
    await markRead(alice, message.id)
    assert.deepInclude(await socket.payload("message.read", Shapes.Receipt), {
      message_id: message.id,
      read_by: alice.handle
    })
    const answer = await sayTo(alice, group)
    await socket.message(answer.id)
    const alices = await Socket.hello(server, alice.key)
    alices.send({ type: "typing.start", payload: { conversation_id: group } })
    await socket.waitFor("typing.start")
    ;(await attempt(bob, alice)).refused(403, "BLOCKED")
    await Promise.all([socket.close(), alices.close()])
  })

  it("126. a file for a group is its members', later ones' too, and nobody else's", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob)
    const bytes = new TextEncoder().encode("the score")
    const file = {
      filename: "score.txt",
      content_type: "text/plain",
      size: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex")
    }
    const reserve = (from: TestAgent, to: object) => from.http.post("/v1/uploads", { ...file, ...to })
    ;(await reserve(carol, { conversation_id: group })).refused(404, "GROUP_NOT_FOUND")
    const { attachment_id, upload_url } = (await reserve(bob, { conversation_id: group })).ok(201, Shapes.Upload)
    const content = { attachment_id }
    ;(await attemptTo(bob, group, { type: "file", content })).refused(409, "ATTACHMENT_NOT_READY")
    assert.strictEqual((await fetch(upload_url, { method: "PUT", body: bytes })).status, 200)
    ;(await attemptTo(alice, group, { type: "file", content })).refused(404, "ATTACHMENT_NOT_FOUND")
    const elsewhere = await joined(bob)
    ;(await attemptTo(bob, elsewhere, { type: "file", content })).refused(400, "ATTACHMENT_WRONG_SCOPE")
    assert.deepStrictEqual((await sayTo(bob, group, { type: "file", content })).content, content)
    const download = (agent: TestAgent) => agent.http.get(`/v1/attachments/${attachment_id}`)
    ;(await download(carol)).refused(404, "NOT_FOUND")
    const { invite_id } = (await alice.http.post(`/v1/groups/${group}/members`, { handle: carol.handle })).ok(
      200,
      Shapes.AddResult
    )
    await accept(carol, invite_id)
    for (const agent of [alice, bob, carol]) {
      const answer = await download(agent)
      assert.strictEqual(answer.status, 302)
      assert.strictEqual(await (await fetch(answer.header("location") ?? "")).text(), "the score")
    }
    ;(await carol.http.post(`/v1/groups/${group}/leave`)).ok(200, Shapes.LeftGroup)
    ;(await download(carol)).refused(404, "NOT_FOUND")
    ;(await alice.http.delete(`/v1/groups/${group}`)).ok(200, Shapes.DeletedGroup)
    for (const agent of [alice, carol]) (await download(agent)).refused(410, "GROUP_DELETED")
    ;(await reserve(alice, { conversation_id: group })).refused(410, "GROUP_DELETED")
  })

  it("14. a repeated request with an Idempotency-Key makes one group, and one change", async () => {
    const [alice, bob] = await three()
    const key = { "idempotency-key": freshMsgId() }
    const body = { name: "Once", member_handles: [bob.handle] }
    const first = await alice.http.post("/v1/groups", body, key)
    const { group } = first.ok(200, Shapes.CreatedGroup)
    const second = await alice.http.post("/v1/groups", body, key)
    assert.deepStrictEqual([second.text, second.header("idempotent-replay")], [first.text, "true"])
    assert.strictEqual((await invitesOf(bob)).length, 1)
    const leave = { "idempotency-key": freshMsgId() }
    const left = await alice.http.post(`/v1/groups/${group.id}/leave`, undefined, leave)
    assert.strictEqual((await alice.http.post(`/v1/groups/${group.id}/leave`, undefined, leave)).text, left.text)
    ;(await alice.http.post(`/v1/groups/${group.id}/leave`)).refused(410, "GROUP_DELETED")
  })

  it("G.12: a deleted account leaves its groups, with an heir, and its invites are gone", async () => {
    const [alice, bob, carol] = await three()
    const group = await joined(alice, bob)
    ;(await alice.http.post(`/v1/groups/${group}/members`, { handle: carol.handle })).ok(200, Shapes.AddResult)
    const socket = await Socket.hello(server, bob.key)
    ;(await alice.http.delete(`/v1/agents/${alice.handle}`)).ok(200, Shapes.Confirmation)
    await socket.waitFor(isSystem("admin_promoted"))
    assert.deepInclude(await groupOf(bob, group), { member_count: 1, your_role: "admin", created_by: alice.handle })
    while ((await invitesOf(carol)).length > 0) await socket.settled()
    // A direct message to somebody else still works as ever.
    await say(bob, carol)
    await socket.close()
  })
})

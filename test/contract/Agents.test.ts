import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { ForbiddenError, NotFoundError, UnauthorizedError } from "agentchatme"
import { agentOf, newAgent, type Server, sharedServer } from "../support/Server.ts"
import { Socket } from "../support/Socket.ts"
import * as Shapes from "./Shapes.ts"
import { attempt, contextOf, conversationsOf, history, inbox, markRead, newPair, say } from "./Talk.ts"

const other = (code: string): string => String((Number(code) + 1) % 1_000_000).padStart(6, "0")

const failure = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(() => assert.fail("it was accepted"), (error: unknown) => error)

/** The budget of an agent that has set none. */
const NO_BUDGET = { per_conversation_per_day: null, per_day: null }

describe("wire.md J, Agents", () => {
  let server: Server

  beforeAll(async () => {
    server = await sharedServer()
  })
  afterAll(() => server.stop())

  it("35. GET /v1/agents/me returns the whole own record", async () => {
    const agent = await newAgent(server, "me", { display_name: "Me", description: "myself" })
    const me = (await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent)
    assert.deepInclude(me, {
      id: agent.id,
      handle: agent.handle,
      email: agent.email,
      email_masked: "m****@example.com",
      display_name: "Me",
      description: "myself",
      avatar_url: null,
      status: "active",
      paused_by_owner: "none",
      settings: { inbox_mode: "open", group_invite_policy: "open", budget: NO_BUDGET }
    })
    assert.deepStrictEqual(await agent.client.getMe() as unknown, me)
  })

  it("36. a card has neither e-mail nor id, also of oneself", async () => {
    const one = await newAgent(server, "one", { display_name: "One", description: "first" })
    const two = await newAgent(server, "two")
    for (const reader of [one, two]) {
      const answer = await reader.http.get(`/v1/agents/${one.handle}`)
      // The shape is exact, so nothing else is there either.
      const card = answer.ok(200, Shapes.Card)
      assert.deepInclude(card, {
        handle: one.handle,
        display_name: "One",
        description: "first",
        avatar_url: null,
        status: "active"
      })
      for (const secret of [one.email, one.id]) assert.notInclude(answer.text, secret)
      assert.deepStrictEqual(await reader.client.getAgent(`@${one.handle}`) as unknown, card)
    }
  })

  it("36. the card of an unknown handle is 404 AGENT_NOT_FOUND", async () => {
    const agent = await newAgent(server, "asker")
    for (const handle of ["nobody-here", "x", "not_a_handle", agent.id]) {
      ;(await agent.http.get(`/v1/agents/${handle}`)).refused(404, "AGENT_NOT_FOUND")
    }
    assert.instanceOf(await failure(agent.client.getAgent("nobody-here")), NotFoundError)
  })

  it("37. a card without a token is 401, of a known and of an unknown handle", async () => {
    const agent = await newAgent(server, "shown")
    const known = await server.http().get(`/v1/agents/${agent.handle}`)
    const unknown = await server.http().get("/v1/agents/nobody-here")
    known.refused(401, "UNAUTHORIZED")
    assert.strictEqual(unknown.text, known.text)
  })

  it("38. the own profile can be changed in part, and null resets", async () => {
    const agent = await newAgent(server, "changer", { display_name: "Old", description: "old" })
    const path = `/v1/agents/${agent.handle}`
    const before = (await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent)

    const named = (await agent.http.patch(path, { display_name: "New" })).ok(200, Shapes.Agent)
    assert.deepInclude(named, { display_name: "New", description: "old", created_at: before.created_at })
    assert.isAtLeast(Date.parse(named.updated_at), Date.parse(before.updated_at))

    const closed = (await agent.http.patch(path, { settings: { inbox_mode: "contacts_only" } })).ok(200, Shapes.Agent)
    assert.deepStrictEqual(closed.settings, {
      inbox_mode: "contacts_only",
      group_invite_policy: "open",
      budget: NO_BUDGET
    })
    const both = (await agent.http.patch(path, { settings: { group_invite_policy: "contacts_only" } })).ok(
      200,
      Shapes.Agent
    )
    assert.deepStrictEqual(both.settings, {
      inbox_mode: "contacts_only",
      group_invite_policy: "contacts_only",
      budget: NO_BUDGET
    })
    assert.deepInclude(both, { display_name: "New", description: "old" })

    const reset = (await agent.http.patch(path, { display_name: null, description: null })).ok(200, Shapes.Agent)
    assert.deepInclude(reset, { display_name: agent.handle, description: null })
    assert.deepStrictEqual((await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent), reset)
    // Others see it as well.
    const reader = await newAgent(server, "reader")
    assert.deepInclude((await reader.http.get(path)).ok(200, Shapes.Card), {
      display_name: agent.handle,
      description: null
    })
    assert.deepStrictEqual((await agent.http.patch(path, {})).ok(200, Shapes.Agent).settings, both.settings)

    const byClient = await agent.client.updateAgent(agent.handle, {
      display_name: "Client",
      settings: { inbox_mode: "open" }
    })
    assert.deepInclude(byClient, { display_name: "Client" })
  })

  it("38. a text that is too long and a setting with an unknown value are 400", async () => {
    const agent = await newAgent(server, "changer")
    const bad: ReadonlyArray<object> = [
      { display_name: "x".repeat(101) },
      { display_name: 7 },
      { description: "x".repeat(501) },
      { description: {} },
      { settings: { inbox_mode: "closed" } },
      { settings: { group_invite_policy: 1 } },
      { settings: "open" }
    ]
    for (const change of bad)
      (await agent.http.patch(`/v1/agents/${agent.handle}`, change)).refused(400, "VALIDATION_ERROR")
    const kept = (await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent)
    assert.deepInclude(kept, { display_name: agent.handle, description: null })
    const long = { display_name: "\u{1f98a}".repeat(100), description: "\u{1f98a}".repeat(500) }
    assert.deepInclude((await agent.http.patch(`/v1/agents/${agent.handle}`, long)).ok(200, Shapes.Agent), long)
  })

  it("a display name that acts on the text around it, or that nobody sees, is 400; null still takes the handle", async () => {
    const agent = await newAgent(server, "named", { display_name: "Named" })
    const path = `/v1/agents/${agent.handle}`
    for (
      const display_name of [
        "a\nb",
        "a\tb",
        "\u001b[31mred",
        "a\u0085b",
        "a\u2028b",
        "\u202egnp.exe",
        "a\u2066b",
        " ",
        "\u200b",
        "\u3164"
      ]
    ) {
      ;(await agent.http.patch(path, { display_name })).refused(400, "VALIDATION_ERROR")
    }
    assert.strictEqual((await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent).display_name, "Named")
    const hebrew = "\u05d0\u05d3\u05d4\u200e 1"
    assert.strictEqual(
      (await agent.http.patch(path, { display_name: hebrew })).ok(200, Shapes.Agent).display_name,
      hebrew
    )
    assert.strictEqual(
      (await agent.http.patch(path, { display_name: null })).ok(200, Shapes.Agent).display_name,
      agent.handle
    )
  })

  it("a display name loses blanks around it and characters that nobody sees, at the registration and at a change", async () => {
    const agent = await newAgent(server, "named", { display_name: "\u200b A\u200bda\u00a0" })
    assert.strictEqual((await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent).display_name, "Ada")
    const path = `/v1/agents/${agent.handle}`
    for (
      const [given, shown] of [
        ["Eve\ufeff", "Eve"],
        [" A\u200bda ", "Ada"],
        // The joiner changes how this family looks.
        ["\u{1f468}\u200d\u{1f469} \u2060", "\u{1f468}\u200d\u{1f469}"]
      ] as const
    ) {
      const changed = (await agent.http.patch(path, { display_name: given })).ok(200, Shapes.Agent)
      assert.strictEqual(changed.display_name, shown)
      assert.strictEqual((await agent.http.get(path)).ok(200, Shapes.Card).display_name, shown)
    }
  })

  it("38. a change of another's profile is 403 FORBIDDEN, whether the handle exists or not", async () => {
    const [one, two] = [await newAgent(server, "one"), await newAgent(server, "two")]
    for (const handle of [two.handle, "nobody-here"]) {
      ;(await one.http.patch(`/v1/agents/${handle}`, { display_name: "Mine" })).refused(403, "FORBIDDEN")
      ;(await one.http.delete(`/v1/agents/${handle}`)).refused(403, "FORBIDDEN")
      ;(await one.http.post(`/v1/agents/${handle}/rotate-key`)).refused(403, "FORBIDDEN")
    }
    assert.strictEqual((await two.http.get("/v1/agents/me")).ok(200, Shapes.Agent).display_name, two.handle)
    assert.instanceOf(await failure(one.client.updateAgent(two.handle, { display_name: "Mine" })), ForbiddenError)
  })

  it("38. fields that an owner may not set are ignored", async () => {
    const agent = await newAgent(server, "sly")
    const before = (await agent.http.get("/v1/agents/me")).ok(200, Shapes.Agent)
    const after = (await agent.http.patch(`/v1/agents/${agent.handle}`, {
      id: "agt_AAAAAAAAAAAAAAAA",
      handle: "other",
      email: "other@example.com",
      status: "suspended",
      paused_by_owner: "full",
      avatar_url: "https://example.com/x.png",
      created_at: "2000-01-01T00:00:00.000Z"
    })).ok(200, Shapes.Agent)
    assert.deepStrictEqual({ ...after, updated_at: "" }, { ...before, updated_at: "" })
  })

  it("39. settings.discoverable is ignored", async () => {
    const agent = await newAgent(server, "old-client")
    const answer = await agent.http.patch(`/v1/agents/${agent.handle}`, {
      settings: { discoverable: false, inbox_mode: "contacts_only", something: [1] }
    })
    // The shape is exact: the keys are dropped and not stored.
    assert.deepStrictEqual(answer.ok(200, Shapes.Agent).settings, {
      inbox_mode: "contacts_only",
      group_invite_policy: "open",
      budget: NO_BUDGET
    })
  })

  it("40. after a rotation the new key works, the old one is 401 at once and its sockets close with 1008", async () => {
    const agent = await newAgent(server, "rotator")
    const sockets = [await Socket.hello(server, agent.key), await Socket.hello(server, agent.key, [])]
    const begun = (await agent.http.post(`/v1/agents/${agent.handle}/rotate-key`)).ok(200, Shapes.Pending)
    const code = await server.code(agent.email)
    const path = `/v1/agents/${agent.handle}/rotate-key/verify`
    const wrong = (await agent.http.post(path, { pending_id: begun.pending_id, code: other(code) })).refused(
      400,
      "INVALID_CODE"
    )
    assert.deepStrictEqual(wrong.details, { attempts_remaining: 4 })
    assert.strictEqual((await agent.http.get("/v1/agents/me")).status, 200, "nothing changes before the code is right")

    const issued = (await agent.http.post(path, { pending_id: begun.pending_id, code })).ok(200, Shapes.NewKey)
    assert.strictEqual(issued.handle, agent.handle)
    ;(await agent.http.get("/v1/agents/me")).refused(401, "UNAUTHORIZED")
    ;(await attempt(agent, "nobody-here")).refused(401, "UNAUTHORIZED")
    const renewed = server.http(issued.api_key)
    assert.strictEqual((await renewed.get("/v1/agents/me")).ok(200, Shapes.Agent).id, agent.id)
    for (const socket of sockets) await socket.closedWith(1008)
    ;(await renewed.post(path, { pending_id: begun.pending_id, code })).refused(400, "EXPIRED")
    await (await Socket.hello(server, issued.api_key)).close()
  })

  it("40. a try at another agent's pending rotation is 403, and its owner can still use it", async () => {
    const [owner, thief] = [await newAgent(server, "owner"), await newAgent(server, "thief")]
    const begun = (await owner.http.post(`/v1/agents/${owner.handle}/rotate-key`)).ok(200, Shapes.Pending)
    const code = await server.code(owner.email)
    const answer = { pending_id: begun.pending_id, code }
    ;(await thief.http.post(`/v1/agents/${thief.handle}/rotate-key/verify`, answer)).refused(403, "FORBIDDEN")
    ;(await thief.http.post(`/v1/agents/${owner.handle}/rotate-key/verify`, answer)).refused(403, "FORBIDDEN")
    ;(await server.http().post(`/v1/agents/${owner.handle}/rotate-key/verify`, answer)).refused(401, "UNAUTHORIZED")
    ;(await owner.http.post(`/v1/agents/${owner.handle}/rotate-key/verify`, answer)).ok(200, Shapes.NewKey)
  })

  it("40. the published client rotates a key", async () => {
    const agent = await newAgent(server, "rotator")
    const realtime = agent.realtime()
    const connected = new Promise<void>((resolve) => realtime.onConnect(resolve))
    const closed = new Promise<number>((resolve) => realtime.onDisconnect(({ code }) => resolve(code)))
    const stopped = new Promise<string>((resolve) => realtime.onError((error) => resolve(error.message)))
    await realtime.connect()
    await connected
    const begun = await agent.client.rotateKey(agent.handle)
    const issued = await agent.client.rotateKeyVerify(agent.handle, begun.pending_id, await server.code(agent.email))
    assert.strictEqual(await closed, 1008)
    assert.match(await stopped, /terminal code 1008/)
    realtime.disconnect()
    assert.instanceOf(await failure(agent.client.getMe()), UnauthorizedError)
    assert.strictEqual((await agentOf(server, agent, issued.api_key).client.getMe()).handle, agent.handle)
  })

  it("45. a deleted account gets 401, has no card, its sockets close with 1008, sends to it are 404, and its handle never comes back", async () => {
    const agent = await newAgent(server, "leaver")
    const friend = await newAgent(server, "friend")
    const socket = await Socket.hello(server, agent.key)
    ;(await agent.http.delete(`/v1/agents/${agent.handle}`)).ok(200, Shapes.Confirmation)
    ;(await agent.http.get("/v1/agents/me")).refused(401, "UNAUTHORIZED")
    ;(await friend.http.get(`/v1/agents/${agent.handle}`)).refused(404, "AGENT_NOT_FOUND")
    ;(await attempt(friend, agent)).refused(404, "AGENT_NOT_FOUND")
    await socket.closedWith(1008)
    ;(await agent.http.delete(`/v1/agents/${agent.handle}`)).refused(401, "UNAUTHORIZED")
    ;(await server.http().post("/v1/register", { email: "someone-new@example.com", handle: agent.handle }))
      .refused(409, "HANDLE_TAKEN")
    // The address is free again, and nothing of the old account can be recovered with it.
    const decoy = (await server.http().post("/v1/agents/recover", { email: agent.email })).ok(200, Shapes.Pending)
    ;(await server.http().post("/v1/agents/recover/verify", { pending_id: decoy.pending_id, code: "123456" }))
      .refused(400, "INVALID_CODE")
    assert.strictEqual(await server.outbox.count(agent.email), 0)
    const again = (await server.http().post("/v1/register", { email: agent.email, handle: `${agent.handle}-2` }))
      .ok(200, Shapes.Registered)
    ;(await server.http().post("/v1/register/verify", {
      pending_id: again.pending_id,
      code: await server.code(agent.email)
    })).ok(200, Shapes.Verified)
  })

  it("45. after a deletion the other side keeps the history, with the handle and without names", async () => {
    const { alice, bob, conversation, reply } = await newPair(server)
    await bob.http.patch(`/v1/agents/${bob.handle}`, { display_name: "Bob" })
    const last = await say(bob, alice)
    const unseen = await say(alice, bob)
    await bob.client.deleteAgent(bob.handle)

    const rows = await history(alice, conversation)
    assert.deepStrictEqual(rows.map((row) => row.id).slice(0, 3), [unseen.id, last.id, reply.id])
    const [mine, theirs] = rows
    assert.strictEqual(theirs?.sender, bob.handle)
    assert.deepStrictEqual(theirs?.context.sender, { handle: bob.handle, display_name: null, kind: "agent" })
    assert.strictEqual(mine?.status, "delivered", "what it had not got is closed as delivered")
    assert.deepStrictEqual((await contextOf(alice, conversation)).counterparty, {
      handle: bob.handle,
      display_name: null,
      avatar_url: null
    })
    const participants = (await alice.http.get(`/v1/conversations/${conversation}/participants`)).ok(
      200,
      Shapes.Participants
    )
    assert.deepStrictEqual(participants, [{ handle: bob.handle, display_name: null, avatar_url: null }])
    assert.include((await conversationsOf(alice)).map((item) => item.id), conversation)
    // What it wrote can still be fetched and read.
    assert.deepStrictEqual((await inbox(alice)).map((row) => row.id), [last.id])
    assert.strictEqual((await markRead(alice, last.id)).status, "read")
    ;(await attempt(alice, bob)).refused(404, "AGENT_NOT_FOUND")
  })
})

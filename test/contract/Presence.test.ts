import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { eventually } from "../support/Eventually.ts"
import { matching } from "../support/Http.ts"
import { Moment } from "../support/Moment.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"
import { assertGolden } from "./Frames.ts"
import * as Shapes from "./Shapes.ts"
import { newPair, say } from "./Talk.ts"

const presenceOf = async (viewer: TestAgent, handle: string): Promise<typeof Shapes.Presence.Type> =>
  (await viewer.http.get(`/v1/presence/${handle}`)).ok(200, Shapes.Presence)

const updates = (socket: Socket): ReadonlyArray<typeof Shapes.Presence.Type> =>
  socket.frames.filter((frame) => frame.type === "presence.update").map((frame) =>
    matching(Shapes.Presence, frame.payload)
  )

const saying = (status: string) => (frame: Frame): boolean =>
  frame.type === "presence.update" && frame.payload?.["status"] === status

describe("wire.md J, presence", () => {
  let server: Server
  let stranger: TestAgent

  beforeAll(async () => {
    server = await sharedServer()
    stranger = await newAgent(server, "stranger")
  })
  afterAll(() => server.stop())

  it("120. only contacts are visible, one by one and in a batch", async () => {
    const { alice, bob } = await newPair(server)
    const never = { handle: alice.handle, status: "offline", custom_message: null, last_seen: null } as const
    assert.deepStrictEqual(await presenceOf(bob, alice.handle), never)
    assert.deepStrictEqual(await presenceOf(alice, alice.handle), never)
    const outside = (await stranger.http.get(`/v1/presence/${alice.handle}`)).refused(404, "NOT_FOUND")
    assert.deepStrictEqual((await stranger.http.get("/v1/presence/nobody-here")).refused(404, "NOT_FOUND"), outside)
    // Holding somebody as a contact is enough, and it is one-sided.
    assert.strictEqual((await stranger.http.post("/v1/contacts", { handle: alice.handle })).status, 201)
    await presenceOf(stranger, alice.handle)
    ;(await alice.http.get(`/v1/presence/${stranger.handle}`)).refused(404, "NOT_FOUND")

    const batch = async (handles: unknown) => bob.http.post("/v1/presence/batch", { handles })
    const asked = ["nobody-here", `@${alice.handle.toUpperCase()}`, stranger.handle, bob.handle]
    const { presences } = (await batch(asked)).ok(200, Shapes.Presences)
    assert.deepStrictEqual(presences.map((one) => one.handle), [alice.handle, bob.handle])
    assert.deepStrictEqual(
      (await bob.client.getPresenceBatch([bob.handle, alice.handle])).presences,
      presences.toReversed()
    )
    ;(await batch(Array.from({ length: 100 }, (_, i) => `somebody-${i}`))).ok(200, Shapes.Presences)
    for (const bad of [Array.from({ length: 101 }, (_, i) => `somebody-${i}`), [], undefined, alice.handle, [7]]) {
      ;(await batch(bad)).refused(400, "VALIDATION_ERROR")
    }
    ;(await server.http().get(`/v1/presence/${alice.handle}`)).refused(401, "UNAUTHORIZED")
    ;(await alice.http.post(`/v1/contacts/${bob.handle}/block`)).ok(200, Shapes.Confirmation)
    assert.deepStrictEqual((await bob.http.get(`/v1/presence/${alice.handle}`)).refused(404, "NOT_FOUND"), outside)
    ;(await alice.http.get(`/v1/presence/${bob.handle}`)).refused(404, "NOT_FOUND")
    assert.deepStrictEqual((await batch([alice.handle])).ok(200, Shapes.Presences).presences, [])
  })

  it("121. the first socket makes an agent online, the last close offline, and contacts are notified", async () => {
    const { alice, bob } = await newPair(server)
    const watching = await Socket.hello(server, bob.key)
    const elsewhere = await Socket.hello(server, stranger.key)
    const first = await Socket.hello(server, alice.key)
    await watching.waitFor(saying("online"))
    const second = await Socket.hello(server, alice.key)
    await first.close()
    assert.strictEqual((await presenceOf(bob, alice.handle)).status, "online")
    const closing = new Moment()
    await second.close()
    await watching.waitFor(saying("offline"))
    const seen = await presenceOf(bob, alice.handle)
    assert.strictEqual(seen.status, "offline")
    closing.has(seen.last_seen ?? "")
    assert.deepStrictEqual(updates(watching).map((one) => [one.handle, one.status]), [
      [alice.handle, "online"],
      [alice.handle, "offline"]
    ])
    assert.deepStrictEqual(updates(watching).at(-1), seen)
    assert.strictEqual(elsewhere.count("presence.update"), 0)
    const again = await Socket.hello(server, alice.key)
    await watching.waitFor(() => updates(watching).length === 3)
    assert.strictEqual(updates(watching)[2]?.status, "online")
    for (const socket of [watching, elsewhere, again]) await socket.close()
  })

  it("G.14: an agent sets its own presence by HTTP and by frame, and nothing of it crosses a block", async () => {
    const { alice, bob } = await newPair(server)
    const names = { [alice.handle]: "writer" }
    const [mine, watching] = [await Socket.hello(server, alice.key), await Socket.hello(server, bob.key)]
    const put = (body: unknown) => alice.http.request("PUT", "/v1/presence", { json: body })
    const said = (await put({ status: "busy", custom_message: "thinking" })).ok(200, Shapes.Presence)
    assert.deepInclude(said, { handle: alice.handle, status: "busy", custom_message: "thinking" })
    await assertGolden("presence.update", await watching.waitFor(saying("busy")), names)
    assert.deepStrictEqual(await presenceOf(bob, alice.handle), said)
    const other = await Socket.hello(server, alice.key)
    assert.strictEqual((await presenceOf(bob, alice.handle)).status, "busy", "a socket does not undo what was said")

    mine.send({ type: "presence.update", payload: { status: "offline", custom_status: "away" } })
    const hidden = matching(Shapes.Presence, (await watching.waitFor(saying("offline"))).payload)
    assert.strictEqual(hidden.custom_message, "away")
    assert.deepStrictEqual(await presenceOf(bob, alice.handle), hidden)
    assert.deepInclude(await alice.client.updatePresence({ status: "online" }), {
      status: "online",
      custom_message: null
    })
    ;(await put({ status: "online", custom_message: "🙂".repeat(200) })).ok(200, Shapes.Presence)

    const bad = [{}, { status: "away" }, { status: "busy", custom_message: "x".repeat(201) }, {
      status: "busy",
      custom_message: 7
    }]
    for (const [i, payload] of bad.entries()) {
      ;(await put(payload)).refused(400, "VALIDATION_ERROR")
      mine.send({ type: "presence.update", id: `bad-${i}`, payload })
      const error = await mine.payload(
        (frame) => frame.type === "error" && frame["id"] === `bad-${i}`,
        Shapes.FrameError
      )
      assert.deepStrictEqual([error.code, error.action], ["VALIDATION_ERROR", "presence.update"])
    }
    assert.strictEqual(mine.count("error"), bad.length, "what is carried out is not answered")
    ;(await bob.http.post(`/v1/contacts/${alice.handle}/block`)).ok(200, Shapes.Confirmation)
    const told = updates(watching).length
    ;(await put({ status: "busy" })).ok(200, Shapes.Presence)
    const dave = await newAgent(server, "dave")
    await watching.message((await say(dave, bob)).id)
    assert.strictEqual(updates(watching).length, told)
    for (const socket of [mine, watching, other]) await socket.close()
  })

  it("G.12: no agent sees the presence of a deleted account", async () => {
    const { alice, bob } = await newPair(server)
    const socket = await Socket.hello(server, alice.key)
    // Presence is written beside the connect, so another node may not see it at once.
    await eventually(
      "alice to be online",
      async () => (await presenceOf(bob, alice.handle)).status === "online" || undefined
    )
    ;(await alice.http.delete(`/v1/agents/${alice.handle}`)).ok(200, Shapes.Confirmation)
    await socket.closedWith(1008)
    ;(await bob.http.get(`/v1/presence/${alice.handle}`)).refused(404, "NOT_FOUND")
  })
})

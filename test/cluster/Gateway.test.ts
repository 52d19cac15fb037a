import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { eventually } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { attempt, Cluster, missingForNodes, on, send } from "../support/Nodes.ts"
import { measured, MEASURES, Stopwatch } from "../support/Promptly.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"
import { type Frame, Socket } from "../support/Socket.ts"

const GATEWAY = { ROLE: "gateway" }

describe.skipIf(missingForNodes !== "")(`a gateway${missingForNodes}`, () => {
  let cluster: Cluster
  let runner: Server
  let gateway: Server

  const shardsOf = (node: Server): Promise<number> => metricOf(node, "effect_cluster_shards")
  const ready = async (node: Server) => (await node.http().get("/v1/ready")).status === 200 || undefined
  const presence = (of: TestAgent, as: TestAgent, status: string) =>
    eventually(`a presence ${status}`, async () => {
      const answer = await as.http.get(`/v1/presence/${of.handle}`)
      return (answer.body as { readonly status: string }).status === status || undefined
    })

  beforeAll(async () => {
    cluster = await Cluster.start(1)
    runner = cluster.nodes[0]!
    gateway = await cluster.add(undefined, GATEWAY)
  })
  afterAll(() => cluster?.stop())

  it("reports its role, and holds no shard", async () => {
    assert.match(gateway.stdout, /listens on http:\S+, and as a gateway on /)
    await eventually("all shards", async () => await shardsOf(runner) === 300 || undefined)
    assert.strictEqual(await shardsOf(gateway), 0)
  })

  it("serves requests and sockets for conversations of the runner, in order and once", async () => {
    const [ada, bob] = [await newAgent(gateway, "ada"), await newAgent(runner, "bob")]
    const first = await send(ada, { to: bob.handle }, "the first word")
    const sockets = [
      await Socket.hello(gateway, ada.key),
      await Socket.hello(gateway, bob.key),
      await Socket.hello(runner, bob.key)
    ]
    const sent = [first]
    for (let i = 0; i < 6; i++) {
      sent.push(
        await send(on(i % 2 === 0 ? runner : gateway, i % 3 === 0 ? bob : ada), {
          to: i % 3 === 0 ? ada.handle : bob.handle
        }, `word ${i}`)
      )
    }
    assert.deepStrictEqual(sent.map(({ seq }) => seq), sent.map((_, i) => i + 1))
    for (const [i, socket] of sockets.entries()) {
      const wanted = i === 0 ? sent.slice(1) : sent
      for (const { id } of wanted) await socket.message(id)
      assert.deepStrictEqual(
        socket.pushed().filter((id) => wanted.some((one) => one.id === id)),
        wanted.map(({ id }) => id)
      )
    }
    sockets[0]!.send({ type: "typing.start", payload: { conversation_id: first.conversation_id } })
    await sockets[1]!.waitFor("typing.start")
    sockets[1]!.send({ type: "message.read_ack", payload: { conversation_id: first.conversation_id, through_seq: 1 } })
    await sockets[0]!.waitFor("message.read")
    await Promise.all(sockets.map((socket) => socket.close()))
  })

  it("takes part in groups and presence", async () => {
    const [ada, bob] = [await newAgent(gateway, "ada"), await newAgent(gateway, "bob")]
    await send(ada, { to: bob.handle }, "the first word")
    await send(bob, { to: ada.handle }, "an answer")
    const adas = await Socket.hello(gateway, ada.key)
    const made = await ada.http.post("/v1/groups", { name: "At the gate", member_handles: [bob.handle] })
    const { add_results, group } = made.body as { group: { id: string }; add_results: Array<{ invite_id: string }> }
    const accepted = await bob.http.post(`/v1/groups/invites/${add_results[0]!.invite_id}/accept`)
    assert.strictEqual(accepted.status, 200, `${accepted}`)
    const told = await send(on(runner, bob), { conversation_id: group.id }, "to the group")
    await adas.message(told.id)
    const bobs = await Socket.hello(runner, bob.key)
    const online = (frame: Frame) => frame.type === "presence.update" && frame.payload?.["handle"] === bob.handle
    await adas.waitFor(online)
    await Promise.all([presence(ada, on(runner, bob), "online"), presence(bob, ada, "online")])
    const blocked = await ada.http.post(`/v1/contacts/${bob.handle}/block`)
    assert.strictEqual(blocked.status, 200, `${blocked}`)
    ;(await attempt(on(runner, bob), { to: ada.handle }, "no")).refused(403, "BLOCKED")
    await Promise.all([adas.close(), bobs.close()])
  })

  it("disturbs nothing but its own sockets when it is killed", async () => {
    const [ada, bob] = [await newAgent(gateway, "ada"), await newAgent(runner, "bob")]
    await send(ada, { to: bob.handle }, "the first word")
    await send(bob, { to: ada.handle }, "an answer")
    await Socket.hello(gateway, ada.key)
    await presence(ada, bob, "online")
    await gateway.kill()
    const unheard = await send(bob, { to: ada.handle }, "while it is away")
    await presence(ada, bob, "offline")
    await eventually("a runner that is ready", () => ready(runner))
    await eventually("all shards", async () => await shardsOf(runner) === 300 || undefined)
    gateway = await cluster.add(gateway, GATEWAY)
    const again = await Socket.hello(gateway, ada.key)
    await again.message(unheard.id)
    const live = await send(bob, { to: ada.handle }, "and live again")
    await again.message(live.id)
    await again.close()
  })

  it("stops as a runner does: it is not ready, closes sockets with 1001 one after the other, and exits with 0", async () => {
    const agents = await Promise.all(Array.from({ length: 4 }, () => newAgent(gateway, "ada")))
    const sockets: Array<Socket> = []
    for (const { key } of agents) {
      for (let i = 0; i < 15; i++) sockets.push(await Socket.hello(gateway, key))
    }
    const ends: Array<number> = []
    const stopping = new Stopwatch()
    const all = Promise.all(sockets.map((socket) => socket.closedWith(1001).then(() => ends.push(measured()))))
    gateway.terminate()
    await eventually(
      "503 on /v1/ready",
      () => ready(gateway).then((is) => is === undefined || undefined, () => MEASURES ? undefined : true)
    )
    await all
    if (MEASURES) {
      assert.isAbove(ends.at(-1)! - ends[0]!, 1_000)
      // So many within a tenth of the time in which all are closed would be a herd.
      for (const [i, end] of ends.entries())
        assert.isBelow(ends.slice(i).filter((other) => other < end + 100).length, 30)
    }
    await gateway.ended()
    stopping.endsWithin(15_000)
    await eventually("a runner that is ready", () => ready(runner))
  })

  it("stops before the runner, which then stops without an error", async () => {
    runner.terminate()
    await runner.ended()
    assert.notInclude(runner.stderr, "No healthy runners available")
  })
})

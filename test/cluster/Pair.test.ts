import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { eventually } from "../support/Eventually.ts"
import { metricOf } from "../support/Metrics.ts"
import { attempt, Cluster, missingForNodes, on, send, type Sent } from "../support/Nodes.ts"
import { MEASURES } from "../support/Promptly.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"
import { type Closed, Socket } from "../support/Socket.ts"

const LIMIT = 20

const nodesAlive = (node: Server): Promise<number> => metricOf(node, "effect_cluster_runners")

const say = (from: TestAgent, to: TestAgent): Promise<Sent> => send(from, { to: to.handle }, "a word")

interface Claim {
  readonly claimed: boolean
  readonly deferred: boolean
}

const claim = async (agent: TestAgent, message_id: string, holder: string, defer_if_active = false): Promise<Claim> => {
  const answer = await agent.http.post("/v1/reply/claim", { message_id, holder, defer_if_active })
  assert.strictEqual(answer.status, 200, `${answer}`)
  return answer.body as Claim
}

const lease = async (agent: TestAgent, method: "PUT" | "DELETE"): Promise<void> => {
  const answer = await agent.http.request(method, "/v1/reply/active", { json: { session_id: "one" } })
  assert.strictEqual(answer.status, 200, `${answer}`)
}

describe.skipIf(missingForNodes !== "")(`two nodes, until one is killed${missingForNodes}`, () => {
  let cluster: Cluster
  let one: Server
  let two: Server
  let sender: TestAgent
  let agent: TestAgent
  beforeAll(async () => {
    cluster = await Cluster.start(2, { PUBLIC_URL: "https://parley.example", SOCKETS_HELLO_SECONDS: "60" })
    ;[one, two] = cluster.pair
    sender = await newAgent(one, "sender")
    agent = await newAgent(one, "agent")
    await say(sender, agent)
    await say(agent, sender)
  })
  afterAll(() => cluster?.stop())

  const header = (key: string) => ({ authorization: `Bearer ${key}` })

  /** Those that stay, once as many as have to go are gone; with how each of these was closed. */
  const settle = async (sockets: ReadonlyArray<Socket>, staying: number) => {
    const closed = new Map<Socket, Closed>()
    for (const socket of sockets) void socket.closed.then((how) => closed.set(socket, how))
    await eventually(`${staying} sockets`, () => sockets.length - closed.size <= staying || undefined)
    const open = sockets.filter((socket) => !closed.has(socket))
    // Each of these is one on both sides.
    await Promise.all(open.map(async (socket) => {
      await socket.waitFor("hello.ok")
      await socket.settled()
    }))
    return { open, closed: [...closed.values()] }
  }

  /** Whether one more socket gets in. */
  const enters = async (node: Server, key: string): Promise<Socket | undefined> => {
    const socket = await Socket.open(node, header(key))
    const entered = await socket.waitFor("hello.ok").then(() => true, () => false)
    if (!entered) await socket.closedWith(1013)
    return entered ? socket : undefined
  }

  /** The agent's processes, each at one of the nodes. */
  const at = (i: number): TestAgent => on(i % 2 === 0 ? one : two, agent)

  it("print at startup their own address, not that of the balancer", () => {
    for (const node of [one, two]) {
      assert.include(
        node.stdout,
        `listens on ${node.url}, and as a node on 127.0.0.1:${
          cluster.runnerPort(node)
        }; clients reach it at https://parley.example\n`
      )
    }
  })

  it("count the nodes that are alive", () =>
    eventually("both to count two", async () => {
      const counted = await Promise.all([one, two].map(nodesAlive))
      return counted.every((alive) => alive === 2) || undefined
    }))

  it("162. keep twenty of sixty sockets that are opened at the same instant, and close the rest with 1013", async () => {
    for (const way of ["hello", "header", "both"]) {
      const { key } = await newAgent(one, "crowd")
      const nodes = Array.from({ length: 60 }, (_, i) => i % 2 === 0 ? one : two)
      const byHeader = (i: number) => way === "header" || (way === "both" && i % 3 === 0)
      const opening = nodes.map((node, i) => byHeader(i) ? undefined : Socket.open(node))
      const waiting = await Promise.all(opening)
      const sockets = await Promise.all(nodes.map((node, i) => {
        const socket = waiting[i]
        if (socket === undefined) return Socket.open(node, header(key))
        socket.send({ type: "hello", api_key: key })
        return socket
      }))
      const { closed, open } = await settle(sockets, LIMIT)
      assert.strictEqual(open.length, LIMIT, way)
      assert.deepStrictEqual(closed.map(({ code }) => code), closed.map(() => 1013))
      for (const { reason } of closed) assert.include(reason, "too many sockets")
      for (const node of [one, two]) assert.isUndefined(await enters(node, key))

      // A place that is free is taken again, by one of those that ask at once.
      await open.pop()?.close()
      await eventually("a free place", async () => {
        const socket = await enters(two, key)
        if (socket !== undefined) open.push(socket)
        return socket
      })
      for (const node of [one, two]) assert.isUndefined(await enters(node, key))
      await Promise.all(open.map((socket) => socket.close()))
    }
  })

  it("162. sockets that are there are never closed for new ones, on whichever node those come", async () => {
    const { key } = await newAgent(one, "settled")
    const early = await Promise.all(Array.from({ length: 15 }, (_, i) => Socket.hello(i % 3 === 0 ? one : two, key)))
    const late = await Promise.all(
      Array.from({ length: 30 }, (_, i) => Socket.open(i % 2 === 0 ? one : two, header(key)))
    )
    const { open } = await settle([...early, ...late], LIMIT)
    assert.strictEqual(open.length, LIMIT)
    assert.includeMembers(open, early)
    await Promise.all(open.map((socket) => socket.close()))
  })

  it("156. of 200 callers that claim a message at once, one has it, and has it again on either node", async () => {
    const { id } = await say(sender, agent)
    const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => claim(at(i), id, `daemon:${i}`)))
    const holders = answers.flatMap(({ claimed }, i) => claimed ? [i] : [])
    assert.lengthOf(holders, 1)
    const again = await Promise.all(Array.from({ length: 20 }, (_, i) => claim(at(i), id, `daemon:${holders[0]}`)))
    assert.isTrue(again.every(({ claimed }) => claimed))
  })

  it("156. of batches that claim the same messages at once, one gets them all, whatever their order", async () => {
    const ids: Array<string> = []
    for (let i = 0; i < 10; i++) ids.push((await say(sender, agent)).id)
    const counts = await Promise.all(Array.from({ length: 40 }, async (_, i) => {
      const message_ids = i % 4 < 2 ? ids : ids.toReversed()
      const answer = await at(i).http.post("/v1/reply/claim-batch", { message_ids, holder: `daemon:${i}` })
      assert.strictEqual(answer.status, 200, `${answer}`)
      return (answer.body as { readonly claimed_count: number }).claimed_count
    }))
    assert.deepStrictEqual(counts.filter((n) => n > 0), [10])
  })

  it("a lease that was begun on the other node defers at once, and one that has ended does not", async () => {
    for (let i = 0; i < 20; i++) {
      const { id } = await say(sender, agent)
      await lease(at(i), "PUT")
      assert.deepInclude(await claim(at(i + 1), id, "daemon:1", true), { claimed: false, deferred: true })
      await lease(at(i), "DELETE")
      assert.deepInclude(await claim(at(i + 1), id, "daemon:1", true), { claimed: true, deferred: false })
    }
  })

  describe("after one node was killed", () => {
    let moving: string
    let claimed: string
    beforeAll(async () => {
      moving = (await newAgent(one, "moving")).key
      for (let i = 0; i < LIMIT; i++) await Socket.hello(two, moving)
      assert.isUndefined(await enters(one, moving))
      claimed = (await say(sender, agent)).id
      assert.isTrue((await claim(on(two, agent), claimed, "daemon:1")).claimed)
    })

    it("the other logs it in one line", async () => {
      const hub = await newAgent(one, "hub")
      const peers = await Promise.all(Array.from({ length: 8 }, () => newAgent(two, "peer")))
      for (const peer of peers) {
        await send(hub, { to: peer.handle }, "the first word")
        await send(peer, { to: hub.handle }, "an answer")
      }
      // Half of these conversations are the other node's, so that both have calls to each other under way.
      const underWay = peers.flatMap((peer, i) => [
        attempt(hub, { to: peer.handle }, `from one ${i}`),
        attempt(on(two, peer), { to: hub.handle }, `from two ${i}`)
      ])
      // On a busy machine it may have been taken for one that hangs before.
      await eventually("both to be alive", async () => (await nodesAlive(one)) === 2 || undefined)
      const before = one.stderr.length
      const said = () => one.stderr.slice(before)
      const name = `127.0.0.1:${cluster.runnerPort(two)}`
      cluster.nodes.splice(1, 1)
      await Promise.all([two.kill(), Promise.allSettled(underWay)])
      await eventually("the other to count one", async () => (await nodesAlive(one)) === 1 || undefined)
      await eventually("its word of that", () => said().includes(name) || undefined)
      // Everything that was the dead node's works again, and still nothing more is said.
      for (const peer of peers) {
        await eventually(
          "a send",
          async () => (await attempt(hub, { to: peer.handle }, "again")).status < 300 || undefined
        )
      }
      // A busy machine gives it more to say.
      const lines = said().split("\n").filter((line) =>
        line.includes(name) && (MEASURES || line.includes("has died or hangs"))
      )
      if (MEASURES) assert.lengthOf(lines, 1, said())
      assert.match(
        lines[0] ?? "",
        new RegExp(`"level":"warn","message":"Node ${name} has died or hangs: other nodes take over its shards"`)
      )
      assert.notMatch(said(), /(?:\n|\\n) +at /)
    })

    it("the places of its sockets are free", async () => {
      const again: Array<Socket> = []
      await eventually("all of the places", async () => {
        const socket = await enters(one, moving)
        if (socket !== undefined) again.push(socket)
        return again.length === LIMIT || undefined
      })
      assert.isUndefined(await enters(one, moving))
      await Promise.all(again.map((socket) => socket.close()))
    })

    it("a claim that it granted stands", async () => {
      const here = on(one, agent)
      assert.isFalse((await claim(here, claimed, "session:1")).claimed)
      assert.isTrue((await claim(here, claimed, "daemon:1")).claimed)
    })
  })
})

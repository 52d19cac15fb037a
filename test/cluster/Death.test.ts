import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { eventually } from "../support/Eventually.ts"
import { attempt, Cluster, missingForNodes, on, send } from "../support/Nodes.ts"
import { newAgent, type Server } from "../support/Server.ts"

const nodesAlive = async (node: Server): Promise<number> => {
  const { text } = await node.http().get("/internal/metrics")
  return Number(/^effect_cluster_runners (\d+)$/m.exec(text)?.[1])
}

describe.skipIf(missingForNodes !== "")(`what a node says of the others${missingForNodes}`, () => {
  let cluster: Cluster
  let one: Server
  let two: Server
  beforeAll(async () => {
    cluster = await Cluster.start(2, { PUBLIC_URL: "https://parley.example" })
    ;[one, two] = cluster.nodes as [Server, Server]
  })
  afterAll(() => cluster?.stop())

  it("says at its start where it is itself, not where the balancer is", () => {
    for (const node of [one, two]) {
      assert.include(
        node.stdout,
        `listens on ${node.url}, and as a node on 127.0.0.1:${cluster.runnerPort(node)}; clients reach it at https://parley.example\n`
      )
    }
  })

  it("counts the nodes that are alive", () =>
    eventually("both to count two", async () => {
      const counted = await Promise.all([one, two].map(nodesAlive))
      return counted.every((alive) => alive === 2) || undefined
    }))

  it("tells of one that dies in one line", async () => {
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
      await eventually("a send", async () => (await attempt(hub, { to: peer.handle }, "again")).status === 201 || undefined)
    }
    const lines = said().split("\n").filter((line) => line.includes(name))
    assert.lengthOf(lines, 1, said())
    assert.match(lines[0] ?? "", new RegExp(`"level":"warn","message":"Node ${name} is gone or hangs: its shards are taken over"`))
    assert.notMatch(said(), /(?:\n|\\n) +at /)
  })
})

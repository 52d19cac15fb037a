import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { eventually } from "../support/Eventually.ts"
import { Cluster, missingForNodes } from "../support/Nodes.ts"
import { newAgent, type Server } from "../support/Server.ts"
import { type Closed, Socket } from "../support/Socket.ts"

const LIMIT = 20

describe.skipIf(missingForNodes !== "")(`sockets of one agent on two nodes${missingForNodes}`, () => {
  let cluster: Cluster
  let one: Server
  let two: Server
  beforeAll(async () => {
    cluster = await Cluster.start(2)
    ;[one, two] = cluster.nodes as [Server, Server]
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

  it("162. of sixty opened at the same instant twenty stay, the rest are closed with 1013", async () => {
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
    const late = await Promise.all(Array.from({ length: 30 }, (_, i) => Socket.open(i % 2 === 0 ? one : two, header(key))))
    const { open } = await settle([...early, ...late], LIMIT)
    assert.strictEqual(open.length, LIMIT)
    assert.includeMembers(open, early)
    await Promise.all(open.map((socket) => socket.close()))
  })

  it("the places on a node that is killed are free", async () => {
    const { key } = await newAgent(one, "moving")
    for (let i = 0; i < LIMIT; i++) await Socket.hello(two, key)
    assert.isUndefined(await enters(one, key))
    await two.kill()
    cluster.nodes.splice(1, 1)
    const again: Array<Socket> = []
    await eventually("all of the places", async () => {
      const socket = await enters(one, key)
      if (socket !== undefined) again.push(socket)
      return again.length === LIMIT || undefined
    })
    assert.isUndefined(await enters(one, key))
    await Promise.all(again.map((socket) => socket.close()))
  })
})

import { assert, it } from "@effect/vitest"
import { once } from "node:events"
import { connect, createServer, type Socket } from "node:net"
import { NodeLine } from "../../src/cluster/NodeLine.ts"
import { eventually } from "../support/Eventually.ts"

/** Both ends of a line, on a clock that the test sets, and what each has heard. */
const open = async () => {
  const clock = { now: 0 }
  const server = createServer({ pauseOnConnect: true })
  await once(server.listen(0, "127.0.0.1"), "listening")
  const address = server.address()
  const [accepted, connection] = await Promise.all([
    once(server, "connection") as Promise<[Socket]>,
    connect({ port: address !== null && typeof address === "object" ? address.port : 0, host: "127.0.0.1" })
  ])
  const ends = [connection, accepted[0]].map((socket) => {
    const heard: Array<unknown> = []
    const state = { socket, heard, writes: 0 }
    const write = socket.write.bind(socket) as (bytes: Buffer) => boolean
    socket.write = ((bytes: Buffer) => {
      state.writes++
      return write(bytes)
    }) as never
    const line = new NodeLine("other", 1, socket, {
      hear: (_, entry) => heard.push(entry[1]),
      ended: () => {}
    }, () => clock.now)
    line.begin(Buffer.alloc(0))
    return { line, state }
  })
  return {
    clock,
    one: ends[0]!,
    two: ends[1]!,
    close: () => {
      for (const { line } of ends) line.end("connection")
      server.close()
    }
  }
}

it("a line on which nothing is said carries an empty frame twice a second in each direction", async () => {
  const { clock, close, one, two } = await open()
  one.line.send(JSON.stringify(["call", 1]))
  await eventually("the call", () => two.state.heard.length === 1 || undefined)
  // Each side checks four times a second, the two of them at different moments.
  for (let passed = 0; passed < 10_000; passed += 250) {
    for (const { line } of [one, two]) {
      clock.now += 125
      line.check(true)
      // What was written has arrived before the clock goes on.
      await eventually("the frames", () =>
        (one.state.socket.bytesWritten === two.state.socket.bytesRead && two.state.socket.bytesWritten === one.state.socket.bytesRead) || undefined)
    }
  }
  assert.isFalse(one.line.hasEnded || two.line.hasEnded)
  for (const { state } of [one, two]) assert.isAtMost(state.writes, 22)
  close()
})

it("nothing is heard on a line any more once this side has closed it", async () => {
  const { close, one, two } = await open()
  for (let i = 0; i < 20; i++) two.line.send(JSON.stringify(["call", i]))
  one.line.end("closed")
  // The bytes may be here already: a connection is closed only when what it has to write is written.
  one.state.socket.emit("data", Buffer.concat([Buffer.from([0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0]), Buffer.from("[[\"call\",1]]")]))
  await once(one.state.socket, "close")
  assert.deepStrictEqual(one.state.heard, [])
  close()
})

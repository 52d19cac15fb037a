import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"
import { afterEach, describe, expect, it } from "vitest"
import { eventually } from "./Eventually.ts"
import { type Fate, Link } from "./Link.ts"

/** A frame of a line between nodes (PeerConnection.ts). */
const frame = (number: number, text: string): Buffer => {
  const bytes = Buffer.alloc(12 + text.length)
  bytes.writeUInt32BE(8 + text.length, 0)
  bytes.writeUInt32BE(number, 4)
  bytes.write(text, 12)
  return bytes
}
const GREETING = Buffer.from('{"parley":4}\n')
const FIRST = frame(1, '[["call"]]')
const SECOND = frame(2, '[["answer"]]')
const EMPTY = frame(3, "[]")

const open: Array<{ readonly close?: () => void; readonly destroy?: () => void }> = []
afterEach(() => {
  for (const one of open.splice(0)) (one.close ?? one.destroy)?.call(one)
})

/** Both sides of a connection through a link, with the bytes that each has received. */
const through = async (prepare: (link: Link) => void) => {
  const server: Server = createServer()
  open.push(server)
  await once(server.listen(0, "127.0.0.1"), "listening")
  const link = await Link.open("127.0.0.1", { host: "127.0.0.1", port: (server.address() as AddressInfo).port })
  open.push(link)
  prepare(link)
  const accepted = once(server, "connection")
  const near = connect(link.address)
  const [far] = await accepted as [Socket]
  open.push(near, far)
  const received = (socket: Socket) => {
    const chunks: Array<Buffer> = []
    let isOver = false
    socket.on("error", () => {}).on("data", (chunk: Buffer) => chunks.push(chunk)).on("close", () => isOver = true)
    return { all: () => Buffer.concat(chunks), isOver: () => isOver }
  }
  return { link, near, far, atNear: received(near), atFar: received(far) }
}

const equal = (what: string, received: () => Buffer, expected: Buffer) =>
  eventually(what, () => received().equals(expected) || undefined)

describe("a link that reads the frames of a line", () => {
  it("decides about each frame, however the bytes are divided, and passes greetings", async () => {
    const decided: Array<readonly [string, boolean]> = []
    const { atFar, near } = await through((link) =>
      link.decide((direction, hasEntries) => {
        decided.push([direction, hasEntries])
        return decided.length === 1 ? "twice" : "pass"
      })
    )
    for (const byte of Buffer.concat([GREETING, FIRST])) near.write(Buffer.from([byte]))
    near.write(Buffer.concat([SECOND, EMPTY]))
    await equal("the frames", atFar.all, Buffer.concat([GREETING, FIRST, FIRST, SECOND, EMPTY]))
    expect(decided).toEqual([["there", true], ["there", true], ["there", false]])
  })

  it("ends the connection in the middle of a frame", async () => {
    const { atFar, atNear, near } = await through((link) => {
      let frames = 0
      link.decide(() => ++frames === 2 ? "half" : "pass")
    })
    near.write(Buffer.concat([GREETING, FIRST, SECOND, EMPTY]))
    await eventually("the end", () => (atFar.isOver() && atNear.isOver()) || undefined)
    expect(atFar.all()).toEqual(Buffer.concat([GREETING, FIRST, SECOND.subarray(0, SECOND.length >> 1)]))
  })

  it("passes the frames behind a late one after it", async () => {
    const { atFar, near } = await through((link) => {
      const fates: Array<Fate> = [{ lateMs: 300 }]
      link.decide(() => fates.pop() ?? "pass")
    })
    near.write(Buffer.concat([GREETING, FIRST, SECOND]))
    await equal("the greeting", atFar.all, GREETING)
    await equal("the frames", atFar.all, Buffer.concat([GREETING, FIRST, SECOND]))
  })

  it("holds the frames of one direction until the release, and passes greetings and the other direction", async () => {
    const { atFar, atNear, far, link, near } = await through((link) => link.holdFrames("there"))
    near.write(Buffer.concat([GREETING, FIRST]))
    far.write(Buffer.concat([GREETING, SECOND]))
    await equal("the greeting", atFar.all, GREETING)
    await equal("the other direction", atNear.all, Buffer.concat([GREETING, SECOND]))
    expect(atFar.all()).toEqual(GREETING)
    link.release()
    await equal("the held frame", atFar.all, Buffer.concat([GREETING, FIRST]))
  })

  it("passes the end of a connection whose frames are held", async () => {
    const { atNear, far, near } = await through((link) => link.holdFrames("there"))
    near.write(Buffer.concat([GREETING, FIRST]))
    far.destroy()
    await eventually("the end", () => atNear.isOver() || undefined)
  })
})

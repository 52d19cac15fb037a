import { type LineEnd, PeerConnection } from "#infrastructure/cluster/PeerConnection"
import { assert, describe, it } from "@effect/vitest"
import { once } from "node:events"
import { connect, createServer, type Socket } from "node:net"
import { setImmediate as turn } from "node:timers/promises"
import { eventually } from "../support/Eventually.ts"

/** A frame as it is on the wire. */
const frame = (number: number, acknowledged: number, text: string): Buffer => {
  const body = Buffer.from(text)
  const head = Buffer.alloc(12)
  head.writeUInt32BE(8 + body.length, 0)
  head.writeUInt32BE(number, 4)
  head.writeUInt32BE(acknowledged, 8)
  return Buffer.concat([head, body])
}

interface Frame {
  readonly number: number
  readonly acknowledged: number
  readonly entries: ReadonlyArray<unknown>
}

const framesOf = (bytes: Buffer): ReadonlyArray<Frame> => {
  const frames: Array<Frame> = []
  for (let at = 0; bytes.length - at >= 12;) {
    const end = at + 4 + bytes.readUInt32BE(at)
    if (bytes.length < end) break
    frames.push({
      number: bytes.readUInt32BE(at + 4),
      acknowledged: bytes.readUInt32BE(at + 8),
      entries: JSON.parse(bytes.toString("utf8", at + 12, end))
    })
    at = end
  }
  return frames
}

const sockets = async (): Promise<readonly [Socket, Socket]> => {
  const server = createServer({ pauseOnConnect: true, noDelay: true })
  await once(server.listen(0, "127.0.0.1"), "listening")
  const address = server.address()
  if (address === null || typeof address === "string") return assert.fail("no port")
  const near = connect({ port: address.port, host: "127.0.0.1", noDelay: true })
  const [far] = await once(server, "connection") as [Socket]
  near.on("error", () => {})
  far.on("error", () => {})
  server.close()
  return [near, far]
}

/** A line, the bare connection of its other side, and what was heard and written. */
const start = async () => {
  const [near, far] = await sockets()
  const time = { now: 0 }
  const heard: Array<unknown> = []
  const ends: Array<readonly [LineEnd, string]> = []
  const writes: Array<Buffer> = []
  let bytes = Buffer.alloc(0)
  far.on("data", (chunk: Buffer) => bytes = Buffer.concat([bytes, chunk]))
  far.resume()
  const write = near.write.bind(near)
  near.write = ((chunk: Buffer) => {
    writes.push(chunk)
    return write(chunk)
  }) as typeof near.write
  const line = new PeerConnection("b:1", 1, near, {
    received: (_, entry) => {
      if (entry[0] === "bad") throw new Error("bad")
      heard.push(entry)
    },
    ended: (_, end, cause) => ends.push([end, cause instanceof Error ? cause.message : ""])
  }, () => time.now)
  line.begin(Buffer.alloc(0))
  return { line, far, time, heard, ends, writes, sent: () => framesOf(bytes) }
}

describe("a line between two nodes", () => {
  it("sends the entries of one turn of the event loop in one frame and one write, in order", async () => {
    const { line, sent, writes } = await start()
    line.send('["a",1]')
    line.send({ encode: () => '["b","ä"]' })
    void Promise.resolve().then(() => line.send('["c",3]'))
    await eventually("the frame", () => sent().length === 1 || undefined)
    assert.lengthOf(writes, 1)
    assert.deepStrictEqual(sent(), [{ number: 1, acknowledged: 0, entries: [["a", 1], ["b", "ä"], ["c", 3]] }])
    await turn()
    line.send('["d",4]')
    await eventually("the next", () => sent().length === 2 || undefined)
    assert.deepStrictEqual(sent()[1], { number: 2, acknowledged: 0, entries: [["d", 4]] })
  })

  it("delivers entries in order, however the bytes are cut, and acknowledges with its next frame", async () => {
    const { far, heard, line, sent } = await start()
    const bytes = Buffer.concat([frame(1, 0, '[["a","é"],["b"]]'), frame(2, 0, "[]"), frame(3, 0, '[["c"]]')])
    for (const byte of bytes) {
      far.write(Buffer.from([byte]))
      await turn()
    }
    await eventually("all of it", () => heard.length === 3 || undefined)
    assert.deepStrictEqual(heard, [["a", "é"], ["b"], ["c"]])
    assert.deepStrictEqual(sent(), [])
    line.send('["answer"]')
    await eventually("the answer", () => sent().length === 1 || undefined)
    assert.strictEqual(sent()[0]!.acknowledged, 3)
  })

  it("ignores a frame that comes twice", async () => {
    const { ends, far, heard } = await start()
    const one = frame(1, 0, '[["a"]]')
    far.write(Buffer.concat([one, one, frame(2, 0, '[["b"]]'), one]))
    await eventually("both", () => heard.length === 2 || undefined)
    far.write(frame(3, 0, '[["c"]]'))
    await eventually("the third", () => heard.length === 3 || undefined)
    assert.deepStrictEqual(heard, [["a"], ["b"], ["c"]])
    assert.deepStrictEqual(ends, [])
  })

  for (
    const [what, bytes, end] of [
      ["a gap in the numbers", frame(2, 0, '[["a"]]'), "frame 2 after frame 0"],
      ["an acknowledgement of what was not sent", frame(1, 1, "[]"), "acknowledged before it was sent"],
      ["what is no JSON", frame(1, 0, "[oops]"), ""],
      ["an entry that is not understood", frame(1, 0, '[["a"],["bad"],["b"]]'), "bad"],
      ["a length that no frame has", Buffer.from("GET / HTTP/1.1\r\n"), "a frame of"]
    ] as const
  ) {
    it(`ends at ${what}, and delivers nothing after it`, async () => {
      const { ends, far, heard, line } = await start()
      far.write(Buffer.concat([bytes, frame(2, 0, '[["late"]]')]))
      await eventually("the end", () => ends.length === 1 || undefined)
      assert.strictEqual(ends[0]![0], "answer")
      assert.include(ends[0]![1], end)
      assert.notDeepInclude(heard, ["late"])
      line.send('["never"]')
      await turn()
      await turn()
      assert.isTrue(line.hasEnded)
      assert.lengthOf(ends, 1)
    })
  }

  it("ends when its connection breaks in the middle of a frame", async () => {
    const { ends, far, heard } = await start()
    far.write(frame(1, 0, '[["a"]]').subarray(0, 15))
    await turn()
    far.destroy()
    await eventually("the end", () => ends.length === 1 || undefined)
    assert.strictEqual(ends[0]![0], "connection")
    assert.deepStrictEqual(heard, [])
  })

  it("sends a sign of life twice a second, and ends when nothing arrives for three seconds", async () => {
    const { ends, far, line, sent, time } = await start()
    for (time.now = 0; time.now < 2_000; time.now += 250) line.check(true)
    await eventually("the beats", () => sent().length >= 3 || undefined)
    assert.isAtMost(sent().length, 4)
    assert.deepStrictEqual(sent()[0], { number: 1, acknowledged: 0, entries: [] })
    // Whatever comes counts, even a part of a frame.
    const beat = frame(1, 3, "[]")
    far.write(beat.subarray(0, 3))
    await eventually("three bytes", () => line.receivedAt === time.now || undefined)
    time.now += 2_900
    line.check(true)
    assert.deepStrictEqual(ends, [])
    time.now += 200
    line.check(false)
    assert.deepStrictEqual(ends, [], "this process stood still itself")
    line.check(true)
    assert.deepStrictEqual(ends, [["silence", "nothing was heard for 3 s"]])
  })

  it("ends when the other side lives and acknowledges nothing for five seconds", async () => {
    const { ends, far, line, time } = await start()
    line.send('["a"]')
    await turn()
    for (let number = 1; time.now < 5_000; number++) {
      far.write(frame(number, 0, "[]"))
      await eventually("a sign of life", () => line.receivedAt === time.now || undefined)
      line.check(true)
      time.now += 500
    }
    assert.deepStrictEqual(ends, [])
    time.now += 500
    far.write(frame(11, 0, "[]"))
    await eventually("a sign of life", () => line.receivedAt === time.now || undefined)
    line.check(true)
    assert.deepStrictEqual(ends, [["silence", "nothing was acknowledged for 5 s"]])
  })

  it("sends four million characters without an acknowledgement, and the rest after it", async () => {
    const { far, line, sent } = await start()
    const large = JSON.stringify(["large", "x".repeat(999_990)])
    for (let i = 0; i < 7; i++) line.send(large)
    line.send('["last"]')
    const entries = () => sent().reduce((sum, { entries }) => sum + entries.length, 0)
    await eventually("what fits", () => entries() >= 4 || undefined)
    await turn()
    const first = entries()
    assert.isAtMost(first, 5)
    far.write(frame(1, sent().at(-1)!.number, "[]"))
    await eventually("the rest", () => entries() === 8 || undefined)
    assert.deepStrictEqual(sent().at(-1)!.entries.at(-1), ["last"])
  })

  it("acknowledges large frames before it has anything to send", async () => {
    const { far, sent } = await start()
    far.write(frame(1, 0, JSON.stringify([["large", "x".repeat(1_100_000)]])))
    await eventually("an acknowledgement", () => sent().length === 1 || undefined)
    assert.deepStrictEqual(sent()[0], { number: 1, acknowledged: 1, entries: [] })
  })

  it("ends before the numbers of its frames are used up", async () => {
    const { ends, line } = await start()
    // A hundred days of a thousand frames a second.
    Reflect.set(line, "sent", 2 ** 32 - 1_000)
    line.send('["a"]')
    await eventually("the end", () => ends.length === 1 || undefined)
    assert.deepStrictEqual(ends, [["connection", "all numbers of frames are used"]])
    const other = await start()
    Reflect.set(other.line, "sent", 2 ** 32 - 1_000)
    other.line.send('["a"]')
    other.line.end("closed")
    assert.lengthOf(other.ends, 1, "a line ends once")
  })

  it("drops queued entries, and ends after those that were sent, if this side closes it", async () => {
    const { ends, line, sent } = await start()
    const dropped = { encode: () => '["dropped"]' }
    line.send(dropped)
    line.send('["kept"]')
    line.drop((entry) => entry === dropped)
    line.end("closed")
    await eventually("the frame", () => sent().length === 1 || undefined)
    assert.deepStrictEqual(sent()[0]!.entries, [["kept"]])
    assert.strictEqual(ends[0]![0], "closed")
  })

  it("carries an empty frame twice a second in each direction when nothing is said, whenever each side looks", async () => {
    const [near, far] = await sockets()
    const time = { now: 0 }
    let heard = 0
    const ends = [near, far].map((socket) => {
      const end = {
        socket,
        writes: 0,
        line: new PeerConnection("b:1", 1, socket, { received: () => void heard++, ended: () => {} }, () => time.now)
      }
      const write = socket.write.bind(socket)
      socket.write = ((chunk: Buffer) => {
        end.writes++
        return write(chunk)
      }) as typeof socket.write
      end.line.begin(Buffer.alloc(0))
      return end
    })
    ends[0]!.line.send('["a"]')
    await eventually("the entry", () => heard === 1 || undefined)
    while (time.now < 10_000) {
      for (const { line } of ends) {
        time.now += 125
        line.check(true)
        // What was written has arrived before the clock goes on.
        await eventually(
          "the frames",
          () => (near.bytesWritten === far.bytesRead && far.bytesWritten === near.bytesRead) || undefined
        )
      }
    }
    for (const { line, writes } of ends) {
      assert.isFalse(line.hasEnded)
      assert.isAtMost(writes, 22)
      line.end("connection")
    }
  })

  it("delivers nothing once this side has closed it", async () => {
    const { far, heard, line } = await start()
    const near = Reflect.get(line, "connection") as Socket
    line.send('["a"]')
    line.end("closed")
    // The connection is closed only when everything is written: bytes of the other side may come until then.
    near.emit("data", frame(1, 0, '[["late"]]'))
    await once(far, "close")
    assert.deepStrictEqual(heard, [])
  })
})

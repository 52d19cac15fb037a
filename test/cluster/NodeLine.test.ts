import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { once } from "node:events"
import { connect, createServer, type Socket } from "node:net"
import { type LineEnd, type LineEvents, NodeLine, PREFACE } from "../../src/cluster/NodeLine.ts"
import { eventually } from "../support/Eventually.ts"

/** Two ends of a TCP connection. */
const sockets = async (): Promise<readonly [Socket, Socket]> => {
  const server = createServer({ noDelay: true }).listen(0, "127.0.0.1")
  await once(server, "listening")
  const address = server.address()
  if (address === null || typeof address === "string") return assert.fail("no port")
  const accepted = once(server, "connection") as Promise<[Socket]>
  const dialled = connect({ port: address.port, host: "127.0.0.1", noDelay: true })
  const [other] = await accepted
  server.close()
  return [dialled, other]
}

const ignored: LineEvents = { hear: () => {}, ended: () => {} }

/** A line: the end that has connected, and what the other one hears and how it replies. */
const lines = async (hear: LineEvents["hear"], events: LineEvents = ignored) => {
  const [dialled, other] = await sockets()
  let now = 0
  const ends: Array<readonly [LineEnd, string]> = []
  const line = new NodeLine({
    ...events,
    ended: (end, cause) => void ends.push([end, cause instanceof Error ? cause.message : String(cause)])
  }, () => now)
  const there = new NodeLine({ ...ignored, hear }, () => now)
  line.begin(dialled)
  const [first] = (await once(other, "data")) as [Buffer]
  other.pause()
  assert.isTrue(first.subarray(0, PREFACE.length).equals(PREFACE))
  there.attach(other, first.subarray(PREFACE.length))
  return { line, there, ends, dialled, other, later: (ms: number) => (now += ms) }
}

const asked = (line: NodeLine, text: string) => new Promise<string | undefined>((resolve) => line.ask("deliver", text, resolve))

describe("a line between nodes", () => {
  it("brings every text whole and in order, however the bytes are cut", () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom("", "é", "x".repeat(300_000), "😀".repeat(40_000))), { minLength: 1, maxLength: 8 }),
        fc.infiniteStream(fc.integer({ min: 1, max: 70_000 })),
        async (texts, cuts) => {
          const [dialled, between] = await sockets()
          const [onward, other] = await sockets()
          between.on("data", (chunk: Buffer) => {
            for (let at = 0; at < chunk.length;) {
              const { value } = cuts.next()
              onward.write(chunk.subarray(at, at += value))
            }
          })
          const heard: Array<string> = []
          const line = new NodeLine(ignored, () => 0)
          const there = new NodeLine({ ...ignored, hear: (_, topic, text) => void heard.push(`${topic} ${text}`) }, () => 0)
          line.attach(dialled)
          there.attach(other)
          for (const [i, text] of texts.entries()) {
            if (i % 2 === 0) line.tell("calls", text)
            else line.ask("deliver", text, () => {})
            if (i % 3 === 0) line.flush()
          }
          const expected = texts.map((text, i) => `${i % 2 === 0 ? "calls" : "deliver"} ${text.toWellFormed()}`)
          await eventually("all texts", () => heard.length === texts.length || undefined)
          assert.deepStrictEqual(heard, expected)
          for (const end of [line, there]) end.end("closed")
          between.destroy()
          onward.destroy()
        }
      ),
      { numRuns: 25 }
    ))

  it("takes each reply to its question, whatever order they come in", async () => {
    const waiting: Array<() => void> = []
    const { line, there } = await lines((_, __, text) =>
      new Promise((resolve) => {
        waiting.unshift(() => resolve(`re ${text}`))
        if (waiting.length === 3) for (const reply of waiting) reply()
      }))
    assert.deepStrictEqual(await Promise.all(["a", "b", "c"].map((text) => asked(line, text))), ["re a", "re b", "re c"])
    line.end("closed")
    await eventually("the other end", () => there.hasEnded || undefined)
  })

  it("sends what is said before it is connected, and what one turn says in one write", async () => {
    const [dialled, other] = await sockets()
    const line = new NodeLine(ignored, () => 0)
    const heard: Array<string> = []
    for (const text of ["a", "b"]) line.tell("calls", text)
    line.attach(dialled)
    const there = new NodeLine({ ...ignored, hear: (_, __, text) => void heard.push(text) }, () => 0)
    there.attach(other)
    let writes = 0
    const write = dialled.write.bind(dialled)
    dialled.write = ((...parameters: Parameters<typeof write>) => {
      writes++
      return write(...parameters)
    }) as typeof dialled.write
    for (let i = 0; i < 100; i++) line.tell("answers", String(i))
    await eventually("all texts", () => heard.length === 102 || undefined)
    assert.strictEqual(writes, 1)
    line.end("closed")
  })

  it("ends when a question stays without a reply, asks for a sign of life when it is quiet, and tells those who wait", async () => {
    const { ends, later, line, there } = await lines((_, __, text) => text === "never" ? new Promise(() => {}) : Promise.resolve("said"))
    assert.strictEqual(await asked(line, "something"), "said")
    // A sign of life is answered by the line itself.
    later(5_000)
    line.check(3_000, 4_000)
    await asked(line, "something")
    later(2_999)
    line.check(3_000, 4_000)
    assert.isFalse(line.hasEnded)
    const unanswered = asked(line, "never")
    later(2_999)
    line.check(3_000, 4_000)
    assert.isFalse(line.hasEnded)
    later(1)
    line.check(3_000, 4_000)
    assert.deepStrictEqual(ends, [["silence", "no reply within 3000 ms"]])
    assert.isUndefined(await unanswered)
    assert.isUndefined(await asked(line, "too late"))
    await eventually("the other end", () => there.hasEnded || undefined)
  })

  it("ends when the other end goes, fails on a question, or says what is no frame", async () => {
    const gone = await lines(() => new Promise(() => {}))
    const left = asked(gone.line, "a")
    gone.other.destroy()
    assert.isUndefined(await left)
    assert.strictEqual(gone.ends[0]?.[0], "connection")

    for (const failing of [() => Promise.reject(new Error("a mistake")), () => { throw new Error("a mistake") }]) {
      const failed = await lines(failing)
      assert.isUndefined(await asked(failed.line, "a"))
      assert.deepStrictEqual(failed.ends, [["failure", "a mistake"]])
    }

    const nonsense: ReadonlyArray<readonly [Buffer, string]> = [
      [Buffer.from("GET / HTTP/1.1\r\n\r\n"), "a frame of 1195725856 bytes"],
      [Buffer.from([0, 0, 0, 4, 16, 0, 0, 0, 0]), "a frame of 4 bytes"],
      [Buffer.from([0, 0, 0, 5, 99, 0, 0, 0, 0]), "a frame of kind 99"]
    ]
    for (const [bytes, told] of nonsense) {
      const { ends, line, other } = await lines(() => {})
      other.write(bytes)
      await eventually("the end", () => line.hasEnded || undefined)
      assert.deepStrictEqual(ends, [["answer", told]])
    }
  })

  it("is nothing to a node that ends it: no question is left, and nothing is heard after", async () => {
    let heard = 0
    const { ends, line, there } = await lines(() => void heard++)
    const left = asked(line, "a")
    line.end("closed")
    line.tell("calls", "b")
    assert.isUndefined(await left)
    await eventually("the other end", () => there.hasEnded || undefined)
    assert.isAtMost(heard, 1)
    assert.deepStrictEqual(ends, [["closed", "undefined"]])
  })
})

import { ServerRequest } from "#infrastructure/http/ServerRequest"
import { ServerResponse } from "#infrastructure/http/ServerResponse"
import { DeferredAnswer } from "#interfaces/mcp/DeferredAnswer"
import { afterEach, assert, beforeEach, describe, it, vi } from "@effect/vitest"
import { Socket } from "node:net"
import { PassThrough } from "node:stream"

describe("an answer of /mcp that may come late", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] }))
  afterEach(() => void vi.useRealTimers())

  /** A response whose bytes are collected. */
  const begin = () => {
    const wire = new PassThrough().setEncoding("latin1")
    const response = new ServerResponse(
      Object.assign(new ServerRequest(new Socket()), { httpVersionMajor: 1, httpVersionMinor: 1 })
    )
    response.assignSocket(wire as unknown as Socket)
    let sent = ""
    wire.on("data", (chunk: string) => void (sent += chunk))
    const state = { givenUp: false }
    let settled = (_message: object | undefined): void => undefined
    new DeferredAnswer((settle) => {
      settled = settle
      return () => void (state.givenUp = true)
    }).begin(response)
    const answer = async () => {
      await new Promise((resolve) => setTimeout(resolve, 0))
      const [head = "", ...body] = sent.split("\r\n\r\n")
      return { head: head.toLowerCase(), body: body.join("\r\n\r\n") }
    }
    return { response, state, answer, succeed: () => settled({ id: 1 }), fail: () => settled(undefined) }
  }

  it("is JSON where it comes within 20 seconds", async () => {
    const { answer, response, succeed } = begin()
    vi.advanceTimersByTime(19_999)
    assert.strictEqual((await answer()).head, "")
    succeed()
    const { body, head } = await answer()
    assert.match(head, /^http\/1\.1 200 ok\r\n[^]*content-type: application\/json\r\n/)
    assert.include(head, "content-length: 8")
    assert.strictEqual(body, `{"id":1}`)
    assert.deepStrictEqual([response.writableEnded, vi.getTimerCount()], [true, 0])
  })

  it("is an event stream after 20 seconds of silence, with a comment every 20 seconds, that ends with the answer", async () => {
    const { answer, response, state, succeed } = begin()
    vi.advanceTimersByTime(20_000)
    const { head } = await answer()
    for (
      const header of [
        "content-type: text/event-stream",
        "cache-control: no-cache, no-transform",
        "x-accel-buffering: no"
      ]
    ) {
      assert.include(head, header)
    }
    vi.advanceTimersByTime(40_000)
    const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`
    const comments = chunk(": waiting\n\n").repeat(3)
    assert.strictEqual((await answer()).body, comments)
    succeed()
    assert.strictEqual((await answer()).body, `${comments}${chunk('event: message\ndata: {"id":1}\n\n')}0\r\n\r\n`)
    assert.deepStrictEqual([response.writableEnded, vi.getTimerCount(), state.givenUp], [true, 0, false])
  })

  it("is an error where the message cannot be made, and a broken stream where one has begun", async () => {
    const early = begin()
    early.fail()
    const { body, head } = await early.answer()
    assert.match(head, /^http\/1\.1 500 /)
    assert.strictEqual(JSON.parse(body).code, "INTERNAL_ERROR")
    const late = begin()
    vi.advanceTimersByTime(20_000)
    late.fail()
    assert.deepStrictEqual([late.response.destroyed, late.response.writableEnded, vi.getTimerCount()], [true, false, 0])
  })

  it("is dropped when the caller is gone, before it and while it is an event stream", () => {
    for (const seconds of [1, 21]) {
      const { response, state, succeed } = begin()
      vi.advanceTimersByTime(seconds * 1_000)
      response.worker?.interruptUnsafe()
      assert.deepStrictEqual([vi.getTimerCount(), state.givenUp], [0, true])
      response.destroy()
      succeed()
    }
  })
})

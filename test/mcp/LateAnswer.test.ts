import { afterEach, assert, beforeEach, describe, it, vi } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import type { HttpServerResponse } from "effect/http"
import type { Readable } from "node:stream"
import { lateAnswer } from "../../src/mcp/LateAnswer.ts"

describe("an answer of /mcp that may come late", () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] }))
  afterEach(() => void vi.useRealTimers())

  const begin = () => {
    const message = Deferred.makeUnsafe<object>()
    const state = { interrupted: false }
    const waits = Effect.onInterrupt(Deferred.await(message), () => Effect.sync(() => void (state.interrupted = true)))
    const fiber = Effect.runFork(lateAnswer((effect) => Effect.runFork(effect), waits))
    let response: HttpServerResponse.HttpServerResponse | undefined
    fiber.addObserver((exit) => void (response = exit._tag === "Success" ? exit.value : undefined))
    return { state, fiber, answer: () => response, succeed: () => Deferred.doneUnsafe(message, Effect.succeed({ id: 1 })) }
  }
  const streamOf = (response: HttpServerResponse.HttpServerResponse | undefined): Readable => {
    assert.strictEqual(response?.headers["content-type"], "text/event-stream")
    return (response as unknown as { readonly body: { readonly body: Readable } }).body.body
  }
  const settled = () => new Promise((resolve) => setTimeout(resolve, 0))

  it("is JSON where it comes within 20 seconds", async () => {
    const { answer, succeed } = begin()
    vi.advanceTimersByTime(19_999)
    await settled()
    assert.isUndefined(answer())
    succeed()
    await settled()
    assert.strictEqual(answer()?.headers["content-type"], "application/json")
    assert.strictEqual(vi.getTimerCount(), 0)
  })

  it("is an event stream after 20 seconds of silence, with a comment every 20 seconds, that ends with the answer", async () => {
    const { answer, state, succeed } = begin()
    vi.advanceTimersByTime(40_000)
    await settled()
    const stream = streamOf(answer()).setEncoding("utf8")
    let text = ""
    stream.on("data", (chunk) => void (text += chunk))
    vi.advanceTimersByTime(20_000)
    await settled()
    assert.strictEqual(text, ": waiting\n\n".repeat(3))
    succeed()
    await settled()
    assert.strictEqual(text, `${": waiting\n\n".repeat(3)}event: message\ndata: {"id":1}\n\n`)
    assert.isTrue(stream.readableEnded)
    assert.deepStrictEqual([vi.getTimerCount(), state.interrupted], [0, false])
  })

  it("is given up when the request ends before it, or the stream is closed", async () => {
    const early = begin()
    await settled()
    early.fiber.interruptUnsafe()
    await settled()
    assert.deepStrictEqual([vi.getTimerCount(), early.state.interrupted], [0, true])
    const late = begin()
    vi.advanceTimersByTime(20_000)
    await settled()
    streamOf(late.answer()).destroy()
    await settled()
    assert.deepStrictEqual([vi.getTimerCount(), late.state.interrupted], [0, true])
  })
})

import { NotFound, RateLimited, Unavailable, UpgradeRequired } from "#infrastructure/wire/WireError"
import { answer, refuse } from "#infrastructure/wire/WireErrors"
import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Logger } from "effect"
import type { HttpServerResponse } from "effect/http"
import { SqlError } from "effect/sql"
import { PassThrough } from "node:stream"

const bodyOf = (response: HttpServerResponse.HttpServerResponse): unknown =>
  response.body._tag === "Uint8Array" ? JSON.parse(Buffer.from(response.body.body).toString("utf8")) : undefined

/** The answer to a cause, with the levels at which it was logged. */
const answered = (cause: Cause.Cause<unknown>) => {
  const logged: Array<string> = []
  return answer(cause).pipe(
    Effect.provide(Logger.layer([Logger.make((options) => void logged.push(options.logLevel))])),
    Effect.map((response) => ({ status: response.status, headers: response.headers, body: bodyOf(response), logged }))
  )
}

const sqlFailure = new SqlError.SqlError({ reason: new SqlError.ConnectionError({ cause: new Error("gone") }) })

describe("an answer to a failure", () => {
  it.effect("is what the failure says, and nobody is told in the log", () =>
    Effect.gen(function*() {
      const { body, logged, status } = yield* answered(Cause.fail(new NotFound()))
      assert.strictEqual(status, 404)
      assert.deepStrictEqual(body, { code: "NOT_FOUND", message: "There is nothing here." })
      assert.deepStrictEqual(logged, [])
      assert.deepStrictEqual((yield* answered(Cause.die(new Unavailable()))).logged, [])
    }))

  it.effect("rounds Retry-After up to whole seconds, one at least", () =>
    Effect.gen(function*() {
      const after = (ms: number) =>
        Effect.map(answered(Cause.fail(new RateLimited({ details: { retry_after_ms: ms } }))), ({ headers }) =>
          headers["retry-after"])
      assert.deepStrictEqual([yield* after(1), yield* after(1000), yield* after(1001)], ["1", "1", "2"])
      assert.isUndefined((yield* answered(Cause.fail(new RateLimited()))).headers["retry-after"])
    }))

  it.effect("is 503 when storage failed, which the log says", () =>
    Effect.gen(function*() {
      for (const cause of [Cause.fail(sqlFailure), Cause.die(sqlFailure)]) {
        const { body, headers, logged, status } = yield* answered(cause)
        assert.strictEqual(status, 503)
        assert.strictEqual((body as { code: string }).code, "UNAVAILABLE")
        assert.strictEqual(headers["retry-after"], "2")
        assert.deepStrictEqual(logged, ["Warn"])
      }
    }))

  it.effect("is 500 for a statement that the database does not understand, or may not carry out", () =>
    Effect.gen(function*() {
      const props = { cause: new Error('relation "nowhere" does not exist') }
      for (const reason of [new SqlError.SqlSyntaxError(props), new SqlError.AuthorizationError(props)]) {
        const error = new SqlError.SqlError({ reason })
        for (const cause of [Cause.fail(error), Cause.die(error)]) {
          const { body, logged, status } = yield* answered(cause)
          assert.strictEqual(status, 500)
          assert.notInclude(JSON.stringify(body), "nowhere")
          assert.deepStrictEqual(logged, ["Error"])
        }
      }
    }))

  it.effect("is 500 without a word of why for what nobody expected, and the log has it", () =>
    Effect.gen(function*() {
      const { body, logged, status } = yield* answered(Cause.die(new Error("the secret")))
      assert.strictEqual(status, 500)
      assert.notInclude(JSON.stringify(body), "secret")
      assert.deepStrictEqual(logged, ["Error"])
    }))
})

describe("a refusal on a bare connection", () => {
  it.effect("is a whole HTTP answer, and the end of the connection", () =>
    Effect.gen(function*() {
      const socket = new PassThrough()
      refuse(socket, new UpgradeRequired({ message: "café" }), "req-1")
      const text = yield* Effect.promise(async () => Buffer.concat(await socket.toArray()).toString("utf8"))
      const [head = "", body = ""] = text.split("\r\n\r\n")
      assert.match(head, /^HTTP\/1\.1 426 Upgrade Required\r\n/)
      assert.include(head, `content-length: ${Buffer.byteLength(body)}`)
      assert.include(head, "x-request-id: req-1")
      assert.match(head, /connection: .*close/)
      assert.deepStrictEqual(JSON.parse(body), { code: "UPGRADE_REQUIRED", message: "café" })
    }))

  it("gives up on a connection that takes no more", () => {
    const socket = new PassThrough()
    socket.end()
    refuse(socket, new NotFound(), "req-1")
    assert.isTrue(socket.destroyed)
  })
})

import { assert, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { ClusterError } from "effect/cluster"
import { HttpServerRequest } from "effect/http"
import { RpcClient } from "effect/rpc"
import { TestClock } from "effect/testing"
import { withRemoteDeadline } from "../../src/cluster/RemoteDeadline.ts"
import { forRequest } from "../../src/platform/RequestId.ts"
import { NotFound } from "../../src/wire/WireError.ts"

it.effect("a caller is held for 5 s while a shard moves, then told to try again", () =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(Effect.flip(withRemoteDeadline(Effect.never)), { startImmediately: true })
    yield* TestClock.adjust("4999 millis")
    assert.isUndefined(fiber.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    const failure = yield* Fiber.join(fiber)
    assert.strictEqual(failure._tag, "Unavailable")
    assert.strictEqual(failure.retryAfterMs, 2_000)
  }))

it.effect("what was not delivered, or ended with its entity, is to be tried again; an answer stays what it is", () =>
  Effect.gen(function*() {
    const full = ClusterError.PersistenceError.refail(Effect.fail("the storage is away"))
    assert.strictEqual((yield* Effect.flip(withRemoteDeadline(full)))._tag, "Unavailable")
    assert.strictEqual((yield* Effect.flip(withRemoteDeadline(Effect.interrupt)))._tag, "Unavailable")
    assert.strictEqual((yield* Effect.flip(withRemoteDeadline(Effect.fail(new NotFound({ message: "not here" })))))._tag, "NotFound")
    assert.strictEqual(yield* withRemoteDeadline(Effect.succeed(1)), 1)
    assert.isTrue(Exit.hasDies(yield* Effect.exit(withRemoteDeadline(Effect.die("a bug")))))
  }))

it.effect("a caller that is interrupted itself ends", () =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(withRemoteDeadline(Effect.never), { startImmediately: true })
    yield* Fiber.interrupt(fiber)
    assert.isTrue(Exit.hasInterrupts(yield* Fiber.await(fiber)))
  }))

it.effect("a call carries the id of the request that it is made for, and nothing else of it", () =>
  Effect.gen(function*() {
    const headers = withRemoteDeadline(Effect.map(RpcClient.CurrentHeaders, (all) => Object.entries(all)))
    const request = HttpServerRequest.fromWeb(
      new Request("http://x/", { headers: { "x-request-id": "mine-1", "authorization": "Bearer secret" } })
    )
    const inRequest = Effect.provideService(headers, HttpServerRequest.HttpServerRequest, request)
    assert.deepStrictEqual(yield* inRequest, [["x-request-id", "mine-1"]])
    assert.deepStrictEqual(yield* forRequest("mine-2", headers), [["x-request-id", "mine-2"]])
    assert.deepStrictEqual(yield* headers, [])
  }))

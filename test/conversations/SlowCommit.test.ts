import { assert, layer } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { Conversations } from "../../src/conversations/Conversations.ts"
import { layerSeam, Seam } from "../../verification/simulation/World.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { draft, layerRooms, newAgent } from "../support/Rooms.ts"

const seam = new Seam()

layer(layerRooms(layerSeam(layerPgliteTest, seam)))((it) => {
  it.effect("a send whose commit does not end is answered with 503 after 5 s, and is stored when it does", () =>
    Effect.gen(function*() {
      const { send } = yield* Conversations
      const [a, b] = [yield* newAgent("slow-a"), yield* newAgent("slow-b")]
      yield* send(a, { _tag: "Direct", handle: b.handle }, draft("hello"))
      yield* send(b, { _tag: "Direct", handle: a.handle }, draft("hello"))

      const began = yield* Deferred.make<void>()
      const ends = yield* Deferred.make<void>()
      yield* Effect.addFinalizer(() => Deferred.succeed(ends, undefined))
      seam.pause = Effect.andThen(Deferred.succeed(began, undefined), Deferred.await(ends))
      const slow = send(a, { _tag: "Direct", handle: b.handle }, draft("slow"))
      const waiting = yield* Effect.forkChild(Effect.exit(slow), { startImmediately: true })
      yield* Deferred.await(began)
      yield* TestClock.adjust("4 seconds")
      assert.isUndefined(waiting.pollUnsafe())
      yield* TestClock.adjust("3 seconds")
      yield* Effect.yieldNow
      assert.isDefined(waiting.pollUnsafe())
      const exit = yield* Fiber.join(waiting)
      assert.strictEqual(Exit.isFailure(exit) && exit.cause.reasons.find(Cause.isFailReason)?.error._tag, "Unavailable")

      seam.pause = undefined
      yield* Deferred.succeed(ends, undefined)
      assert.isFalse((yield* slow).created)
    }))
})

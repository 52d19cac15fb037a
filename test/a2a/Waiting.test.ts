import { Agents } from "#domain/agents/Agents"
import { Auth } from "#domain/auth/Auth"
import type { Call } from "#interfaces/a2a/Call"
import { makeEventStream } from "#interfaces/a2a/EventStream"
import { makeOperations } from "#interfaces/a2a/Operations"
import { TaskWatches } from "#interfaces/a2a/TaskWatches"
import { Waiters } from "#interfaces/realtime/Waiters"
import { assert, layer } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import type { Readable } from "node:stream"
import { turn } from "../../verification/simulation/World.ts"
import { layerPgliteTest } from "../support/Databases.ts"
import { eventually } from "../support/Eventually.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

/** Completes when a call waits. */
let waits = Deferred.makeUnsafe<void>()
const watching = Layer.effect(
  TaskWatches,
  Effect.map(TaskWatches, (real) =>
    TaskWatches.of({
      open: (...given) => Effect.tap(real.open(...given), () => Deferred.succeed(waits, undefined))
    }))
).pipe(Layer.provide(TaskWatches.layer))

const world = watching.pipe(
  Layer.provideMerge(Waiters.layer),
  Layer.provideMerge(Auth.layer),
  Layer.provideMerge(layerModules(layerPgliteTest))
)

let serial = 0

const request = (returnImmediately: boolean) => ({
  message: { messageId: `waiting-${serial++}`, role: "ROLE_USER", parts: [{ text: "?" }] },
  configuration: { returnImmediately }
})

/** A caller's request to an agent that is away. */
const calling = Effect.gen(function*() {
  const [a, b] = [yield* newAgent(`waiter-${serial++}`), yield* newAgent(`away-${serial++}`)]
  // The pair has spoken before.
  yield* (yield* SqlClient.SqlClient)`UPDATE agents SET inbox_mode = 'open' WHERE id = ${b.id}`
  const caller = (yield* (yield* Agents).byIds([a.id])).get(a.id)!
  waits = Deferred.makeUnsafe<void>()
  // Nothing here has a file, for which alone the API is called.
  const call: Call = { caller, key: a.key, handle: b.handle, api: { call: () => Effect.die(new Error("not called")) } }
  return call
})

const moved = Effect.fnUntraced(function*(ms: number) {
  // What is compared with storage in between takes real time.
  for (let left = ms; left > 0; left -= 500) {
    yield* TestClock.adjust(Math.min(left, 500))
    yield* turn
  }
})

layer(world)("an agent that does not answer", (it) => {
  it.effect("makes a call that waits come back after 30 seconds, not before, with the task as it stands", () =>
    Effect.gen(function*() {
      const operations = yield* makeOperations
      const call = yield* calling
      const fiber = yield* Effect.forkChild(operations.sendMessage(call, request(false)))
      yield* Deferred.await(waits)
      yield* turn
      yield* moved(29_900)
      assert.isUndefined(fiber.pollUnsafe())
      yield* moved(200)
      const { task } = (yield* Fiber.join(fiber)) as { readonly task: { readonly status: { readonly state: string } } }
      assert.strictEqual(task.status.state, "TASK_STATE_SUBMITTED")
    }))

  it.effect("leaves a stream a comment every 20 seconds", () =>
    Effect.gen(function*() {
      const operations = yield* makeOperations
      const call = yield* calling
      const streamed = yield* operations.sendStreamingMessage(call, request(true))
      const response = yield* (yield* makeEventStream)(call, streamed, true, (event) => event)
      assert.strictEqual(response.body._tag, "Raw")
      const stream = (response.body as unknown as { readonly body: Readable }).body
      let text = ""
      stream.on("data", (part: Buffer) => text += part.toString())
      const comments = () => text.split(": waiting\n\n").length - 1
      yield* Effect.promise(() => eventually("the first event", () => text.startsWith('data: {"task"') || undefined))
      yield* moved(19_900)
      assert.strictEqual(comments(), 0)
      yield* moved(200)
      yield* Effect.promise(() => eventually("a comment", () => comments() === 1 || undefined))
      yield* moved(20_000)
      yield* Effect.promise(() => eventually("another", () => comments() === 2 || undefined))
      stream.destroy()
    }))
})

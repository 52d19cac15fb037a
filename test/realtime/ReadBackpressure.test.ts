import { assert, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { type Asking, hold, letGo, withBackpressure } from "../../src/realtime/ReadBackpressure.ts"

it.effect("the sender of frames that have storage asked waits from the eighth on, until one has ended", () =>
  Effect.gen(function*() {
    const fork = Effect.runForkWith(yield* Effect.context<never>())
    const calls: Array<string> = []
    const asking: Asking = {
      lookups: 0,
      holds: 0,
      socket: { pause: () => calls.push("pause"), resume: () => calls.push("resume") }
    }
    const gates: Array<Deferred.Deferred<void>> = []
    const ask = Effect.fnUntraced(function*() {
      const gate = yield* Deferred.make<void>()
      gates.push(gate)
      withBackpressure(asking, Deferred.await(gate), fork)
    })
    const end = Effect.suspend(() => {
      const gate = gates.shift()
      return gate === undefined ? Effect.die("nothing is under way") : Effect.andThen(Deferred.succeed(gate, undefined), Effect.yieldNow)
    })
    for (let i = 0; i < 7; i++) yield* ask()
    assert.deepStrictEqual(calls, [])
    yield* ask()
    assert.deepStrictEqual(calls, ["pause"])
    // What had been read with it is still taken.
    yield* ask()
    yield* end
    assert.deepStrictEqual(calls, ["pause"])
    yield* end
    assert.deepStrictEqual(calls, ["pause", "resume"])
    yield* ask()
    assert.deepStrictEqual(calls, ["pause", "resume", "pause"])
    while (gates.length > 0) yield* end
    assert.strictEqual(asking.lookups, 0)
    assert.strictEqual(calls.at(-1), "resume")
    // One that ends at once, or fails in a way that nobody thought of, leaves nothing behind.
    withBackpressure(asking, Effect.void, fork)
    withBackpressure(asking, Effect.die("unheard of"), fork)
    yield* Effect.yieldNow
    assert.strictEqual(asking.lookups, 0)
  }))

it("a socket that waits for several reasons is read from once none is left", () => {
  const calls: Array<string> = []
  const reading = { holds: 0, socket: { pause: () => calls.push("pause"), resume: () => calls.push("resume") } }
  hold(reading)
  hold(reading)
  letGo(reading)
  assert.deepStrictEqual(calls, ["pause"])
  letGo(reading)
  assert.deepStrictEqual(calls, ["pause", "resume"])
})

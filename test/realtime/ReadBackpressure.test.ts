import { assert, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { TestClock } from "effect/testing"
import { type Asking, hold, letGo, withBackpressure } from "../../src/realtime/ReadBackpressure.ts"

it.effect("of the look-ups that a socket's frames cause, four run at once and the others in order, while it is not read from", () =>
  Effect.gen(function*() {
    const fork = Effect.runForkWith(yield* Effect.context<never>())
    const calls: Array<string> = []
    const asking: Asking = {
      lookups: 0,
      waiting: undefined,
      holds: 0,
      socket: { pause: () => calls.push("pause"), resume: () => calls.push("resume") }
    }
    const begun: Array<number> = []
    const gates: Array<Deferred.Deferred<void>> = []
    const ask = Effect.fnUntraced(function*(n: number) {
      const gate = yield* Deferred.make<void>()
      withBackpressure(asking, Effect.suspend(() => {
        begun.push(n)
        gates.push(gate)
        return Deferred.await(gate)
      }), fork)
      yield* Effect.yieldNow
    })
    const end = Effect.suspend(() => {
      const gate = gates.shift()
      return gate === undefined ? Effect.die("nothing is under way") : Effect.andThen(Deferred.succeed(gate, undefined), TestClock.adjust(40))
    })
    for (let i = 1; i <= 4; i++) yield* ask(i)
    assert.deepStrictEqual([begun, calls], [[1, 2, 3, 4], []])
    // What had been read with the fifth is kept, and is not asked for at once.
    for (let i = 5; i <= 7; i++) yield* ask(i)
    assert.deepStrictEqual([begun, calls], [[1, 2, 3, 4], ["pause"]])
    yield* end
    assert.deepStrictEqual([begun, calls], [[1, 2, 3, 4, 5], ["pause"]])
    yield* end
    yield* end
    assert.deepStrictEqual([begun, calls], [[1, 2, 3, 4, 5, 6, 7], ["pause", "resume"]])
    while (gates.length > 0) yield* end
    assert.strictEqual(asking.lookups, 0)
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

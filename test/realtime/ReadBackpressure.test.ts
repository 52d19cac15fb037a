import { type Asker, type Asking, hold, letGo, withBackpressure } from "#interfaces/realtime/ReadBackpressure"
import { assert, it } from "@effect/vitest"
import { Clock, Deferred, Effect } from "effect"
import { TestClock } from "effect/testing"

/** A socket, and what it was told to do. */
const socketOf = (calls: Array<string>): Asking => ({
  lookups: 0,
  waiting: undefined,
  holds: 0,
  socket: { pause: () => calls.push("pause"), resume: () => calls.push("resume") }
})

/** What look-ups need, with the time of the test. */
const dependencies = Effect.gen(function*() {
  const fork = Effect.runForkWith(yield* Effect.context<never>())
  const clock = yield* Clock.Clock
  return { fork, now: () => clock.currentTimeMillisUnsafe() }
})

it.effect("four look-ups of a socket's frames run at once and the others in order, while the server does not read from the socket", () =>
  Effect.gen(function*() {
    const deps = yield* dependencies
    const calls: Array<string> = []
    const asking = socketOf(calls)
    const asker: Asker = { lookups: undefined }
    const begun: Array<number> = []
    const gates: Array<Deferred.Deferred<void>> = []
    const ask = Effect.fnUntraced(function*(n: number) {
      const gate = yield* Deferred.make<void>()
      withBackpressure(
        asking,
        asker,
        Effect.suspend(() => {
          begun.push(n)
          gates.push(gate)
          return Deferred.await(gate)
        }),
        deps
      )
      yield* Effect.yieldNow
    })
    const end = Effect.suspend(() => {
      const gate = gates.shift()
      return gate === undefined
        ? Effect.die("nothing is under way")
        : Effect.andThen(Deferred.succeed(gate, undefined), TestClock.adjust(20))
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
    withBackpressure(asking, asker, Effect.void, deps)
    withBackpressure(asking, asker, Effect.die("unheard of"), deps)
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

it.effect("look-ups that end at once: all sockets of an agent together have a hundred a second, and each is still run", () =>
  Effect.gen(function*() {
    const deps = yield* dependencies
    const calls: Array<string> = []
    const asker: Asker = { lookups: undefined }
    const sockets = [socketOf(calls), socketOf(calls), socketOf(calls)]
    const ran: Array<number> = []
    for (let i = 0; i < 300; i++) withBackpressure(sockets[i % 3]!, asker, Effect.sync(() => ran.push(i)), deps)
    assert.deepStrictEqual([ran.length, calls], [10, ["pause", "pause", "pause"]])
    // Another agent's are not held up.
    withBackpressure(socketOf(calls), { lookups: undefined }, Effect.sync(() => ran.push(-1)), deps)
    assert.strictEqual(ran.pop(), -1)
    yield* TestClock.adjust("1 second")
    assert.isAtMost(ran.length, 110)
    assert.isAtLeast(ran.length, 90)
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual(ran.toSorted((a, b) => a - b), Array.from({ length: 300 }, (_, i) => i))
    // Each socket's are run in their order.
    for (const first of [0, 1, 2])
      assert.deepStrictEqual(
        ran.filter((i) => i % 3 === first),
        Array.from({ length: 100 }, (_, i) => i * 3 + first)
      )
    assert.deepStrictEqual(calls.slice(3), ["resume", "resume", "resume"])
  }))

import { follow, SteeredTime } from "#infrastructure/database/DatabaseClock"
import { Readiness } from "#infrastructure/platform/Readiness"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Context, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"

const HOUR = 3_600_000

/** A machine whose wall clock is wrong, a database whose clock is that of the test, and the clock that follows it. */
const setUp = Effect.fnUntraced(function*(machineAhead: number) {
  const testClock = yield* Clock.Clock
  const state = { machineAhead, databaseAhead: 0, asked: 0, away: false }
  const machine: Clock.Clock = {
    sleep: (duration) => testClock.sleep(duration),
    currentTimeNanosUnsafe: () => testClock.currentTimeNanosUnsafe(),
    currentTimeNanos: testClock.currentTimeNanos,
    monotonicTimeNanosUnsafe: () => testClock.monotonicTimeNanosUnsafe(),
    monotonicTimeNanos: testClock.monotonicTimeNanos,
    currentTimeMillisUnsafe: () => testClock.currentTimeMillisUnsafe() + state.machineAhead,
    currentTimeMillis: Effect.map(testClock.currentTimeMillis, (ms) => ms + state.machineAhead)
  }
  const readiness = Context.get(yield* Layer.build(Readiness.layer), Readiness)
  const clock = yield* follow(Effect.succeed(Effect.suspend(() => {
    state.asked++
    return state.away ? Effect.fail("away") : Effect.succeed(testClock.currentTimeMillisUnsafe() + state.databaseAhead)
  }))).pipe(Effect.provideService(Clock.Clock, machine), Effect.provideService(Readiness, readiness))
  /** How much the clock is ahead of the test's. */
  const ahead = () => clock.currentTimeMillisUnsafe() - testClock.currentTimeMillisUnsafe()
  return { state, clock, readiness, ahead }
})

describe("the clock of a node", () => {
  it.effect("shows the database's time, however wrong the machine's is", () =>
    Effect.gen(function*() {
      const { ahead, clock, readiness } = yield* setUp(HOUR)
      assert.strictEqual(ahead(), 0)
      yield* TestClock.adjust(HOUR)
      assert.strictEqual(ahead(), 0)
      assert.strictEqual(clock.currentTimeNanosUnsafe() / 1_000_000n, BigInt(clock.currentTimeMillisUnsafe()))
      assert.deepStrictEqual(readiness.reasons(), [])
    }))

  it.effect("follows small differences smoothly, asking twice a minute", () =>
    Effect.gen(function*() {
      const { ahead, readiness, state } = yield* setUp(0)
      for (const difference of [400, -400]) {
        state.databaseAhead = difference
        const before = state.asked
        yield* TestClock.adjust("31 seconds")
        assert.strictEqual(state.asked - before, 5)
        yield* TestClock.adjust("15 seconds")
        assert.notStrictEqual(ahead(), difference)
        yield* TestClock.adjust("16 seconds")
        assert.strictEqual(ahead(), difference)
      }
      assert.deepStrictEqual(readiness.reasons(), [])
    }))

  it.effect("makes the node unready when the machine's clock is set, and does not follow that", () =>
    Effect.gen(function*() {
      const { ahead, readiness, state } = yield* setUp(0)
      yield* TestClock.adjust("10 seconds")
      state.machineAhead = -HOUR
      state.away = true
      yield* TestClock.adjust("1 seconds")
      assert.match(readiness.reasons().join(), /clock of this machine was set back by 3600 s/)
      yield* TestClock.adjust("20 seconds")
      assert.strictEqual(readiness.reasons().length, 1)
      state.away = false
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(readiness.reasons().length, 1)
      yield* TestClock.adjust("1 seconds")
      assert.deepStrictEqual(readiness.reasons(), [])
      assert.strictEqual(ahead(), 0)
    }))

  it.effect("believes a jump of the database's clock once it stays, forward at once, back at half pace", () =>
    Effect.gen(function*() {
      const { ahead, readiness, state } = yield* setUp(0)
      state.databaseAhead = HOUR
      yield* TestClock.adjust("30 seconds")
      assert.match(readiness.reasons().join(), /clock of the database is suddenly 3600 s ahead/)
      assert.strictEqual(ahead(), 0)
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(readiness.reasons(), [])
      assert.strictEqual(ahead(), HOUR)
      state.databaseAhead = HOUR - 60_000
      yield* TestClock.adjust("31 seconds")
      assert.strictEqual(readiness.reasons().length, 1)
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(readiness.reasons(), [])
      yield* TestClock.adjust("1 minutes")
      assert.isBelow(ahead(), HOUR - 25_000)
      assert.isAbove(ahead(), HOUR - 35_000)
      yield* TestClock.adjust("70 seconds")
      assert.strictEqual(ahead(), HOUR - 60_000)
    }))

  it.effect("does not believe one odd measurement", () =>
    Effect.gen(function*() {
      const { ahead, readiness, state } = yield* setUp(0)
      state.databaseAhead = HOUR
      yield* TestClock.adjust("30 seconds")
      state.databaseAhead = 0
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(readiness.reasons().length, 1)
      yield* TestClock.adjust("1 seconds")
      assert.deepStrictEqual(readiness.reasons(), [])
      assert.strictEqual(ahead(), 0)
    }))

  it("never goes back, whatever it is told", () => {
    fc.assert(fc.property(
      fc.array(fc.tuple(fc.nat(60_000), fc.integer({ min: -1e9, max: 1e9 })), { maxLength: 40 }),
      (steps) => {
        const time = new SteeredTime(1e12)
        let monotonic = 0
        let last = time.at(0)
        for (const [passed, offset] of steps) {
          for (let i = 0; i < 4; i++) {
            monotonic += passed / 4
            const now = time.at(monotonic)
            assert.isAtLeast(now - last, passed / 8 - 1)
            last = now
          }
          time.steer(monotonic, 1e12 + offset)
        }
      }
    ))
  })
})

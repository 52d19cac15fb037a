import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { Pulse } from "../../src/platform/StallGuard.ts"
import { layerLeapingClock, leap } from "../support/Leap.ts"

layer(layerLeapingClock)((it) => {
  it.effect("what comes is late from when the process stood still until it has gone on for a second", () =>
    Effect.gen(function*() {
      const pulse = yield* Pulse
      const isLate = () => pulse.isLate("http")
      pulse.opens("http")
      for (let i = 0; i < 20; i++) {
        assert.isFalse(isLate())
        yield* TestClock.adjust("500 millis")
      }
      yield* leap("4 seconds")
      yield* TestClock.adjust("500 millis")
      assert.isFalse(isLate(), "busy for a moment")
      yield* leap("6 seconds")
      assert.isTrue(isLate(), "before any timer has fired")
      yield* TestClock.adjust("500 millis")
      assert.isTrue(isLate(), "what came meanwhile is still being read")
      yield* TestClock.adjust("1500 millis")
      assert.isFalse(isLate())
    }).pipe(Effect.provide(Pulse.layer)))

  it.effect("what comes after a slow start is not late, at a door that opened meanwhile", () =>
    Effect.gen(function*() {
      const pulse = yield* Pulse
      yield* TestClock.adjust("1 second")
      pulse.opens("nodes")
      yield* leap("6 seconds")
      assert.isTrue(pulse.isLate("nodes"))
      pulse.opens("http")
      assert.isFalse(pulse.isLate("http"), "before any timer has fired")
      yield* TestClock.adjust("500 millis")
      assert.isTrue(pulse.isLate("nodes"))
      assert.isFalse(pulse.isLate("http"), "the timer has fired")
      // Of these nine seconds it was open for the last four.
      yield* leap("5 seconds")
      pulse.opens("http")
      yield* leap("4 seconds")
      assert.isTrue(pulse.isLate("nodes"))
      assert.isFalse(pulse.isLate("http"))
      yield* TestClock.adjust("500 millis")
      assert.isTrue(pulse.isLate("nodes"))
      assert.isFalse(pulse.isLate("http"))
      yield* leap("6 seconds")
      assert.isTrue(pulse.isLate("http"), "from then on as ever")
    }).pipe(Effect.provide(Pulse.layer)))
})

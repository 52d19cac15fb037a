import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { Pulse } from "../../src/platform/Pulse.ts"
import { layerLeapingClock, leap } from "../support/Leap.ts"

layer(layerLeapingClock)((it) => {
  it.effect("what comes is late from when the process stood still until it has gone on for a second", () =>
    Effect.gen(function*() {
      const { isLate } = yield* Pulse
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
})

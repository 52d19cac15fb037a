import { StallGuard } from "#infrastructure/platform/StallGuard"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { layerLeapingClock, leap } from "../support/Leap.ts"

layer(layerLeapingClock)((it) => {
  it.effect("requests are late from the time when the process stood still until it has gone on for a second", () =>
    Effect.gen(function*() {
      const stallGuard = yield* StallGuard
      const stalledLately = () => stallGuard.stalledLately("http")
      stallGuard.listensOn("http")
      for (let i = 0; i < 20; i++) {
        assert.isFalse(stalledLately())
        yield* TestClock.adjust("500 millis")
      }
      yield* leap("4 seconds")
      yield* TestClock.adjust("500 millis")
      assert.isFalse(stalledLately(), "busy for a moment")
      yield* leap("6 seconds")
      assert.isTrue(stalledLately(), "before any timer has fired")
      yield* TestClock.adjust("500 millis")
      assert.isTrue(stalledLately(), "what came meanwhile is still being read")
      yield* TestClock.adjust("1500 millis")
      assert.isFalse(stalledLately())
    }).pipe(Effect.provide(StallGuard.layer)))

  it.effect("requests after a slow start are not late at a port that opened meanwhile", () =>
    Effect.gen(function*() {
      const stallGuard = yield* StallGuard
      yield* TestClock.adjust("1 second")
      stallGuard.listensOn("nodes")
      yield* leap("6 seconds")
      assert.isTrue(stallGuard.stalledLately("nodes"))
      stallGuard.listensOn("http")
      assert.isFalse(stallGuard.stalledLately("http"), "before any timer has fired")
      yield* TestClock.adjust("500 millis")
      assert.isTrue(stallGuard.stalledLately("nodes"))
      assert.isFalse(stallGuard.stalledLately("http"), "the timer has fired")
      // Of these nine seconds it was open for the last four.
      yield* leap("5 seconds")
      stallGuard.listensOn("http")
      yield* leap("4 seconds")
      assert.isTrue(stallGuard.stalledLately("nodes"))
      assert.isFalse(stallGuard.stalledLately("http"))
      yield* TestClock.adjust("500 millis")
      assert.isTrue(stallGuard.stalledLately("nodes"))
      assert.isFalse(stallGuard.stalledLately("http"))
      yield* leap("6 seconds")
      assert.isTrue(stallGuard.stalledLately("http"), "from then on as ever")
    }).pipe(Effect.provide(StallGuard.layer)))
})

import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { assert, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import * as TestClock from "effect/testing/TestClock"

it.effect("monotonic milliseconds of a test clock are exact after 20 years", () =>
  Effect.gen(function*() {
    const now = monotonicMillis(yield* Clock.Clock)
    const years = 20 * 365 * 86_400_000
    yield* TestClock.adjust(years)
    for (let ms = 1; ms <= 8; ms++) {
      yield* TestClock.adjust(1)
      assert.strictEqual(now(), years + ms)
    }
    yield* TestClock.adjust(0.5)
    assert.strictEqual(now(), years + 8.5)
  }))

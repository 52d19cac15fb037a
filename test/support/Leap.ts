import { Clock, Duration, Effect, Layer } from "effect"
import * as TestClock from "effect/testing/TestClock"

interface LeapingClock extends TestClock.TestClock {
  readonly leap: (millis: number) => void
}

/**
 * The test clock, with a leap (a live clock is left as it is). `TestClock.adjust` over a day runs every periodic job for
 * all of the day; a leap runs none. Sleeping fibers sleep on, as on a machine whose clock was set, and see the new time
 * when they next wake.
 */
export const layerLeapingClock = Layer.effect(
  Clock.Clock,
  Effect.map(TestClock.testClockWith(Effect.succeed), (clock): Clock.Clock => {
    if (!("adjust" in clock)) return clock
    let ahead = 0
    const nanos = (): bigint => BigInt(ahead) * 1_000_000n
    const leaping: LeapingClock = {
      ...clock,
      currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + ahead,
      currentTimeNanosUnsafe: () => clock.currentTimeNanosUnsafe() + nanos(),
      monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + nanos(),
      currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis + ahead),
      currentTimeNanos: Effect.map(clock.currentTimeNanos, (at) => at + nanos()),
      monotonicTimeNanos: Effect.map(clock.monotonicTimeNanos, (at) => at + nanos()),
      leap: (millis) => {
        ahead += millis
      }
    }
    return leaping
  })
)

/** Sets the clock of a test on `layerLeapingClock` forward without waking any fiber. */
export const leap = (duration: Duration.Input): Effect.Effect<void> =>
  Clock.clockWith((clock) => {
    if (!("leap" in clock)) return Effect.die(new Error("this test's clock cannot leap"))
    return Effect.sync(() => (clock as LeapingClock).leap(Duration.toMillis(duration)))
  })

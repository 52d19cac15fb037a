import { Clock, Duration, Effect, Layer } from "effect"
import * as TestClock from "effect/testing/TestClock"

interface LeapingClock extends TestClock.TestClock {
  readonly leap: (millis: number) => void
  readonly set: (millis: number) => void
}

/**
 * The test clock, with a leap (a live clock is left as it is). `TestClock.adjust` by a day runs all periodic jobs of
 * that day. A leap runs no jobs. Sleeping fibers keep sleeping, as on a machine whose clock was set, and see the new
 * time when they next wake.
 */
export const layerLeapingClock = Layer.effect(
  Clock.Clock,
  Effect.map(TestClock.testClockWith(Effect.succeed), (clock): Clock.Clock => {
    if (!("adjust" in clock)) return clock
    let ahead = 0
    /** The milliseconds by which the wall clock was set forward. */
    let wall = 0
    const nanos = (millis: number): bigint => BigInt(millis) * 1_000_000n
    const leaping: LeapingClock = {
      ...clock,
      currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + ahead + wall,
      currentTimeNanosUnsafe: () => clock.currentTimeNanosUnsafe() + nanos(ahead + wall),
      monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + nanos(ahead),
      currentTimeMillis: Effect.map(clock.currentTimeMillis, (millis) => millis + ahead + wall),
      currentTimeNanos: Effect.map(clock.currentTimeNanos, (at) => at + nanos(ahead + wall)),
      monotonicTimeNanos: Effect.map(clock.monotonicTimeNanos, (at) => at + nanos(ahead)),
      leap: (millis) => {
        ahead += millis
      },
      set: (millis) => {
        wall += millis
      }
    }
    return leaping
  })
)

const onLeaping = (change: (clock: LeapingClock) => void): Effect.Effect<void> =>
  Clock.clockWith((clock) => {
    if (!("leap" in clock)) return Effect.die(new Error("this test's clock cannot leap"))
    return Effect.sync(() => change(clock as LeapingClock))
  })

/** Sets the clock of a test on `layerLeapingClock` forward without waking any fiber. */
export const leap = (duration: Duration.Input): Effect.Effect<void> =>
  onLeaping((clock) => clock.leap(Duration.toMillis(duration)))

/** Sets the wall clock back, as an operator or NTP does. The monotonic clock goes on. */
export const setBack = (duration: Duration.Input): Effect.Effect<void> =>
  onLeaping((clock) => clock.set(-Duration.toMillis(duration)))

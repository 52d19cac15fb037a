import { Clock } from "effect"

const machine = Clock.Clock.defaultValue()

/**
 * Returns a function that reads monotonic milliseconds, for windows, deadlines and ages in memory. Changes of the wall
 * clock do not affect them. The real clock is read with `performance.now()`, because nanoseconds as a BigInt cost
 * several times as much.
 */
export const monotonicMillis = (clock: Clock.Clock): () => number =>
  clock.monotonicTimeNanosUnsafe === machine.monotonicTimeNanosUnsafe
    ? () => performance.now()
    : () => {
      const nanos = clock.monotonicTimeNanosUnsafe()
      // As a number, nanoseconds would be rounded after some years, and then differences of milliseconds, too.
      return Number(nanos / 1_000_000n) + Number(nanos % 1_000_000n) / 1e6
    }

/**
 * How far in the future a stored time may be, in milliseconds. It is the longest delay of a statement. A later time was
 * stored before the wall clock was set back. Such a time is ignored, because a wait for it would last until the clock
 * has caught up.
 */
export const SET_BACK_MS = 30_000

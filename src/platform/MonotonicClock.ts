import { Clock } from "effect"

const machine = Clock.Clock.defaultValue()

/**
 * Monotonic milliseconds, unaffected by changes of the wall clock: for windows, deadlines and ages in memory. The machine's own
 * clock is read without the way over nanoseconds as a BigInt, which costs several times as much.
 */
export const monotonicMillis = (clock: Clock.Clock): () => number =>
  clock.monotonicTimeNanosUnsafe === machine.monotonicTimeNanosUnsafe
    ? () => performance.now()
    : () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

/**
 * How far in the future, in milliseconds, a stored time may be. The figure is the longest delay of a statement. A later time was
 * stored before the wall clock was set back. Such a time does not count, because the wait for it would last until the
 * clock has caught up.
 */
export const SET_BACK_MS = 30_000

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

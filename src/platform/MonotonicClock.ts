import type { Clock } from "effect"

/** Monotonic milliseconds, unaffected by changes of the wall clock: for windows, deadlines and ages in memory. */
export const monotonicMillis = (clock: Clock.Clock) => (): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

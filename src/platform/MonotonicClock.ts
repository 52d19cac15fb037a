import type { Clock } from "effect"

/** Milliseconds that never go back, whatever is done to the machine's date: for windows, deadlines and ages in memory. */
export const monotonicMillis = (clock: Clock.Clock) => (): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

import { type History, Outcome, type Tick, TICKS_PER_MS } from "./History.ts"

/** Latencies in milliseconds. */
export interface Latency {
  readonly median: number
  readonly p95: number
}

/** Lower latencies count as this, because a busy machine alone explains them. */
const FLOOR_MS = 100
const FACTOR = 3

/** The median and the 95th percentile of times; NaN if there are none. */
export const latencyOf = (times: ReadonlyArray<number>): Latency => {
  const sorted = times.toSorted((a, b) => a - b)
  const at = (share: number) => sorted[Math.floor(sorted.length * share)] ?? Number.NaN
  return { median: at(0.5), p95: at(0.95) }
}

/**
 * The latency of accepted sends that began between `from` and `until`, each from its first attempt, including retries.
 */
export const latencyOfSends = ({ sends }: History, from: Tick, until: Tick): Latency => {
  const times: Array<number> = []
  for (let n = 0; n < sends.length; n++) {
    const invoked = sends.invoked.get(n)
    if (invoked < from || invoked >= until || sends.outcome.get(n) !== Outcome.Ok) continue
    times.push((sends.ended.get(n) - invoked) / TICKS_PER_MS)
  }
  return latencyOf(times)
}

/**
 * Whether the median during a fault is at most FACTOR times the median before it, or below the floor; false if nothing
 * was timed.
 */
export const isAsFast = (before: Latency, during: Latency, floorMs = FLOOR_MS): boolean =>
  during.median <= Math.max(FACTOR * before.median, floorMs)

/** The median and the 95th percentile, as the table shows them. */
export const shown = ({ median, p95 }: Latency): string => `${median.toFixed(0)}/${p95.toFixed(0)}`

import type { Settings } from "../platform/Config.ts"

/** How much is too much (wire.md G.8); windows in milliseconds. */
export interface Thresholds {
  readonly restrictBlocks: number
  readonly restrictWindowMs: number
  readonly suspendBlocks: number
  readonly suspendReports: number
  readonly suspendWindowMs: number
}

export const thresholdsOf = (settings: Settings): Thresholds => ({
  restrictBlocks: settings.LIMITS_RESTRICT_BLOCKS,
  restrictWindowMs: settings.LIMITS_RESTRICT_WINDOW_SECONDS * 1_000,
  suspendBlocks: settings.LIMITS_SUSPEND_BLOCKS,
  suspendReports: settings.LIMITS_SUSPEND_REPORTS,
  suspendWindowMs: settings.LIMITS_SUSPEND_WINDOW_SECONDS * 1_000
})

/** When the counted blocks and reports were made, newest first; at least as many of them as a threshold asks for. */
export interface Counted {
  readonly blocks: ReadonlyArray<number>
  readonly reports: ReadonlyArray<number>
}

/** Which threshold was reached. */
export type Grounds = "blocks" | "reports"

export interface Verdict {
  /** Null: no ground to suspend. */
  readonly suspend: Grounds | null
  /** The moment from which on too few blocks are left in the window; null: too few already. */
  readonly restrictedUntil: number | null
}

/** Whether the `n`th newest is inside a window, and when it leaves; one that is exactly as old as the window has left. */
const leaves = (times: ReadonlyArray<number>, n: number, windowMs: number, now: number): number | null => {
  const made = times[n - 1]
  return made === undefined || made + windowMs <= now ? null : made + windowMs
}

/** What becomes of an agent with these against it (wire.md G.8). Never ends a suspension: an operator does. */
export const judge = ({ blocks, reports }: Counted, thresholds: Thresholds, now: number): Verdict => ({
  suspend: leaves(blocks, thresholds.suspendBlocks, thresholds.suspendWindowMs, now) !== null
    ? "blocks"
    : leaves(reports, thresholds.suspendReports, thresholds.suspendWindowMs, now) !== null
    ? "reports"
    : null,
  restrictedUntil: leaves(blocks, thresholds.restrictBlocks, thresholds.restrictWindowMs, now)
})

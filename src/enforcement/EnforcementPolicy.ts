import type { Settings } from "../platform/Config.ts"

/** How many blocks or reports within a window restrict or suspend an agent (wire.md G.8); windows in milliseconds. */
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

/** The times of the counted blocks and reports, newest first; at least as many as the highest threshold needs. */
export interface Counted {
  readonly blocks: ReadonlyArray<number>
  readonly reports: ReadonlyArray<number>
}

/** Which threshold was reached. */
export type Grounds = "blocks" | "reports"

export interface Verdict {
  /** Null: no ground to suspend. */
  readonly suspend: Grounds | null
  /** When the blocks left in the window become too few to restrict; null: they are too few already. */
  readonly restrictedUntil: number | null
}

/** When the `n`th newest leaves the window; null if it is not in it. One exactly as old as the window is not in it. */
const leaves = (times: ReadonlyArray<number>, n: number, windowMs: number, now: number): number | null => {
  const made = times[n - 1]
  return made === undefined || made + windowMs <= now ? null : made + windowMs
}

/** Judges an agent by the blocks and reports against it (wire.md G.8). Only an operator ends a suspension. */
export const judge = ({ blocks, reports }: Counted, thresholds: Thresholds, now: number): Verdict => ({
  suspend: leaves(blocks, thresholds.suspendBlocks, thresholds.suspendWindowMs, now) !== null
    ? "blocks"
    : leaves(reports, thresholds.suspendReports, thresholds.suspendWindowMs, now) !== null
    ? "reports"
    : null,
  restrictedUntil: leaves(blocks, thresholds.restrictBlocks, thresholds.restrictWindowMs, now)
})

import type { Settings } from "#infrastructure/platform/Config"

/**
 * How many blocks or reports within a window restrict or suspend an agent (wire.md G.8). Windows are in milliseconds.
 */
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

/** The times of the counted blocks and reports, newest first: at least as many as the highest threshold needs. */
export interface Counted {
  readonly blocks: ReadonlyArray<number>
  readonly reports: ReadonlyArray<number>
}

/** Which threshold was reached. */
export type Grounds = "blocks" | "reports"

export interface Verdict {
  /** `null` if there is no ground to suspend. */
  readonly suspend: Grounds | null
  /** When too few blocks will be left in the window for a restriction, or `null` if they are too few already. */
  readonly restrictedUntil: number | null
}

/**
 * When the `n`th newest time leaves the window, or `null` if it is not in the window. A time exactly as old as the
 * window is outside.
 */
const leaves = (times: ReadonlyArray<number>, n: number, windowMs: number, now: number): number | null => {
  const made = times[n - 1]
  return made === undefined || made + windowMs <= now ? null : made + windowMs
}

/** Evaluates the blocks and reports against an agent (wire.md G.8). Only an operator ends a suspension. */
export const judge = ({ blocks, reports }: Counted, thresholds: Thresholds, now: number): Verdict => ({
  suspend: leaves(blocks, thresholds.suspendBlocks, thresholds.suspendWindowMs, now) !== null
    ? "blocks"
    : leaves(reports, thresholds.suspendReports, thresholds.suspendWindowMs, now) !== null
    ? "reports"
    : null,
  restrictedUntil: leaves(blocks, thresholds.restrictBlocks, thresholds.restrictWindowMs, now)
})

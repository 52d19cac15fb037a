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

/**
 * The times of the counted blocks and reports, newest first. Times beyond the number that the highest threshold needs
 * may be left out.
 */
export interface Counted {
  readonly blocks: ReadonlyArray<number>
  readonly reports: ReadonlyArray<number>
}

/** The kind of the threshold that was reached. */
export type Grounds = "blocks" | "reports"

export interface Verdict {
  /** The reason to suspend the agent, or `null` if there is none. */
  readonly suspend: Grounds | null
  /** When the window will contain too few blocks for a restriction, or `null` if it already contains too few. */
  readonly restrictedUntil: number | null
}

/**
 * Returns when the `n`th newest time leaves the window, or `null` if it is not in the window. A time that is exactly as
 * old as the window is outside.
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

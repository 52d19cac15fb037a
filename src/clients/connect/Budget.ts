import type { Settings } from "./Settings.ts"

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** How long the journal keeps the start of a run, in milliseconds. It is the longest window of a budget. */
export const BUDGET_WINDOW_MS = DAY_MS

/** A run that was started. */
export interface Started {
  readonly conversation: string
  /** Milliseconds since 1970. */
  readonly at: number
}

export type Limits = Pick<Settings, "runsPerConversationHour" | "runsPerHour" | "runsPerDay">

/** When a sliding window with at most `most` runs allows one more run: `now`, a later time, or Infinity for never. */
const freeAt = (starts: ReadonlyArray<number>, most: number, windowMs: number, now: number): number => {
  if (most <= 0) return Infinity
  const inside = starts.filter((at) => at > now - windowMs).sort((a, b) => a - b)
  const leaving = inside[inside.length - most]
  return leaving === undefined ? now : leaving + windowMs
}

/** The earliest time at which the budgets permit a run in this conversation: `now`, or later. */
export const budgetFreeAt = (
  starts: ReadonlyArray<Started>,
  conversation: string,
  limits: Limits,
  now: number
): number => {
  const all = starts.map(({ at }) => at)
  const here = starts.filter((start) => start.conversation === conversation).map(({ at }) => at)
  return Math.max(
    freeAt(here, limits.runsPerConversationHour, HOUR_MS, now),
    freeAt(all, limits.runsPerHour, HOUR_MS, now),
    freeAt(all, limits.runsPerDay, DAY_MS, now)
  )
}

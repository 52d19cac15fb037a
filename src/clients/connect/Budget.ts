import type { Settings } from "./Settings.ts"

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** How long the journal keeps the start of a run for the budgets, in milliseconds. */
export const BUDGET_WINDOW_MS = DAY_MS

/** The start of a run. */
export interface Started {
  readonly conversation: string
  /** Milliseconds since 1970. */
  readonly at: number
}

export type Limits = Pick<Settings, "runsPerConversationHour" | "runsPerHour" | "runsPerDay">

/** When one more run fits below `most` in a sliding window; `now` if it does at once, Infinity if it never does. */
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

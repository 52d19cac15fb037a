import { dayOf, MONTH, monthOf, type Periods, startOfDay } from "./Lexemes.ts"

/** A part of the time range of a search. A search handles its windows from the newest to the oldest. */
export interface Window {
  readonly periods: Periods
  /** The beginning and the end of the window, in milliseconds. The end is exclusive. */
  readonly from: number
  readonly to: number
}

/** The numbers from `last` down to `first`. */
const down = (last: number, first: number): ReadonlyArray<number> =>
  Array.from({ length: last - first + 1 }, (_, i) => last - i)

/** Returns the earliest creation and the latest message of some conversations. There is at least one conversation. */
export const spanOf = (
  conversations: Iterable<{ readonly createdAt: number; readonly lastMessageAt: number }>
): { readonly oldest: number; readonly newest: number } => {
  let oldest = Number.POSITIVE_INFINITY
  let newest = Number.NEGATIVE_INFINITY
  for (const { createdAt, lastMessageAt } of conversations) {
    oldest = Math.min(oldest, createdAt)
    newest = Math.max(newest, lastMessageAt)
  }
  return { oldest, newest }
}

const ofDays = (last: number, first: number): Window => ({
  periods: { days: down(last, first) },
  from: startOfDay(first),
  to: startOfDay(last + 1)
})

const ofMonths = (last: number, first: number): Window => ({
  periods: { months: down(last, first) },
  from: startOfDay(first * MONTH),
  to: startOfDay((last + 1) * MONTH)
})

/**
 * How many of the newest days are searched by day, before the rest by month. The last day is one window, and the other
 * days are the next.
 */
const DAYS = 7
/** How many months each of the windows after the days contains. The windows after these contain all other months. */
const MONTHS = [1, 3, 9]

/**
 * Returns the windows of a search between two times: the newest day, the days before it, and then longer and longer
 * windows. So a common word has enough hits in the newest day, and a rare word is found with few look-ups. A window
 * contains at most `most` days or months.
 */
export function* windows(from: number, to: number, most: number): Generator<Window> {
  const lastDay = dayOf(to)
  const firstDay = dayOf(from)
  yield ofDays(lastDay, lastDay)
  let day = lastDay - 1
  if (day < firstDay) return
  const newest = Math.max(firstDay, lastDay - DAYS + 1)
  while (day >= newest) {
    const first = Math.max(newest, day - most + 1)
    yield ofDays(day, first)
    day = first - 1
  }
  if (day < firstDay) return
  // If the days end within a month, the window of that month excludes them, so that no day is looked up twice.
  const startOfMonth = monthOf(day) * MONTH
  if (day !== startOfMonth + MONTH - 1) {
    yield { ...ofMonths(monthOf(day), monthOf(day)), to: startOfDay(day + 1) }
    day = startOfMonth - 1
  }
  let month = monthOf(day)
  const first = monthOf(firstDay)
  for (let i = 0; month >= first; i++) {
    const length = Math.max(1, Math.min(MONTHS[i] ?? Number.MAX_SAFE_INTEGER, most))
    const last = month
    month = Math.max(first, last - length + 1) - 1
    yield ofMonths(last, month + 1)
  }
}

/**
 * Splits a window with too many hits into shorter windows, newest first. Returns undefined for a single day, which
 * cannot be split.
 */
export const split = ({ from, periods, to }: Window): ReadonlyArray<Window> | undefined => {
  if ("days" in periods) return periods.days.length === 1 ? undefined : periods.days.map((day) => ofDays(day, day))
  if (periods.months.length > 1) return periods.months.map((month) => ofMonths(month, month))
  return down(dayOf(to - 1), dayOf(from)).map((day) => ofDays(day, day))
}

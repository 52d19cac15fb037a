/** A value is small if it has at most so many entries with all their parts, on at most so many levels. */
const SMALL = 60
const SHALLOW = 6

/** The entries of an object or array; undefined for other values. @param {unknown} value @returns {ReadonlyArray<readonly [string, unknown]> | undefined} */
export const entriesOf = (value) => typeof value === "object" && value !== null ? Object.entries(value) : undefined

/**
 * How many more entries may follow after all of those of a value; negative if the value has too many, or too many levels.
 * @param {unknown} value
 * @param {number} left
 * @param {number} depth
 * @returns {number}
 */
const leftAfter = (value, left, depth) => {
  const entries = entriesOf(value) ?? []
  if (entries.length > left || depth > SHALLOW) return -1
  let rest = left - entries.length
  for (const [, one] of entries) {
    rest = leftAfter(one, rest, depth + 1)
    if (rest < 0) return -1
  }
  return rest
}

/** Whether a value is small enough to be shown open as a whole. @param {unknown} value */
export const isSmall = (value) => leftAfter(value, SMALL, 1) >= 0

/**
 * The object or array that a text is as JSON; undefined if the text is none, or has digits that a number of JavaScript cannot hold.
 * @param {string} text
 * @returns {unknown}
 */
export const jsonOf = (text) => {
  if (!/^\s*[[{]/.test(text) || !/[\]}]\s*$/.test(text) || /\d{16}/.test(text)) return undefined
  try {
    const value = JSON.parse(text)
    return Object.keys(value).length === 0 ? undefined : value
  } catch {
    return undefined
  }
}

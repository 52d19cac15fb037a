/** A value is small if it has at most `SMALL` entries on all levels together, and at most `SHALLOW` levels. */
const SMALL = 60
const SHALLOW = 6

/**
 * The entries of an object or array; undefined for other values.
 * @param {unknown} value
 * @returns {ReadonlyArray<readonly [string, unknown]> | undefined}
 */
export const entriesOf = (value) => typeof value === "object" && value !== null ? Object.entries(value) : undefined

/**
 * Subtracts the number of a value's entries on all levels from `left`. Returns a negative number if the value has too
 * many entries or levels.
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

/** Whether a value is small enough to be shown with all its levels open. @param {unknown} value */
export const isSmall = (value) => leftAfter(value, SMALL, 1) >= 0

/** Whether a number of a JSON text becomes neither infinite nor 0 in JavaScript. @param {string} number */
const isKept = (number) => {
  const value = Number(number)
  return Number.isFinite(value) && (value !== 0 || !/[1-9]/.test(number.replace(/e.*/i, "")))
}

/**
 * Parses a text that is a JSON object or array. Returns undefined for any other text, and for an empty object or array.
 * Also returns undefined for a text with 16 digits in a row, because a JavaScript number may not represent them exactly,
 * and for a text with a number that JavaScript turns into 0 or Infinity.
 * @param {string} text
 * @returns {unknown}
 */
export const jsonOf = (text) => {
  if (!/^\s*[[{]/.test(text) || !/[\]}]\s*$/.test(text) || /\d{16}/.test(text)) return undefined
  try {
    const value = JSON.parse(text)
    const numbers = text.replace(/"(?:[^"\\]|\\.)*"/g, "").match(/\d[\d.e+-]*/gi) ?? []
    return Object.keys(value).length > 0 && numbers.every(isKept) ? value : undefined
  } catch {
    return undefined
  }
}

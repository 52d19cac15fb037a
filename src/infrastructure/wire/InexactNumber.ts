import { ValidationFailed } from "./WireError.ts"

/** A number in a JSON text that a double cannot represent, and its location in the text. */
export interface InexactNumber {
  /**
   * The path to the number: field names and list indices, from the outermost value inwards, separated by dots. Empty if
   * the whole text is this number.
   */
  readonly path: string
  readonly text: string
}

/** Every integer with at most this many digits is exact in a double. */
const EXACT_DIGITS = 15
/** A number without an exponent and with at most this many characters becomes neither 0 nor infinite in a double. */
const SAFE_LENGTH = 300
/** How many characters of the path, and of the number, an error message shows at most. */
const SHOWN_PATH = 200
const SHOWN_NUMBER = 40

const [QUOTE, BACKSLASH, COMMA, OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST] = [34, 92, 44, 123, 125, 91, 93]
const [MINUS, PLUS, DOT, ZERO, NINE, UPPER_E, LOWER_E] = [45, 43, 46, 48, 57, 69, 101]

const isDigit = (code: number): boolean => code >= ZERO && code <= NINE

/**
 * Splits a decimal number into its significant digits and a power of ten. Two spellings of the same number give the
 * same result.
 */
const significant = (text: string): { readonly digits: string; readonly power: number } => {
  const [mantissa = "", exponent = "0"] = text.toLowerCase().split("e")
  const [whole = "", fraction = ""] = mantissa.replace("-", "").split(".")
  const all = whole + fraction
  let from = 0
  let to = all.length
  while (from < to && all.charCodeAt(from) === ZERO) from++
  while (to > from && all.charCodeAt(to - 1) === ZERO) to--
  return { digits: all.slice(from, to), power: Number(exponent) - fraction.length + all.length - to }
}

/**
 * Whether a double represents a number of a JSON text well enough (wire.md C.0, Numbers). An integer must be within
 * ±(2^53 − 1). A number with a fraction or an exponent may be rounded, but must not become 0 or infinite. If its value
 * is an integer above 2^53 − 1, such as 1e308, JSON must write the double as the same value.
 */
export const isExact = (text: string): boolean => {
  const value = Number(text)
  if (/^-?\d+$/.test(text)) return Number.isSafeInteger(value)
  if (!Number.isFinite(value)) return false
  if (value === 0) return significant(text).digits === ""
  if (Math.abs(value) <= Number.MAX_SAFE_INTEGER) return true
  const given = significant(text)
  if (given.power < 0) return true
  const kept = significant(String(value))
  return given.digits === kept.digits && given.power === kept.power
}

/** Returns the position of the quote that ends the string whose first quote is at `from`. */
const endOfString = (json: string, from: number): number => {
  for (let at = json.indexOf('"', from + 1); at >= 0; at = json.indexOf('"', at + 1)) {
    let escapes = 0
    while (json.charCodeAt(at - 1 - escapes) === BACKSLASH) escapes++
    if (escapes % 2 === 0) return at
  }
  return json.length
}

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/**
 * Returns the first number of a JSON text that a double cannot represent. Returns undefined if there is none, or if the
 * text is not JSON. Strings are skipped with `indexOf`, so even a long string costs almost nothing.
 */
export const inexactNumber = (json: string): InexactNumber | undefined => {
  /**
   * One entry for each open list and object. For a list, the entry is the index of the current item. For an object, it
   * is the position of the last string, which is the name of the current field.
   */
  const places: Array<number> = []
  const areLists: Array<boolean> = []
  let depth = -1

  const stepAt = (level: number): string => {
    const place = places[level] ?? 0
    return areLists[level] === true
      ? String(place)
      : String(JSON.parse(json.slice(place, endOfString(json, place) + 1)))
  }

  for (let i = 0; i < json.length; i++) {
    const code = json.charCodeAt(i)
    if (code === QUOTE) {
      if (areLists[depth] === false) places[depth] = i
      i = endOfString(json, i)
    } else if (code === COMMA) {
      if (areLists[depth] === true) places[depth]!++
    } else if (code === OPEN_OBJECT || code === OPEN_LIST) {
      depth++
      places[depth] = 0
      areLists[depth] = code === OPEN_LIST
    } else if (code === CLOSE_OBJECT || code === CLOSE_LIST) {
      if (--depth < -1) return undefined
    } else if (isDigit(code) || code === MINUS) {
      const from = i
      let next = code
      do next = json.charCodeAt(++i)
      while (isDigit(next))
      const digits = i - from
      let hasExponent = false
      while (isDigit(next) || next === DOT || next === LOWER_E || next === UPPER_E || next === PLUS || next === MINUS) {
        hasExponent ||= next === LOWER_E || next === UPPER_E
        next = json.charCodeAt(++i)
      }
      const length = i - from
      // The character after the number may be a comma or a bracket.
      i--
      if (!hasExponent && digits <= EXACT_DIGITS && length <= SAFE_LENGTH) continue
      const text = json.slice(from, from + length)
      if (isExact(text)) continue
      if (!isJson(json)) return undefined
      let path = ""
      for (let level = 0; level <= depth && path.length <= SHOWN_PATH; level++)
        path += (level === 0 ? "" : ".") + stepAt(level)
      return { path: path.slice(0, SHOWN_PATH).toWellFormed(), text: text.slice(0, SHOWN_NUMBER) }
    }
  }
  return undefined
}

/** The error for a body that contains such a number. */
export const numberRefused = ({ path, text }: InexactNumber): ValidationFailed =>
  ValidationFailed.field(path === "" ? "body" : path, `the number ${text} cannot be kept exactly: write it as a string`)

/**
 * Returns the id of a JSON-RPC message that contains an inexact number, for the response. Returns undefined if the id
 * itself may be the inexact number.
 */
export const exactId = (id: unknown): string | number | undefined =>
  typeof id === "string" || (typeof id === "number" && Math.abs(id) <= Number.MAX_SAFE_INTEGER) ? id : undefined

import { Schema, SchemaTransformation } from "effect"

const NUL = String.fromCharCode(0)

/**
 * Whether a text can be stored in PostgreSQL and encoded as UTF-8: it contains no NUL and no lone surrogate (wire.md
 * C.0, Lengths).
 */
export const isStorable = (text: string): boolean => !text.includes(NUL) && text.isWellFormed()

const UNSTORABLE = "must contain no NUL and no lone surrogate"

/** Any text that can be stored, and compared in a query: for ids, cursors and filters that clients send. */
export const Storable = Schema.String.check(Schema.makeFilter((text) => isStorable(text) || UNSTORABLE))

/** Returns the length in Unicode code points, which is never more than the number of UTF-16 units. */
export const codePoints = (text: string): number => {
  let n = text.length
  for (let i = 0; i < text.length - 1; i++) {
    const unit = text.charCodeAt(i)
    if (unit >= 0xd800 && unit <= 0xdbff) n--
  }
  return n
}

/** Text of `min` to `max` code points. */
export const Text = (min: number, max: number) =>
  Storable.check(
    Schema.makeFilter(
      (text) => {
        const length = text.length > max * 2 ? text.length : codePoints(text)
        return (length >= min && length <= max) || `must have ${min} to ${max} characters`
      },
      { toJsonSchema: () => ({ minLength: min, maxLength: max }) }
    )
  )

const MAX_DEPTH = 64

/** Whether a parsed JSON value nests at most 64 levels deep and all its strings and keys are storable. */
export const isStorableJson = (value: unknown, depth = 0): boolean => {
  if (typeof value === "string") return isStorable(value)
  if (typeof value !== "object" || value === null) return true
  if (depth >= MAX_DEPTH) return false
  if (Array.isArray(value)) return value.every((item) => isStorableJson(item, depth + 1))
  for (const key in value) {
    if (!isStorable(key) || !isStorableJson((value as Record<string, unknown>)[key], depth + 1)) return false
  }
  return true
}

/** Any JSON object that can be stored. */
export const JsonObject = Schema.Record(Schema.String, Schema.Unknown).check(
  Schema.makeFilter((value) =>
    isStorableJson(value) || "must nest at most 64 deep and contain no NUL and no lone surrogate"
  )
)

/**
 * Converts only A to Z to lower case. Unicode lower-casing would turn the Kelvin sign into `k`, and a look-alike would
 * match another handle.
 */
export const lowerCase = (text: string): string => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase())

/**
 * A handle in a request. Decoding trims it, drops one leading `@`, and converts it to lower case. It does not check
 * that the handle exists.
 */
export const HandleInput = Schema.String.pipe(
  Schema.decodeTo(
    Storable,
    SchemaTransformation.transform({
      decode: (text: string) => lowerCase(text.trim().replace(/^@/, "")),
      encode: (text: string) => text
    })
  )
)

/** Formats milliseconds since 1970 as the wire's date-time: ISO 8601 in UTC, with milliseconds. */
export const iso = (ms: number): string => new Date(ms).toISOString()

export const isoOrNull = (ms: number | null): string | null => ms === null ? null : iso(ms)

export const DateTimeString = Schema.String.annotate({ format: "date-time" } as never)

/** The error text for a time that `parseInstant` refuses. */
export const NO_INSTANT = "must be an ISO 8601 date-time with its zone, in the years 0000 to 9999"

const INSTANT =
  /^(\d{4}-\d\d-\d\d)T((?:[01]\d|2[0-3]):[0-5]\d)(?::([0-5]\d)(?:\.(\d+))?)?(?:Z|([+-])([01]\d|2[0-3]):?([0-5]\d))$/i

/** The times that `iso` writes with a year of four digits, in milliseconds. */
const [FIRST_INSTANT, LAST_INSTANT] = [Date.parse("0000-01-01T00:00:00.000Z"), Date.parse("9999-12-31T23:59:59.999Z")]

/**
 * Converts a time in ISO 8601 with a time zone, as in RFC 3339, to milliseconds since 1970. Returns undefined for any
 * other text, such as a 30th of February, a time without a zone, or a time outside the years 0000 to 9999 in UTC. It is
 * the only parser for times that clients send.
 */
export const parseInstant = (text: string): number | undefined => {
  const [, date, minute, second = "00", fraction = "", sign, hours, minutes] = INSTANT.exec(text) ?? []
  if (date === undefined || minute === undefined) return undefined
  const at = Date.parse(`${date}T${minute}:${second}.${fraction.slice(0, 3).padEnd(3, "0")}Z`)
  // Date.parse turns a 30th of February into a day in March.
  if (Number.isNaN(at) || !new Date(at).toISOString().startsWith(date)) return undefined
  const offset = (Number(hours ?? 0) * 60 + Number(minutes ?? 0)) * 60_000
  const instant = sign === "-" ? at + offset : at - offset
  return instant >= FIRST_INSTANT && instant <= LAST_INSTANT ? instant : undefined
}

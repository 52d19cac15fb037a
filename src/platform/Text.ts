import { Schema, SchemaTransformation } from "effect"

const NUL = String.fromCharCode(0)

/** Text that every database and every reader can hold: no NUL, no lone surrogate (wire.md C.0, Lengths). */
export const isStorable = (text: string): boolean => !text.includes(NUL) && text.isWellFormed()

/** Length in Unicode code points; a string of n UTF-16 units never has more than n. */
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
  Schema.String.check(
    Schema.makeFilter((text) => isStorable(text) || "must hold no NUL and no lone surrogate"),
    Schema.makeFilter(
      (text) => {
        const length = text.length > max * 2 ? text.length : codePoints(text)
        return (length >= min && length <= max) || `must have ${min} to ${max} characters`
      },
      { toJsonSchema: () => ({ minLength: min, maxLength: max }) }
    )
  )

const MAX_DEPTH = 64

/** Whether a parsed JSON value nests at most 64 deep and holds only storable text, keys included. */
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
    isStorableJson(value) || "must nest at most 64 deep and hold no NUL and no lone surrogate"
  )
)

/**
 * Lower case of A to Z alone: Unicode's would turn a Kelvin sign into a k, and so one
 * name into another that looks like it.
 */
export const lowerCase = (text: string): string => text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase())

/** A handle as callers write it: trimmed, one leading `@` dropped, lower-cased; whether it exists is not asked here. */
export const HandleInput = Schema.String.pipe(
  Schema.decodeTo(
    Schema.String.check(Schema.makeFilter((text) => isStorable(text) || "must hold no NUL and no lone surrogate")),
    SchemaTransformation.transform({
      decode: (text: string) => lowerCase(text.trim().replace(/^@/, "")),
      encode: (text: string) => text
    })
  )
)

/** Milliseconds as the wire's date-time: ISO 8601, UTC, milliseconds. */
export const iso = (ms: number): string => new Date(ms).toISOString()

export const isoOrNull = (ms: number | null): string | null => ms === null ? null : iso(ms)

export const DateTimeString = Schema.String.annotate({ format: "date-time" } as never)

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

/**
 * What is not read but acts on the text around it: control characters, separators of lines and paragraphs, and the
 * characters that embed, override or isolate a direction of writing. The plain direction marks, which ordinary
 * Arabic and Hebrew need, are none of them: they turn nothing around that stands beyond them.
 */
const CONTROLS = /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/gu

export const withoutControls = (text: string): string => text.replace(CONTROLS, "")

/** Whether nothing of it is seen: spaces, characters without a glyph, the empty Braille cell; so is no text at all. */
export const isBlank = (text: string): boolean => /^[\p{White_Space}\p{Default_Ignorable_Code_Point}\u2800]*$/u.test(text)

/** A name to show, of `max` code points at most, that stands in its place and can be seen; an empty one is none. */
export const Name = (max: number) =>
  Text(0, max).check(
    Schema.makeFilter((text) =>
      withoutControls(text) === text || "must hold no line breaks, other control characters, or overrides of the direction of writing"
    ),
    Schema.makeFilter((text) => text === "" || !isBlank(text) || "must not be of blanks alone")
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

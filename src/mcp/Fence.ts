import { CLOSE, label, OPEN } from "./Texts.ts"

/** Escaped besides what JSON escapes: marks, line separators, other control characters, and overrides of the direction of writing. */
const ESCAPED = /[<>\p{Cc}\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu

const escape = (text: string): string =>
  Array.from({ length: text.length }, (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, "0")}`).join("")

/** A value as JSON on one line in which nothing can look like a mark, a line or anything but itself. */
export const safeJson = (value: unknown): string => JSON.stringify(value).replace(ESCAPED, escape)

/** The blocks of text that show data from other agents: a label and a mark, the JSON by itself, the closing mark. */
export const fenced = (value: unknown): ReadonlyArray<string> => [`${label}\n${OPEN}`, safeJson(value), CLOSE]

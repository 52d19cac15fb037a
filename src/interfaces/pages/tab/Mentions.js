/** @import { Person } from "../client/Wire.ts" */

/** The most agents that are offered at once. */
const MOST = 8

/**
 * The characters beyond ASCII that belong to a word (wire.md I), for the inside of a character class with the flag `u`.
 */
export const WORD = String
  .raw`\p{sc=Latin}\p{sc=Greek}\p{sc=Cyrillic}\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\ufe20-\ufe2f`
const BEFORE_CARET = new RegExp(String.raw`(?<![A-Za-z0-9${WORD}_.@/-])@([\p{L}\p{N}-]{0,30})$`, "u")

/**
 * The beginning of a handle before the caret, and the position of its `@`; undefined if there is none. An `@` inside a
 * word or a path, as in an e-mail address or a URL, does not begin a handle. The server decides which handles of a sent
 * message are mentions (wire.md I).
 * @param {string} text
 * @param {number} caret
 */
export const mentionAt = (text, caret) => {
  const found = BEFORE_CARET.exec(text.slice(0, caret))
  return found === null ? undefined : { at: found.index, begin: (found[1] ?? "").toLowerCase() }
}

/**
 * The agents to offer for a typed beginning. Agents whose handle begins with it come first, and then agents with a word
 * in their name that begins with it, or whose name begins with it.
 * @param {ReadonlyArray<Person>} people the most relevant first; an agent may occur twice
 * @param {string} begin in lower case
 * @param {number} [most]
 */
export const offered = (people, begin, most = MOST) => {
  /** @type {Set<string>} */
  const seen = new Set()
  const unique = people.filter(({ handle }) => !seen.has(handle) && seen.add(handle))
  const byHandle = unique.filter(({ handle }) => handle.startsWith(begin))
  const byName = unique.filter(({ display_name, handle }) => {
    const name = (display_name ?? "").toLowerCase()
    return !handle.startsWith(begin) && [name, ...name.split(/[^\p{L}\p{N}]+/u)].some((one) => one.startsWith(begin))
  })
  return [...byHandle, ...byName].slice(0, most)
}

/**
 * The text with the typed beginning replaced with the handle, and the position of the caret after the handle.
 * @param {string} text
 * @param {number} at where the `@` is
 * @param {number} caret
 * @param {string} handle
 */
export const completed = (text, at, caret, handle) => {
  const rest = text.slice(caret)
  const head = `${text.slice(0, at)}@${handle}${rest.startsWith(" ") ? "" : " "}`
  return { text: `${head}${rest}`, caret: head.length + (rest.startsWith(" ") ? 1 : 0) }
}

import { signal } from "@preact/signals"
import { textOf } from "./Api.js"

/**
 * @import { Found } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Timers } from "./Timers.js"
 * @import { Signal } from "@preact/signals"
 */

/** How many characters an excerpt shows before the first found word, and how many in total. */
const BEFORE = 50
const MOST = 180

/**
 * The query for the text that a person has typed so far; undefined if the text is too short for a search. A last word
 * of at least three letters also matches longer words, because the person may still be typing the word.
 * @param {string} typed
 */
export const queryOf = (typed) => {
  const words = typed.trim()
  if (words.length < 2 || !/[\p{L}\p{N}]/u.test(words)) return undefined
  return /[\p{L}\p{N}]{3}$/u.test(typed) ? `${words}*` : words
}

/**
 * The part of a text around the first found word, split into found and other pieces.
 * @param {string} text
 * @param {ReadonlyArray<readonly [from: number, to: number]>} highlights
 * @returns {ReadonlyArray<{ readonly text: string, readonly isFound: boolean }>}
 */
export const excerptOf = (text, highlights) => {
  const first = highlights[0]?.[0] ?? 0
  const space = text.lastIndexOf(" ", Math.max(0, first - BEFORE))
  const begin = first <= BEFORE ? 0 : Math.max(space + 1, first - 2 * BEFORE)
  const end = Math.min(text.length, begin + MOST)
  const pieces = []
  let at = begin
  for (const [from, to] of highlights) {
    if (to > end) break
    if (from > at) pieces.push({ text: text.slice(at, from), isFound: false })
    pieces.push({ text: text.slice(from, to), isFound: true })
    at = to
  }
  if (at < end) pieces.push({ text: text.slice(at, end), isFound: false })
  return [
    ...begin > 0 ? [{ text: "… ", isFound: false }] : [],
    ...pieces,
    ...end < text.length ? [{ text: " …", isFound: false }] : []
  ]
}

/** How long the person must have typed nothing before a search begins, in milliseconds. */
const PAUSE_MS = 350
/** After how long an incomplete search is repeated, in milliseconds. */
const AGAIN_MS = 2_000
/** How often an incomplete search is repeated automatically. */
const MOST_REPEATS = 4
/** How many pages are read to find one with messages. */
const MOST_PAGES = 5

/**
 * @typedef {{ readonly messages: Found["messages"], readonly next: string | null, readonly complete: boolean }} Hits
 */

/**
 * Searches one agent's messages. The server runs one search of an agent at a time, so a later search waits for the
 * running search.
 */
export class Search {
  /** @param {Api} api @param {Timers} timers */
  constructor(api, timers) {
    this.api = api
    this.timers = timers
    /** What the person has typed. */
    this.typed = signal("")
    /** The search result; null before the first response. @type {Signal<Hits | null>} */
    this.hits = signal(null)
    this.busy = signal(false)
    /** @type {Signal<string | null>} */
    this.problem = signal(null)
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined
    this.running = Promise.resolve()
  }

  /** @param {string} typed */
  type(typed) {
    this.typed.value = typed
    this.timers.stop(this.timer)
    if (queryOf(typed) === undefined) {
      this.hits.value = null
      this.problem.value = null
      return
    }
    this.timer = this.timers.later(PAUSE_MS, () => void this.find())
  }

  /**
   * Searches for the typed text.
   * @param {number} [repeats] how often the search was repeated because it was incomplete
   */
  find(repeats = 0) {
    this.timers.stop(this.timer)
    return this.ask(null, (found) => {
      this.hits.value = { messages: found.messages, next: found.next_cursor, complete: found.complete }
      if (!found.complete && repeats < MOST_REPEATS)
        this.timer = this.timers.later(AGAIN_MS, () => void this.find(repeats + 1))
    })
  }

  /** Adds the next page of the search result. */
  more() {
    const before = this.hits.peek()
    if (before?.next === null || before === null) return undefined
    return this.ask(before.next, (found) => {
      this.hits.value = {
        messages: [...before.messages, ...found.messages],
        next: found.next_cursor,
        complete: found.complete
      }
    })
  }

  /**
   * Reads pages until a page contains messages or is the last page. An empty page is not always the last.
   * @param {string | null} cursor
   * @param {(found: Found) => void} onFound not called if the person has changed the text meanwhile
   */
  ask(cursor, onFound) {
    const query = queryOf(this.typed.peek())
    const current = () => query !== undefined && query === queryOf(this.typed.peek())
    this.running = this.running.then(async () => {
      if (query === undefined || !current()) return
      this.busy.value = true
      try {
        /** @type {Found | undefined} */
        let found
        for (
          let pages = 0;
          pages < MOST_PAGES && (found === undefined || (found.messages.length === 0 && found.next_cursor !== null));
          pages++
        ) {
          /** @type {string | null} */
          const next = found?.next_cursor ?? cursor
          found = await this.api.get(
            `v1/messages/search?q=${encodeURIComponent(query)}${
              next === null ? "" : `&cursor=${encodeURIComponent(next)}`
            }`
          )
        }
        if (!current() || found === undefined) return
        this.problem.value = null
        onFound(found)
      } catch (error) {
        if (current()) this.problem.value = textOf(error)
      } finally {
        this.busy.value = false
      }
    })
    return this.running
  }
}

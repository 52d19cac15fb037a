import { signal } from "@preact/signals"
import { textOf } from "./Api.js"

/**
 * @import { Found, Message } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Conversations } from "./Conversations.js"
 * @import { Files } from "./Files.js"
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

/** How many messages with files, and how many pages of a conversation, are read to find files by their names. */
const MOST_FILES = 100
const FILE_PAGES = 3
/** The largest page of a history. */
const LARGEST_PAGE = 200

/**
 * What a search is limited to. `conversation` is an id, `from` a handle, and `after` and `before` are days, as
 * `2026-11-29`. An empty text is no limit. Both days are included.
 * @typedef {{ readonly conversation: string, readonly from: string, readonly after: string, readonly before: string }} Limits
 */

/** @type {Limits} */
export const everything = { conversation: "", from: "", after: "", before: "" }

/** The time at which a day of the browser's time zone begins, or the day after it. @param {string} day @param {number} later */
const beginOf = (day, later) => {
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number)
  return new Date(year, month - 1, date + later)
}

/** The parameters of a search besides its words, as the end of a URL. @param {Limits} limits */
export const limitsIn = ({ after, before, conversation, from }) =>
  [
    ["conversation_id", conversation],
    ["from", from.trim().replace(/^@/, "").toLowerCase()],
    ["after", after === "" ? "" : new Date(beginOf(after, 0).getTime() - 1).toISOString()],
    ["before", before === "" ? "" : beginOf(before, 1).toISOString()]
  ].filter(([, value]) => value !== "").map(([name, value = ""]) => `&${name}=${encodeURIComponent(value)}`).join("")

/** Whether a message is inside the limits. @param {Limits} limits @param {Message} message */
export const isInside = ({ after, before, conversation, from }, { conversation_id: id, created_at: at, sender }) =>
  (conversation === "" || conversation === id) &&
  (from.trim() === "" || from.trim().replace(/^@/, "").toLowerCase() === sender) &&
  (after === "" || new Date(at) >= beginOf(after, 0)) && (before === "" || new Date(at) < beginOf(before, 1))

/**
 * Whether a file name contains all words.
 * @param {string} name
 * @param {string} typed
 */
export const isNamed = (name, typed) =>
  typed.trim().toLowerCase().split(/\s+/).every((word) => name.toLowerCase().includes(word))

/**
 * @typedef {{ readonly messages: Found["messages"], readonly next: string | null, readonly complete: boolean }} Hits
 */

/**
 * Searches one agent's messages. The server runs one search of an agent at a time, so a later search waits for the
 * running search.
 */
export class Search {
  /** @param {Api} api @param {Timers} timers @param {Conversations} conversations @param {Files} files */
  constructor(api, timers, conversations, files) {
    this.api = api
    this.timers = timers
    this.conversations = conversations
    this.files = files
    this.limits = signal(everything)
    /**
     * The messages whose file has a name with the words. The server does not search names, so these are the loaded
     * messages, or the newest messages of the conversation that the search is limited to.
     * @type {Signal<ReadonlyArray<{ readonly message: Message, readonly filename: string }>>}
     */
    this.named = signal([])
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
      this.named.value = []
      this.problem.value = null
      return
    }
    this.timer = this.timers.later(PAUSE_MS, () => void this.find())
  }

  /** Changes what the search is limited to. @param {Partial<Limits>} change */
  limit(change) {
    this.limits.value = { ...this.limits.peek(), ...change }
    this.type(this.typed.peek())
  }

  /** The search that the person asks for now; undefined if the text is too short. */
  asked() {
    const query = queryOf(this.typed.peek())
    return query === undefined ? undefined : `q=${encodeURIComponent(query)}${limitsIn(this.limits.peek())}`
  }

  /** The messages with a file among which the search looks for names, the newest first. */
  async withFiles() {
    const { histories } = this.conversations
    const { conversation } = this.limits.peek()
    /** @type {Array<Message>} */
    let messages = []
    if (conversation === "") messages = [...histories.timelines.values()].flatMap((one) => one.peek().messages)
    else {
      for (let pages = 0; pages < FILE_PAGES; pages++) {
        const first = messages[0]
        const page = await histories.page(
          conversation,
          `limit=${LARGEST_PAGE}${first === undefined ? "" : `&before_seq=${first.seq}`}`
        )
        messages = [...page, ...messages]
        if (page.length < LARGEST_PAGE) break
      }
    }
    return messages.filter((one) => one.content.attachment_id !== undefined && isInside(this.limits.peek(), one))
      .toSorted((a, b) => b.created_at.localeCompare(a.created_at)).slice(0, MOST_FILES)
  }

  /** Finds files by their names. */
  async findFiles() {
    const asked = this.asked()
    const typed = this.typed.peek()
    const found = []
    for (const message of await this.withFiles().catch(() => [])) {
      if (asked === undefined || asked !== this.asked()) return
      const info = await this.files.info(message.content.attachment_id ?? "").catch(() => undefined)
      if (info !== undefined && isNamed(info.filename, typed)) found.push({ message, filename: info.filename })
    }
    if (asked === this.asked()) this.named.value = found
  }

  /**
   * Searches for the typed text.
   * @param {number} [repeats] how often the search was repeated because it was incomplete
   */
  find(repeats = 0) {
    this.timers.stop(this.timer)
    if (repeats === 0) void this.findFiles()
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
    const asked = this.asked()
    const current = () => asked !== undefined && asked === this.asked()
    this.running = this.running.then(async () => {
      if (!current()) return
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
            `v1/messages/search?${asked}${next === null ? "" : `&cursor=${encodeURIComponent(next)}`}`
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

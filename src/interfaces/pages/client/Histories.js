import { signal } from "@preact/signals"
import { Refused, textOf } from "./Api.js"
import { closeGap, covers, empty, gapAfter, withLive, without, withReactions, withRead } from "./Timeline.js"

/**
 * @import { Message, Reaction } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Notices } from "./Notices.js"
 * @import { Timeline } from "./Timeline.js"
 * @import { Signal } from "@preact/signals"
 */

/**
 * `query` is the parameter that a read of older or newer messages has. `ended` resolves when the read has ended.
 * @typedef {{ readonly query: "before_seq" | "after_seq" | undefined, readonly ended: Promise<void> }} Read
 */

export const PAGE = 50
/** How many messages are read before and after the message at which a conversation is opened. */
const AROUND = 40
export const LARGEST_PAGE = 200

/**
 * The messages of the opened conversations, and the reads that load these messages. At most one read of a conversation
 * runs at a time.
 */
export class Histories {
  /**
   * @param {Api} api
   * @param {Notices} notices
   * @param {(id: string) => void} onMissing called for a conversation that does not exist or that the agent cannot see
   */
  constructor(api, notices, onMissing) {
    this.api = api
    this.notices = notices
    this.onMissing = onMissing
    /** @type {Map<string, Signal<Timeline>>} */
    this.timelines = new Map()
    /**
     * The running read of each conversation. A later read that replaces the timeline also replaces this entry.
     * @type {Map<string, Read>}
     */
    this.reads = new Map()
    /** For each conversation with a read around a message, the seq of that message. @type {Map<string, number>} */
    this.at = new Map()
  }

  /** @param {string} id @returns {Signal<Timeline>} */
  timeline(id) {
    const there = this.timelines.get(id)
    if (there !== undefined) return there
    const made = signal(empty)
    this.timelines.set(id, made)
    return made
  }

  /** A message of any opened conversation. @param {string} id @returns {Message | undefined} */
  find(id) {
    for (const timeline of this.timelines.values()) {
      const found = timeline.peek().messages.find((message) => message.id === id)
      if (found !== undefined) return found
    }
    return undefined
  }

  /** @param {string} id @param {string} query @returns {Promise<ReadonlyArray<Message>>} */
  page(id, query) {
    return this.api.get(`v1/messages/${id}?${query}`)
  }

  /**
   * Reads the reactions to a message again. An event says only what one agent did, and may come before or after a read.
   * @param {string} id
   * @param {string} message the id of the message
   */
  async readReactions(id, message) {
    const [read] = await this.page(id, `around_message_id=${message}&limit=1`)
    if (read?.id === message) this.setReactions(id, message, read.reactions ?? [])
  }

  /** @param {string} id @param {string} message @param {ReadonlyArray<Reaction>} reactions */
  setReactions(id, message, reactions) {
    const timeline = this.timelines.get(id)
    if (timeline !== undefined) timeline.value = withReactions(timeline.peek(), message, reactions)
  }

  /**
   * Runs a read. `step` gets a function that returns whether the read may still change the timeline. Returns true if the
   * read succeeded.
   * @param {string} id
   * @param {(valid: () => boolean) => Promise<void>} step
   * @param {Read["query"]} [query]
   */
  async read(id, step, query) {
    let end = () => {}
    /** @type {Read} */
    const read = { query, ended: new Promise((resolve) => end = resolve) }
    const valid = () => this.reads.get(id) === read
    this.reads.set(id, read)
    try {
      await step(valid)
      return true
    } catch (error) {
      if (valid()) this.failed(id, error)
      return false
    } finally {
      if (valid()) this.reads.delete(id)
      end()
    }
  }

  /**
   * Reads a page before the oldest or after the newest loaded message. Waits for a running read of another kind, because
   * a list that rests at its top or end does not ask again.
   * @param {string} id
   * @param {"before_seq" | "after_seq"} query
   * @param {(timeline: Timeline) => Message | undefined} edge the message at which the page begins; undefined if there
   * is nothing to read
   * @param {(isLast: boolean) => Partial<Timeline>} ended what the timeline knows after the page
   */
  async extend(id, query, edge, ended) {
    const timeline = this.timeline(id)
    const running = this.reads.get(id)
    if (edge(timeline.peek()) === undefined || running?.query === query) return
    await running?.ended
    const from = edge(timeline.peek())
    if (from === undefined || this.reads.has(id)) return
    await this.read(id, async (valid) => {
      const read = await this.page(id, `limit=${LARGEST_PAGE}&${query}=${from.seq}`)
      if (valid()) timeline.value = { ...withRead(timeline.peek(), read), ...ended(read.length < LARGEST_PAGE) }
    }, query)
  }

  /**
   * Shows why a read failed. Shows nothing if the failure may be temporary, because the next connect reads again.
   * @param {string} id
   * @param {unknown} error
   */
  failed(id, error) {
    if (!(error instanceof Refused)) return this.notices.note(textOf(error))
    if (error.status === 404 || error.status === 410) {
      this.notices.note("This conversation is not there, or this agent cannot see it.")
      this.onMissing(id)
    } else if (!error.passing) this.notices.note(error.message)
  }

  /** Reads the newest messages. If only older messages are loaded, the newest replace them. @param {string} id */
  newest(id) {
    const timeline = this.timeline(id)
    if (timeline.peek().newer) {
      timeline.value = empty
      this.reads.delete(id)
    }
    return this.catchUp(id)
  }

  /**
   * Reads the messages after the newest known message. If no message is known, reads the newest page.
   * @param {string} id
   * @param {number} [again] how many known messages are read again, for their reactions and outcomes
   */
  async catchUp(id, again = 0) {
    const timeline = this.timeline(id)
    if (this.reads.has(id) || timeline.peek().newer) return
    await this.read(id, async (valid) => {
      for (let before = again;; before = 0) {
        const last = timeline.peek().messages.at(-1)?.seq
        const size = last === undefined ? PAGE : LARGEST_PAGE
        const from = last === undefined ? "" : `&after_seq=${Math.max(0, last - before)}`
        const read = await this.page(id, `limit=${size}${from}`)
        if (!valid()) return
        const complete = last === undefined ? read.length < size : timeline.peek().complete
        timeline.value = { ...withRead(timeline.peek(), read), complete }
        if (last === undefined || read.length < size) break
      }
      timeline.value = closeGap(timeline.peek())
    })
  }

  /** Reads a page before the oldest known message. @param {string} id */
  older(id) {
    return this.extend(
      id,
      "before_seq",
      ({ complete, messages }) => complete ? undefined : messages[0],
      (isLast) => ({ complete: isLast })
    )
  }

  /** If the newest messages are not loaded, reads a page after the last loaded message. @param {string} id */
  newer(id) {
    return this.extend(
      id,
      "after_seq",
      ({ messages, newer }) => newer ? messages.at(-1) : undefined,
      (isLast) => ({ newer: !isLast })
    )
  }

  /**
   * Loads the messages around the first unread message, or the messages that are missing after the loaded ones.
   * @param {string} id
   * @param {number} seq the seq of the first unread message
   */
  async unread(id, seq) {
    if (!covers(this.timeline(id).peek(), seq) && !await this.around(id, seq, false)) return
    // A message may have arrived during the read.
    await this.catchUp(id)
  }

  /**
   * Loads the message with this seq. If the message is not loaded yet, replaces the timeline with the messages around
   * it. Returns false if this call has loaded nothing.
   * @param {string} id
   * @param {number} seq
   * @param {boolean} [isLink] whether to say that the message is no longer there
   */
  async around(id, seq, isLink = true) {
    const timeline = this.timeline(id)
    if (this.at.get(id) === seq || timeline.peek().messages.some((message) => message.seq === seq)) return false
    this.at.set(id, seq)
    const isRead = await this.read(id, async (valid) => {
      const [older, newer] = await Promise.all([
        this.page(id, `limit=${AROUND}&before_seq=${seq + 1}`),
        this.page(id, `limit=${AROUND}&after_seq=${seq}`)
      ])
      if (!valid()) return
      timeline.value = withRead({ ...empty, complete: older.length < AROUND, newer: newer.length === AROUND }, [
        ...older,
        ...newer
      ])
      if (isLink && older[0]?.seq !== seq)
        this.notices.note("The message of this link is no longer there, or this agent cannot see it.")
    })
    if (this.at.get(id) === seq) this.at.delete(id)
    return isRead
  }

  /** Adds a message that the server has pushed or stored. @param {Message} message */
  put(message) {
    const timeline = this.timelines.get(message.conversation_id)
    if (timeline === undefined) return
    timeline.value = withLive(timeline.peek(), message)
    if (gapAfter(timeline.peek()) !== undefined) void this.catchUp(message.conversation_id)
  }

  /** Removes a message that is hidden for this agent. @param {Message} message */
  forget(message) {
    const timeline = this.timeline(message.conversation_id)
    timeline.value = without(timeline.peek(), message.id)
  }
}

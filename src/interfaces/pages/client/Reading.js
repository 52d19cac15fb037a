import { toRead, unreadAfter, withSeen } from "./Timeline.js"

/**
 * @import { Message } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Conversations } from "./Conversations.js"
 * @import { Previews } from "./Previews.js"
 * @import { Timers } from "./Timers.js"
 */

/** How long the messages on the screen are collected before they are marked as read, in milliseconds. */
const COLLECT_MS = 150

/**
 * Marks messages as read that were on the screen. If messages in between were not on the screen, these messages stay
 * unread.
 */
export class Reading {
  /**
   * @param {Api} api
   * @param {Timers} timers
   * @param {Conversations} conversations
   * @param {Previews} previews
   * @param {() => string} own the handle of the agent
   * @param {(id: string, seq: number) => boolean} readThrough marks all messages up to a seq as read on the server; false if
   * there is no connection
   */
  constructor(api, timers, conversations, previews, own, readThrough) {
    this.api = api
    this.timers = timers
    this.conversations = conversations
    this.previews = previews
    this.own = own
    this.readThrough = readThrough
    /** The ids of the messages that were on the screen, by conversation. @type {Map<string, Set<string>>} */
    this.seen = new Map()
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined
  }

  /** Call it while the person can see these messages. @param {string} id @param {ReadonlyArray<Message>} messages */
  saw(id, messages) {
    const seen = this.seen.get(id) ?? new Set()
    for (const message of messages) seen.add(message.id)
    this.seen.set(id, seen)
    this.timer ??= this.timers.later(COLLECT_MS, () => this.flush())
  }

  flush() {
    this.timer = undefined
    for (const [id, seen] of this.seen) {
      const item = this.conversations.list.peek().find((one) => one.id === id)
      const read = item === undefined || item.unread_count === 0
        ? { through: undefined, single: [] }
        : toRead(this.conversations.timeline(id).peek(), item, this.own(), seen)
      if (this.mark(id, read)) this.seen.delete(id)
    }
  }

  /**
   * Returns false if there is no connection. In that case, it marks nothing.
   * @param {string} id
   * @param {{ readonly through: number | undefined, readonly single: ReadonlyArray<Message> }} read
   */
  mark(id, read) {
    const { single, through } = read
    const item = this.conversations.list.peek().find((one) => one.id === id)
    if (item === undefined || (through === undefined && single.length === 0)) return true
    if (through !== undefined && !this.readThrough(id, through)) return false
    void this.readEach(single)
    for (const message of single) this.previews.saw(message)
    const timeline = this.conversations.timeline(id)
    const before = timeline.peek()
    timeline.value = withSeen(before, this.own(), read)
    this.conversations.change(id, unreadAfter(before, timeline.peek(), item, this.own(), through))
    return true
  }

  /** @param {ReadonlyArray<Message>} messages */
  async readEach(messages) {
    // If a call fails, the message is unread again at the next read of the list.
    for (const { id } of messages) await this.api.call("POST", `v1/messages/${id}/read`).catch(() => undefined)
  }
}

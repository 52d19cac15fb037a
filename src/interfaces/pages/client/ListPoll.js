/**
 * @import { Conversations } from "./Conversations.js"
 * @import { Timers } from "./Timers.js"
 */

/** How often the list is read while the person can see the page, in milliseconds. */
const LIST_MS = 30_000

/**
 * Reads the top of the list again and again, because the server pushes no messages of a muted conversation, and does not
 * tell what the same agent has read elsewhere.
 */
export class ListPoll {
  /**
   * @param {Timers} timers
   * @param {Conversations} conversations
   * @param {() => boolean} isLive whether the agent is connected
   */
  constructor(timers, conversations, isLive) {
    this.timers = timers
    this.conversations = conversations
    this.isLive = isLive
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined
  }

  begin() {
    this.timers.stop(this.timer)
    this.timer = this.timers.later(LIST_MS, () => void this.poll())
  }

  async poll() {
    // If a read fails, the next one shows what has changed.
    if (this.isLive() && document.visibilityState === "visible")
      await this.conversations.refresh().catch(() => undefined)
    this.begin()
  }
}

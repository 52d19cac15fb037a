import { LARGEST_PAGE } from "./Histories.js"
import { unsettledAfter, withRead } from "./Timeline.js"

/**
 * @import { Message } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Conversations } from "./Conversations.js"
 * @import { Timers } from "./Timers.js"
 */

/** The delays between polls, in milliseconds. */
const STATES_MS = [1_000, 3_000, 10_000, 30_000]

/**
 * Polls for the states of the agent's messages in the open thread, with increasing delays, because the server pushes no
 * event when a message is delivered.
 */
export class StatePoll {
  /**
   * @param {Api} api
   * @param {Timers} timers
   * @param {Conversations} conversations
   * @param {() => string | undefined} sender the agent's handle; undefined while the agent is not connected
   */
  constructor(api, timers, conversations, sender) {
    this.api = api
    this.timers = timers
    this.conversations = conversations
    this.sender = sender
    this.step = 0
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined
  }

  /** Starts again with the shortest delay. */
  restart() {
    this.step = 0
    this.follow()
  }

  /** Polls after the delay of the current step. */
  follow() {
    this.timers.stop(this.timer)
    this.step = Math.min(this.step, STATES_MS.length - 1)
    this.timer = this.timers.later(STATES_MS[this.step] ?? 30_000, () => void this.poll())
  }

  async poll() {
    const id = this.conversations.place.peek()?.id
    const handle = this.sender()
    if (id === null || id === undefined || handle === undefined) return
    const timeline = this.conversations.timeline(id)
    const after = unsettledAfter(timeline.peek(), handle)
    if (after === undefined) return
    if (document.visibilityState === "visible") {
      try {
        /** @type {Array<Message>} */
        const read = await this.api.get(`v1/messages/${id}?limit=${LARGEST_PAGE}&after_seq=${after}`)
        // Get the timeline after the read, because other reads may have added older messages meanwhile.
        timeline.value = withRead(timeline.peek(), read)
      } catch {
        // The next poll reads again.
      }
    }
    this.step++
    this.follow()
  }
}

import { signal } from "@preact/signals"
import { textOf } from "./Api.js"

/**
 * @import { Message } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Conversations } from "./Conversations.js"
 * @import { Notices } from "./Notices.js"
 * @import { Timers } from "./Timers.js"
 * @import { Signal } from "@preact/signals"
 */

/** How long *Hide* can be undone, in milliseconds. */
export const UNDO_MS = 10_000

/**
 * The messages and conversations that the person has hidden, until the server has hidden them. The API cannot undo
 * this, so the page waits for `UNDO_MS` before it calls. A page that is closed meanwhile calls at once, because the
 * person has confirmed.
 */
export class Hiding {
  /** @param {Api} api @param {Timers} timers @param {Notices} notices @param {Conversations} conversations */
  constructor(api, timers, notices, conversations) {
    this.conversations = conversations
    this.api = api
    this.timers = timers
    this.notices = notices
    /**
     * What is hidden on the page while it waits, by id. @type {Signal<ReadonlyMap<string, { path: string, notice:
     * string, onDone: () => void, timer: ReturnType<typeof setTimeout> }>>}
     */
    this.waiting = signal(new Map())
  }

  /** Hides a message for this agent, unless the person undoes it. @param {Message} message */
  message(message) {
    this.hide({
      id: message.id,
      path: `v1/messages/${message.id}`,
      words: "The message is hidden for this agent.",
      onDone: () => this.conversations.histories.forget(message)
    })
  }

  /** Hides a conversation until there is a new message in it, unless the person undoes it. @param {string} id */
  conversation(id) {
    this.hide({
      id,
      path: `v1/conversations/${id}`,
      words: "The conversation is hidden until there is a new message.",
      onDone: () => this.conversations.drop(id),
      onUndo: () => this.conversations.open(id)
    })
    if (this.conversations.place.peek()?.id === id) this.conversations.place.value = null
  }

  /**
   * @param {object} what
   * @param {string} what.id
   * @param {string} what.path what to delete
   * @param {string} what.words says that it is hidden
   * @param {() => void} what.onDone called when the server has hidden it
   * @param {() => void} [what.onUndo]
   */
  hide({ id, onDone, onUndo, path, words }) {
    if (this.waiting.peek().has(id)) return
    const notice = this.notices.offer(words, "Undo", UNDO_MS, () => {
      this.undo(id)
      onUndo?.()
    })
    const timer = this.timers.later(UNDO_MS, async () => {
      try {
        await this.api.call("DELETE", path)
        onDone()
      } catch (error) {
        this.notices.note(textOf(error))
      }
      this.undo(id)
    })
    this.waiting.value = new Map(this.waiting.peek()).set(id, { path, notice, onDone, timer })
  }

  /** Shows a hidden message or conversation again, without a call. @param {string} id */
  undo(id) {
    const entry = this.waiting.peek().get(id)
    if (entry === undefined) return
    this.timers.stop(entry.timer)
    this.notices.dismiss(entry.notice)
    this.waiting.value = new Map([...this.waiting.peek()].filter(([other]) => other !== id))
  }

  /**
   * Calls the API at once for everything that waits. The page does not wait for the answers, because it may be closing.
   */
  flush() {
    for (const [id, { onDone, path }] of this.waiting.peek()) {
      this.api.parting("DELETE", path)
      onDone()
      this.undo(id)
    }
  }
}

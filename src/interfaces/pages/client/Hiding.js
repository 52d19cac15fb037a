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

/** How long the person can undo *Hide*, in milliseconds. */
export const UNDO_MS = 10_000

/**
 * The messages and conversations that the person has hidden, until the server has hidden them too. The API cannot undo
 * a call to hide, so the page waits for `UNDO_MS` before the call. If the page is closed meanwhile, it calls at once.
 */
export class Hiding {
  /** @param {Api} api @param {Timers} timers @param {Notices} notices @param {Conversations} conversations */
  constructor(api, timers, notices, conversations) {
    this.conversations = conversations
    this.api = api
    this.timers = timers
    this.notices = notices
    /**
     * The messages and conversations that are hidden on the page and not on the server yet, by id.
     * @type {Signal<ReadonlyMap<string, { path: string, notice: string, onDone: () => void, timer: ReturnType<typeof setTimeout> }>>}
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
   * @param {string} what.path the path of the DELETE request
   * @param {string} what.words tells the person that the message or conversation is hidden
   * @param {() => void} what.onDone called after the server has hidden the message or conversation
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
        const isUndone = !this.waiting.peek().has(id)
        onDone()
        // A message that came during the call shows the conversation again. Its history is what the server shows now.
        if (isUndone) this.conversations.reload()
      } catch (error) {
        this.notices.note(textOf(error))
      }
      this.undo(id)
    })
    this.waiting.value = new Map(this.waiting.peek()).set(id, { path, notice, onDone, timer })
  }

  /** Shows a hidden message or conversation again, without a call of the API. @param {string} id */
  undo(id) {
    const entry = this.waiting.peek().get(id)
    if (entry === undefined) return
    this.timers.stop(entry.timer)
    this.notices.dismiss(entry.notice)
    this.waiting.value = new Map([...this.waiting.peek()].filter(([other]) => other !== id))
  }

  /**
   * Calls the API at once for everything that waits. Does not wait for the responses, because the page may be closing.
   */
  flush() {
    for (const [id, { onDone, path }] of this.waiting.peek()) {
      this.api.parting("DELETE", path)
      onDone()
      this.undo(id)
    }
  }
}

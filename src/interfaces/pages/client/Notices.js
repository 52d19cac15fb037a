import { signal } from "@preact/signals"
import { freshId, textOf } from "./Api.js"

/**
 * @import { Signal } from "@preact/signals"
 * @import { Timers } from "./Timers.js"
 */

/**
 * @typedef {{ readonly id: string, readonly text: string, readonly action?: { readonly label: string, readonly run: ()
 * => void } }} Notice
 */

/** The texts that a view shows to the person. A text stays until its time is over or the person dismisses it. */
export class Notices {
  /** @param {Timers} timers */
  constructor(timers) {
    this.timers = timers
    /** @type {Signal<ReadonlyArray<Notice>>} */
    this.list = signal([])
  }

  /** @param {string} text */
  note(text) {
    this.add({ id: freshId(), text }, 15_000)
  }

  /**
   * Shows a text with a button, and returns the id of the notice.
   * @param {string} text
   * @param {string} label
   * @param {number} ms how long the notice is shown
   * @param {() => void} run
   */
  offer(text, label, ms, run) {
    const id = freshId()
    this.add({ id, text, action: { label, run } }, ms)
    return id
  }

  /** @param {Notice} notice @param {number} ms */
  add(notice, ms) {
    this.list.value = [...this.list.peek().slice(-3), notice]
    this.timers.later(ms, () => this.dismiss(notice.id))
  }

  /** @param {string} id */
  dismiss(id) {
    this.list.value = this.list.peek().filter((one) => one.id !== id)
  }

  /**
   * Runs an action of the person. Returns true if the action succeeds. If it fails, shows the reason and returns false.
   * @param {() => Promise<unknown>} run
   * @param {(error: unknown) => string} [sentence] makes the text for a failure
   */
  async attempt(run, sentence = textOf) {
    try {
      await run()
      return true
    } catch (error) {
      this.note(sentence(error))
      return false
    }
  }
}

import { signal } from "@preact/signals"
import { freshId, textOf } from "./Api.js"

/**
 * @import { Signal } from "@preact/signals"
 * @import { Timers } from "./Timers.js"
 */

/** The texts that a view shows to the person until they are dismissed. */
export class Notices {
  /** @param {Timers} timers */
  constructor(timers) {
    this.timers = timers
    /** @type {Signal<ReadonlyArray<{ readonly id: string, readonly text: string }>>} */
    this.list = signal([])
  }

  /** @param {string} text */
  note(text) {
    const id = freshId()
    this.list.value = [...this.list.peek().slice(-3), { id, text }]
    this.timers.later(15_000, () => this.dismiss(id))
  }

  /** @param {string} id */
  dismiss(id) {
    this.list.value = this.list.peek().filter((one) => one.id !== id)
  }

  /**
   * Runs an action of the person. Returns true if it succeeds. If it fails, shows the reason and returns false.
   * @param {() => Promise<unknown>} run
   */
  async attempt(run) {
    try {
      await run()
      return true
    } catch (error) {
      this.note(textOf(error))
      return false
    }
  }
}

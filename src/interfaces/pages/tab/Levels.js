import { signal } from "@preact/signals"
import { ofBrowser, store, stored } from "./Stored.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Signal } from "@preact/signals"
 */

const NAME = "parley.mentions-only"

/**
 * The conversations of one agent that notify the person only of mentions. The API has no place for this choice, so this
 * browser keeps it until the agent is signed out. A conversation without any notifications is muted on the server.
 */
export class Levels {
  /** @param {() => string} handle the agent's handle */
  constructor(handle) {
    this.handle = handle
    /** The ids of the conversations. @type {Signal<ReadonlySet<string>>} */
    this.mentionsOnly = signal(new Set())
  }

  /** Reads what the browser has kept. */
  load() {
    const own = stored(ofBrowser, NAME)?.[this.handle()]
    this.mentionsOnly.value = new Set(Array.isArray(own) ? own.map(String) : [])
  }

  /** @param {string} id @param {boolean} on */
  set(id, on) {
    const others = [...this.mentionsOnly.peek()].filter((one) => one !== id)
    this.mentionsOnly.value = new Set(on ? [...others, id] : others)
    this.keep([...this.mentionsOnly.peek()])
  }

  /** Whether a message that is not muted may notify the person. @param {Message} message */
  permits({ context, conversation_id: id }) {
    return !this.mentionsOnly.peek().has(id) || context?.mentions?.includes(this.handle()) === true
  }

  /** Removes the agent's choices from the browser. */
  forget() {
    this.keep([])
  }

  /** @param {ReadonlyArray<string>} ids */
  keep(ids) {
    const { [this.handle()]: _, ...others } = stored(ofBrowser, NAME) ?? {}
    const all = ids.length === 0 ? others : { ...others, [this.handle()]: ids }
    store(ofBrowser, NAME, Object.keys(all).length === 0 ? undefined : all)
  }
}

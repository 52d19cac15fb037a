import { signal } from "@preact/signals"

/**
 * @import { Presence } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 * @import { Timers } from "./Timers.js"
 * @import { Signal } from "@preact/signals"
 */

/** How long an agent counts as typing after its last typing signal, in milliseconds. */
const TYPING_MS = 8_000

/** Which agents are online, and which agents are typing. */
export class Presences {
  /** @param {Api} api @param {Timers} timers */
  constructor(api, timers) {
    this.api = api
    this.timers = timers
    /** @type {Signal<ReadonlyMap<string, Presence>>} */
    this.all = signal(new Map())
    /**
     * Until when each agent counts as typing, by conversation and agent.
     * @type {Signal<ReadonlyMap<string, ReadonlyMap<string, number>>>}
     */
    this.typing = signal(new Map())
  }

  /** Reads the presences of up to 100 of these agents. @param {ReadonlyArray<string>} handles */
  async ask(handles) {
    const asked = [...new Set(handles)].slice(0, 100)
    if (asked.length === 0) return
    const before = this.all.peek()
    const { presences } = await this.api.post("v1/presence/batch", { handles: asked }).catch(() => ({ presences: [] }))
    const all = new Map(this.all.peek())
    // A presence that has changed during the request is newer than the response.
    for (const presence of presences)
      if (all.get(presence.handle) === before.get(presence.handle)) all.set(presence.handle, presence)
    this.all.value = all
  }

  /** @param {Presence} presence */
  set(presence) {
    this.all.value = new Map(this.all.peek()).set(presence.handle, presence)
  }

  /** @param {string} id the conversation @param {string} sender @param {boolean} isTyping */
  setTyping(id, sender, isTyping) {
    const all = new Map(this.typing.peek())
    const who = new Map(all.get(id))
    if (isTyping) {
      who.set(sender, Date.now() + TYPING_MS)
      this.timers.later(TYPING_MS, () => this.forgetTyping())
    } else who.delete(sender)
    this.typing.value = all.set(id, who)
  }

  forgetTyping() {
    const now = Date.now()
    this.typing.value = new Map(
      [...this.typing.peek()].map(([id, who]) => [id, new Map([...who].filter(([, until]) => until > now))])
    )
  }
}

import { signal } from "@preact/signals"
import { ofTab, store, stored } from "./Stored.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Signal } from "@preact/signals"
 */

/** @typedef {{ readonly text: string, readonly files: ReadonlyArray<File>, readonly replyTo: Message | null }} Draft */

/** @type {Draft} */
export const nothing = { text: "", files: [], replyTo: null }

const NAME = "parley.drafts"

/** @param {Draft} draft */
const isNothing = ({ files, replyTo, text }) => text === "" && files.length === 0 && replyTo === null

/**
 * The drafts of one agent, by target. A target is a group's id, or `@` and a handle. Over a reload, the tab keeps the
 * texts of the drafts and the messages to which they reply. It does not keep chosen files.
 */
export class Drafts {
  /** @param {() => string} handle the agent's handle */
  constructor(handle) {
    this.handle = handle
    /** @type {Map<string, Draft>} */
    this.drafts = new Map()
    /** The targets that have a draft. @type {Signal<ReadonlySet<string>>} */
    this.targets = signal(new Set())
  }

  /** Reads the drafts that the tab has kept over a reload. */
  load() {
    for (const [target, { replyTo = null, text = "" }] of Object.entries(stored(ofTab, NAME)?.[this.handle()] ?? {})) {
      this.drafts.set(target, { text: String(text), files: [], replyTo })
    }
    this.targets.value = new Set(this.drafts.keys())
  }

  /** @param {string} target */
  of(target) {
    return this.drafts.get(target) ?? nothing
  }

  /** @param {string} target @param {Draft} draft */
  set(target, draft) {
    if (isNothing(draft)) this.drafts.delete(target)
    else this.drafts.set(target, draft)
    if (this.targets.peek().has(target) === isNothing(draft)) this.targets.value = new Set(this.drafts.keys())
    this.keep([...this.drafts])
  }

  /** Removes all drafts of the agent from the tab. */
  forget() {
    this.keep([])
  }

  /** @param {ReadonlyArray<readonly [string, Draft]>} drafts */
  keep(drafts) {
    const { [this.handle()]: _, ...others } = stored(ofTab, NAME) ?? {}
    const own = Object.fromEntries(
      drafts.filter(([, { replyTo, text }]) => text !== "" || replyTo !== null)
        .map(([target, { replyTo, text }]) => [target, { text, replyTo }])
    )
    const all = Object.keys(own).length === 0 ? others : { ...others, [this.handle()]: own }
    store(ofTab, NAME, Object.keys(all).length === 0 ? undefined : all)
  }
}

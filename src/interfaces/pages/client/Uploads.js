import { signal } from "@preact/signals"
import { textOf } from "./Api.js"
import { upload } from "./Files.js"

/**
 * @import { Signal } from "@preact/signals"
 * @import { Api } from "./Api.js"
 */

/**
 * The uploads for one target. `index` is the position of the file that is being uploaded, and `sent` are its bytes that
 * have been sent. `why` says why the uploads ended; null while they run.
 * @typedef {{ readonly index: number, readonly sent: number, readonly why: string | null, readonly abort:
 * AbortController }} Progress
 */

/**
 * Uploads the files of drafts, one after the other. The uploads continue while another conversation is open. A file that
 * was uploaded is not uploaded again when a later file of the same draft fails.
 */
export class Uploads {
  /** @param {Api} api */
  constructor(api) {
    this.api = api
    /** @type {Signal<ReadonlyMap<string, Progress>>} */
    this.all = signal(new Map())
    /** The ids of uploaded files that were not sent yet, by target. @type {Map<string, Map<File, string>>} */
    this.ids = new Map()
  }

  /** @param {string} target */
  isRunning(target) {
    return this.all.peek().get(target)?.why === null
  }

  /** @param {string} target @param {Progress | undefined} progress */
  put(target, progress) {
    const all = new Map(this.all.peek())
    if (progress === undefined) all.delete(target)
    else all.set(target, progress)
    this.all.value = all
  }

  /**
   * Uploads the files of one draft. Returns their ids in order, or undefined if an upload fails or is cancelled.
   * @param {string} target as in the outbox and the drafts
   * @param {{ to: string } | { conversation_id: string }} to
   * @param {ReadonlyArray<File>} files
   * @returns {Promise<ReadonlyArray<string> | undefined>}
   */
  async run(target, to, files) {
    if (this.isRunning(target)) return undefined
    const abort = new AbortController()
    const known = this.ids.get(target) ?? new Map()
    this.ids.set(target, known)
    for (const [index, file] of files.entries()) {
      if (known.has(file)) continue
      const shown = (/** @type {number} */ sent) => this.put(target, { index, sent, why: null, abort })
      shown(0)
      try {
        known.set(file, await upload(this.api, to, file, { onSent: shown, signal: abort.signal }))
      } catch (error) {
        if (abort.signal.aborted) this.put(target, undefined)
        else this.put(target, { index, sent: 0, why: `${file.name}: ${textOf(error)}`, abort })
        return undefined
      }
    }
    this.put(target, undefined)
    this.ids.delete(target)
    return files.map((file) => known.get(file) ?? "")
  }

  /** Stops the uploads for a target. Nothing is sent. @param {string} target */
  cancel(target) {
    this.all.peek().get(target)?.abort.abort()
  }

  /** Removes the reason why the uploads for a target have failed. @param {string} target */
  forget(target) {
    if (!this.isRunning(target)) this.put(target, undefined)
  }

  end() {
    for (const { abort } of this.all.peek().values()) abort.abort()
  }
}

import { Worker } from "node:worker_threads"
import { say } from "../src/Server.ts"

/** How often a long step prints a line, in milliseconds. */
const BEAT_MS = 5_000

/**
 * Runs in a separate thread, because PGlite blocks the main thread. Writes to the file descriptor of standard output
 * directly for the same reason.
 */
const BEAT = `
  const { writeSync } = require("node:fs")
  const began = Date.now()
  setInterval(() => {
    try {
      writeSync(1, "          … " + Math.round((Date.now() - began) / 1000) + " s\\n")
    } catch {
      // Nobody reads the output now.
    }
  }, ${BEAT_MS})
`

/** Prints the steps of a first start, one line for each. The output is the same on a terminal and in a file. */
export class Progress {
  #beat: Worker | undefined
  #step = 0
  readonly #steps: number

  /** Prints the line before the steps. */
  constructor(before: string, steps: number) {
    say(before)
    this.#steps = steps
  }

  /**
   * Prints a step that begins now. A step that may block this thread for long also prints a line every five seconds.
   */
  begin(what: string, blocks: "blocks" | undefined = undefined): void {
    void this.#beat?.terminate()
    this.#beat = undefined
    say(`  ${++this.#step} of ${this.#steps}: ${what}`)
    if (blocks === undefined) return
    this.#beat = new Worker(BEAT, { eval: true })
    this.#beat.unref()
  }
}

import { Effect } from "effect"
import { Worker } from "node:worker_threads"

/** The interval between two lines, in milliseconds. */
const BEAT_MS = 5_000

/**
 * Runs in a thread of its own, because PGlite blocks this one, and writes to the file of standard output for the same
 * reason.
 */
const BEAT = `
  const { writeSync } = require("node:fs")
  const began = Date.now()
  setInterval(() => {
    try {
      writeSync(1, "  … " + Math.round((Date.now() - began) / 1000) + " s\\n")
    } catch {
      // Nobody reads the output now.
    }
  }, ${BEAT_MS})
`

/** Prints a line every five seconds while an effect runs, also while the effect blocks this thread. */
export const withBeat = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      const beat = new Worker(BEAT, { eval: true })
      beat.unref()
      return beat
    }),
    () => effect,
    (beat) => Effect.promise(() => beat.terminate())
  )

import { setTimeout as pause } from "node:timers/promises"
import type { Server } from "./Server.ts"

const TICK_MS = 20

/**
 * Milliseconds with the load of the machine taken out: of a time in which this process could not look at the clock,
 * as somebody else had the processor, only as much counts as lies between two looks.
 */
export class Stopwatch {
  #ms = 0
  #last = performance.now()
  /** The longest time without a look. */
  #pause = 0
  readonly #timer = setInterval(() => this.#look(), TICK_MS)

  #look(): void {
    const now = performance.now()
    this.#ms += Math.min(now - this.#last, 2 * TICK_MS)
    this.#pause = Math.max(this.#pause, now - this.#last)
    this.#last = now
  }

  get longestPauseMs(): number {
    return this.#pause
  }

  /** From when it was made. */
  stop(): number {
    clearInterval(this.#timer)
    this.#look()
    return this.#ms
  }
}

/**
 * What is awaited, if it comes within so many milliseconds with the load of the machine taken out: while it waits each of these
 * servers is asked for its health again and again, and a round of that counts for 50 ms at most, however long it took.
 * Who keeps the servers from doing what is waited for keeps them from answering too.
 */
export const promptly = async <A>(
  what: string,
  servers: ReadonlyArray<Server>,
  awaited: Promise<A>,
  limitMs: number
): Promise<A> => {
  const state = { over: false }
  const end = awaited.finally(() => state.over = true)
  end.catch(() => undefined)
  for (let counted = 0; !state.over;) {
    if (counted > limitMs) throw new Error(`waited in vain for ${what}, for more than ${limitMs} ms of a machine without load`)
    const began = performance.now()
    const answers = servers.map(async ({ url }) => (await fetch(`${url}/v1/health`)).arrayBuffer())
    await Promise.all([...answers, pause(25)])
    counted += Math.min(performance.now() - began, 50)
  }
  return end
}

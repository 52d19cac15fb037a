import { assert } from "@effect/vitest"
import { setTimeout as pause } from "node:timers/promises"
import { within } from "./Eventually.ts"
import type { Server } from "./Server.ts"

/**
 * Whether tests assert how long something takes. `npm run test:pace` sets LONG, on a machine that does nothing else.
 * The default tests only wait until it happens, because a busy machine may take any time.
 */
export const MEASURES = process.env["LONG"] !== undefined

/** The milliseconds of the real clock for `npm run test:pace`. Elsewhere it is 0, so that nothing can depend on it. */
export const measured = (): number => MEASURES ? performance.now() : 0

const TICK_MS = 20

/**
 * Measures milliseconds without the load of the machine. It reads the clock every 20 ms; if this process did not get
 * the processor for longer than that, at most 40 ms of the gap count.
 */
export class Stopwatch {
  #ms = 0
  #last = performance.now()
  readonly #timer = setInterval(() => this.#look(), TICK_MS)

  #look(): void {
    const now = performance.now()
    this.#ms += Math.min(now - this.#last, 2 * TICK_MS)
    this.#last = now
  }

  /** Stops the stopwatch. `npm run test:pace` asserts that it has run for at most `limitMs`. */
  endsWithin(limitMs: number): void {
    clearInterval(this.#timer)
    this.#look()
    if (MEASURES) assert.isAtMost(this.#ms, limitMs, "milliseconds")
  }
}

/**
 * Awaits a promise. `npm run test:pace` asserts that it resolves within `limitMs`, without the load of the machine:
 * meanwhile it requests the health of each of these servers again and again, and each round counts as 50 ms at most,
 * however long it took, because a load that keeps the servers from doing what is awaited also keeps them from
 * answering.
 */
export const promptly = async <A>(
  what: string,
  servers: ReadonlyArray<Server>,
  awaited: Promise<A>,
  limitMs: number
): Promise<A> => {
  if (!MEASURES) return within(what, awaited)
  const state = { over: false }
  const end = awaited.finally(() => state.over = true)
  end.catch(() => undefined)
  for (let counted = 0; !state.over;) {
    if (counted > limitMs)
      throw new Error(`waited in vain for ${what}, for more than ${limitMs} ms of a machine without load`)
    const began = performance.now()
    const answers = servers.map(async ({ url }) => (await fetch(`${url}/v1/health`)).arrayBuffer())
    await Promise.all([...answers, pause(25)])
    counted += Math.min(performance.now() - began, 50)
  }
  return end
}

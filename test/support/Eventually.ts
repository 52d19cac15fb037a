import { setTimeout as pause } from "node:timers/promises"

/** A time-out that is long enough for any busy machine. It takes time only if the awaited event does not happen. */
export const PATIENCE_MS = 60_000

const [AT_FIRST_MS, LATER_MS, LATER] = [5, 25, 40] as const

/**
 * Polls until `ask` returns a value, every few milliseconds and later less often. Fails after `timeoutMs`. For work of another process
 * that sends no notification.
 */
export const eventually = async <A>(
  what: string,
  ask: () => Promise<A | undefined> | A | undefined,
  timeoutMs = PATIENCE_MS
): Promise<A> => {
  const deadline = Date.now() + timeoutMs
  for (let asked = 0;; asked++) {
    const answer = await ask()
    if (answer !== undefined) return answer
    if (Date.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`)
    await pause(asked < LATER ? AT_FIRST_MS : LATER_MS)
  }
}

/** The promise's value; after `timeoutMs`, an error that names what was awaited. */
export const within = async <A>(what: string, promise: Promise<A>, timeoutMs = PATIENCE_MS): Promise<A> => {
  const stop = new AbortController()
  try {
    return await Promise.race([
      promise,
      pause(timeoutMs, undefined, { signal: stop.signal }).then(() => {
        throw new Error(`waited ${timeoutMs} ms in vain for ${what}`)
      })
    ])
  } finally {
    stop.abort()
  }
}

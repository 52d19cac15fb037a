import { setTimeout as pause } from "node:timers/promises"

/** Long enough for any machine, however busy: it costs time only where something never comes. */
export const PATIENCE_MS = 60_000

const [AT_FIRST_MS, LATER_MS, LATER] = [5, 25, 40] as const

/** Asks until there is an answer, every few milliseconds, more seldom after a while; fails after `timeoutMs`. For what another process does and does not announce. */
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

/** The promise's value, or a failure that says what it was waiting for. */
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

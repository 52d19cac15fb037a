import { setTimeout as pause } from "node:timers/promises"
import { PATIENCE_MS } from "./Eventually.ts"

/** A `fetch` that calls again while a server on a busy machine answers 503, because such a request had no effect. */
export const patient: typeof fetch = async (input, init) => {
  for (const deadline = Date.now() + PATIENCE_MS;;) {
    const response = await fetch(input, init)
    if (response.status !== 503 || Date.now() > deadline) return response
    await response.body?.cancel()
    await pause(500)
  }
}

import { elapse } from "./Eventually.ts"

/** Half a second apart. */
const TRIES = 120

/** A `fetch` that calls again while a server on a busy machine answers 503 `UNAVAILABLE`, as most clients do. */
export const patient: typeof fetch = async (input, init) => {
  for (let tries = 1;; tries++) {
    const response = await fetch(input, init)
    if (response.status !== 503 || tries === TRIES || !(await response.clone().text()).includes('"UNAVAILABLE"'))
      return response
    await response.body?.cancel()
    await elapse("the time for which a server that stalled refuses requests", 500)
  }
}

/** Failures in a row, and failures within a window, after which a webhook is left alone for a while (wire.md C.12). */
const IN_A_ROW = 5
const WITHIN = 10
const WINDOW_MS = 60_000
export const PAUSE_MS = 300_000

/** Retries after the first attempt; what fails once more is dead. */
export const RETRY_MS = [10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000] as const

/** Dead deliveries in a row after which a webhook is given up. */
export const DEAD_IN_A_ROW = 50

/** When to try again after so many attempts; undefined: never. */
export const retryAfter = (attempts: number): number | undefined => RETRY_MS[attempts - 1]

/** What a webhook's circuit knows. Only the pause is stored: a restart begins to count anew. */
export interface Circuit {
  readonly inARow: number
  /** Times of the failures of the last minute, oldest first. */
  readonly recent: ReadonlyArray<number>
  readonly pausedUntil: number | null
}

export const closed: Circuit = { inARow: 0, recent: [], pausedUntil: null }

/** `Pause`: try nothing, which costs no attempt. `Probe`: one delivery, and its outcome decides. */
export const stateAt = (circuit: Circuit, now: number): "Closed" | "Pause" | "Probe" =>
  circuit.pausedUntil === null ? "Closed" : circuit.pausedUntil > now ? "Pause" : "Probe"

/** A success ends a pause that has run out; one that was under way when the pause began does not. */
export const afterSuccess = (circuit: Circuit, now: number): Circuit => ({
  ...circuit,
  inARow: 0,
  pausedUntil: stateAt(circuit, now) === "Pause" ? circuit.pausedUntil : null
})

export const afterFailure = (circuit: Circuit, now: number): Circuit => {
  const inARow = circuit.inARow + 1
  const recent = [...circuit.recent.filter((at) => at > now - WINDOW_MS), now]
  const opens = circuit.pausedUntil !== null || inARow >= IN_A_ROW || recent.length >= WITHIN
  return opens ? { inARow: 0, recent: [], pausedUntil: now + PAUSE_MS } : { inARow, recent, pausedUntil: null }
}

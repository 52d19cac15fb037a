/** When a webhook is left alone for a while (wire.md C.12). */
export interface CircuitRules {
  readonly inARow: number
  readonly perMinute: number
  readonly pauseMs: number
}

const MINUTE_MS = 60_000

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

export const afterFailure = (rules: CircuitRules, circuit: Circuit, now: number): Circuit => {
  const inARow = circuit.inARow + 1
  const recent = [...circuit.recent.filter((at) => at > now - MINUTE_MS), now]
  const opens = circuit.pausedUntil !== null || inARow >= rules.inARow || recent.length >= rules.perMinute
  return opens ? { inARow: 0, recent: [], pausedUntil: now + rules.pauseMs } : { inARow, recent, pausedUntil: null }
}

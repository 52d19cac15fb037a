import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"

/** How many failures open the circuit of a webhook, and how long the pause lasts (wire.md C.12). */
export interface CircuitRules {
  readonly inARow: number
  readonly perMinute: number
  readonly pauseMs: number
}

const MINUTE_MS = 60_000

/**
 * The state of a webhook's circuit breaker. Only the end of the pause is stored, so a restart resets the counts to
 * zero.
 */
export interface Circuit {
  readonly inARow: number
  /** The times of the failures in the last minute, in milliseconds, oldest first. */
  readonly recent: ReadonlyArray<number>
  readonly pausedUntil: number | null
}

export const closed: Circuit = { inARow: 0, recent: [], pausedUntil: null }

/**
 * `Pause`: nothing is posted, and no attempt is counted. `Probe`: one delivery is posted, and its outcome closes or
 * reopens the circuit. A pause that would last longer than `pauseMs` from now began before the clock was set back, and
 * counts as over.
 */
export const stateAt = (
  { pauseMs }: CircuitRules,
  { pausedUntil }: Circuit,
  now: number
): "Closed" | "Pause" | "Probe" =>
  pausedUntil === null ? "Closed" : pausedUntil > now && pausedUntil <= now + pauseMs + SET_BACK_MS ? "Pause" : "Probe"

/**
 * A successful probe closes the circuit. A post that was already under way when the pause began does not end the pause
 * if it succeeds.
 */
export const afterSuccess = (rules: CircuitRules, circuit: Circuit, now: number): Circuit => ({
  ...circuit,
  inARow: 0,
  pausedUntil: stateAt(rules, circuit, now) === "Pause" ? circuit.pausedUntil : null
})

/** A failed probe reopens the circuit. Too many failures in a row or within a minute open a closed circuit. */
export const afterFailure = (rules: CircuitRules, circuit: Circuit, now: number): Circuit => {
  const inARow = circuit.inARow + 1
  const recent = [...circuit.recent.filter((at) => at > now - MINUTE_MS && at <= now + SET_BACK_MS), now]
  const opens = circuit.pausedUntil !== null || inARow >= rules.inARow || recent.length >= rules.perMinute
  return opens ? { inARow: 0, recent: [], pausedUntil: now + rules.pauseMs } : { inARow, recent, pausedUntil: null }
}

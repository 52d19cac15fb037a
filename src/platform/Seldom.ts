import { Effect } from "effect"

const INTERVAL_MS = 1_000

/**
 * Lets one log line a second through, however many are written: for failures that every request meets
 * while something is down. A line that follows suppressed ones says how many in `suppressed`.
 */
export class Seldom {
  private last: number | undefined
  private suppressed = 0

  log(line: Effect.Effect<void>): Effect.Effect<void> {
    return Effect.clockWith((clock) => {
      const now = Number(clock.monotonicTimeNanosUnsafe()) / 1e6
      // Another clock, as another test has it, may be behind.
      if (this.last !== undefined && now >= this.last && now - this.last < INTERVAL_MS) {
        this.suppressed++
        return Effect.void
      }
      const { suppressed } = this
      this.last = now
      this.suppressed = 0
      return suppressed === 0 ? line : Effect.annotateLogs(line, { suppressed })
    })
  }
}

import { Effect } from "effect"

const INTERVAL_MS = 1_000

/**
 * Writes at most one log line per second and drops the others. It is for failures that every request meets while a
 * service is down. The next line that is written carries the number of dropped lines in `suppressed`.
 */
export class Seldom {
  private last: number | undefined
  private suppressed = 0

  log(line: Effect.Effect<void>): Effect.Effect<void> {
    return Effect.clockWith((clock) => {
      const now = Number(clock.monotonicTimeNanosUnsafe()) / 1e6
      // Tests may use another clock, which may be behind `last`.
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

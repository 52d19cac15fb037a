import { Effect } from "effect"
import { monotonicMillis } from "./MonotonicClock.ts"

export const MINUTE_MS = 60_000

/** Keys whose last line is remembered; those that were written longest ago are forgotten first. */
const MAX_KEYS = 1_000

/**
 * Writes at most one log line for each key and interval and drops the others: for failures that repeat while something
 * is down. The next line of the same key carries the number of dropped lines in `suppressed`.
 */
export class LogThrottle {
  private readonly everyMs: number
  /** What was written last for each key, the oldest first. */
  private readonly written = new Map<string, { readonly at: number; suppressed: number }>()

  constructor(everyMs = 1_000) {
    this.everyMs = everyMs
  }

  log(line: Effect.Effect<void>, key = ""): Effect.Effect<void> {
    return Effect.clockWith((clock) => {
      const now = monotonicMillis(clock)()
      const last = this.written.get(key)
      // Tests may use another clock, which may be behind the last line.
      if (last !== undefined && now >= last.at && now - last.at < this.everyMs) {
        last.suppressed++
        return Effect.void
      }
      this.written.delete(key)
      this.written.set(key, { at: now, suppressed: 0 })
      for (const oldest of this.written.keys()) {
        if (this.written.size <= MAX_KEYS) break
        this.written.delete(oldest)
      }
      return last === undefined || last.suppressed === 0
        ? line
        : Effect.annotateLogs(line, { suppressed: last.suppressed })
    })
  }
}

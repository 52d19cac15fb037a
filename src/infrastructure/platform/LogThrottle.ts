import { Effect } from "effect"
import { monotonicMillis } from "./MonotonicClock.ts"

export const MINUTE_MS = 60_000

/** How many keys are remembered. Above this number, the key whose line is oldest is forgotten first. */
const MAX_KEYS = 1_000

/**
 * Writes at most one log line for each key and interval, and drops the others. It is for failures that repeat during an
 * outage. The next line of the same key reports the number of dropped lines in `suppressed`.
 */
export class LogThrottle {
  private readonly everyMs: number
  /** The last written line of each key: its time, and how many lines were dropped since then. The oldest is first. */
  private readonly written = new Map<string, { readonly at: number; suppressed: number }>()

  constructor(everyMs = 1_000) {
    this.everyMs = everyMs
  }

  log(line: Effect.Effect<void>, key = ""): Effect.Effect<void> {
    return Effect.clockWith((clock) => {
      const now = monotonicMillis(clock)()
      const last = this.written.get(key)
      // Tests may use another clock, which can be behind the time of the last line.
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

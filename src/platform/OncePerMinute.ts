const INTERVAL_MS = 60_000
const MAX_REMEMBERED = 1_000

/** Allows at most one log line per key and minute, for failures that repeat, such as those of one node for one reason. */
export class OncePerMinute {
  private readonly now: () => number
  /** When each key was last allowed, oldest first. */
  private readonly last = new Map<string, number>()

  /** `now`: monotonic milliseconds. */
  constructor(now: () => number) {
    this.now = now
  }

  /** Whether a line may be logged; if so, this counts as logging it. */
  allows(key: string): boolean {
    const now = this.now()
    const last = this.last.get(key)
    if (last !== undefined && now - last < INTERVAL_MS) return false
    this.last.delete(key)
    this.last.set(key, now)
    for (const oldest of this.last.keys()) {
      if (this.last.size <= MAX_REMEMBERED) break
      this.last.delete(oldest)
    }
    return true
  }
}

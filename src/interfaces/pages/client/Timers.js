/** Timers that can be stopped together. */
export class Timers {
  constructor() {
    /** @type {Set<ReturnType<typeof setTimeout>>} */
    this.running = new Set()
    this.isEnded = false
  }

  /**
   * Calls `run` after `ms` milliseconds, unless the timers have ended by then. Returns the timer.
   * @param {number} ms
   * @param {() => void} run
   */
  later(ms, run) {
    const timer = setTimeout(() => {
      this.running.delete(timer)
      if (!this.isEnded) run()
    }, ms)
    this.running.add(timer)
    return timer
  }

  /** @param {ReturnType<typeof setTimeout> | undefined} timer */
  stop(timer) {
    if (timer === undefined) return
    clearTimeout(timer)
    this.running.delete(timer)
  }

  end() {
    this.isEnded = true
    for (const timer of this.running) clearTimeout(timer)
    this.running.clear()
  }
}

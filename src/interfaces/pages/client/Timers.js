/** Timers that can be stopped together. */
export class Timers {
  constructor() {
    /** @type {Set<ReturnType<typeof setTimeout>>} */
    this.running = new Set()
  }

  /** Calls `run` after `ms` milliseconds, and returns the timer. @param {number} ms @param {() => void} run */
  later(ms, run) {
    const timer = setTimeout(() => {
      this.running.delete(timer)
      run()
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
    for (const timer of this.running) clearTimeout(timer)
    this.running.clear()
  }
}

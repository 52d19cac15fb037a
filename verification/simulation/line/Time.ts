import { Clock, Duration, Effect } from "effect"

/** Waits for one turn of the event loop. */
const turn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve))
/**
 * The number of turns after each instant, in which the fibers, writes of lines and frames of sockets run that the
 * instant caused.
 */
const TURNS = 6
const BEGAN = 1_700_000_000_000

interface Due {
  readonly at: number
  readonly run: () => void
}

/**
 * A clock that a simulation advances. Nothing in a simulation waits for real time or real input, so the order of its
 * immediates, and with it the whole run, is the same each time.
 */
export class Time implements Clock.Clock {
  now = 0
  /** Ordered by time. What is due at the same time runs in the order in which it was added. */
  private readonly due: Array<Due> = []

  /** Runs something `ms` from now. */
  after(ms: number, run: () => void): () => void {
    const one: Due = { at: this.now + ms, run }
    let at = this.due.length
    while (at > 0 && this.due[at - 1]!.at > one.at) at--
    this.due.splice(at, 0, one)
    return () => {
      const found = this.due.indexOf(one)
      if (found >= 0) this.due.splice(found, 1)
    }
  }

  /** Advances the clock from one instant at which something is due to the next one. */
  async pass(ms: number): Promise<void> {
    const until = this.now + ms
    await this.settle()
    while (this.due.length > 0 && this.due[0]!.at <= until) {
      this.now = this.due[0]!.at
      while (this.due.length > 0 && this.due[0]!.at <= this.now) this.due.shift()!.run()
      await this.settle()
    }
    this.now = until
  }

  private async settle(): Promise<void> {
    for (let i = 0; i < TURNS; i++) await turn()
  }

  currentTimeMillisUnsafe(): number {
    return BEGAN + Math.floor(this.now)
  }
  currentTimeNanosUnsafe(): bigint {
    return BigInt(this.currentTimeMillisUnsafe()) * 1_000_000n
  }
  monotonicTimeNanosUnsafe(): bigint {
    return BigInt(Math.round(this.now * 1e6))
  }
  readonly currentTimeMillis = Effect.sync(() => this.currentTimeMillisUnsafe())
  readonly currentTimeNanos = Effect.sync(() => this.currentTimeNanosUnsafe())
  readonly monotonicTimeNanos = Effect.sync(() => this.monotonicTimeNanosUnsafe())

  sleep(duration: Duration.Duration): Effect.Effect<void> {
    return Effect.callback((resume) => {
      const cancel = this.after(Duration.toMillis(duration), () => resume(Effect.void))
      return Effect.sync(cancel)
    })
  }
}

import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { setTimeout as pause } from "node:timers/promises"

/** A time-out that is long enough for any busy machine. It takes time only if the awaited event does not happen. */
export const LONGEST_WAIT_MS = 180_000

const [AT_FIRST_MS, LATER_MS, LATER] = [5, 25, 40] as const

/**
 * Polls until `ask` returns a value, every few milliseconds and later less often. Fails after `timeoutMs`. For work of
 * another process that sends no notification.
 */
export const eventually = async <A>(
  what: string,
  ask: () => Promise<A | undefined> | A | undefined,
  timeoutMs = LONGEST_WAIT_MS
): Promise<A> => {
  const deadline = Date.now() + timeoutMs
  for (let asked = 0;; asked++) {
    const answer = await ask()
    if (answer !== undefined) return answer
    if (Date.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`)
    await pause(asked < LATER ? AT_FIRST_MS : LATER_MS)
  }
}

/** The same for an effect, whose clock is the test's. `what` is asked for when it has failed. */
export const eventuallyEffect = Effect.fnUntraced(
  function*<A, E, R>(what: () => string, ask: Effect.Effect<A | undefined, E, R>) {
    const deadline = Date.now() + LONGEST_WAIT_MS
    for (;;) {
      const answer = yield* ask
      if (answer !== undefined) return answer
      if (Date.now() > deadline)
        return yield* Effect.die(
          new Error(`waited ${LONGEST_WAIT_MS} ms in vain for ${what()}`)
        )
      yield* Effect.promise(breath)
    }
  }
)

/** The promise's value; after `timeoutMs`, an error that names what was awaited. */
export const within = async <A>(what: string, promise: Promise<A>, timeoutMs = LONGEST_WAIT_MS): Promise<A> => {
  const stop = new AbortController()
  try {
    return await Promise.race([
      promise,
      pause(timeoutMs, undefined, { signal: stop.signal }).then(() => {
        throw new Error(`waited ${timeoutMs} ms in vain for ${what}`)
      })
    ])
  } finally {
    stop.abort()
  }
}

/**
 * Lets time pass in which `what` could happen, which must not happen. On a slow machine the check that follows is
 * weaker, but does not fail.
 */
export const chanceFor = async (_what: string, ms = 50): Promise<void> => {
  await pause(ms)
}

/**
 * Waits until a period that another process counts is over, for example the second for which a server caches a key. On
 * a slow machine it takes longer, which changes nothing.
 */
export const elapse = async (_what: string, ms: number): Promise<void> => {
  await pause(ms)
}

/**
 * Lets other work of this process go on, between two steps of a loop that moves a test clock or waits for a condition.
 */
export const breath = async (): Promise<void> => {
  await pause(2)
}

/**
 * Runs an effect while the test's clock goes on, but no faster than this process: however long it stands still, only
 * two milliseconds pass.
 */
export const whileTimePasses = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.raceFirst(effect, Effect.forever(Effect.andThen(TestClock.adjust(2), Effect.promise(breath))))

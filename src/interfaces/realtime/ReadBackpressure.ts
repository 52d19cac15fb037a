import type { RateRule } from "#infrastructure/rates/RateRule"
import { WindowLog } from "#infrastructure/rates/SlidingWindows"
import { Effect } from "effect"

/**
 * Look-ups of a socket that may be under way at once. While more of them wait, the server does not read from the
 * socket.
 */
const MAX_LOOKUPS = 4

/**
 * Look-ups that all sockets of an agent on this node may begin in 100 ms. PGlite answers within the call, so
 * `MAX_LOOKUPS` alone bounds nothing.
 */
const LOOKUPS_IN_100_MS = 10
const RULE: RateRule = { name: "look-ups", limit: LOOKUPS_IN_100_MS, windowMs: 100, window: "100 ms" }

/** A socket whose reading can be paused. */
export interface Reading {
  /** The number of reasons why it is paused. */
  holds: number
  readonly socket: { readonly pause: () => void; readonly resume: () => void }
}

/**
 * Pauses reading until `letGo` has been called as often as `hold`. Frames that were read together with the last one
 * still arrive.
 */
export const hold = (reading: Reading): void => {
  if (++reading.holds === 1) reading.socket.pause()
}

export const letGo = (reading: Reading): void => {
  if (--reading.holds === 0) reading.socket.resume()
}

/** A socket whose frames cause queries. */
export interface Asking extends Reading {
  /** Look-ups under way. */
  lookups: number
  /** Look-ups that wait, for frames that were read before the pause. */
  waiting: Array<Effect.Effect<void>> | undefined
}

/** The agent that the sockets belong to. */
export interface Asker {
  /** The times at which the latest look-ups for frames of its sockets began; `undefined` until there is one. */
  lookups: WindowLog | undefined
}

export interface LookupDependencies {
  /** Monotonic milliseconds. */
  readonly now: () => number
  readonly fork: (effect: Effect.Effect<void>) => void
}

/**
 * Runs the queries of frames that no limit counts or that may be slow: a few at once, and a hundred a second. The
 * others wait in order. While some wait, the server does not read from the socket. So a flood of frames delays only its
 * sender, and nothing is dropped.
 */
export const withBackpressure = (
  asking: Asking,
  asker: Asker,
  effect: Effect.Effect<void>,
  deps: LookupDependencies
): void => {
  if (asking.waiting === undefined) {
    if (asking.lookups < MAX_LOOKUPS && placeIn(asker, deps.now()) === 0) return run(asking, asker, effect, deps)
    asking.waiting = []
    hold(asking)
  }
  asking.waiting.push(effect)
  // Otherwise the look-up begins when one that is under way ends.
  if (asking.lookups === 0) runNext(asking, asker, deps)
}

/** Takes a place for one more look-up of the agent, or returns the milliseconds until there is a place. */
const placeIn = (asker: Asker, time: number): number => {
  const begun = asker.lookups ??= new WindowLog()
  const wait = begun.wait(RULE, time)
  if (wait === 0) begun.add(RULE, time)
  return wait
}

const place = (asker: Asker, now: () => number): Effect.Effect<void> =>
  Effect.suspend(() => {
    const wait = placeIn(asker, now())
    return wait === 0 ? Effect.void : Effect.andThen(Effect.sleep(wait), place(asker, now))
  })

const run = (asking: Asking, asker: Asker, effect: Effect.Effect<void>, deps: LookupDependencies): void => {
  asking.lookups++
  deps.fork(Effect.ensuring(
    effect,
    Effect.sync(() => {
      asking.lookups--
      if (asking.waiting !== undefined) runNext(asking, asker, deps)
    })
  ))
}

/**
 * Runs the look-up that has waited longest as soon as there is a place. Reading goes on when the last one that waits
 * begins.
 */
const runNext = (asking: Asking, asker: Asker, deps: LookupDependencies): void =>
  run(
    asking,
    asker,
    Effect.andThen(
      place(asker, deps.now),
      Effect.suspend(() => {
        const next = asking.waiting?.shift()
        if (asking.waiting?.length === 0) {
          asking.waiting = undefined
          letGo(asking)
        }
        return next ?? Effect.void
      })
    ),
    deps
  )

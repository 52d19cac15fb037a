import type { RateRule } from "#infrastructure/rates/RateRule"
import { WindowLog } from "#infrastructure/rates/SlidingWindows"
import { Effect } from "effect"

/**
 * How many look-ups of a socket may run at once. While further look-ups wait, the server does not read from the socket.
 */
const MAX_LOOKUPS = 4

/**
 * How many look-ups all sockets of an agent on this node may begin in 100 ms. With PGlite, a look-up ends within the
 * call that begins it, so `MAX_LOOKUPS` alone bounds nothing.
 */
const LOOKUPS_IN_100_MS = 10
const RULE: RateRule = { name: "look-ups", limit: LOOKUPS_IN_100_MS, windowMs: 100, window: "100 ms" }

/** A socket whose reading can be paused. */
export interface Reading {
  /** How many calls of `hold` have not been followed by `letGo`. Reading is paused while there are any. */
  holds: number
  readonly socket: { readonly pause: () => void; readonly resume: () => void }
}

/**
 * Pauses reading until `letGo` has been called as often as `hold`. Frames that have been read from the network already
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
  /** How many look-ups are running. */
  lookups: number
  /** The waiting look-ups, for frames that were read before the pause. */
  waiting: Array<Effect.Effect<void>> | undefined
}

/** The agent that the sockets belong to. */
export interface Asker {
  /** When the latest look-ups for frames of the agent's sockets began; undefined before the first look-up. */
  lookups: WindowLog | undefined
}

export interface LookupDependencies {
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number
  readonly fork: (effect: Effect.Effect<void>) => void
}

/**
 * Runs the queries of frames that no limit counts or that may be slow. At most `MAX_LOOKUPS` queries of one socket run
 * at once, and the sockets of one agent start at most a hundred per second. Further queries wait in order. While
 * queries wait, the server does not read from the socket. So a flood of frames delays only its sender, and nothing is
 * dropped.
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
  // If other look-ups are running, this look-up begins when one of them ends.
  if (asking.lookups === 0) runNext(asking, asker, deps)
}

/**
 * Counts one more look-up of the agent and returns 0. If the limit is reached, returns the milliseconds until it allows
 * the look-up.
 */
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
 * Runs the look-up that has waited longest as soon as the limit allows. Resumes reading when the last waiting look-up
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

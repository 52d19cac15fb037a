import { Effect } from "effect"

/** Look-ups of a socket that are under way at once. While others wait for these, the socket is not read from. */
const MAX_LOOKUPS = 4

/** How much later than its predecessor's end one begins that had to wait: a flood asks for 100 a second at most. */
const APART_MS = 40

/** A socket whose reading can be paused. */
export interface Reading {
  /** The number of reasons why it is paused. */
  holds: number
  readonly socket: { readonly pause: () => void; readonly resume: () => void }
}

/**
 * Pauses reading until `letGo` has been called as often; frames that were read together with the last one
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
  /** Look-ups that wait: those of the frames that were read together with the last one. */
  waiting: Array<Effect.Effect<void>> | undefined
}

/**
 * Runs the queries that a frame causes, which no limit counts or which may be slow: a few at once, the others in order. The
 * socket is not read from while some wait, so a flood of frames delays only its sender; nothing is dropped.
 */
export const withBackpressure = (asking: Asking, effect: Effect.Effect<void>, fork: (effect: Effect.Effect<void>) => void): void => {
  if (asking.waiting === undefined && asking.lookups < MAX_LOOKUPS) return run(asking, effect, fork)
  if (asking.waiting === undefined) {
    asking.waiting = []
    hold(asking)
  }
  asking.waiting.push(effect)
}

const run = (asking: Asking, effect: Effect.Effect<void>, fork: (effect: Effect.Effect<void>) => void): void => {
  asking.lookups++
  fork(Effect.ensuring(
    effect,
    Effect.sync(() => {
      asking.lookups--
      const next = asking.waiting?.shift()
      if (next === undefined) return
      run(asking, Effect.andThen(Effect.sleep(APART_MS), next), fork)
      if (asking.waiting?.length !== 0) return
      asking.waiting = undefined
      letGo(asking)
    })
  ))
}

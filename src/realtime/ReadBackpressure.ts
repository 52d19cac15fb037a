import { Effect } from "effect"

/** Look-ups of a socket that are under way at once. While others wait for these, the socket is not read from. */
const MAX_LOOKUPS = 4

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
  advancing: boolean
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
      if (asking.waiting !== undefined && !asking.advancing) advance(asking, asking.waiting, fork)
    })
  ))
}

/** Runs what waits, as far as it may. A look-up that ends at once does not come back here: many of them would exhaust the stack. */
const advance = (asking: Asking, waiting: Array<Effect.Effect<void>>, fork: (effect: Effect.Effect<void>) => void): void => {
  asking.advancing = true
  while (waiting.length > 0 && asking.lookups < MAX_LOOKUPS) run(asking, waiting.shift()!, fork)
  asking.advancing = false
  if (waiting.length > 0) return
  asking.waiting = undefined
  letGo(asking)
}

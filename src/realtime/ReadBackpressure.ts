import { Effect } from "effect"

/** The number of look-ups under way at which a socket is not read from until one has ended. */
const MAX_LOOKUPS = 8

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
}

/**
 * Runs the queries that a frame causes, which no limit counts or which may be slow. The socket is not
 * read from while many are under way, so a flood of frames delays only its sender; nothing is dropped.
 */
export const withBackpressure = (asking: Asking, effect: Effect.Effect<void>, fork: (effect: Effect.Effect<void>) => void): void => {
  if (++asking.lookups === MAX_LOOKUPS) hold(asking)
  fork(Effect.ensuring(
    effect,
    Effect.sync(() => {
      if (asking.lookups-- === MAX_LOOKUPS) letGo(asking)
    })
  ))
}

import { Effect } from "effect"

/** Look-ups under way at which nothing more is read from a socket until one has ended. */
const MAX_LOOKUPS = 8

/** A socket that may have to wait before more is read from it. */
export interface Reading {
  /** For how many reasons it waits. */
  holds: number
  readonly socket: { readonly pause: () => void; readonly resume: () => void }
}

/** Reads nothing more until `letGo` has been called as often; what was read with the last frame still comes. */
export const hold = (reading: Reading): void => {
  if (++reading.holds === 1) reading.socket.pause()
}

export const letGo = (reading: Reading): void => {
  if (--reading.holds === 0) reading.socket.resume()
}

/** A socket whose frames have storage asked. */
export interface Asking extends Reading {
  /** What is under way. */
  lookups: number
}

/**
 * Runs what a frame asks of storage, which no limit counts or which may be slow to answer. Their
 * sender waits once there are many, so a flood of them is the sender's own delay; nothing is dropped.
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

import { Effect } from "effect"

/** Look-ups under way at which nothing more is read from a socket until one has ended. */
const MAX_LOOKUPS = 8

/** A socket whose frames have storage asked. */
export interface Asking {
  /** What is under way. */
  lookups: number
  readonly socket: { readonly pause: () => void; readonly resume: () => void }
}

/**
 * Runs what a frame asks of storage, which no limit counts or which may be slow to answer. Their
 * sender waits once there are many, so a flood of them is the sender's own delay; nothing is dropped.
 */
export const lookUp = (asking: Asking, effect: Effect.Effect<void>, fork: (effect: Effect.Effect<void>) => void): void => {
  if (++asking.lookups === MAX_LOOKUPS) asking.socket.pause()
  fork(Effect.ensuring(
    effect,
    Effect.sync(() => {
      if (asking.lookups-- === MAX_LOOKUPS) asking.socket.resume()
    })
  ))
}

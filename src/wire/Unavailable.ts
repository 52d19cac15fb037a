import { Cause, Effect } from "effect"
import { Unavailable } from "./WireError.ts"

/** A database that cannot be asked is, for a caller, a service that cannot answer right now (wire.md C.0). */
export const unavailable = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, Unavailable, R> =>
  Effect.catchCause(effect, (cause) =>
    Cause.hasInterruptsOnly(cause)
      ? Effect.interrupt
      : Effect.andThen(Effect.logWarning("The database did not answer", cause), Effect.fail(new Unavailable())))

import { Cause, Effect } from "effect"
import { InternalError } from "../wire/WireError.ts"

/**
 * For work on behalf of another node: a defect is logged here, with its stack and request id, and passed on as
 * `InternalError`. On the caller's node that becomes a 500 without a second log line.
 */
export const logDefect = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.catchCause(effect, (cause) =>
    !Cause.hasDies(cause) || cause.reasons.some(Cause.isFailReason)
      ? Effect.failCause(cause)
      : Effect.andThen(Effect.logError("A call from another node failed", cause), Effect.die(new InternalError())))

/** Whether a defect was logged by another node already, recognised after it was serialised between nodes. */
export const isLoggedDefect = (defect: unknown): boolean => defect instanceof Error && defect.name === "InternalError"

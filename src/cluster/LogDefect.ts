import { Cause, Effect } from "effect"
import { InternalError } from "../wire/WireError.ts"

/**
 * For what is done for a caller on another node: a defect is logged here, with its stack and the id of the request that
 * the fiber works for, and goes on as `InternalError`, which becomes 500 and no second line where the request ends.
 */
export const logDefect = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.catchCause(effect, (cause) =>
    !Cause.hasDies(cause) || cause.reasons.some(Cause.isFailReason)
      ? Effect.failCause(cause)
      : Effect.andThen(Effect.logError("A call from another node failed", cause), Effect.die(new InternalError())))

/** Whether a defect is one that another node has logged, as it is after its way between nodes. */
export const isLoggedDefect = (defect: unknown): boolean => defect instanceof Error && defect.name === "InternalError"

import { Cause, Context, Effect, Metric } from "effect"
import { ClusterError } from "effect/cluster"
import { RpcClient } from "effect/rpc"
import { isLoggedDefect } from "./LogDefect.ts"
import { REQUEST_ID, requestIdOf } from "../platform/RequestId.ts"
import { InternalError, Unavailable } from "../wire/WireError.ts"

/** How long a caller is held while what it calls moves to another node (wire.md C.0). */
const HELD = "5 seconds"

export type Undelivered =
  | ClusterError.MailboxFull
  | ClusterError.AlreadyProcessingMessage
  | ClusterError.PersistenceError
  | ClusterError.EntityNotAssignedToRunner

export const isUndelivered = (error: unknown): error is Undelivered =>
  error instanceof ClusterError.MailboxFull || error instanceof ClusterError.AlreadyProcessingMessage ||
  error instanceof ClusterError.PersistenceError || error instanceof ClusterError.EntityNotAssignedToRunner

const calls = Metric.counter("remote_calls_total", {
  description: "Calls to actors of other nodes",
  incremental: true
})

/**
 * A call to an entity of another node. The cluster tries it again until somebody owns
 * the shard; the caller waits for that only so long. What ends without an answer may
 * have been done: the caller is told to try again, and what it repeats has an id.
 * The call carries the id of the request that it is made for: `forRequest` takes it up there.
 */
export const withRemoteDeadline = <A, E, R>(
  call: Effect.Effect<A, E | Undelivered, R>
): Effect.Effect<A, Exclude<E, Undelivered> | Unavailable, R> =>
  Effect.withFiber<A, E | Undelivered, R>((fiber) => {
    calls.updateUnsafe(1, Context.empty())
    const requestId = requestIdOf(fiber)
    return requestId === undefined ? call : RpcClient.withHeaders(call, { [REQUEST_ID]: requestId })
  }).pipe(
    Effect.timeoutOrElse({ duration: HELD, orElse: () => Effect.fail(new Unavailable()) }),
    Effect.catchCause((cause) => {
      const failure = cause.reasons.find(Cause.isFailReason)?.error
      // An entity that is interrupted because its shard moves ends its callers' calls so.
      if (cause.reasons.length > 0 && Cause.hasInterruptsOnly(cause)) return Effect.fail(new Unavailable())
      if (failure === undefined) {
        return cause.reasons.some((reason) => Cause.isDieReason(reason) && isLoggedDefect(reason.defect))
          ? Effect.die(new InternalError())
          : Effect.failCause(cause as Cause.Cause<never>)
      }
      return Effect.fail(isUndelivered(failure) ? new Unavailable() : failure as Exclude<E, Undelivered>)
    })
  )

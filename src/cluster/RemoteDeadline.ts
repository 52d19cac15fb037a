import { Cause, Effect } from "effect"
import { ClusterError } from "effect/cluster"
import { RpcClient } from "effect/rpc"
import { isLoggedDefect } from "./LogDefect.ts"
import { remoteCalls } from "../platform/Metrics.ts"
import { REQUEST_ID, requestIdOf } from "../platform/RequestId.ts"
import { TRACEPARENT, traceOf } from "../platform/Tracing.ts"
import { HELD_MS, InternalError, Unavailable } from "../wire/WireError.ts"

export type Undelivered =
  | ClusterError.MailboxFull
  | ClusterError.AlreadyProcessingMessage
  | ClusterError.PersistenceError
  | ClusterError.EntityNotAssignedToRunner

export const isUndelivered = (error: unknown): error is Undelivered =>
  error instanceof ClusterError.MailboxFull || error instanceof ClusterError.AlreadyProcessingMessage ||
  error instanceof ClusterError.PersistenceError || error instanceof ClusterError.EntityNotAssignedToRunner

/**
 * Puts a deadline on a call to an entity of another node. The cluster retries the call until a node owns the shard;
 * the caller waits for 5 seconds at most. A call that ends without an answer may have been executed: the caller gets
 * Unavailable and may repeat it, because commands carry ids. The call carries the request id, which `forRequest`
 * restores on the other node.
 */
export const withRemoteDeadline = <A, E, R>(
  call: Effect.Effect<A, E | Undelivered, R>
): Effect.Effect<A, Exclude<E, Undelivered> | Unavailable, R> =>
  Effect.withFiber<A, E | Undelivered, R>((fiber) => {
    remoteCalls.add()
    const requestId = requestIdOf(fiber)
    const trace = traceOf(fiber)
    if (requestId === undefined && trace === undefined) return call
    return RpcClient.withHeaders(call, {
      ...(requestId === undefined ? {} : { [REQUEST_ID]: requestId }),
      ...(trace === undefined ? {} : { [TRACEPARENT]: trace })
    })
  }).pipe(
    Effect.timeoutOrElse({ duration: HELD_MS, orElse: () => Effect.fail(new Unavailable()) }),
    Effect.catchCause((cause) => {
      const failure = cause.reasons.find(Cause.isFailReason)?.error
      // When a shard moves, its entities are interrupted, and so are the calls to them.
      if (cause.reasons.length > 0 && Cause.hasInterruptsOnly(cause)) return Effect.fail(new Unavailable())
      if (failure === undefined) {
        return cause.reasons.some((reason) => Cause.isDieReason(reason) && isLoggedDefect(reason.defect))
          ? Effect.die(new InternalError())
          : Effect.failCause(cause as Cause.Cause<never>)
      }
      return Effect.fail(isUndelivered(failure) ? new Unavailable() : failure as Exclude<E, Undelivered>)
    })
  )

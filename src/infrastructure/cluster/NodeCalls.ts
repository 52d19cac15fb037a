import { remoteOpen } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { forRequest, requestIdOf } from "#infrastructure/platform/RequestId"
import { forTrace, isTracing, traceOf, withTrace } from "#infrastructure/platform/Tracing"
import { CALLER_TIMEOUT_MS, InternalError } from "#infrastructure/wire/WireError"
import { Cause, Clock, Context, Effect, Exit, Layer, Schedule, type Scope } from "effect"
import type { PeerConnection } from "./PeerConnection.ts"
import { PeerConnections } from "./PeerConnections.ts"

/** The response of the node that was called. */
export interface Answer {
  readonly ending:
    | "done"
    | "refused"
    /** The node does not serve the target. Nothing was executed. */
    | "absent"
    /** Too many calls are in progress. Nothing was executed. */
    | "busy"
    /**
     * The call failed with a defect, which the called node has logged. If the value is null, the call was interrupted
     * instead.
     */
    | "broken"
  readonly value: unknown
}

/**
 * Why there is no response: there is no connection (`unsent`), the connection broke (`lost`), or the call timed out
 * (`late`). An unsent call was not executed. A lost or late call may have been executed, or may still be executed.
 */
export type Unanswered = "unsent" | "lost" | "late"

/** Executes calls from other nodes to one procedure. Returns undefined if this node does not serve the target. */
export type Handler = (target: string, payload: unknown) => Effect.Effect<Answer> | undefined

const ABSENT: Answer = { ending: "absent", value: null }
const BUSY: Answer = { ending: "busy", value: null }

/**
 * How many calls to one node may be open, which means without a response. MAX_OPEN also bounds how many calls of that
 * node are executed here at once.
 */
const MAX_OPEN = 20_000
/** How many characters the open calls to one node may have together. */
const MAX_OPEN_CHARS = 64_000_000
const TIMEOUT_CHECK_INTERVAL = "250 millis"

interface Open {
  readonly chars: number
  readonly until: number
  readonly settle: (answer: Answer | Unanswered) => void
}

/**
 * The calls on one peer connection: calls of this node that have no response yet, and calls of the other node that are
 * executed here.
 */
class Calls {
  readonly open = new Map<number, Open>()
  chars = 0
  last = 0
  executing = 0

  close(callNo: number): Open | undefined {
    const call = this.open.get(callNo)
    if (call === undefined) return undefined
    this.open.delete(callNo)
    this.chars -= call.chars
    return call
  }
}

/**
 * Wraps work on behalf of another node. A defect is logged on this node, with its stack and request id, and passed on
 * as `InternalError`. On the caller's node the error becomes a 500 without a second log line.
 */
const logDefect = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.catchCause(effect, (cause) =>
    !Cause.hasDies(cause) || cause.reasons.some(Cause.isFailReason)
      ? Effect.failCause(cause)
      : Effect.andThen(Effect.logError("A call from another node failed", cause), Effect.die(new InternalError())))

const answerOf = (cause: Cause.Cause<unknown>): Answer => ({
  ending: "broken",
  value: Cause.hasInterruptsOnly(cause) ? null : new InternalError().code
})

/**
 * Calls to other nodes, and the responses to them, over the peer connections. A call is sent once. The caller decides
 * whether to repeat the call.
 */
export class NodeCalls extends Context.Service<NodeCalls, {
  /** Executes calls from other nodes while the scope is open. */
  readonly serve: (procedure: string, handler: Handler) => Effect.Effect<void, never, Scope.Scope>
  /**
   * Calls a procedure on a node. Waits for the response until `until`, in monotonic milliseconds, or for 5 seconds if
   * `until` is omitted.
   */
  readonly call: (
    node: string,
    procedure: string,
    target: string,
    payload: unknown,
    until?: number
  ) => Effect.Effect<Answer | Unanswered>
}>()("parley/cluster/NodeCalls") {
  static readonly layer = Layer.effect(
    NodeCalls,
    Effect.gen(function*() {
      const lines = yield* PeerConnections
      const now = monotonicMillis(yield* Clock.Clock)
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const served = new Map<string, Handler>()
      const callsOf = new Map<PeerConnection, Calls>()

      lines.watch({
        began: (line) => callsOf.set(line, new Calls()),
        ended: (line) => {
          const calls = callsOf.get(line)
          callsOf.delete(line)
          for (const callNo of calls?.open.keys() ?? []) calls?.close(callNo)?.settle("lost")
        }
      })

      lines.handle("answer", (line, [, callNo, ending, value]) => {
        callsOf.get(line)?.close(callNo as number)?.settle({ ending: ending as Answer["ending"], value })
      })

      lines.handle("call", (line, [, callNo, procedure, target, payload, requestId, trace]) => {
        const calls = callsOf.get(line)
        if (calls === undefined) return
        const answer = ({ ending, value }: Answer): void => line.send(JSON.stringify(["answer", callNo, ending, value]))
        if (calls.executing >= MAX_OPEN) return answer(BUSY)
        const performed = served.get(procedure as string)?.(target as string, payload)
        if (performed === undefined) return answer(ABSENT)
        calls.executing++
        const traced = typeof trace === "string" && isTracing()
          ? forTrace(trace, withTrace(procedure as string, "server", performed))
          : performed
        fork(forRequest(requestId as string | null, logDefect(traced))).addObserver((exit) => {
          calls.executing--
          answer(Exit.isSuccess(exit) ? exit.value : answerOf(exit.cause))
        })
      })

      yield* Effect.sync(() => {
        const time = now()
        for (const calls of callsOf.values()) {
          for (const [callNo, { until }] of calls.open) if (until <= time) calls.close(callNo)?.settle("late")
        }
      }).pipe(Effect.repeat(Schedule.spaced(TIMEOUT_CHECK_INTERVAL)), Effect.forkScoped)
      yield* remoteOpen.readsIn(() => callsOf.values().reduce((sum, { open }) => sum + open.size, 0))

      return NodeCalls.of({
        serve: (procedure, handler) =>
          Effect.acquireRelease(
            Effect.sync(() => void served.set(procedure, handler)),
            () => Effect.sync(() => served.delete(procedure))
          ),
        call: (node, procedure, target, payload, until) =>
          Effect.withFiber<Answer | Unanswered>((fiber) =>
            Effect.callback((resume) => {
              const line = lines.to(node)
              const calls = line === undefined ? undefined : callsOf.get(line)
              if (line === undefined || calls === undefined) return resume(Effect.succeed("unsent"))
              if (calls.open.size >= MAX_OPEN || calls.chars >= MAX_OPEN_CHARS) return resume(Effect.succeed(BUSY))
              const callNo = ++calls.last
              const trace = traceOf(fiber)
              const text = JSON.stringify([
                "call",
                callNo,
                procedure,
                target,
                payload,
                requestIdOf(fiber) ?? null,
                ...trace === undefined ? [] : [trace]
              ])
              calls.open.set(callNo, {
                chars: text.length,
                until: until ?? now() + CALLER_TIMEOUT_MS,
                settle: (answer) => resume(Effect.succeed(answer))
              })
              calls.chars += text.length
              line.send(text)
              return Effect.sync(() => void calls.close(callNo))
            })
          )
      })
    })
  )
}

import { Cause, Clock, Context, Data, Effect, Exit, type Fiber, Latch, Layer, Queue, Schema, type Scope, Stream } from "effect"
import { EntityId, type RunnerAddress, Runners, type ShardId, Sharding } from "effect/cluster"
import { Rpc, RpcClient, RpcGroup } from "effect/rpc"
import { Ids } from "../platform/Ids.ts"
import { nameOf } from "./NodeAddress.ts"
import { StallGuard } from "../platform/StallGuard.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { BREAKS, remoteBatches, remoteBreaks, remoteOpen, remoteSeconds } from "../platform/Metrics.ts"
import { OncePerMinute } from "../platform/OncePerMinute.ts"
import { isUndelivered, withRemoteDeadline, type Undelivered } from "./RemoteDeadline.ts"
import { forRequest, requestIdOf } from "../platform/RequestId.ts"
import { forTrace, isTracing, traceOf, withTrace } from "../platform/Tracing.ts"
import { Attempts, ShardOwners } from "./ShardOwners.ts"
import { logDefect } from "./LogDefect.ts"
import { InternalError, Unavailable } from "../wire/WireError.ts"

/** The receiver does not know the session: none of these calls was executed. */
export class CallsUnheard extends Schema.TaggedError<CallsUnheard>()("CallsUnheard", {}) {}

/** Opens a session, and streams the answers to its calls as they become available. */
const Answers = Rpc.make("Answers", { payload: { session: Schema.String }, success: Schema.String, stream: true })

/** Sends a batch of calls to actors; returns when they have been received, before they are executed. */
const Carry = Rpc.make("Carry", { payload: { session: Schema.String, calls: Schema.String, traces: Schema.optionalKey(Schema.String) }, error: CallsUnheard })

/** The Rpcs that carry calls between nodes. Names that have landed never change. */
export const CallRpcs = RpcGroup.make(Answers, Carry)

/**
 * A procedure of an entity, for callers on every node. It may be executed twice for one call, so its payload carries
 * an id.
 */
export interface Procedure<Payload extends Schema.Top, Success extends Schema.Top, Failure extends Schema.Top> {
  readonly entity: { readonly type: string; readonly getShardGroup: (entityId: EntityId.EntityId) => string }
  readonly rpc: {
    readonly _tag: string
    readonly payloadSchema: Payload
    readonly successSchema: Success
    readonly errorSchema: Failure
  }
  readonly here: (entityId: string, payload: Payload["Type"]) => Effect.Effect<Success["Type"], Failure["Type"]>
  /** The call through effect's cluster, which waits while no node owns the actor. */
  readonly elsewhere: (
    entityId: string,
    payload: Payload["Type"]
  ) => Effect.Effect<Success["Type"], Failure["Type"] | Undelivered>
}

export type Client<Payload, A, E> = (entityId: string, payload: Payload) => Effect.Effect<A, E | Unavailable>

/** The result of a call at the presumed owner of the actor. */
type Ending =
  | "done"
  | "refused"
  /** The node does not own the actor: nothing was done. */
  | "absent"
  /** There are too many calls already: nothing was done. */
  | "busy"
  | "broken"

/** A batch of calls, each as: number, procedure, entity id, request id or null, payload. */
const CallsOnWay = Schema.fromJsonString(Schema.Array(
  Schema.Tuple([Schema.Int, Schema.String, Schema.String, Schema.NullOr(Schema.String), Schema.Unknown])
))
/** The trace contexts of some of the calls, by their numbers. A node that does not know them leaves them out. */
const TracesOnWay = Schema.fromJsonString(Schema.Array(Schema.Tuple([Schema.Int, Schema.String])))
const decodeTraces = Schema.decodeUnknownEffect(TracesOnWay)
const decodeCalls = Schema.decodeUnknownEffect(CallsOnWay)
const AnswerOnWay = Schema.fromJsonString(
  Schema.Tuple([Schema.Int, Schema.Literals(["done", "refused", "absent", "busy", "broken"]), Schema.Unknown])
)
const decodeAnswer = Schema.decodeUnknownSync(AnswerOnWay)

interface Answer {
  readonly ending: Ending
  readonly value: unknown
}

/** Called with the answer, or with undefined if it is not known whether the call was executed. */
type Settle = (answer: Answer | undefined) => void

/** The most calls and characters that may be unanswered by one node; a call beyond that is refused. */
const MAX_OPEN = 20_000
const MAX_OPEN_CHARS = 64_000_000
/** The most calls and characters in one batch. A batch may have 16 MiB, and a character takes up to six bytes. */
const MAX_AT_ONCE = 1_000
const MAX_CHARS = 2_000_000
/** If a node has not acknowledged a batch within this time, the line to it is given up. */
const HEARD_SECONDS = 3

/** An answer from another node cannot be decoded. */
class AnswerNotUnderstood extends Data.TaggedError("AnswerNotUnderstood")<{ readonly cause: unknown }> {
  override get message(): string {
    return this.cause instanceof Error ? this.cause.message : String(this.cause)
  }
}

/** Why a line (the calls to one node) broke off. */
type Break = typeof BREAKS[number]

const WORDS: Record<Break, string> = {
  answer: "an answer of it is not understood: do both nodes run the same version of Parley?",
  session: "it does not know this node's session any more",
  failure: "it failed on the calls: do both nodes run the same version of Parley?",
  silence: `it has not taken a call for ${HEARD_SECONDS} s`,
  connection: "the connection broke off"
}

const breakOf = ({ reasons }: Cause.Cause<unknown>): Break => {
  const failure = reasons.find(Cause.isFailReason)?.error
  if (failure instanceof AnswerNotUnderstood) return "answer"
  if (failure instanceof CallsUnheard) return "session"
  if (Cause.isTimeoutError(failure)) return "silence"
  // A defect of the other node's handlers also arrives as a defect.
  return reasons.some(Cause.isDieReason) ? "failure" : "connection"
}

/**
 * Calls to actors: direct if this node owns the actor, otherwise sent to the owner. Calls to one node are batched
 * while the previous batch is being acknowledged, answers are batched on their way back, and each call gets its own
 * answer. A call that is not answered, because the node is gone or does not own the actor, is repeated through effect's
 * cluster within the same deadline (RemoteDeadline.ts).
 */
export class RemoteCalls extends Context.Service<RemoteCalls, {
  /** A client for a procedure. While the scope is open, other nodes can call the procedure here. Used by `Procedures`. */
  readonly client: <Payload extends Schema.Top, Success extends Schema.Top, Failure extends Schema.Top>(
    procedure: Procedure<Payload, Success, Failure>
  ) => Effect.Effect<Client<Payload["Type"], Success["Type"], Failure["Type"]>, never, Scope.Scope>
  /** Handle the two Rpcs of other nodes: `Answers` and `Carry`. */
  readonly opened: (session: string) => Effect.Effect<Queue.Dequeue<string>, never, Scope.Scope>
  readonly heard: (session: string, calls: string, traces?: string) => Effect.Effect<void, CallsUnheard>
}>()("parley/cluster/RemoteCalls") {
  /** For a standalone server: a shard that is not here yet will be, so calls never go to another node. */
  static readonly layerAlone = Layer.effect(RemoteCalls, Effect.suspend(() => make(() => undefined)))

  static readonly layer = Layer.effect(
    RemoteCalls,
    Effect.gen(function*() {
      const protocol = yield* Runners.RpcClientProtocol
      const ids = yield* Ids
      const owners = yield* ShardOwners
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const logged = new OncePerMinute(monotonicMillis(yield* Clock.Clock))
      const lines = new Map<string, CallLine>()

      /**
       * Counts and logs a broken line, unless this node gave it up itself because the other node is gone or this one
       * stops.
       */
      const tell = (node: string, line: CallLine, exit: Exit.Exit<void, unknown>): void => {
        if (line.isGivenUp) return
        const cause = Exit.isFailure(exit) ? exit.cause : Cause.empty
        const reason = breakOf(cause)
        remoteBreaks.at(reason).add()
        if (!logged.allows(`${node} ${reason}`)) return
        const text = `Calls to node ${node} broke off, ${line.size} of them unanswered: ${WORDS[reason]}`
        // The death of a node is logged once, by `Peers`.
        fork(reason === "connection" ? Effect.logDebug(text) : Effect.logWarning(text, cause))
      }

      const speak = (line: CallLine, address: RunnerAddress.RunnerAddress): Effect.Effect<void, unknown> =>
        Effect.gen(function*() {
          const client = yield* Effect.provideService(
            RpcClient.make(CallRpcs, { disableTracing: true }),
            RpcClient.Protocol,
            yield* protocol.make(address)
          )
          const session = ids.bytes(12).toString("hex")
          const listening = Stream.runForEachArray(client.Answers({ session }), (answers) =>
            Effect.try({
              try: () => {
                for (const answer of answers) line.answered(answer)
              },
              catch: (cause) => new AnswerNotUnderstood({ cause })
            }))
          const carrying = Effect.gen(function*() {
            while (true) {
              yield* line.work.await
              // Lets other calls of the same turn of the event loop join the batch.
              yield* Effect.yieldNow
              const { size, ...batch } = line.take()
              if (size === 0) continue
              remoteBatches.observe(size)
              yield* Effect.timeout(client.Carry({ session, ...batch }), `${HEARD_SECONDS} seconds`)
            }
          })
          yield* Effect.raceFirst(listening, carrying)
        }).pipe(Effect.scoped)

      const lineTo = (address: RunnerAddress.RunnerAddress): CallLine => {
        const node = nameOf(address)
        const known = lines.get(node)
        if (known !== undefined) return known
        const line = new CallLine()
        lines.set(node, line)
        line.fiber = fork(speak(line, address))
        line.fiber.addObserver((exit) => {
          if (lines.get(node) === line) lines.delete(node)
          tell(node, line, exit)
          owners.lost(address)
          line.end()
        })
        return line
      }
      owners.onGone((address) => lines.get(nameOf(address))?.giveUp())
      const ends = remoteOpen.reads(() => lines.values().reduce((sum, { size }) => sum + size, 0))
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          ends()
          for (const line of lines.values()) line.giveUp()
        })
      )

      return yield* make((shard) => {
        const owner = owners.of(shard)
        return owner === undefined ? undefined : {
          line: lineTo(owner),
          absent: () => owners.wrong(shard, owner)
        }
      })
    })
  )

  /** The handlers of calls from other nodes. */
  static readonly layerHandlers = CallRpcs.toLayer(Effect.map(RemoteCalls, (calls) => ({
    Answers: ({ session }) => calls.opened(session),
    Carry: (carried) => calls.heard(carried.session, carried.calls, carried.traces)
  })))
}

interface Session {
  readonly answers: Queue.Queue<string>
  open: number
}

/** A procedure as other nodes call it: payload and answer are encoded. */
interface Served {
  readonly isHere: (entityId: string) => boolean
  readonly perform: (entityId: string, payload: unknown) => Effect.Effect<Answer>
}

/**
 * The answer to a call that did not complete. Value null: it was interrupted, because its entity or node stops;
 * otherwise it died of a defect, which this node has logged.
 */
const broken = (cause: Cause.Cause<unknown>): Answer => ({
  ending: "broken",
  value: Cause.hasInterruptsOnly(cause) ? null : INTERNAL
})

const INTERNAL = new InternalError().code

interface Destination {
  readonly line: CallLine
  readonly absent: () => void
}

const make = Effect.fnUntraced(function*(destinationOf: (shard: ShardId.ShardId) => Destination | undefined) {
  const sharding = yield* Sharding.Sharding
  const stallGuard = yield* StallGuard
  const fork = Effect.runForkWith(yield* Effect.context<never>())
  const served = new Map<string, Served>()
  const sessions = new Map<string, Session>()

  const client: RemoteCalls["Service"]["client"] = Effect.fnUntraced(function*({ elsewhere, entity, here, rpc }) {
    type Success = typeof rpc.successSchema.Type
    type Failure = typeof rpc.errorSchema.Type
    const name = `${entity.type}/${rpc._tag}`
    const payloads = codecOf(rpc.payloadSchema)
    const successes = codecOf(rpc.successSchema)
    const failures = codecOf(rpc.errorSchema)
    const seconds = remoteSeconds.at(name)
    const shardOf = (entityId: string): ShardId.ShardId => {
      const id = EntityId.make(entityId)
      return sharding.getShardId(id, entity.getShardGroup(id))
    }

    yield* Effect.addFinalizer(() => Effect.sync(() => served.delete(name)))
    served.set(name, {
      isHere: (entityId) => sharding.hasShardId(shardOf(entityId)),
      perform: (entityId, payload) =>
        Effect.suspend(() => here(entityId, payloads.decode(payload))).pipe(
          Effect.map((value): Answer => ({ ending: "done", value: successes.encode(value) })),
          Effect.catch((failure) => Effect.sync((): Answer => ({ ending: "refused", value: failures.encode(failure) }))),
          logDefect,
          Effect.catchCause((cause) => Effect.succeed(broken(cause)))
        )
    })

    const carried = (destination: Destination, entityId: string, payload: unknown) =>
      Effect.withFiber<Answer | undefined, Unavailable>((fiber) =>
        Effect.callback((resume) => {
          const requestId = requestIdOf(fiber) ?? null
          const { line } = destination
          const began = performance.now()
          const callNo = line.call(
            (callNo) => JSON.stringify([callNo, name, entityId, requestId, payloads.encode(payload)]),
            (answer) => {
              if (answer !== undefined) seconds.millis(performance.now() - began)
              resume(Effect.succeed(answer))
            },
            traceOf(fiber)
          )
          if (callNo === undefined) return resume(Effect.fail(new Unavailable()))
          return Effect.sync(() => line.forget(callNo))
        })
      )

    /**
     * The cluster's way. `mayBeDone`: an earlier attempt may have been carried out, or may still be (the cluster itself may
     * make several). Then a refusal proves nothing, even if storage was asked first: Unavailable.
     */
    const byCluster = (entityId: string, payload: typeof rpc.payloadSchema.Type, mayBeDone: boolean) =>
      Effect.suspend(() => {
        const attempts = { mayBeDone }
        return Effect.mapError(Effect.provideService(elsewhere(entityId, payload), Attempts, attempts), (failure) =>
          attempts.mayBeDone && !isUndelivered(failure) ? new Unavailable() : failure)
      })

    return (entityId: string, payload: typeof rpc.payloadSchema.Type) =>
      Effect.suspend((): Effect.Effect<Success, Failure | Unavailable> => {
        const shard = shardOf(entityId)
        if (sharding.hasShardId(shard)) return here(entityId, payload)
        const destination = destinationOf(shard)
        if (destination === undefined) return withRemoteDeadline(byCluster(entityId, payload, false))
        return withRemoteDeadline(Effect.flatMap(
          withTrace(`call ${name}`, "client", carried(destination, entityId, payload)),
          (answer): Effect.Effect<Success, Failure | Undelivered | Unavailable> => {
            switch (answer?.ending) {
              case "done":
                return Effect.succeed(successes.decode(answer.value))
              case "refused":
                return Effect.fail(failures.decode(answer.value))
              case "busy":
                return Effect.fail(new Unavailable())
              case "broken":
                return answer.value === null ? Effect.fail(new Unavailable()) : Effect.die(new InternalError())
              case "absent":
                destination.absent()
                return byCluster(entityId, payload, false)
              case undefined:
                return byCluster(entityId, payload, true)
            }
          }
        ))
      })
  })

  const heard = Effect.fnUntraced(function*(from: string, calls: string, traces?: string) {
    const session = sessions.get(from)
    if (session === undefined) return yield* new CallsUnheard()
    const traced = traces === undefined || !isTracing() ? undefined : new Map(yield* Effect.orDie(decodeTraces(traces)))
    const answer = (callNo: number, { ending, value }: Answer): void => {
      Queue.offerUnsafe(session.answers, JSON.stringify([callNo, ending, value]))
    }
    for (const [callNo, name, entityId, requestId, payload] of yield* Effect.orDie(decodeCalls(calls))) {
      const procedure = served.get(name)
      if (procedure?.isHere(entityId) !== true || stallGuard.stalledLately("nodes")) {
        answer(callNo, { ending: "absent", value: null })
      } else if (session.open >= MAX_OPEN) {
        answer(callNo, { ending: "busy", value: null })
      } else {
        session.open++
        const performed = procedure.perform(entityId, payload)
        const trace = traced?.get(callNo)
        fork(forRequest(requestId, trace === undefined ? performed : forTrace(trace, withTrace(name, "server", performed)))).addObserver((exit) => {
          session.open--
          answer(callNo, Exit.isSuccess(exit) ? exit.value : broken(exit.cause))
        })
      }
    }
  })

  return RemoteCalls.of({
    client,
    opened: (session) =>
      Effect.acquireRelease(
        Effect.tap(Queue.unbounded<string>(), (answers) => Effect.sync(() => sessions.set(session, { answers, open: 0 }))),
        () => Effect.sync(() => sessions.delete(session))
      ),
    heard
  })
})

interface Open {
  readonly chars: number
  readonly settle: Settle
}

/** The line to one other node: the calls to it that are not answered yet. */
class CallLine {
  fiber: Fiber.Fiber<void, unknown> | undefined
  readonly work = Latch.makeUnsafe(false)
  private readonly open = new Map<number, Open>()
  private waiting: Array<readonly [callNo: number, text: string, trace: string | undefined]> = []
  private chars = 0
  private last = 0
  private ended = false
  /** This node has closed the line itself. */
  isGivenUp = false

  /** The number of unanswered calls. */
  get size(): number {
    return this.open.size
  }

  giveUp(): void {
    this.isGivenUp = true
    this.fiber?.interruptUnsafe()
  }

  /** Queues a call and returns its number; undefined: too many calls are unanswered. */
  call(textOf: (callNo: number) => string, settle: Settle, trace?: string): number | undefined {
    // The line ended after the caller had looked it up.
    if (this.ended) {
      settle(undefined)
      return 0
    }
    if (this.open.size >= MAX_OPEN || this.chars >= MAX_OPEN_CHARS) return undefined
    const callNo = ++this.last
    const text = textOf(callNo)
    this.chars += text.length
    this.open.set(callNo, { chars: text.length, settle })
    this.waiting.push([callNo, text, trace])
    this.work.openUnsafe()
    return callNo
  }

  /** Removes a call, because it is answered or its caller has stopped waiting. */
  forget(callNo: number): Open | undefined {
    const call = this.open.get(callNo)
    if (call === undefined) return undefined
    this.open.delete(callNo)
    this.chars -= call.chars
    return call
  }

  /** The next batch and the number of calls in it. */
  take(): { readonly calls: string; readonly traces?: string; readonly size: number } {
    const texts: Array<string> = []
    const traces: Array<readonly [number, string]> = []
    let chars = 0
    let taken = 0
    for (; taken < this.waiting.length && texts.length < MAX_AT_ONCE && chars < MAX_CHARS; taken++) {
      const [callNo, text, trace] = this.waiting[taken]!
      if (!this.open.has(callNo)) continue
      texts.push(text)
      if (trace !== undefined) traces.push([callNo, trace])
      chars += text.length
    }
    this.waiting = this.waiting.slice(taken)
    if (this.waiting.length === 0) this.work.closeUnsafe()
    return { calls: `[${texts.join(",")}]`, size: texts.length, ...(traces.length === 0 ? {} : { traces: JSON.stringify(traces) }) }
  }

  answered(text: string): void {
    const [callNo, ending, value] = decodeAnswer(text)
    this.forget(callNo)?.settle({ ending, value })
  }

  end(): void {
    this.ended = true
    for (const callNo of this.open.keys()) this.forget(callNo)?.settle(undefined)
  }
}

/** The JSON codec of a procedure's schema. These schemas need no services and are synchronous. */
const codecOf = <S extends Schema.Top>(schema: S) => {
  const codec = Schema.toCodecJson(schema) as unknown as Schema.Codec<S["Type"], unknown>
  return { encode: Schema.encodeUnknownSync(codec), decode: Schema.decodeUnknownSync(codec) }
}

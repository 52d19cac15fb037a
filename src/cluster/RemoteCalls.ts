import { Cause, Clock, Context, Data, Effect, Exit, type Fiber, Latch, Layer, Metric, Queue, Schema, type Scope, Stream } from "effect"
import { EntityId, type RunnerAddress, Runners, type ShardId, Sharding } from "effect/cluster"
import { Rpc, RpcClient, RpcGroup } from "effect/rpc"
import { Ids } from "../platform/Ids.ts"
import { nameOf } from "./NodeAddress.ts"
import { StallGuard } from "../platform/StallGuard.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { isUndelivered, withRemoteDeadline, type Undelivered } from "./RemoteDeadline.ts"
import { forRequest, requestIdOf } from "../platform/RequestId.ts"
import { ShardOwners } from "./ShardOwners.ts"
import { logDefect } from "./LogDefect.ts"
import { InternalError, Unavailable } from "../wire/WireError.ts"

/** The session is not known: none of these calls was made. */
export class CallsUnheard extends Schema.TaggedError<CallsUnheard>()("CallsUnheard", {}) {}

/** Opens a session, and gives the answers to the calls that come in it as they are there. */
const Answers = Rpc.make("Answers", { payload: { session: Schema.String }, success: Schema.String, stream: true })

/** Calls to actors; answered when they are heard. */
const Carry = Rpc.make("Carry", { payload: { session: Schema.String, calls: Schema.String }, error: CallsUnheard })

/** How calls cross nodes. Landed names: never changed. */
export const CallRpcs = RpcGroup.make(Answers, Carry)

/**
 * Something that the actors of an entity do, for callers on every node. It may be
 * done twice for one call: what it is told has an id.
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
  /** The cluster's own way to it, which waits while nobody has the actor. */
  readonly elsewhere: (
    entityId: string,
    payload: Payload["Type"]
  ) => Effect.Effect<Success["Type"], Failure["Type"] | Undelivered>
  /**
   * Refusals that are given without a look at what an earlier attempt did: after one whose
   * answer is lost they say nothing, and the caller is told to try again.
   */
  readonly inconclusive?: (failure: Failure["Type"]) => boolean
}

export type Client<Payload, A, E> = (entityId: string, payload: Payload) => Effect.Effect<A, E | Unavailable>

/** How a call ended at the node where the actor is taken to be. */
type Ending =
  | "done"
  | "refused"
  /** The actor is not there: nothing was done. */
  | "absent"
  /** There are too many calls already: nothing was done. */
  | "busy"
  | "broken"

/** Its number, the procedure, the actor, the request that it is made for, and what it says. */
const CallsOnWay = Schema.fromJsonString(Schema.Array(
  Schema.Tuple([Schema.Int, Schema.String, Schema.String, Schema.NullOr(Schema.String), Schema.Unknown])
))
const decodeCalls = Schema.decodeUnknownEffect(CallsOnWay)
const AnswerOnWay = Schema.fromJsonString(
  Schema.Tuple([Schema.Int, Schema.Literals(["done", "refused", "absent", "busy", "broken"]), Schema.Unknown])
)
const decodeAnswer = Schema.decodeUnknownSync(AnswerOnWay)

interface Answer {
  readonly ending: Ending
  readonly value: unknown
}

/** Undefined: whether the call was made is not known, or it was not. */
type Settle = (answer: Answer | undefined) => void

/** What may be under way to a node: one more is refused. */
const MAX_OPEN = 20_000
const MAX_OPEN_CHARS = 64_000_000
/** What goes in one call, which may have 16 MiB: six times the characters at worst. */
const MAX_AT_ONCE = 1_000
const MAX_CHARS = 2_000_000
/** A node that has not even heard a call for so long is not waited for. */
const HEARD_SECONDS = 3

const batchSize = Metric.histogram("remote_call_batch_size", {
  description: "Calls to actors of another node that went together",
  boundaries: [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
})

/** An answer that came over a line is none that this version knows. */
class AnswerNotUnderstood extends Data.TaggedError("AnswerNotUnderstood")<{ readonly cause: unknown }> {
  override get message(): string {
    return this.cause instanceof Error ? this.cause.message : String(this.cause)
  }
}

/** Why a line broke off. */
type Break = "answer" | "session" | "failure" | "silence" | "connection"

const WORDS: Record<Break, string> = {
  answer: "an answer of it is not understood: do both nodes run the same version of Parley?",
  session: "it does not know this node's session any more",
  failure: "it failed on the calls: do both nodes run the same version of Parley?",
  silence: `it has not taken a call for ${HEARD_SECONDS} s`,
  connection: "the connection broke off"
}

const breaks = Object.fromEntries(
  (["answer", "session", "failure", "silence", "connection"] as const).map((reason) => [
    reason,
    Metric.counter("remote_call_lines_broken_total", {
      description: "Times that the calls to another node broke off",
      incremental: true,
      attributes: { reason }
    })
  ])
) as Record<Break, Metric.Counter<number>>

/** How often the same reason is logged of a node, and of how many it is remembered. */
const LOGGED_EVERY_MS = 60_000
const MAX_REMEMBERED = 1_000

const breakOf = ({ reasons }: Cause.Cause<unknown>): Break => {
  const failure = reasons.find(Cause.isFailReason)?.error
  if (failure instanceof AnswerNotUnderstood) return "answer"
  if (failure instanceof CallsUnheard) return "session"
  if (Cause.isTimeoutError(failure)) return "silence"
  // The other node is told of what its handlers died of as well.
  return reasons.some(Cause.isDieReason) ? "failure" : "connection"
}

/**
 * Calls to actors: made directly where the actor is on this node, else carried to its
 * node. What goes to one node gathers while the call before is being heard there,
 * answers gather on their way back, and each call is answered by itself. One that is
 * not answered, because its node is gone or has not got the actor, is made again as
 * the cluster makes it, within the same deadline (RemoteDeadline.ts).
 */
export class RemoteCalls extends Context.Service<RemoteCalls, {
  /** Calls this procedure of the actors, which other nodes can call as long as the scope is open. For `Procedures`. */
  readonly client: <Payload extends Schema.Top, Success extends Schema.Top, Failure extends Schema.Top>(
    procedure: Procedure<Payload, Success, Failure>
  ) => Effect.Effect<Client<Payload["Type"], Success["Type"], Failure["Type"]>, never, Scope.Scope>
  /** For the door of this node. */
  readonly opened: (session: string) => Effect.Effect<Queue.Dequeue<string>, never, Scope.Scope>
  readonly heard: (session: string, calls: string) => Effect.Effect<void, CallsUnheard>
}>()("parley/cluster/RemoteCalls") {
  /** A process that is the whole cluster: what is not here yet will be. */
  static readonly layerAlone = Layer.effect(RemoteCalls, Effect.suspend(() => make(() => undefined)))

  static readonly layer = Layer.effect(
    RemoteCalls,
    Effect.gen(function*() {
      const protocol = yield* Runners.RpcClientProtocol
      const ids = yield* Ids
      const owners = yield* ShardOwners
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const now = monotonicMillis(yield* Clock.Clock)
      const lines = new Map<string, CallLine>()
      /** When each reason was logged last, by node and reason. */
      const logged = new Map<string, number>()

      /** A line that this node gave up itself, because its node is gone or this one ends, is nobody's trouble. */
      const tell = (node: string, line: CallLine, exit: Exit.Exit<void, unknown>): void => {
        if (line.isGivenUp) return
        const cause = Exit.isFailure(exit) ? exit.cause : Cause.empty
        const reason = breakOf(cause)
        breaks[reason].updateUnsafe(1, Context.empty())
        const key = `${node} ${reason}`
        if (now() - (logged.get(key) ?? Number.NEGATIVE_INFINITY) < LOGGED_EVERY_MS) return
        if (logged.size >= MAX_REMEMBERED) logged.clear()
        logged.set(key, now())
        const text = `Calls to node ${node} broke off, ${line.size} of them unanswered: ${WORDS[reason]}`
        // That a node has died is one line, and said by whoever watches it.
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
              // What the same turn of the event loop has to say goes along.
              yield* Effect.yieldNow
              const { calls, size } = line.take()
              if (size === 0) continue
              yield* Metric.update(batchSize, size)
              yield* Effect.timeout(client.Carry({ session, calls }), `${HEARD_SECONDS} seconds`)
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
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
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

  /** What other nodes call. */
  static readonly layerHandlers = CallRpcs.toLayer(Effect.map(RemoteCalls, (calls) => ({
    Answers: ({ session }) => calls.opened(session),
    Carry: (carried) => calls.heard(carried.session, carried.calls)
  })))
}

interface Session {
  readonly answers: Queue.Queue<string>
  open: number
}

/** What a procedure does for a call of another node, which has no types any more. */
interface Served {
  readonly isHere: (entityId: string) => boolean
  readonly perform: (entityId: string, payload: unknown) => Effect.Effect<Answer>
}

/** Null: interrupted, as everything is that ends; anything else is a defect, which is in this node's log. */
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

  const client: RemoteCalls["Service"]["client"] = Effect.fnUntraced(function*({ elsewhere, entity, here, inconclusive, rpc }) {
    type Success = typeof rpc.successSchema.Type
    type Failure = typeof rpc.errorSchema.Type
    const name = `${entity.type}/${rpc._tag}`
    const payloads = codecOf(rpc.payloadSchema)
    const successes = codecOf(rpc.successSchema)
    const failures = codecOf(rpc.errorSchema)
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
          const no = line.call(
            (no) => JSON.stringify([no, name, entityId, requestId, payloads.encode(payload)]),
            (answer) => resume(Effect.succeed(answer))
          )
          if (no === undefined) return resume(Effect.fail(new Unavailable()))
          return Effect.sync(() => line.forget(no))
        })
      )

    return (entityId: string, payload: typeof rpc.payloadSchema.Type) =>
      Effect.suspend((): Effect.Effect<Success, Failure | Unavailable> => {
        const shard = shardOf(entityId)
        if (sharding.hasShardId(shard)) return here(entityId, payload)
        const destination = destinationOf(shard)
        if (destination === undefined) return withRemoteDeadline(elsewhere(entityId, payload))
        return withRemoteDeadline(Effect.flatMap(
          carried(destination, entityId, payload),
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
                return elsewhere(entityId, payload)
              case undefined:
                return Effect.mapError(elsewhere(entityId, payload), (failure) =>
                  !isUndelivered(failure) && inconclusive?.(failure) === true ? new Unavailable() : failure)
            }
          }
        ))
      })
  })

  const heard = Effect.fnUntraced(function*(from: string, calls: string) {
    const session = sessions.get(from)
    if (session === undefined) return yield* new CallsUnheard()
    const answer = (no: number, { ending, value }: Answer): void => {
      Queue.offerUnsafe(session.answers, JSON.stringify([no, ending, value]))
    }
    for (const [no, name, entityId, requestId, payload] of yield* Effect.orDie(decodeCalls(calls))) {
      const procedure = served.get(name)
      if (procedure?.isHere(entityId) !== true || stallGuard.stalledLately("nodes")) {
        answer(no, { ending: "absent", value: null })
      } else if (session.open >= MAX_OPEN) {
        answer(no, { ending: "busy", value: null })
      } else {
        session.open++
        fork(forRequest(requestId, procedure.perform(entityId, payload))).addObserver((exit) => {
          session.open--
          answer(no, Exit.isSuccess(exit) ? exit.value : broken(exit.cause))
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

/** The calls to one other node that are not answered yet. */
class CallLine {
  fiber: Fiber.Fiber<void, unknown> | undefined
  readonly work = Latch.makeUnsafe(false)
  private readonly open = new Map<number, Open>()
  private waiting: Array<readonly [no: number, text: string]> = []
  private chars = 0
  private last = 0
  private ended = false
  /** This node does not want it any more. */
  isGivenUp = false

  /** Calls that are not answered. */
  get size(): number {
    return this.open.size
  }

  giveUp(): void {
    this.isGivenUp = true
    this.fiber?.interruptUnsafe()
  }

  /** The number of the call; undefined: there are too many. */
  call(textOf: (no: number) => string, settle: Settle): number | undefined {
    // It was given up since the caller asked for it.
    if (this.ended) {
      settle(undefined)
      return 0
    }
    if (this.open.size >= MAX_OPEN || this.chars >= MAX_OPEN_CHARS) return undefined
    const no = ++this.last
    const text = textOf(no)
    this.chars += text.length
    this.open.set(no, { chars: text.length, settle })
    this.waiting.push([no, text])
    this.work.openUnsafe()
    return no
  }

  /** Nobody waits for its answer any more. */
  forget(no: number): Open | undefined {
    const call = this.open.get(no)
    if (call === undefined) return undefined
    this.open.delete(no)
    this.chars -= call.chars
    return call
  }

  /** What goes next, and how many calls that are. */
  take(): { readonly calls: string; readonly size: number } {
    const texts: Array<string> = []
    let chars = 0
    let taken = 0
    for (; taken < this.waiting.length && texts.length < MAX_AT_ONCE && chars < MAX_CHARS; taken++) {
      const [no, text] = this.waiting[taken]!
      if (!this.open.has(no)) continue
      texts.push(text)
      chars += text.length
    }
    this.waiting = this.waiting.slice(taken)
    if (this.waiting.length === 0) this.work.closeUnsafe()
    return { calls: `[${texts.join(",")}]`, size: texts.length }
  }

  answered(text: string): void {
    const [no, ending, value] = decodeAnswer(text)
    this.forget(no)?.settle({ ending, value })
  }

  end(): void {
    this.ended = true
    for (const no of this.open.keys()) this.forget(no)?.settle(undefined)
  }
}

/** A procedure's schemas are plain data: they need no services and do nothing asynchronous. */
const codecOf = <S extends Schema.Top>(schema: S) => {
  const codec = Schema.toCodecJson(schema) as unknown as Schema.Codec<S["Type"], unknown>
  return { encode: Schema.encodeUnknownSync(codec), decode: Schema.decodeUnknownSync(codec) }
}

import { Cause, Clock, Context, Duration, Effect, Exit, Layer, Schema, type Scope } from "effect"
import { EntityId, type RunnerAddress, type ShardId, Sharding } from "effect/cluster"
import { nameOf } from "./NodeAddress.ts"
import type { NodeLine } from "./NodeLine.ts"
import { NodeLines, SILENCE } from "./NodeLines.ts"
import { StallGuard } from "../platform/StallGuard.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { type BREAKS, remoteBatches, remoteBreaks, remoteOpen, remoteSeconds } from "../platform/Metrics.ts"
import { OncePerMinute } from "../platform/OncePerMinute.ts"
import { isUndelivered, withRemoteDeadline, type Undelivered } from "./RemoteDeadline.ts"
import { forRequest, requestIdOf } from "../platform/RequestId.ts"
import { forTrace, isTracing, traceOf, withTrace } from "../platform/Tracing.ts"
import { ShardOwners } from "./ShardOwners.ts"
import { logDefect } from "./LogDefect.ts"
import { InternalError, Unavailable } from "../wire/WireError.ts"

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
  /**
   * Whether a refusal was given without checking for an earlier attempt. After an attempt whose answer was lost such a
   * refusal proves nothing, so the caller gets Unavailable instead.
   */
  readonly inconclusive?: (failure: Failure["Type"]) => boolean
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

/** A batch of calls, each as: number, procedure, entity id, request id or null, trace context or null, payload. */
const CallsOnWay = Schema.fromJsonString(Schema.Array(
  Schema.Tuple([Schema.Int, Schema.String, Schema.String, Schema.NullOr(Schema.String), Schema.NullOr(Schema.String), Schema.Unknown])
))
const decodeCalls = Schema.decodeUnknownSync(CallsOnWay)
/** Answers, each as: number of the call, ending, value. */
const AnswersOnWay = Schema.fromJsonString(Schema.Array(
  Schema.Tuple([Schema.Int, Schema.Literals(["done", "refused", "absent", "busy", "broken"]), Schema.Unknown])
))
const decodeAnswers = Schema.decodeUnknownSync(AnswersOnWay)

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
/** Why a line (the calls to one node) broke off. */
type Break = typeof BREAKS[number]

const WORDS: Record<Break, string> = {
  answer: "an answer of it is not understood: do both nodes run the same version of Parley?",
  failure: "it failed on the calls: do both nodes run the same version of Parley?",
  silence: `it has not taken a call for ${Duration.toSeconds(SILENCE)} s`,
  connection: "the connection broke off"
}

/**
 * Calls to actors: direct if this node owns the actor, otherwise sent to the owner, over a line for each (NodeLine.ts).
 * The calls of one turn of the event loop to one node are a batch, so are the answers of one turn, and each call gets
 * its own answer. A call that is not answered, because the node is gone or does not own the actor, is repeated through effect's
 * cluster within the same deadline (RemoteDeadline.ts).
 */
export class RemoteCalls extends Context.Service<RemoteCalls, {
  /** A client for a procedure. While the scope is open, other nodes can call the procedure here. Used by `Procedures`. */
  readonly client: <Payload extends Schema.Top, Success extends Schema.Top, Failure extends Schema.Top>(
    procedure: Procedure<Payload, Success, Failure>
  ) => Effect.Effect<Client<Payload["Type"], Success["Type"], Failure["Type"]>, never, Scope.Scope>
}>()("parley/cluster/RemoteCalls") {
  /** For a standalone server: a shard that is not here yet will be, so calls never go to another node. */
  static readonly layerAlone = Layer.effect(RemoteCalls, Effect.map(Effect.suspend(() => make(() => undefined)), ({ client }) => RemoteCalls.of({ client })))

  static readonly layer = Layer.effect(
    RemoteCalls,
    Effect.gen(function*() {
      const nodeLines = yield* NodeLines
      const owners = yield* ShardOwners
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const logged = new OncePerMinute(monotonicMillis(yield* Clock.Clock))
      const lines = new Map<string, CallLine>()

      /** Counts and logs a broken line. */
      const tell = (node: string, line: CallLine, reason: Break, cause: unknown): void => {
        remoteBreaks.at(reason).add()
        if (!logged.allows(`${node} ${reason}`)) return
        const text = `Calls to node ${node} broke off, ${line.size} of them unanswered: ${WORDS[reason]}`
        // The death of a node is logged once, by `Peers`.
        fork(reason === "connection" ? Effect.logDebug(text) : Effect.logWarning(text, cause))
      }

      const lineTo = (address: RunnerAddress.RunnerAddress): CallLine => {
        const node = nameOf(address)
        const known = lines.get(node)
        if (known !== undefined) return known
        const line = new CallLine(nodeLines.open(address, {
          hear: (_, topic, text) => {
            if (topic !== "answers") throw new Error(`${topic} where answers are expected`)
            line.answered(text)
          },
          ended: (end, cause) => {
            if (lines.get(node) === line) lines.delete(node)
            // `closed`: this node gave it up itself because the other node is gone or this one stops.
            if (end !== "closed") tell(node, line, end, cause)
            owners.lost(address)
            line.end()
          }
        }))
        lines.set(node, line)
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

      const { client, heard } = yield* make((shard) => {
        const owner = owners.of(shard)
        return owner === undefined ? undefined : {
          line: lineTo(owner),
          absent: () => owners.wrong(shard, owner)
        }
      })
      nodeLines.hear("calls", heard)
      return RemoteCalls.of({ client })
    })
  )
}

/** The calls of one other node over one line. */
class Session {
  open = 0
  private readonly line: NodeLine
  private answers: Array<string> = []

  constructor(line: NodeLine) {
    this.line = line
  }

  answer(callNo: number, { ending, value }: Answer): void {
    if (this.answers.push(JSON.stringify([callNo, ending, value])) > 1) return
    // Answers of the same turn of the event loop join it.
    setImmediate(() => {
      const texts = this.answers
      this.answers = []
      this.line.tell("answers", `[${texts.join(",")}]`)
      this.line.flush()
    })
  }
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
  const sessions = new WeakMap<NodeLine, Session>()

  const client: RemoteCalls["Service"]["client"] = Effect.fnUntraced(function*({ elsewhere, entity, here, inconclusive, rpc }) {
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
            (callNo) => JSON.stringify([callNo, name, entityId, requestId, traceOf(fiber) ?? null, payloads.encode(payload)]),
            (answer) => {
              if (answer !== undefined) seconds.millis(performance.now() - began)
              resume(Effect.succeed(answer))
            }
          )
          if (callNo === undefined) return resume(Effect.fail(new Unavailable()))
          return Effect.sync(() => line.forget(callNo))
        })
      )

    return (entityId: string, payload: typeof rpc.payloadSchema.Type) =>
      Effect.suspend((): Effect.Effect<Success, Failure | Unavailable> => {
        const shard = shardOf(entityId)
        if (sharding.hasShardId(shard)) return here(entityId, payload)
        const destination = destinationOf(shard)
        if (destination === undefined) return withRemoteDeadline(elsewhere(entityId, payload))
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
                return elsewhere(entityId, payload)
              case undefined:
                return Effect.mapError(elsewhere(entityId, payload), (failure) =>
                  !isUndelivered(failure) && inconclusive?.(failure) === true ? new Unavailable() : failure)
            }
          }
        ))
      })
  })

  /** Takes a batch of calls; they are answered one by one, in whatever order they end. Throws if it is not understood. */
  const heard = (line: NodeLine, calls: string): void => {
    let session = sessions.get(line)
    if (session === undefined) sessions.set(line, session = new Session(line))
    for (const [callNo, name, entityId, requestId, trace, payload] of decodeCalls(calls)) {
      const procedure = served.get(name)
      if (procedure?.isHere(entityId) !== true || stallGuard.stalledLately("nodes")) {
        session.answer(callNo, { ending: "absent", value: null })
      } else if (session.open >= MAX_OPEN) {
        session.answer(callNo, { ending: "busy", value: null })
      } else {
        session.open++
        const performed = procedure.perform(entityId, payload)
        fork(forRequest(requestId, trace === null || !isTracing() ? performed : forTrace(trace, withTrace(name, "server", performed)))).addObserver((exit) => {
          session.open--
          session.answer(callNo, Exit.isSuccess(exit) ? exit.value : broken(exit.cause))
        })
      }
    }
  }

  return { client, heard }
})

interface Open {
  readonly chars: number
  readonly settle: Settle
}

/** The calls to one other node that are not answered yet. */
class CallLine {
  private readonly line: NodeLine
  private readonly open = new Map<number, Open>()
  private waiting: Array<readonly [callNo: number, text: string]> = []
  private chars = 0
  private last = 0
  private ended = false

  constructor(line: NodeLine) {
    this.line = line
  }

  /** The number of unanswered calls. */
  get size(): number {
    return this.open.size
  }

  giveUp(): void {
    this.line.end("closed")
  }

  /** Queues a call and returns its number; undefined: too many calls are unanswered. */
  call(textOf: (callNo: number) => string, settle: Settle): number | undefined {
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
    // Other calls of the same turn of the event loop join the batch.
    if (this.waiting.push([callNo, text]) === 1) setImmediate(() => this.carry())
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

  /** Sends the calls that wait. */
  private carry(): void {
    const waiting = this.waiting
    this.waiting = []
    let texts: Array<string> = []
    let chars = 0
    const send = (): void => {
      if (texts.length === 0) return
      remoteBatches.observe(texts.length)
      this.line.ask("calls", `[${texts.join(",")}]`, () => {})
      texts = []
      chars = 0
    }
    for (const [callNo, text] of waiting) {
      if (!this.open.has(callNo)) continue
      texts.push(text)
      chars += text.length
      if (texts.length >= MAX_AT_ONCE || chars >= MAX_CHARS) send()
    }
    send()
    this.line.flush()
  }

  /** Throws if the answers are not understood. */
  answered(text: string): void {
    for (const [callNo, ending, value] of decodeAnswers(text)) this.forget(callNo)?.settle({ ending, value })
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

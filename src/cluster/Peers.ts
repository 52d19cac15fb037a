import { Clock, Context, Effect, Layer, Option, RcMap, Schedule, Schema, Semaphore } from "effect"
import { ClusterMetrics, type Runner, Runners, RunnerStorage, ShardingConfig } from "effect/cluster"
import { Rpc, RpcClient, RpcGroup } from "effect/rpc"
import { SqlClient } from "effect/sql"
import { addressOf, nameOf } from "./NodeAddress.ts"
import { NodeProbes } from "./NodeProbes.ts"
import { PeerOrder, type PeerPlace } from "./PeerOrder.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"

/** The receiver knows nothing of what the sender said before: it has to be said again. */
export class PeerForgot extends Schema.TaggedError<PeerForgot>()("PeerForgot", {}) {}

/** A text from one node to another, with its place (PeerOrder). */
const Deliver = Rpc.make("Deliver", {
  payload: {
    from: Schema.String,
    incarnation: Schema.Int,
    number: Schema.Int,
    first: Schema.Boolean,
    body: Schema.String
  },
  error: PeerForgot
})

/** What nodes say to each other besides calls to entities. Landed names: never changed. */
export const PeerRpcs = RpcGroup.make(Deliver)

/** Who is told of the other nodes and by them. */
export interface PeerListener {
  readonly joined: (node: string) => void
  /** It has left, is dead, or does not answer: nothing that it said holds any more. */
  readonly left: (node: string) => void
  /**
   * What one node says comes one after the other, in the order in which it was said; late and repeated texts do not come.
   * Fails where the text was of no use: then the node says everything again.
   */
  readonly receive: (node: string, body: string, first: boolean) => Effect.Effect<void, PeerForgot>
}

export type Delivery = "taken" | "forgot" | "unreachable"

/** The nodes that are listed, this one among them, and whether each belongs to the cluster. */
export interface NodeList {
  readonly runners: ReadonlyArray<readonly [runner: Runner.Runner, isHealthy: boolean]>
  /** When that was read, on the monotonic clock, in milliseconds. */
  readonly at: number
}

/**
 * The other nodes of the cluster, as its storage lists them, and a way to each that is
 * not an entity's: for what concerns a node rather than whoever owns a shard. Knows
 * them a second late at most. A node whose process is gone is reported by whoever
 * notices first, so that its shards move although the one that watches may be the
 * one that died.
 */
export class Peers extends Context.Service<Peers, {
  readonly listen: (listener: PeerListener) => void
  /** Calls of one caller to one node must go one after the other. */
  readonly deliver: (node: string, body: string, first: boolean) => Effect.Effect<Delivery>
  /** For the door of this node. */
  readonly received: (from: string, place: PeerPlace, body: string) => Effect.Effect<void, PeerForgot>
  /** Undefined until it has been read. */
  readonly list: () => NodeList | undefined
  /** With whom this node cannot talk and why, for its operator. */
  readonly explain: () => string
}>()("parley/cluster/Peers") {
  /** A process that is the whole cluster. */
  static readonly layerAlone = Layer.succeed(
    Peers,
    Peers.of({
      listen: () => {},
      deliver: () => Effect.succeed("unreachable"),
      received: () => Effect.fail(new PeerForgot()),
      list: () => undefined,
      explain: () => ""
    })
  )

  static readonly layer = Layer.effect(
    Peers,
    Effect.gen(function*() {
      const storage = yield* RunnerStorage.RunnerStorage
      const protocol = yield* Runners.RpcClientProtocol
      const probes = yield* NodeProbes
      const { runnerAddress } = yield* ShardingConfig.ShardingConfig
      const self = Option.match(runnerAddress, { onNone: () => "", onSome: nameOf })
      const sql = yield* SqlClient.SqlClient
      // Of two processes with one address, the later one has the greater number, whatever clocks say.
      const [made] = yield* sql<{ readonly no: number }>`SELECT pg_current_xact_id()::text::bigint AS no`
      const incarnation = made?.no ?? 0
      const now = monotonicMillis(yield* Clock.Clock)
      const known = new Map<string, Runner.Runner>()
      let listener: PeerListener | undefined

      const clients = yield* RcMap.make({
        lookup: (node: string) =>
          Effect.flatMap(
            Effect.suspend(() => protocol.make(known.get(node)?.address ?? addressOf(node))),
            (made) =>
              Effect.provideService(RpcClient.make(PeerRpcs, { disableTracing: true }), RpcClient.Protocol, made)
          ),
        idleTimeToLive: "1 minute"
      })

      /** Of texts to each node. */
      const numbers = new Map<string, number>()
      /** Of nodes that have left too: what they said may still be on its way. */
      const heard = new Map<string, { readonly order: PeerOrder; readonly turn: Semaphore.Semaphore }>()
      const heardOf = (node: string) => {
        const found = heard.get(node) ?? { order: new PeerOrder(), turn: Semaphore.makeUnsafe(1) }
        heard.delete(node)
        heard.set(node, found)
        for (const other of heard.keys()) {
          if (heard.size <= MAX_REMEMBERED) break
          if (!known.has(other)) heard.delete(other)
        }
        return found
      }
      let list: NodeList | undefined

      let wasMember = false
      let tellAt = now() + FIRST_MS
      const tellOfItself = (isMember: boolean, isListed: boolean): Effect.Effect<void> =>
        Effect.suspend(() => {
          const isOut = wasMember && !isMember
          wasMember = isMember
          tellAt = now() + TOLD_EVERY_MS
          if (isMember) return Effect.logInfo(`This node, ${self}, belongs to the cluster`)
          // It leaves the list itself when it ends.
          if (isOut && !isListed) return Effect.void
          return Effect.logWarning(`This node, ${self}, ${isOut ? "is put out of" : "is not taken into"} the cluster. ${probes.explain()}`)
        })

      const look = Effect.gen(function*() {
        const seen = new Set<string>()
        let alive = 0
        const runners = yield* storage.getRunners
        list = { runners, at: now() }
        const own = runners.find(([runner]) => nameOf(runner.address) === self)
        const isMember = own?.[1] === true
        const isDue = now() >= tellAt && (probes.isSettled() || now() >= tellAt + UNSETTLED_MS)
        if (isMember !== wasMember || (!isMember && isDue)) yield* tellOfItself(isMember, own !== undefined)
        for (const [runner, isHealthy] of runners) {
          const node = nameOf(runner.address)
          if (!isHealthy) continue
          alive++
          if (node === self) continue
          seen.add(node)
          if (known.has(node)) continue
          known.set(node, runner)
          yield* Effect.logInfo(`Node ${node} belongs to the cluster`)
          listener?.joined(node)
        }
        // effect sets them to 1 once, on every node.
        for (const gauge of [ClusterMetrics.runners, ClusterMetrics.runnersHealthy]) gauge.updateUnsafe(BigInt(alive), Context.empty())
        for (const [node, runner] of known) {
          if (seen.has(node)) continue
          known.delete(node)
          heard.get(node)?.order.forget()
          // A node that is asked to stop takes itself off the list; one that dies or hangs stays on it for some seconds.
          const isListed = runners.some(([{ address }]) => nameOf(address) === node)
          yield* isListed
            ? Effect.logWarning(ownsShards(runner)
              ? `Node ${node} is gone or hangs: its shards are taken over`
              : `Gateway ${node} is gone or hangs`)
            : Effect.logInfo(`Node ${node} has left the cluster`)
          listener?.left(node)
          yield* RcMap.invalidate(clients, node)
        }
      })
      yield* look.pipe(
        Effect.timeout("5 seconds"),
        Effect.catchCause((cause) => Effect.logDebug("The nodes could not be looked up", cause)),
        Effect.repeat(Schedule.spaced(LOOK)),
        Effect.forkScoped
      )
      return Peers.of({
        listen: (made) => {
          listener = made
          for (const node of known.keys()) made.joined(node)
        },
        deliver: (node, body, first) =>
          RcMap.get(clients, node).pipe(
            Effect.flatMap((client) => {
              const number = (numbers.get(node) ?? 0) + 1
              numbers.set(node, number)
              return client.Deliver({ from: self, incarnation, number, first, body })
            }),
            Effect.timeout(ANSWER),
            Effect.scoped,
            Effect.matchCauseEffect({
              onSuccess: () => Effect.succeed<Delivery>("taken"),
              onFailure: (cause) => {
                const forgot = cause.reasons.some((reason) => reason._tag === "Fail" && reason.error instanceof PeerForgot)
                return forgot
                  ? Effect.succeed<Delivery>("forgot")
                  : Effect.as(RcMap.invalidate(clients, node), "unreachable" as Delivery)
              }
            })
          ),
        received: (from, place, body) =>
          Effect.suspend(() => {
            if (listener === undefined || !known.has(from)) return Effect.fail(new PeerForgot())
            const { receive } = listener
            const { order, turn } = heardOf(from)
            return turn.withPermits(1)(Effect.suspend(() => {
              const judged = order.judge(place)
              if (judged === "refuse") return Effect.fail(new PeerForgot())
              if (judged === "again") return Effect.void
              // What has begun is done to its end: a repetition will be told that it was.
              return Effect.uninterruptible(receive(from, body, place.first)).pipe(
                Effect.tapError(() => Effect.sync(() => order.forget()))
              )
            }))
          }),
        list: () => list,
        explain: probes.explain
      })
    })
  )

  /** What other nodes call. */
  static readonly layerHandlers = PeerRpcs.toLayer(Effect.map(Peers, (peers) => ({
    Deliver: ({ body, from, ...place }) => peers.received(from, place, body)
  })))
}

const LOOK = "500 millis"
const ANSWER = "3 seconds"
/** How often a node that does not belong to the cluster says so, and how long it waits before the first time. */
const TOLD_EVERY_MS = 60_000
const FIRST_MS = 2_000
/** How much longer it waits while it does not know yet why some node does not answer. */
const UNSETTLED_MS = 20_000
/** Nodes of which it is known what they said last. */
const MAX_REMEMBERED = 1_000

/** A gateway has no shards. */
export const ownsShards = (runner: Runner.Runner): boolean => runner.groups.length > 0

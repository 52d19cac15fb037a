import { Clock, Context, Effect, Layer, Option, RcMap, Schedule, Schema, Semaphore } from "effect"
import { ClusterMetrics, type Runner, Runners, RunnerStorage, ShardingConfig } from "effect/cluster"
import { Rpc, RpcClient, RpcGroup } from "effect/rpc"
import { SqlClient } from "effect/sql"
import { addressOf, nameOf } from "./NodeAddress.ts"
import { NodeDrain } from "./NodeDuty.ts"
import { NodeProbes } from "./NodeProbes.ts"
import { PeerOrder, type PeerPlace } from "./PeerOrder.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"

/** The receiver does not have the sender's earlier messages: the sender must send its full state again. */
export class PeerForgot extends Schema.TaggedError<PeerForgot>()("PeerForgot", {}) {}

/** Delivers a message from one node to another, with its position (PeerOrder). */
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

/** Messages between nodes that are not calls to entities. Names that have landed never change. */
export const PeerRpcs = RpcGroup.make(Deliver)

/** Is notified of nodes that join and leave, and receives their messages. */
export interface PeerListener {
  readonly joined: (node: string) => void
  /** The node has left, is dead, or does not answer: everything received from it is void. */
  readonly left: (node: string) => void
  /**
   * Receives the messages of one node one at a time, in the order in which they were sent, without late and repeated
   * ones. If it fails, the node sends its full state again.
   */
  readonly receive: (node: string, body: string, first: boolean) => Effect.Effect<void, PeerForgot>
}

export type Delivery = "taken" | "forgot" | "unreachable"

/** The listed nodes, this one included, and whether each belongs to the cluster. */
export interface NodeList {
  readonly runners: ReadonlyArray<readonly [runner: Runner.Runner, isHealthy: boolean]>
  /** When the list was read, in milliseconds of the monotonic clock. */
  readonly at: number
}

/**
 * The other nodes of the cluster, and ordered messages to each of them: for what concerns a node rather than the owner
 * of a shard. The list is read from the database every 500 ms.
 */
export class Peers extends Context.Service<Peers, {
  readonly listen: (listener: PeerListener) => void
  /**
   * Sends a message; `first`: it carries the full state. The caller must wait for each message to a node before it
   * sends the next.
   */
  readonly deliver: (node: string, body: string, first: boolean) => Effect.Effect<Delivery>
  /** Handles a message from another node. */
  readonly received: (from: string, place: PeerPlace, body: string) => Effect.Effect<void, PeerForgot>
  /** Undefined until the list has been read. */
  readonly list: () => NodeList | undefined
}>()("parley/cluster/Peers") {
  /** For a standalone server, which has no other nodes. */
  static readonly layerAlone = Layer.succeed(
    Peers,
    Peers.of({
      listen: () => {},
      deliver: () => Effect.succeed("unreachable"),
      received: () => Effect.fail(new PeerForgot()),
      list: () => undefined
    })
  )

  static readonly layer = Layer.effect(
    Peers,
    Effect.gen(function*() {
      const storage = yield* RunnerStorage.RunnerStorage
      const protocol = yield* Runners.RpcClientProtocol
      const probes = yield* NodeProbes
      const drain = yield* NodeDrain
      const { runnerAddress } = yield* ShardingConfig.ShardingConfig
      const self = Option.match(runnerAddress, { onNone: () => "", onSome: nameOf })
      const sql = yield* SqlClient.SqlClient
      // A transaction id: of two processes with one address the later one has the greater number, whatever the clocks
      // show.
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

      /** The number of the last message to each node. */
      const numbers = new Map<string, number>()
      /** What was received, by node. Nodes that have left are kept, because late messages of theirs may still arrive. */
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
          // A node that stops removes itself from the list: that needs no warning.
          if (isOut && !isListed) return Effect.void
          return Effect.logWarning(`This node, ${self}, ${isOut ? "is put out of" : "is not taken into"} the cluster. ${probes.explain()}`)
        })

      const look = Effect.gen(function*() {
        const seen = new Set<string>()
        let alive = 0
        const runners = yield* storage.getRunners
        list = { runners, at: now() }
        const own = runners.find(([runner]) => nameOf(runner.address) === self)
        const isMember = own?.[1] === true || (own !== undefined && drain.nodes.has(self))
        const isDue = now() >= tellAt && (probes.isSettled() || now() >= tellAt + UNSETTLED_MS)
        if (isMember !== wasMember || (!isMember && isDue)) yield* tellOfItself(isMember, own !== undefined)
        for (const [runner, isHealthy] of runners) {
          const node = nameOf(runner.address)
          // A drained node owns nothing, and belongs all the same: pushes and notices go both ways.
          if (!isHealthy && !drain.nodes.has(node)) continue
          alive++
          if (node === self) continue
          seen.add(node)
          if (known.has(node)) continue
          known.set(node, runner)
          yield* Effect.logInfo(`Node ${node} belongs to the cluster`)
          listener?.joined(node)
        }
        // Corrects the gauges, which effect sets to 1 once on every node.
        for (const gauge of [ClusterMetrics.runners, ClusterMetrics.runnersHealthy]) gauge.updateUnsafe(BigInt(alive), Context.empty())
        for (const [node, runner] of known) {
          if (seen.has(node)) continue
          known.delete(node)
          heard.get(node)?.order.forget()
          // A node that stops removes itself from the list; one that dies or hangs stays on it for some seconds.
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
              // Uninterruptible: the order has recorded the message as taken, so a repetition would not be processed.
              return Effect.uninterruptible(receive(from, body, place.first)).pipe(
                Effect.tapError(() => Effect.sync(() => order.forget()))
              )
            }))
          }),
        list: () => list
      })
    })
  )

  /** The handlers of calls from other nodes. */
  static readonly layerHandlers = PeerRpcs.toLayer(Effect.map(Peers, (peers) => ({
    Deliver: ({ body, from, ...place }) => peers.received(from, place, body)
  })))
}

const LOOK = "500 millis"
const ANSWER = "3 seconds"
/** How often a node that does not belong to the cluster logs that, and how long it waits before the first time. */
const TOLD_EVERY_MS = 60_000
const FIRST_MS = 2_000
/** How much longer it waits while the reason why some node does not answer is not known yet. */
const UNSETTLED_MS = 20_000
/** The number of nodes whose last message is remembered. */
const MAX_REMEMBERED = 1_000

/** Whether a node owns shards; a gateway does not. */
export const ownsShards = (runner: Runner.Runner): boolean => runner.groups.length > 0

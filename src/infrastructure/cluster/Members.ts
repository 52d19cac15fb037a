import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Clock, Context, Effect, Fiber, Latch, Layer, type Scope } from "effect"
import { type Runner, RunnerStorage, type ShardId } from "effect/cluster"
import { countNodes, ownersOf } from "./EffectOverrides.ts"
import { nameOf } from "./NodeAddress.ts"
import { NodeDrain } from "./NodeDuty.ts"
import { NodeReports } from "./NodeReports.ts"
import { PeerConnections } from "./PeerConnections.ts"
import { type NodeList, ownersKey, ownsShards, Shards } from "./Shards.ts"

/**
 * The nodes of the cluster, and the owner of each shard. Every node reads the list of nodes from the database every 500
 * ms and computes the owners from the list. After a connection to a member broke, the node reads the list at once and
 * then every 200 ms for some seconds. If a node is called but does not own the shard, it refuses the call, and
 * the caller reads the list again.
 */
export class Members extends Context.Service<Members, {
  /** Undefined until the list has been read. */
  readonly list: () => NodeList | undefined
  /** Waits for a list of which the reading began after `time`, in milliseconds of the monotonic clock. */
  readonly after: (time: number) => Effect.Effect<NodeList>
  /**
   * Whether this node belongs to the cluster, as far as this node knows. A node that was excluded cannot connect to
   * owners.
   */
  readonly belongs: () => boolean
  /** The listed nodes that belong to the cluster, without this one. */
  readonly others: () => Iterable<string>
  /**
   * The nodes that may own a shard: the owner according to the list, and the owner before the last change of the list,
   * which may still hold the shard. A node that was excluded from the cluster is not among them.
   */
  readonly ownersOf: (shard: ShardId.ShardId) => ReadonlyArray<string>
  /** Reads the list from the database. Concurrent callers share one read. */
  readonly refresh: Effect.Effect<void>
}>()("parley/cluster/Members") {
  /** For a standalone server, which is the only node. */
  static readonly layerAlone = Layer.succeed(
    Members,
    Members.of({
      list: () => undefined,
      after: () => Effect.never,
      belongs: () => true,
      others: () => [],
      ownersOf: () => [],
      refresh: Effect.void
    })
  )

  static readonly layer = Layer.effect(
    Members,
    Effect.gen(function*() {
      const storage = yield* RunnerStorage.RunnerStorage
      const reports = yield* NodeReports
      const drain = yield* NodeDrain
      const { length: shards } = yield* Shards
      const lines = yield* PeerConnections
      const { self } = lines
      const now = monotonicMillis(yield* Clock.Clock)
      const known = new Map<string, Runner.Runner>()
      let list: NodeList | undefined
      const heard = yield* Latch.make(false)
      const broken = yield* Latch.make(false)
      let hurriesUntil = 0
      lines.watch({
        ended: ({ node }, end) => {
          if (end === "closed" || !known.has(node)) return
          hurriesUntil = now() + BROKEN_LINE_MS
          broken.openUnsafe()
        }
      })
      let owners: ReadonlyArray<string> = []
      let formerOwners: ReadonlyArray<string> = []
      let key = ""

      let wasMember = false
      let announceAt = now() + FIRST_WARNING_DELAY_MS
      const announce = (isMember: boolean, isListed: boolean): Effect.Effect<void> =>
        Effect.suspend(() => {
          const isOut = wasMember && !isMember
          wasMember = isMember
          announceAt = now() + ANNOUNCE_EVERY_MS
          if (isMember) return Effect.logInfo(`This node, ${self}, belongs to the cluster`)
          // A node that stops removes itself from the list, which needs no warning.
          if (isOut && !isListed) return Effect.void
          return Effect.logWarning(
            `This node, ${self}, ${
              isOut ? "was excluded from" : "is not accepted into"
            } the cluster. ${reports.explain()}`
          )
        })

      const read = Effect.gen(function*() {
        const at = now()
        broken.closeUnsafe()
        const runners = yield* storage.getRunners
        list = { runners, at }
        if (key !== ownersKey(list)) {
          key = ownersKey(list)
          formerOwners = owners
          owners = ownersOf(list, shards)
        }
        const own = runners.find(([runner]) => nameOf(runner.address) === self)
        const isMember = own?.[1] === true || (own !== undefined && drain.nodes.has(self))
        const isDue = now() >= announceAt && (reports.isSettled() || now() >= announceAt + UNSETTLED_MS)
        if (isMember !== wasMember || (!isMember && isDue)) yield* announce(isMember, own !== undefined)
        const seen = new Set<string>()
        let alive = 0
        for (const [runner, isHealthy] of runners) {
          const node = nameOf(runner.address)
          // A drained node owns no shards, but still belongs to the cluster.
          if (!isHealthy && !drain.nodes.has(node)) continue
          alive++
          if (node === self) continue
          seen.add(node)
          if (known.has(node)) continue
          known.set(node, runner)
          yield* Effect.logInfo(`Node ${node} belongs to the cluster`)
        }
        countNodes(alive)
        for (const [node, runner] of known) {
          if (seen.has(node)) continue
          known.delete(node)
          // The node may hang, or may have lost its connection to the database. Ending the peer connection ends the
          // calls to the node, and callers try the new owners.
          lines.to(node)?.end("closed")
          // A node that stops removes itself from the list. A node that dies or hangs stays on the list for some
          // seconds.
          const isListed = runners.some(([{ address }]) => nameOf(address) === node)
          yield* isListed
            ? Effect.logWarning(
              ownsShards(runner)
                ? `Node ${node} has died or hangs: other nodes take over its shards`
                : `Gateway ${node} has died or hangs`
            )
            : Effect.logInfo(`Node ${node} has left the cluster`)
        }
        yield* heard.release
      }).pipe(
        Effect.timeout("5 seconds"),
        Effect.catchCause((cause) => Effect.logDebug("The list of nodes could not be read", cause))
      )
      const refresh = yield* shared(read)
      yield* refresh.pipe(
        Effect.andThen(
          Effect.suspend(() =>
            Effect.timeoutOption(broken.await, now() < hurriesUntil ? BROKEN_LINE_INTERVAL : POLL_INTERVAL)
          )
        ),
        Effect.forever,
        Effect.forkScoped
      )
      const after = (time: number): Effect.Effect<NodeList> =>
        Effect.suspend(() =>
          list !== undefined && list.at > time
            ? Effect.succeed(list)
            : Effect.andThen(heard.await, after(time))
        )
      return Members.of({
        list: () => list,
        after,
        belongs: () => wasMember || list === undefined,
        others: () => known.keys(),
        ownersOf: ({ id }) => {
          const [owner, former] = [owners[id - 1], formerOwners[id - 1]]
          return owner === undefined
            ? []
            : former !== undefined && former !== owner && known.has(former)
            ? [owner, former]
            : [owner]
        },
        refresh
      })
    })
  )
}

/** Makes an effect that runs once for all callers that start it while it runs. */
const shared = (effect: Effect.Effect<void>): Effect.Effect<Effect.Effect<void>, never, Scope.Scope> =>
  Effect.map(Effect.scope, (scope) => {
    let running: Fiber.Fiber<void> | undefined
    return Effect.suspend(() => {
      if (running !== undefined) return Fiber.join(running)
      return Effect.flatMap(
        Effect.forkIn(
          Effect.ensuring(
            effect,
            Effect.sync(() => {
              running = undefined
            })
          ),
          scope
        ),
        (fiber) => {
          running = fiber
          return Fiber.join(fiber)
        }
      )
    })
  })

const POLL_INTERVAL = "500 millis"
/** The interval while a broken connection makes it uncertain whether a member is alive. */
const BROKEN_LINE_INTERVAL = "200 millis"
/** How long after the end of a connection the interval is shorter, in milliseconds. */
const BROKEN_LINE_MS = 4_000
/** How often a node that does not belong to the cluster logs a warning, in milliseconds. */
const ANNOUNCE_EVERY_MS = 60_000
/** How long such a node waits before the first warning, in milliseconds. */
const FIRST_WARNING_DELAY_MS = 2_000
/**
 * How much longer the node waits before a warning while it does not know yet why some other node does not respond, in
 * milliseconds.
 */
const UNSETTLED_MS = 20_000

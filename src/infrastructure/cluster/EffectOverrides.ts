import { Context, Effect, Exit, HashRing, Latch, Layer } from "effect"
import {
  ClusterMetrics,
  MessageStorage,
  type Runner,
  type RunnerAddress,
  RunnerHealth,
  Runners,
  RunnerStorage
} from "effect/cluster"
import { SqlClient } from "effect/sql"
import { nameOf } from "./NodeAddress.ts"
import { Complete } from "./NodeDuty.ts"
import { type NodeList, ownsShards } from "./Shards.ts"

/*
 * Everything that Parley replaces or corrects in Effect's cluster (Effect 4.1). Each item describes what Effect does,
 * what Parley needs instead, and when the item can be removed. docs/architecture.md ("Effect's part and ours") lists
 * the parts of the cluster that are Effect's.
 */

/**
 * Disables the parts of Effect's cluster that Parley does not use: sending calls, storing calls, and health checks.
 *
 * - Effect: `Runners` sends calls to the node that owns an entity, `MessageStorage` stores persisted calls, and one
 *   node checks the health of all others.
 * - Parley: calls go over the connections of `PeerConnections.ts`, no call is persisted, and every node computes the
 *   members from the same rows (`Membership.ts`). Effect still requires the three services.
 * - Can go: `Runners` and `MessageStorage` if a call by Effect's `Runners` costs as little as a call by Parley
 *   (RESULTS.md, "Calls between nodes"). `RunnerHealth` if a node with a wrong secret no longer excludes the other
 *   nodes (`BadNeighbours.test.ts`).
 */
export const layerUnused = Layer.merge(Runners.layerNoop, RunnerHealth.layerNoop).pipe(
  Layer.provideMerge(MessageStorage.layerNoop)
)

/**
 * The owner of each shard according to the list of nodes, in the order of the shards' numbers.
 *
 * - Effect: `Sharding` computes the same owners, and uses them only for its own calls.
 * - Parley: every node needs the owners of all shards to call them. They must be the same owners that Effect computes.
 * - Can go: if `Sharding` has a method that returns the owner of a shard.
 */
export const ownersOf = ({ runners }: NodeList, shards: number): ReadonlyArray<string> => {
  const ring = HashRing.make<RunnerAddress.RunnerAddress>()
  for (const [runner, isHealthy] of runners) {
    if (isHealthy && ownsShards(runner)) HashRing.add(ring, runner.address, { weight: runner.weight })
  }
  return (HashRing.getShards(ring, shards) ?? []).map(nameOf)
}

/**
 * Sets the gauges of Effect's cluster that count nodes.
 *
 * - Effect: every node sets both gauges to 1 when it starts, and later counts only itself.
 * - Parley: every node reports how many nodes belong to the cluster.
 * - Can go: if `/metrics` of a node of two shows 2 without this function.
 */
export const countNodes = (members: number): void => {
  for (const gauge of [ClusterMetrics.runners, ClusterMetrics.runnersHealthy]) {
    gauge.updateUnsafe(BigInt(members), Context.empty())
  }
}

/**
 * The class of the advisory locks of shards.
 *
 * - Effect: the storage derives the class from the name of its tables (`cluster`) and does not export it.
 * - Parley: another node finds the database session that holds the locks of a silent node by this class.
 * - Can go: if `SqlRunnerStorage` exports the class. `TakeOver.test.ts` fails if the class changes.
 */
export const SHARD_LOCKS = 2_839_596_291

/**
 * Removes the row of an earlier process at this address.
 *
 * - Effect: a process that was killed leaves its row, and the row keeps its number when the next process registers.
 * - Parley: a node is listed only when it can serve, and as the last of the nodes.
 * - Can go: if Effect removes the row of a process that has ended, or gives a new number to a new registration.
 */
export const removeFormerRunner = (address: string) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => sql`DELETE FROM cluster_runners WHERE address = ${address}`)

/**
 * The time-out of the first attempt to release all shards. After an outage of the database the storage may wait for a
 * connection that is not being opened. An attempt that times out makes the storage open a connection.
 */
const FIRST_RELEASE_TIMEOUT = "500 millis"

/**
 * Wraps the list of nodes so that this node is listed only while it can serve shards at once.
 *
 * - Effect: a node registers as soon as `Sharding` is built. After a failed renewal of its locks the node registers
 *   again while its entities may still be stopping. The release of all locks may wait for a connection that nobody
 *   opens.
 * - Parley: a node registers when the whole process is built. After a failed renewal of its locks the node neither
 *   renews its registration nor registers again until everything that ran under the locks has stopped. This may take
 *   until hanging statements have ended.
 * - Can go: if `NodeDuty.test.ts` passes without this function.
 */
export const registerOnceServing = Effect.fnUntraced(function*(storage: RunnerStorage.RunnerStorage["Service"]) {
  const complete = yield* Complete
  const unharmed = Latch.makeUnsafe(true)
  const register: typeof storage.register = (runner, healthy) =>
    complete.await.pipe(Effect.andThen(unharmed.await), Effect.andThen(storage.register(runner, healthy)))
  const refresh: typeof storage.refresh = (address, shards) => {
    const held = [...shards]
    // Without shards the call only tests whether the database is back.
    return held.length === 0
      ? Effect.suspend(() => unharmed.isOpen() ? storage.refresh(address, held) : Effect.as(storage.getRunners, []))
      : Effect.onExit(storage.refresh(address, held), (exit) => Exit.isSuccess(exit) ? unharmed.open : unharmed.close)
  }
  const releaseAll: typeof storage.releaseAll = (address) =>
    Effect.timeout(storage.releaseAll(address), FIRST_RELEASE_TIMEOUT).pipe(
      Effect.catch(() => storage.releaseAll(address)),
      Effect.tap(() => unharmed.open)
    )
  return { ...storage, register, refresh, releaseAll }
})

/** The interval between attempts to lock shards whose locks another session holds. */
const ACQUIRE_INTERVAL = "50 millis"
/** How many attempts follow the first one. */
const MAX_ATTEMPTS = 40
/** How many attempts in a row may get no further lock after this node holds at least one lock. */
const MAX_FRUITLESS_ATTEMPTS = 4

/**
 * Wraps the locks of shards so that a new owner takes a lock soon after the previous owner releases it. `acquire`
 * returns the locks that are held at the end.
 *
 * - Effect: `Sharding` tries all locks once, and tries the missing locks again a second later.
 * - Parley: all nodes move shards at one announced moment (decision 28). Therefore the node tries the missing locks
 *   every 50 ms while the nodes that own shards (`owners`) stay the same.
 * - Can go: if the interval of `Sharding` between two attempts becomes a setting.
 */
export const acquireRepeatedly = (
  storage: RunnerStorage.RunnerStorage["Service"],
  owners: () => string
): RunnerStorage.RunnerStorage["Service"] => ({
  ...storage,
  acquire: Effect.fnUntraced(function*(address, shards) {
    const wanted = [...shards]
    const known = owners()
    let held = yield* storage.acquire(address, wanted)
    for (
      let attempts = 0, fruitless = 0;
      held.length < wanted.length && owners() === known && attempts < MAX_ATTEMPTS &&
      fruitless < MAX_FRUITLESS_ATTEMPTS;
      attempts++
    ) {
      yield* Effect.sleep(ACQUIRE_INTERVAL)
      const more = yield* storage.acquire(address, wanted)
      fruitless = held.length === 0 || more.length > held.length ? 0 : fruitless + 1
      held = more
    }
    return held
  })
})

/**
 * Wraps the list of nodes so that `Sharding` gets each list that `Members` has read, as soon as it was read.
 *
 * - Effect: `Sharding` reads the list again after `refreshAssignmentsInterval`.
 * - Parley: `Members` reads the same list, more often while a node may have died. One reading serves both, and the
 *   owners that callers compute are those whose locks are taken. After a registration a list counts only if its reading
 *   began later, because `Sharding` registers again if it does not find itself in the list.
 * - Can go: if `Sharding` can be given the list.
 */
export const followList = (
  storage: RunnerStorage.RunnerStorage["Service"],
  lists: { readonly after: (time: number) => Effect.Effect<NodeList>; readonly refresh: Effect.Effect<void> },
  now: () => number
): RunnerStorage.RunnerStorage["Service"] => {
  let known = Number.NEGATIVE_INFINITY
  return {
    ...storage,
    register: (runner, healthy) =>
      Effect.tap(storage.register(runner, healthy), () => {
        known = now()
        return Effect.forkDetach(lists.refresh)
      }),
    getRunners: Effect.map(Effect.suspend(() => lists.after(known)), ({ at, runners }) => {
      known = at
      return runners.map(([runner, isHealthy]) => [runner, isHealthy])
    })
  }
}

/** The decisions about the list of nodes that Parley makes. */
export interface Listing {
  /** Waits until this node may be listed, and then lists it by running `register`. */
  readonly join: <A>(
    runner: Runner.Runner,
    register: Effect.Effect<A, RunnerError>
  ) => Effect.Effect<A, RunnerError>
  /** Removes everything that this node has written about itself outside of the list. */
  readonly leave: Effect.Effect<void>
  /** The listed nodes, and whether each owns shards. */
  readonly runners: Effect.Effect<ReadonlyArray<readonly [runner: Runner.Runner, ownsShards: boolean]>, RunnerError>
}
type RunnerError = Effect.Error<RunnerStorage.RunnerStorage["Service"]["getRunners"]>

/**
 * Wraps the list of nodes so that Parley decides which nodes are listed and which own shards.
 *
 * - Effect: a column of the list stores which nodes are healthy, and the health checks of one node write this column.
 *   Every registered node owns shards at once. `Sharding` logs a warning if the list contains no healthy node.
 * - Parley: `listing` decides. No node sets the health of another node. The last node that leaves does not get the
 *   empty list, because an empty list is then no failure.
 * - Can go: if `Sharding` takes the healthy nodes as an argument, together with the health checks (`layerUnused`).
 */
export const decideListing = (
  storage: RunnerStorage.RunnerStorage["Service"],
  listing: Listing
): RunnerStorage.RunnerStorage["Service"] => {
  let hasLeft = false
  return {
    ...storage,
    register: (runner) => listing.join(runner, storage.register(runner, true)),
    unregister: (address) =>
      Effect.suspend(() => {
        hasLeft = true
        return Effect.andThen(storage.unregister(address), listing.leave)
      }),
    setRunnerHealth: () => Effect.void,
    getRunners: Effect.flatMap(
      listing.runners,
      (runners) => hasLeft && runners.length === 0 ? Effect.never : Effect.succeed([...runners])
    )
  }
}

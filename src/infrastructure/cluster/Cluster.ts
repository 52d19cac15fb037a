import { Effect, Layer, Schedule } from "effect"
import { RunnerStorage, Sharding, ShardingConfig } from "effect/cluster"
import { layerUnused } from "./EffectOverrides.ts"
import { Members } from "./Members.ts"
import { NodeCalls } from "./NodeCalls.ts"
import { PeerConnections } from "./PeerConnections.ts"
import { DEFAULT_SHARDS, ownsShards, Shards } from "./Shards.ts"

/** The cluster of a standalone server: this process owns every shard. */
export const layerStandalone = NodeCalls.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(PeerConnections.layerAlone, Members.layerAlone, Shards.layer())),
  Layer.provideMerge(Sharding.layer),
  Layer.provide([layerUnused, RunnerStorage.layerMemory]),
  Layer.provide(ShardingConfig.layer({ shardsPerGroup: DEFAULT_SHARDS }))
)

/** Completes when this process holds every shard. Before that, a call to an entity would wait or be refused. */
export const awaitShards = Effect.gen(function*() {
  const sharding = yield* Sharding.Sharding
  const shards = yield* Shards
  yield* Effect.suspend(() =>
    shards.every((shard) => sharding.hasShardId(shard)) ? Effect.void : Effect.fail("some shard is missing")
  ).pipe(Effect.retry(Schedule.spaced("10 millis")), Effect.timeout("30 seconds"), Effect.orDie)
})

/**
 * Completes when this node holds a shard, or after 15 seconds. Without a shard, the other nodes serve the calls of this
 * node.
 */
export const awaitShare = Effect.gen(function*() {
  const sharding = yield* Sharding.Sharding
  const shards = yield* Shards
  yield* Effect.suspend(() =>
    shards.some((shard) => sharding.hasShardId(shard)) ? Effect.void : Effect.fail("no shard yet")
  ).pipe(
    Effect.retry(Schedule.spaced("20 millis")),
    Effect.timeoutOption("15 seconds"),
    Effect.ignore
  )
})

/**
 * Completes when a node that owns shards is known, or after 15 seconds. Without such a node, readiness reports the
 * reason.
 */
export const awaitOwners = Effect.gen(function*() {
  const members = yield* Members
  yield* Effect.suspend(() =>
    members.list()?.runners.some(([runner, isHealthy]) => isHealthy && ownsShards(runner)) === true
      ? Effect.void
      : Effect.fail("no owner yet")
  ).pipe(
    Effect.retry(Schedule.spaced("20 millis")),
    Effect.timeoutOption("15 seconds"),
    Effect.ignore
  )
})

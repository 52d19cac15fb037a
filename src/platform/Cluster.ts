import { Effect, Layer, Schedule } from "effect"
import {
  MessageStorage,
  RunnerHealth,
  Runners,
  RunnerStorage,
  ShardId,
  Sharding,
  ShardingConfig
} from "effect/cluster"

/** How many pieces the entities are dealt out in; the same on every node of a cluster, for ever. */
const SHARDS = 300

/**
 * Entities in this process alone: every shard is here, nothing is persisted and
 * nothing is encoded on the way. Entities leave memory when they have been idle,
 * not because there are many of them: a socket keeps its agent resident.
 */
export const layerStandalone = Sharding.layer.pipe(
  Layer.provideMerge(Runners.layerNoop),
  Layer.provideMerge(MessageStorage.layerNoop),
  Layer.provide([RunnerStorage.layerMemory, RunnerHealth.layerNoop]),
  Layer.provide(ShardingConfig.layer({
    simulateRemoteSerialization: false,
    shardsPerGroup: SHARDS,
    maxResidentEntities: "unbounded",
    entityMailboxCapacity: 16_384,
    entityMaxIdleTime: "2 minutes",
    entityTerminationTimeout: "5 seconds"
  }))
)

/** Completes once this process holds every shard: before that a call to an entity would wait or be refused. */
export const awaitShards = Effect.gen(function*() {
  const sharding = yield* Sharding.Sharding
  const shards = Array.from({ length: SHARDS }, (_, i) => ShardId.make("default", i + 1))
  yield* Effect.suspend(() =>
    shards.every((shard) => sharding.hasShardId(shard)) ? Effect.void : Effect.fail("some shard is missing")
  ).pipe(Effect.retry(Schedule.spaced("10 millis")), Effect.timeout("30 seconds"), Effect.orDie)
})

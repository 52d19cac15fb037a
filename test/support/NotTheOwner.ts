import { Effect, Layer } from "effect"
import { MessageStorage, RunnerHealth, Runners, RunnerStorage, Sharding, ShardingConfig } from "effect/cluster"
import * as Cluster from "../../src/cluster/Cluster.ts"
import { Peers } from "../../src/cluster/Peers.ts"
import { RemoteCalls } from "../../src/cluster/RemoteCalls.ts"

/**
 * The cluster of a standalone server that takes itself for a node without the shard whenever `isNotHere` says so: then it
 * does what a node can do that is not the owner, and reaches its own entities through effect's cluster.
 */
export const layerNotTheOwner = (isNotHere: () => boolean): typeof Cluster.layerStandalone =>
  Layer.merge(RemoteCalls.layerAlone, Peers.layerAlone).pipe(
    Layer.provideMerge(Layer.effect(
      Sharding.Sharding,
      Effect.map(Sharding.Sharding, (sharding) =>
        Sharding.Sharding.of({ ...sharding, hasShardId: (shard) => !isNotHere() && sharding.hasShardId(shard) }))
    ).pipe(Layer.provide(Sharding.layer))),
    Layer.provideMerge(Runners.layerNoop),
    Layer.provideMerge(MessageStorage.layerNoop),
    Layer.provide([RunnerStorage.layerMemory, RunnerHealth.layerNoop]),
    Layer.provide(ShardingConfig.layer(Cluster.common))
  )

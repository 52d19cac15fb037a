import { Context, Effect, Layer } from "effect"
import { type RunnerAddress, Runners, type ShardId } from "effect/cluster"
import { nameOf } from "./NodeAddress.ts"

/**
 * The node to which the cluster last sent a message for each shard. It is a guess: the node that gets a call answers
 * if it does not own the shard.
 */
export class ShardOwners extends Context.Service<ShardOwners, {
  readonly of: (shard: ShardId.ShardId) => RunnerAddress.RunnerAddress | undefined
  /** The owner does not have the shard: forget the guess. */
  readonly wrong: (shard: ShardId.ShardId, owner: RunnerAddress.RunnerAddress) => void
  readonly sent: (shard: ShardId.ShardId, owner: RunnerAddress.RunnerAddress) => void
  /** The node does not answer: forget all its shards. */
  readonly lost: (owner: RunnerAddress.RunnerAddress) => void
  /** The cluster has given the node up: forget its shards and notify the listener. */
  readonly gone: (owner: RunnerAddress.RunnerAddress) => void
  readonly onGone: (listener: (owner: RunnerAddress.RunnerAddress) => void) => void
}>()("parley/cluster/ShardOwners") {
  static readonly layer = Layer.sync(ShardOwners, () => {
    const owners = new Map<ShardId.ShardId, RunnerAddress.RunnerAddress>()
    let told = (_owner: RunnerAddress.RunnerAddress): void => {}
    const lost = (owner: RunnerAddress.RunnerAddress): void => {
      for (const [shard, other] of owners) if (nameOf(owner) === nameOf(other)) owners.delete(shard)
    }
    return ShardOwners.of({
      of: (shard) => owners.get(shard),
      wrong: (shard, owner) => {
        if (owners.get(shard) === owner) owners.delete(shard)
      },
      sent: (shard, owner) => {
        owners.set(shard, owner)
      },
      lost,
      gone: (owner) => {
        lost(owner)
        told(owner)
      },
      onGone: (listener) => {
        told = listener
      }
    })
  })

  /** effect's `Runners`, wrapped to record the owners of shards. */
  static readonly layerRunners = Layer.effect(
    Runners.Runners,
    Effect.gen(function*() {
      const owners = yield* ShardOwners
      const runners = yield* Runners.Runners
      return Runners.Runners.of({
        ...runners,
        send: (options) => {
          owners.sent(options.message.envelope.address.shardId, options.address)
          return runners.send(options)
        },
        onRunnerUnavailable: (address) => {
          owners.gone(address)
          return runners.onRunnerUnavailable(address)
        }
      })
    })
  ).pipe(Layer.provide(Runners.layerRpc))
}

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

  /** effect's `Runners`, watched. */
  static readonly layerRunners = Layer.effect(
    Runners.Runners,
    Effect.gen(function*() {
      return watched(yield* Runners.Runners, yield* ShardOwners)
    })
  ).pipe(Layer.provide(Runners.layerRpc))
}

/**
 * A call on its way through effect's cluster. The cluster sends a call again when the connection breaks, and the node may
 * have carried out what it got before that; whoever calls provides this to learn of it.
 */
export class Attempts extends Context.Reference<{ mayBeDone: boolean } | undefined>("parley/cluster/Attempts", {
  defaultValue: () => undefined
}) {}

/** Records the owners of shards, and which calls may have been carried out although they were not answered. */
export const watched = (runners: Runners.Runners["Service"], owners: ShardOwners["Service"]): Runners.Runners["Service"] =>
  Runners.Runners.of({
    ...runners,
    send: (options) => {
      owners.sent(options.message.envelope.address.shardId, options.address)
      return Effect.tapError(runners.send(options), (error) =>
        Effect.sync(() => {
          const attempts = options.message._tag === "OutgoingRequest" ? Context.get(options.message.context, Attempts) : undefined
          if (attempts !== undefined && error._tag === "RunnerUnavailable") attempts.mayBeDone = true
        }))
    },
    onRunnerUnavailable: (address) => {
      owners.gone(address)
      return runners.onRunnerUnavailable(address)
    }
  })


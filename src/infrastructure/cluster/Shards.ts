import { type Runner, ShardId } from "effect/cluster"
import { nameOf } from "./NodeAddress.ts"

/** The number of shards. It must be the same on every node of a cluster and never change. */
export const SHARDS = 300

/** All shards. */
export const shards: ReadonlyArray<ShardId.ShardId> = Array.from(
  { length: SHARDS },
  (_, i) => ShardId.make("default", i + 1)
)

/** The listed nodes, including this node, and whether each of them belongs to the cluster and is not in `NodeDrain`. */
export interface NodeList {
  readonly runners: ReadonlyArray<readonly [runner: Runner.Runner, isHealthy: boolean]>
  /** When the reading of the list began, in milliseconds of the monotonic clock. */
  readonly at: number
}

/** Whether a node owns shards. A gateway does not. */
export const ownsShards = (runner: Runner.Runner): boolean => runner.groups.length > 0

/** Returns a key of the owners of shards. Two lists with the same key have the same owners. */
export const ownersKey = ({ runners }: NodeList): string =>
  runners.filter(([runner, isHealthy]) => isHealthy && ownsShards(runner))
    .map(([{ address, weight }]) => `${nameOf(address)} ${weight}`).sort().join()

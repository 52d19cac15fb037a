import { type Runner, ShardId } from "effect/cluster"
import { nameOf } from "./NodeAddress.ts"

/** The number of shards. It must be the same on every node of a cluster and never change. */
export const SHARDS = 300

/** All shards. */
export const shards: ReadonlyArray<ShardId.ShardId> = Array.from(
  { length: SHARDS },
  (_, i) => ShardId.make("default", i + 1)
)

/** The listed nodes, this one included, and whether each belongs to the cluster. */
export interface NodeList {
  readonly runners: ReadonlyArray<readonly [runner: Runner.Runner, isHealthy: boolean]>
  /** When the list was read, in milliseconds of the monotonic clock. */
  readonly at: number
}

/** Whether a node owns shards; a gateway does not. */
export const ownsShards = (runner: Runner.Runner): boolean => runner.groups.length > 0

/** Identifies the owners of shards: two lists with the same key have the same owners. */
export const ownersKey = ({ runners }: NodeList): string =>
  runners.filter(([runner, isHealthy]) => isHealthy && ownsShards(runner))
    .map(([{ address, weight }]) => `${nameOf(address)} ${weight}`).sort().join()

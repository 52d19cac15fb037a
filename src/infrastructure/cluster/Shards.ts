import type { Settings } from "#infrastructure/platform/Config"
import { Context, Data, Effect, Layer } from "effect"
import { type Runner, ShardId } from "effect/cluster"
import { SqlClient } from "effect/sql"
import { nameOf } from "./NodeAddress.ts"

/** The number of shards of a standalone server, and of a new cluster for which RUNNER_SHARDS is not set. */
export const DEFAULT_SHARDS = 300

/** This node's RUNNER_SHARDS differs from the number of shards that the database of the cluster stores. */
export class ShardsDiffer extends Data.TaggedError("ShardsDiffer")<{
  readonly wanted: number
  readonly stored: number
}> {
  override get message(): string {
    return `RUNNER_SHARDS is ${this.wanted} on this node, but the cluster of this database has ${this.stored} shards: set RUNNER_SHARDS to ${this.stored} or remove it`
  }
}

/**
 * All shards, in the order of their numbers. Every node of a cluster has the same number of shards, because nodes that
 * divided entities by another number would both own an entity.
 */
export class Shards extends Context.Service<Shards, ReadonlyArray<ShardId.ShardId>>()("parley/cluster/Shards") {
  static readonly layer = (count: number = DEFAULT_SHARDS) => Layer.succeed(Shards, all(count))

  /** The shards of the cluster. The first node that starts stores their number, and other nodes must agree with it. */
  static readonly layerStored = ({ RUNNER_SHARDS }: Pick<Settings, "RUNNER_SHARDS">) =>
    Layer.effect(
      Shards,
      Effect.gen(function*() {
        const sql = yield* SqlClient.SqlClient
        yield* sql`INSERT INTO cluster_settings (shards) VALUES (${
          RUNNER_SHARDS ?? DEFAULT_SHARDS
        }) ON CONFLICT DO NOTHING`
        const [row] = yield* sql<{ readonly shards: number }>`SELECT shards FROM cluster_settings`
        const stored = row?.shards ?? DEFAULT_SHARDS
        if (RUNNER_SHARDS !== undefined && RUNNER_SHARDS !== stored)
          return yield* new ShardsDiffer({ wanted: RUNNER_SHARDS, stored })
        return all(stored)
      })
    )
}

const all = (count: number): ReadonlyArray<ShardId.ShardId> =>
  Array.from({ length: count }, (_, i) => ShardId.make("default", i + 1))

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

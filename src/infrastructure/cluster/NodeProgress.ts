import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Readiness } from "#infrastructure/platform/Readiness"
import { Clock, Effect, Layer, Option, Schedule } from "effect"
import { Sharding, ShardingConfig } from "effect/cluster"
import { ownersOf } from "./EffectOverrides.ts"
import { Members } from "./Members.ts"
import { nameOf } from "./NodeAddress.ts"
import { NodeDrain } from "./NodeDuty.ts"
import { NodeReports } from "./NodeReports.ts"
import { type NodeList, ownersKey, ownsShards, Shards } from "./Shards.ts"

const POLL_INTERVAL = "500 millis"
/** How many milliseconds the list of nodes may be unreadable before this node is not ready. */
const UNREAD_MS = 10_000
/** How many milliseconds this node may be missing from the list before it is not ready. */
const UNLISTED_MS = 1_000
/** How many milliseconds the node's shards may be incomplete before it is not ready. */
const MOVING_MS = 15_000

/** The state of a node and its cluster at one moment. */
export interface ClusterView {
  /** This node's name in the list. */
  readonly self: string
  /** Whether this node owns shards. A gateway owns none, and only needs to know a node that owns shards. */
  readonly owns: boolean
  readonly list: NodeList | undefined
  /** The number of shards of the cluster. */
  readonly shards: number
  /** Which nodes this node cannot communicate with and why, written for operators. */
  readonly explanation: string
  /** Whether this node holds the lock of the shard with this index. */
  readonly holds: (index: number) => boolean
}

/**
 * Decides whether a node works as a member of its cluster. A node works if it has read the list of nodes, the list
 * contains the node, and the node holds its shards. Some missing shards are tolerated for a while, because shards move.
 * A node that holds none of its shards does not work.
 */
export class ClusterProgress {
  private unlistedSince: number | undefined
  private wasListed = false
  private incompleteSince: number | undefined
  /** The owners for which `share` was computed. `share` is cached, because the owners change rarely. */
  private known = ""
  private share: ReadonlyArray<number> = []

  /**
   * Returns why the node does not work, written for operators, or undefined if the node works. Must be called often,
   * because it measures durations.
   */
  problem(now: number, { explanation, holds, list, owns, self, shards }: ClusterView): string | undefined {
    if (list === undefined) return "The list of nodes in the database (cluster_runners) has not been read yet."
    if (now - list.at > UNREAD_MS) {
      return `The list of nodes in the database (cluster_runners) could not be read for ${seconds(now - list.at)}.`
    }
    const healthy = list.runners.filter(([, isHealthy]) => isHealthy).map(([runner]) => runner)
    const listed = healthy.some(({ address }) => nameOf(address) === self)
    this.wasListed ||= listed
    this.unlistedSince = listed ? undefined : this.unlistedSince ?? now
    if (this.unlistedSince !== undefined) {
      this.incompleteSince = undefined
      // A node that was excluded may soon belong again. A node that never belonged owns no shards, and is reported at
      // once.
      if (!this.wasListed || now - this.unlistedSince > UNLISTED_MS) {
        return `This node, ${self}, does not belong to the cluster, since ${
          seconds(now - this.unlistedSince)
        }. ${explanation}`
      }
    }
    if (!owns) {
      return healthy.some(ownsShards) ? undefined : "No node that owns shards is there: start one with ROLE=runner."
    }
    if (!listed) return undefined
    const key = ownersKey(list)
    if (key !== this.known) {
      this.known = key
      this.share = ownersOf(list, shards).flatMap((owner, index) => owner === self ? [index] : [])
    }
    const held = this.share.filter(holds).length
    this.incompleteSince = held === this.share.length ? undefined : this.incompleteSince ?? now
    if (this.incompleteSince === undefined) return undefined
    const since = now - this.incompleteSince
    if (held > 0 && since <= MOVING_MS) return undefined
    return `This node holds ${held} of its ${this.share.length} shards, since ${
      seconds(since)
    }: another session still holds their locks, or this node's own session in PostgreSQL was lost (DATABASE_URL must lead there without a pooler that shares sessions).`
  }
}

const seconds = (ms: number): string => `${Math.floor(ms / 1_000)} s`

/** Registers the check with `Readiness`. */
export const layer = Layer.effectDiscard(Effect.gen(function*() {
  const readiness = yield* Readiness
  const sharding = yield* Sharding.Sharding
  const members = yield* Members
  const shards = yield* Shards
  const reports = yield* NodeReports
  const { assignedShardGroups, runnerAddress } = yield* ShardingConfig.ShardingConfig
  const now = monotonicMillis(yield* Clock.Clock)
  const progress = new ClusterProgress()
  const drain = yield* NodeDrain
  const problem = () =>
    drain.drained ? undefined : progress.problem(now(), {
      self: Option.match(runnerAddress, { onNone: () => "", onSome: nameOf }),
      owns: assignedShardGroups.length > 0,
      list: members.list(),
      shards: shards.length,
      explanation: reports.explain(),
      holds: (index) => sharding.hasShardId(shards[index]!)
    })
  readiness.check(problem)
  // Runs the check periodically, so that the durations are right when readiness is read.
  yield* Effect.forkScoped(Effect.repeat(Effect.sync(problem), Schedule.spaced(POLL_INTERVAL)))
}))

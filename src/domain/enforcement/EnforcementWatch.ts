import { Agents } from "#domain/agents/Agents"
import { Groups } from "#domain/groups/Groups"
import { LiveAgents } from "#domain/push/LiveAgents"
import { type Batch, batchUpTo, job } from "#infrastructure/cluster/Job"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Cause, Clock, Context, Effect, Layer, Schedule } from "effect"
import { SUSPENDED } from "./Enforcement.ts"
import { EnforcementRepo, type Suspended } from "./EnforcementRepo.ts"

/**
 * How often a node polls. A suspension must be in effect on every node within a second (wire.md G.8b), so a node polls
 * at least twice in a second.
 */
const POLL_INTERVAL = "400 millis"
/**
 * How far each poll reaches back before the last poll, in milliseconds. The polls overlap because the clocks of nodes
 * differ and a commit takes time.
 */
const OVERLAP_MS = 30_000
const BATCH_ROWS = 500
/** How often handovers are looked for although this node has seen no new suspension, in milliseconds. */
const UNSEEN_HANDOVERS_MS = 5_000

/**
 * Applies suspensions by other nodes and by operators' commands: removes the account from the cache (Agents) and closes
 * its sockets. The watch polls the rows with the status of agents (AgentEntity), so no suspension is missed, even after
 * a lost notification or a restart.
 */
export class EnforcementWatch extends Context.Service<EnforcementWatch, {
  /** Applies the suspensions since the last poll, and those from shortly before it. */
  readonly look: Effect.Effect<void, Unavailable>
  /**
   * Handles one batch of suspended agents. In each group in which one of them is the last admin, another member becomes
   * admin.
   */
  readonly handOver: Effect.Effect<Batch, Unavailable>
  /**
   * Does the same if `look` has seen a suspension since the last complete handover, and otherwise only every five
   * seconds, because there is nearly always nothing to do.
   */
  readonly handOverDue: Effect.Effect<Batch, Unavailable>
}>()("parley/enforcement/EnforcementWatch") {
  static readonly layer = Layer.effect(
    EnforcementWatch,
    Effect.gen(function*() {
      const liveAgents = yield* LiveAgents
      const agents = yield* Agents
      const groups = yield* Groups
      const repo = yield* EnforcementRepo
      let looked = yield* Clock.currentTimeMillis
      let known = new Map<string, number>()
      let isDue = true
      let handedOver = looked

      const look = Effect.gen(function*() {
        const now = yield* Clock.currentTimeMillis
        const seen = new Map<string, number>()
        let after: Suspended = { id: "", suspendedAt: Math.min(looked, now) - OVERLAP_MS }
        for (;;) {
          const some = yield* repo.suspendedSince(after, BATCH_ROWS)
          for (const one of some) {
            const { id, suspendedAt } = one
            seen.set(id, suspendedAt)
            if (known.get(id) !== suspendedAt) {
              agents.forget(id)
              isDue = true
            }
            // A stale cache may have let a socket in since the last poll.
            liveAgents.live(id)?.disconnect(SUSPENDED)
            after = one
          }
          if (some.length < BATCH_ROWS) break
        }
        known = seen
        looked = now
      })

      const handOver = Effect.gen(function*() {
        const some = yield* repo.handovers(BATCH_ROWS)
        let failed = 0
        for (const { agentId, since } of some) {
          yield* groups.replaceAdmin(agentId).pipe(
            Effect.andThen(repo.handedOver(agentId, since)),
            // One admin that cannot be replaced now must not delay the others.
            Effect.catchTag("Unavailable", () => Effect.sync(() => failed++)),
            Effect.catchDefect((defect) => {
              failed++
              return Effect.logError("The admin of a group could not be replaced", Cause.die(defect))
            })
          )
        }
        if (failed > 0) return yield* new Unavailable()
        return batchUpTo(BATCH_ROWS)(some.length)
      })

      const handOverDue = Effect.gen(function*() {
        const now = yield* Clock.currentTimeMillis
        if (!isDue && Math.abs(now - handedOver) < UNSEEN_HANDOVERS_MS) return { rows: 0, more: false }
        // A suspension that is seen while this runs makes it due again.
        isDue = false
        handedOver = now
        const batch = yield* Effect.onError(handOver, () =>
          Effect.sync(() => {
            isDue = true
          }))
        if (batch.more) isDue = true
        return batch
      })

      return EnforcementWatch.of({ look, handOver, handOverDue })
    })
  )

  /**
   * Polls as long as the node runs. `handOver` runs as a job, on one node only, because it changes stored groups. The
   * job is here and not in Jobs.ts, because it runs as often as the polls. That would be too often for tests that move
   * their clock far ahead.
   */
  static readonly layerRunning = Layer.mergeAll(
    Layer.effectDiscard(Effect.gen(function*() {
      const { look } = yield* EnforcementWatch
      yield* Effect.catchCause(
        look,
        (cause) => Effect.logWarning("New suspensions could not be read from the database", cause)
      ).pipe(
        Effect.repeat(Schedule.spaced(POLL_INTERVAL)),
        Effect.forkScoped
      )
    })),
    job({
      name: "handovers",
      every: POLL_INTERVAL,
      batch: Effect.flatMap(EnforcementWatch, ({ handOverDue }) => handOverDue)
    })
  )
}

import { Cause, Clock, Context, Effect, Layer, Schedule } from "effect"
import type { SqlError } from "effect/sql"
import { LiveAgents } from "../push/LiveAgents.ts"
import { Agents } from "../agents/Agents.ts"
import { Groups } from "../groups/Groups.ts"
import { type Batch, batchUpTo, job } from "../cluster/Job.ts"
import { Unavailable } from "../wire/WireError.ts"
import { SUSPENDED } from "./Enforcement.ts"
import { EnforcementRepo, type Suspended } from "./EnforcementRepo.ts"

/** Twice within the second after which a suspension must be in effect on every node (wire.md G.8b). */
const LOOK = "400 millis"
/** Each look also covers this long before the last one: the nodes' clocks differ, and a commit takes time. */
const OVERLAP_MS = 30_000
const AT_ONCE = 500

/**
 * Applies suspensions on a node that did not make them, because another node or an operator's command did: removes the
 * account from the cache (Agents) and closes its sockets. It polls the rows, which hold an agent's status (AgentEntity),
 * so no notification can be lost and a restart misses nothing.
 */
export class EnforcementWatch extends Context.Service<EnforcementWatch, {
  /** Acts on the suspensions since the last look, and on those shortly before. */
  readonly look: Effect.Effect<void, SqlError.SqlError>
  /** Replaces some of the suspended agents wherever they are the last admin. */
  readonly handOver: Effect.Effect<Batch, SqlError.SqlError | Unavailable>
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

      const look = Effect.gen(function*() {
        const now = yield* Clock.currentTimeMillis
        const seen = new Map<string, number>()
        let after: Suspended = { id: "", suspendedAt: Math.min(looked, now) - OVERLAP_MS }
        for (;;) {
          const some = yield* repo.suspendedSince(after, AT_ONCE)
          for (const one of some) {
            const { id, suspendedAt } = one
            seen.set(id, suspendedAt)
            if (known.get(id) !== suspendedAt) agents.forget(id)
            // A socket may have been accepted since the last look because of a stale cache.
            liveAgents.live(id)?.disconnect(SUSPENDED)
            after = one
          }
          if (some.length < AT_ONCE) break
        }
        known = seen
        looked = now
      })

      const handOver = Effect.gen(function*() {
        const some = yield* repo.handovers(AT_ONCE)
        let failed = 0
        for (const { agentId, since } of some) {
          yield* groups.replaceAdmin(agentId).pipe(
            Effect.andThen(repo.handedOver(agentId, since)),
            // An admin that cannot be replaced now must not hold up the others.
            Effect.catchTag("Unavailable", () => Effect.sync(() => failed++)),
            Effect.catchDefect((defect) => {
              failed++
              return Effect.logError("The admin of a group could not be replaced", Cause.die(defect))
            })
          )
        }
        if (failed > 0) return yield* new Unavailable()
        return batchUpTo(AT_ONCE)(some.length)
      })

      return EnforcementWatch.of({ look, handOver })
    })
  )

  /**
   * Looks for as long as the node runs. Handing over changes stored groups, so it is a job, which one node does for all.
   * It is here and not in Jobs.ts because it runs as often as the looks, too often for tests that move their clock far.
   */
  static readonly layerRunning = Layer.mergeAll(
    Layer.effectDiscard(Effect.gen(function*() {
      const { look } = yield* EnforcementWatch
      yield* Effect.catchCause(look, (cause) => Effect.logWarning("Suspensions could not be looked up", cause)).pipe(
        Effect.repeat(Schedule.spaced(LOOK)),
        Effect.forkScoped
      )
    })),
    job({ name: "handovers", every: LOOK, batch: Effect.flatMap(EnforcementWatch, ({ handOver }) => handOver) })
  )
}

import { Cause, Clock, Context, Effect, Layer, Schedule } from "effect"
import type { SqlError } from "effect/sql"
import { LiveAgents } from "../push/LiveAgents.ts"
import { Agents } from "../agents/Agents.ts"
import { Groups } from "../groups/Groups.ts"
import { type Batch, batchUpTo, job } from "../cluster/Job.ts"
import { Unavailable } from "../wire/WireError.ts"
import { SUSPENDED } from "./Enforcement.ts"
import { EnforcementRepo } from "./EnforcementRepo.ts"

/** Twice in the second that a suspension may take to be felt everywhere (wire.md G.8b). */
const LOOK = "400 millis"
/** Looked at again for so long: clocks of nodes differ, and a commit takes its time. */
const OVERLAP_MS = 30_000
const AT_ONCE = 500

/**
 * What a suspension means on a node that did not make it, be it by another node or by
 * an operator's command: the account leaves the cache (Agents), its sockets are closed. The
 * rows, which hold an agent's status (AgentEntity), are asked, so nothing has to arrive and a
 * restart misses nothing.
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
        let since = looked - OVERLAP_MS
        for (;;) {
          const some = yield* repo.suspendedSince(since, AT_ONCE)
          for (const { id, suspendedAt } of some) {
            seen.set(id, suspendedAt)
            if (known.get(id) !== suspendedAt) agents.forget(id)
            // A socket may have come on the word of a cache since the last look.
            liveAgents.live(id)?.disconnect(SUSPENDED)
            since = suspendedAt
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
            // One that cannot be replaced now does not stand before the others.
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
   * Looks as long as the node runs. Handing over is work on what is stored, so a job; beside
   * the looking instead of in Jobs.ts because it keeps its pace, which a test's clock need not.
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

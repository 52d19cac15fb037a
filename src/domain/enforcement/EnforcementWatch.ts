import { Agents } from "#domain/agents/Agents"
import { Groups } from "#domain/groups/Groups"
import { LiveAgents } from "#domain/push/LiveAgents"
import { type Batch, batchUpTo, job } from "#infrastructure/cluster/Job"
import { type Poll, SharedPoll } from "#infrastructure/database/SharedPoll"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Cause, Clock, Context, Effect, Layer } from "effect"
import { SUSPENDED } from "./Enforcement.ts"
import { EnforcementRepo, type Suspended, SUSPENDED_SINCE } from "./EnforcementRepo.ts"

/** How often the job asks whether handovers are due. */
const HANDOVER_INTERVAL = "400 millis"
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
  readonly poll: Poll<Suspended>
  /**
   * Handles one batch of suspended agents. In each group in which one of them is the last admin, another member becomes
   * admin.
   */
  readonly handOver: Effect.Effect<Batch, Unavailable>
  /**
   * Does the same if a poll has seen a suspension since the last complete handover, and otherwise only every five
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
      /** When the last complete poll began, and when this one did. */
      let polled = yield* Clock.currentTimeMillis
      let began = polled
      let known = new Map<string, number>()
      let isDue = true
      let handedOver = polled

      /** Applies the suspensions of the first page, and reads and applies all further pages. */
      const apply = Effect.fnUntraced(function*(first: ReadonlyArray<Suspended>) {
        const seen = new Map<string, number>()
        let page = first
        for (;;) {
          for (const { id, suspendedAt } of page) {
            seen.set(id, suspendedAt)
            if (known.get(id) !== suspendedAt) {
              agents.forget(id)
              isDue = true
            }
            // A stale cache may have let a socket in since the last poll.
            liveAgents.live(id)?.disconnect(SUSPENDED)
          }
          const last = page.at(-1)
          if (last === undefined || page.length < BATCH_ROWS) break
          page = yield* repo.suspendedSince(last, BATCH_ROWS)
        }
        known = seen
        polled = began
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

      return EnforcementWatch.of({
        poll: {
          name: "suspensions",
          select: SUSPENDED_SINCE,
          params: Effect.map(Clock.currentTimeMillis, (now) => {
            began = now
            return [Math.min(polled, now) - OVERLAP_MS, "", BATCH_ROWS]
          }),
          handle: apply
        },
        handOver,
        handOverDue
      })
    })
  )

  /**
   * Polls as long as the node runs. `handOver` runs as a job, on one node only, because it changes stored groups. The
   * job is here and not in Jobs.ts, because it runs as often as the polls. That would be too often for tests that move
   * their clock far ahead.
   */
  static readonly layerRunning = Layer.mergeAll(
    Layer.effectDiscard(Effect.gen(function*() {
      const polls = yield* SharedPoll
      yield* polls.add((yield* EnforcementWatch).poll)
    })),
    job({
      name: "handovers",
      every: HANDOVER_INTERVAL,
      batch: Effect.flatMap(EnforcementWatch, ({ handOverDue }) => handOverDue)
    })
  )
}

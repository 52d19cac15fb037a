import type { AgentId } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { type CloseReason, Sessions } from "#domain/agents/Sessions"
import { type Batch, batchUpTo } from "#infrastructure/cluster/Job"
import { Config } from "#infrastructure/platform/Config"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Cause, Clock, Context, Effect, Layer } from "effect"
import { type Grounds, judge, type Thresholds, thresholdsOf } from "./EnforcementPolicy.ts"
import { EnforcementRepo, type Tally } from "./EnforcementRepo.ts"

/** The close code and text for the sockets of a suspended agent. */
export const SUSPENDED: CloseReason = { code: 1008, text: "account suspended" }

/** An operator's decision to suspend or restore an agent. */
export interface Decision {
  readonly agentId: AgentId
  /** The operator's name, for the audit log. */
  readonly operator: string
  readonly reason: string | null
}

const groundsText = (grounds: Grounds, thresholds: Thresholds): string => {
  const within = `within ${thresholds.suspendWindowMs / 1_000} seconds`
  return grounds === "blocks"
    ? `${thresholds.suspendBlocks} counted blocks ${within}`
    : `${thresholds.suspendReports} counted reports ${within}`
}

/**
 * How often an evaluation is tried if other evaluations of the agent are committed first. After that, the recount stays
 * due.
 */
const MAX_TRIES = 20
/** How many recounts a sweep reads at once. Several of them may be for the same agent. */
const BATCH_SIZE = 200

/**
 * Restricts and suspends agents (wire.md G.8). Each evaluation of an agent is made on one snapshot, and committed only
 * if no other evaluation was committed since. So the last evaluation takes all blocks, reports, their reversals and
 * operators' decisions into account, in any order and from any node. Each block and report stores a recount in the
 * database, which stays due until an evaluation has covered it. So a crash of a node only delays the evaluation.
 * Enforcement is independent of rate limits.
 */
export class Enforcement extends Context.Service<Enforcement, {
  /**
   * Evaluates an agent after a block or report against the agent was committed or undone. If this fails, the recount
   * stays due.
   */
  readonly recount: (agentId: AgentId) => Effect.Effect<void>
  /** Evaluates one batch of the agents whose recounts are due. */
  readonly sweep: Effect.Effect<Batch, Unavailable>
  /** Suspends an agent. Returns false if the agent is already suspended, or deleted. */
  readonly suspend: (decision: Decision) => Effect.Effect<boolean, Unavailable>
  /**
   * Ends a suspension or restriction. Earlier blocks and reports no longer count. Returns false if the agent is
   * deleted.
   */
  readonly restore: (decision: Decision) => Effect.Effect<boolean, Unavailable>
  /**
   * Returns how many blocks and reports count against an agent now; if `from` is not `null`, only those made after
   * `from`.
   */
  readonly tally: (agentId: AgentId, from: number | null) => Effect.Effect<Tally, Unavailable>
  readonly thresholds: Thresholds
}>()("parley/enforcement/Enforcement") {
  static readonly layer = Layer.effect(
    Enforcement,
    Effect.gen(function*() {
      const agents = yield* Agents
      const repo = yield* EnforcementRepo
      const sessions = yield* Sessions
      const thresholds = thresholdsOf(yield* Config)
      const longest = Math.max(thresholds.restrictWindowMs, thresholds.suspendWindowMs)
      const limits = {
        blocks: Math.max(thresholds.restrictBlocks, thresholds.suspendBlocks),
        reports: thresholds.suspendReports
      }

      /**
       * Removes the account from caches and closes its sockets, on all nodes that this process can reach. On other
       * nodes, EnforcementWatch does the same.
       */
      const expel = (agentId: AgentId) =>
        Effect.suspend(() => {
          agents.forget(agentId)
          return sessions.disconnect(agentId, SUSPENDED)
        })

      const changed = (agentId: AgentId) =>
        Effect.suspend(() => {
          agents.forget(agentId)
          return sessions.changed(agentId)
        })

      const evaluate = Effect.fn("Enforcement.recount")(function*(agentId: AgentId) {
        for (let tries = 0; tries < MAX_TRIES; tries++) {
          const now = yield* Clock.currentTimeMillis
          const found = yield* repo.load(agentId, now - longest, limits)
          if (found === undefined) return yield* repo.dismiss(agentId)
          // If no recount is due, another evaluation has covered all committed blocks and reports.
          if (found.due.length === 0) return
          const verdict = judge(found, thresholds, now)
          const grounds = found.status === "suspended" ? null : verdict.suspend
          const stands = yield* repo.judge({
            agentId,
            judged: found.judged,
            due: found.due,
            restrictedUntil: verdict.restrictedUntil,
            suspension: grounds === null ? null : groundsText(grounds, thresholds),
            at: now
          })
          if (!stands) continue
          if (grounds === null) return yield* changed(agentId)
          yield* Effect.logInfo("An agent is suspended").pipe(Effect.annotateLogs({ agent: agentId, grounds }))
          return yield* expel(agentId)
        }
        yield* Effect.logWarning(
          "An agent could not be evaluated, because others evaluated it at the same time; the sweep retries"
        )
      })

      return Enforcement.of({
        recount: (agentId) =>
          Effect.catchCause(
            evaluate(agentId),
            (cause) =>
              Effect.logWarning(
                "The blocks and reports against an agent could not be evaluated; the sweep retries",
                cause
              )
          ),
        sweep: Effect.gen(function*() {
          let judged = 0
          for (const agentId of yield* repo.due(BATCH_SIZE)) {
            yield* evaluate(agentId).pipe(
              Effect.andThen(Effect.sync(() => judged++)),
              // One agent that cannot be evaluated now must not delay the others.
              Effect.catchCause((cause) =>
                Cause.hasInterruptsOnly(cause)
                  ? Effect.interrupt
                  : Effect.logError(
                    "The blocks and reports against an agent could not be evaluated; the next sweep retries",
                    cause
                  )
              )
            )
          }
          return batchUpTo(1)(judged)
        }),
        suspend: Effect.fn("Enforcement.suspend")(function*(decision) {
          const done = yield* repo.suspend({ ...decision, at: yield* Clock.currentTimeMillis })
          if (done) yield* expel(decision.agentId)
          return done
        }),
        restore: Effect.fn("Enforcement.restore")(function*(decision) {
          const done = yield* repo.restore({ ...decision, at: yield* Clock.currentTimeMillis })
          if (done) yield* changed(decision.agentId)
          return done
        }),
        tally: Effect.fnUntraced(function*(agentId, from) {
          const now = yield* Clock.currentTimeMillis
          return yield* repo.tally(agentId, from, {
            restrict: now - thresholds.restrictWindowMs,
            suspend: now - thresholds.suspendWindowMs
          })
        }),
        thresholds
      })
    })
  )
}

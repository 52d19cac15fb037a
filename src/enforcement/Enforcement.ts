import { Cause, Clock, Context, Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import type { AgentId } from "../agents/Agent.ts"
import { Agents } from "../agents/Agents.ts"
import { Config } from "../platform/Config.ts"
import { type Batch, batchUpTo } from "../cluster/Job.ts"
import { type CloseReason, Sessions } from "../agents/Sessions.ts"
import { EnforcementRepo, type Tally } from "./EnforcementRepo.ts"
import { type Grounds, judge, type Thresholds, thresholdsOf } from "./EnforcementPolicy.ts"

/** With what the sockets of a suspended agent are closed. */
export const SUSPENDED: CloseReason = { code: 1008, text: "account suspended" }

/** An operator's decision about an agent. */
export interface Decision {
  readonly agentId: AgentId
  /** The operating system's user. */
  readonly operator: string
  readonly reason: string | null
}

const groundsText = (grounds: Grounds, thresholds: Thresholds): string => {
  const within = `within ${thresholds.suspendWindowMs / 1_000} seconds`
  return grounds === "blocks"
    ? `${thresholds.suspendBlocks} counted blocks ${within}`
    : `${thresholds.suspendReports} counted reports ${within}`
}

/** How often a judgement is tried if others are committed in between. After that its recount stays due. */
const TRIES = 20
/** Recounts that a sweep reads at once; several may be for the same agent. */
const SWEPT = 200

/**
 * Restricts and suspends agents (wire.md G.8). A judgement is made on one snapshot and committed only if no other one was
 * committed since. So in whatever order blocks, reports, their reversals and operators' decisions come, on any number of
 * nodes, the last judgement takes all of them into account. Each block and report leaves a recount in the database, which
 * stays due until a judgement has covered it: a node that dies in between only delays that. Independent of rate limits.
 */
export class Enforcement extends Context.Service<Enforcement, {
  /** Judges an agent again, after a block or report of it was committed or undone. If this fails, the recount stays due. */
  readonly recount: (agentId: AgentId) => Effect.Effect<void>
  /** Judges some of the agents whose recounts are still due. */
  readonly sweep: Effect.Effect<Batch, SqlError.SqlError>
  /** False: it is suspended already, or deleted. */
  readonly suspend: (decision: Decision) => Effect.Effect<boolean, SqlError.SqlError>
  /** Ends a suspension or restriction; blocks and reports from before do not count any more. False: it is deleted. */
  readonly restore: (decision: Decision) => Effect.Effect<boolean, SqlError.SqlError>
  /** What counts against an agent right now, leaving out what is not later than `from` (null: nothing is left out). */
  readonly tally: (agentId: AgentId, from: number | null) => Effect.Effect<Tally, SqlError.SqlError>
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

      /** On this node only: EnforcementWatch does the same on the others. */
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

      const judgeAgain = Effect.fn("Enforcement.recount")(function*(agentId: AgentId) {
        for (let tries = 0; tries < TRIES; tries++) {
          const now = yield* Clock.currentTimeMillis
          const found = yield* repo.load(agentId, now - longest, limits)
          if (found === undefined) return yield* repo.dismiss(agentId)
          // No recount is due: another judgement has covered everything that is committed.
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
        yield* Effect.logWarning("An agent could not be judged, as others judged it at the same time; the sweep tries again")
      })

      return Enforcement.of({
        recount: (agentId) =>
          Effect.catchCause(judgeAgain(agentId), (cause) =>
            Effect.logWarning("An agent could not be judged; the sweep tries again", cause)),
        sweep: Effect.gen(function*() {
          let judged = 0
          for (const agentId of yield* repo.due(SWEPT)) {
            yield* judgeAgain(agentId).pipe(
              Effect.andThen(Effect.sync(() => judged++)),
              // One that cannot be judged now must not hold up the others.
              Effect.catchCause((cause) =>
                Cause.hasInterruptsOnly(cause)
                  ? Effect.interrupt
                  : Effect.logError("An agent could not be judged; the next sweep tries again", cause)
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

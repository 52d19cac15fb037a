import { laneOf, makeCommitQueue } from "#infrastructure/database/CommitQueue"
import type { Locks } from "#infrastructure/database/LockWaiters"
import { AnswerTimeout } from "#infrastructure/database/Sql"
import { Clock, Effect, Exit, type Scope } from "effect"
import type { Ack, DeliveriesRepo } from "./DeliveriesRepo.ts"

const LANES = 1
/**
 * How long an acknowledgement waits for other acknowledgements to share its commit, in milliseconds. No client waits
 * for this commit.
 */
const LINGER_MS = 10
/** How many acknowledgements may wait for their first commit. The same number may wait for a retry. */
const MAX_QUEUED = 200_000
/** How long the first page of an inbox waits for acknowledgements of its agent that are under way, in milliseconds. */
const BEFORE_PAGE_MS = 250
/** How long after a failure an acknowledgement is retried. */
export const RETRY_DELAY = "1 second"
/**
 * How long an attempt waits for the response of PostgreSQL, in milliseconds. The time is shorter than for other
 * statements, because a dead connection never responds and all other acknowledgements wait until the attempt ends.
 * Storing an acknowledgement twice changes nothing.
 */
export const ANSWER_MS = 5_000
/**
 * How many attempts an acknowledgement gets in total. After a network failure, the connections of a node need several
 * seconds to recover.
 */
const MAX_TRIES = 10

export interface Acknowledgements {
  /** Marks one envelope as delivered. The call returns before the commit and reports no result. */
  readonly acknowledge: (agentId: string, inboxNo: number) => void
  /** Completes when the acknowledgements of an agent that are under way are committed, or after 250 ms. */
  readonly underWay: (agentId: string) => Effect.Effect<void>
  /** Completes when no acknowledgement is waiting or being committed. Starts pending retries immediately. */
  readonly idle: Effect.Effect<void>
}

/**
 * Commits the acknowledgements of single envelopes in batches. While the database is unavailable, an acknowledgement is
 * tried ten times, a second apart, because the client gets no response and would not repeat the acknowledgement. If the
 * acknowledgement is still lost, the envelope is shown again when the agent connects (wire.md E.2).
 */
export const makeAcknowledgements = (
  commit: DeliveriesRepo["Service"]["acknowledge"],
  locks: Locks<Ack>
): Effect.Effect<Acknowledgements, never, Scope.Scope> =>
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const scope = yield* Effect.scope
    const fork = Effect.runForkWith(yield* Effect.context<never>())
    const group = yield* makeCommitQueue<Ack, void>({
      name: "ack",
      lanes: LANES,
      laneOf: (ack) => laneOf(ack.agentId),
      rowsOf: () => 1,
      bytesOf: () => 0,
      maxRows: 2_000,
      maxBytes: Number.MAX_SAFE_INTEGER,
      capacity: MAX_QUEUED,
      batchPerTick: true,
      lingerMs: LINGER_MS,
      commit: (batch, lockMs) =>
        Effect.provideService(
          Effect.as(commit(batch, lockMs), new Array<void>(batch.length)),
          AnswerTimeout,
          ANSWER_MS
        ),
      locks
    })

    /** For each agent with acknowledgements under way, the callers that wait for the latest of them. */
    const latest = new Map<string, Array<() => void>>()

    interface Late {
      readonly ack: Ack
      readonly tries: number
    }
    /** Acknowledgements that could not be stored and wait for a retry. */
    let late: Array<Late> = []

    const tryAgain = (): void => {
      const all = late
      late = []
      for (const { ack, tries } of all) submit(ack, tries + 1)
    }

    const submit = (ack: Ack, tries: number, settled?: () => void): void =>
      group.submit(ack, (outcome) => {
        if (outcome._tag === "Failed") {
          if (Exit.isFailure(outcome.exit) && Exit.hasDies(outcome.exit)) {
            fork(Effect.logError("An acknowledgement could not be stored", outcome.exit.cause))
          } else if (tries < MAX_TRIES && late.length < MAX_QUEUED) {
            late.push({ ack, tries })
            if (late.length === 1) fork(Effect.forkIn(Effect.delay(Effect.sync(tryAgain), RETRY_DELAY), scope))
          }
        }
        settled?.()
      })

    return {
      acknowledge: (agentId, inboxNo) => {
        const waiters: Array<() => void> = []
        latest.set(agentId, waiters)
        submit({ agentId, inboxNo, at: clock.currentTimeMillisUnsafe() }, 1, () => {
          if (latest.get(agentId) === waiters) latest.delete(agentId)
          for (const resume of waiters) resume()
        })
      },
      underWay: (agentId) =>
        Effect.suspend(() => {
          const waiters = latest.get(agentId)
          if (waiters === undefined) return Effect.void
          return Effect.callback<void>((resume) => {
            const timer = setTimeout(() => resume(Effect.void), BEFORE_PAGE_MS)
            waiters.push(() => {
              clearTimeout(timer)
              resume(Effect.void)
            })
            group.flush()
            return Effect.sync(() => clearTimeout(timer))
          })
        }),
      idle: Effect.suspend(() => {
        tryAgain()
        return group.idle
      })
    }
  })

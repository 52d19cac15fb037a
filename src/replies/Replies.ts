import { Clock, Context, Effect, Layer, Semaphore } from "effect"
import type { SqlError } from "effect/sql"
import { type Batch, batchUpTo } from "../cluster/Job.ts"
import { unavailableOnSqlError } from "../database/UnavailableOnSqlError.ts"
import { MessageNotFound } from "../messages/Message.ts"
import type { Unavailable } from "../wire/WireError.ts"
import { CLAIM_MS, type ClaimOutcome, type Leases, secondsTo } from "./Reply.ts"
import { RepliesRepo } from "./RepliesRepo.ts"

/**
 * How many claims and ends of leases of this process are at the database at once. Those of one agent wait for each other
 * there, and leave the other connections to sends.
 */
const AT_ONCE = 2
const SWEEP_ROWS = 1_000

/** The nameless lease; no session has this name. */
const NAMELESS = ""

/**
 * Which of an agent's processes answers a message (wire.md L). A session that works holds a lease; who wants to answer
 * claims the message. Both are rows and end by the clock, so they hold over nodes and outlive them.
 *
 * Claims of one agent are made one after the other, under a lock in the database, and each looks at the leases while it
 * has the lock. So it sees every lease whose call was answered before it was made, and a lease that begins later takes no
 * claim away. Leases end under the same lock: the last one that ends finds no other.
 */
export class Replies extends Context.Service<Replies, {
  /** Begins the lease of a session, or of the nameless one, or renews it. */
  readonly begin: (agentId: string, sessionId: string | null, ms: number) => Effect.Effect<void, Unavailable>
  /** Ends this lease alone, if it stands; whether another does. */
  readonly end: (agentId: string, sessionId: string | null) => Effect.Effect<boolean, Unavailable>
  readonly leases: (agentId: string) => Effect.Effect<Leases, Unavailable>
  /** Claims a message that the agent has received, or renews the holder's claim. */
  readonly claim: (
    agentId: string,
    messageId: string,
    holder: string,
    deferIfActive: boolean
  ) => Effect.Effect<ClaimOutcome, MessageNotFound | Unavailable>
  /** Claims the messages before the first that another holds or that the agent has not received. */
  readonly claimAll: (
    agentId: string,
    messageIds: ReadonlyArray<string>,
    holder: string,
    deferIfActive: boolean
  ) => Effect.Effect<ClaimOutcome, Unavailable>
  /** Removes an agent's leases and claims (wire.md G.12); idempotent. */
  readonly removeAgent: (agentId: string) => Effect.Effect<void, Unavailable>
  /** Removes some of what has ended. */
  readonly sweep: Effect.Effect<Batch, SqlError.SqlError>
}>()("parley/replies/Replies") {
  static readonly layer = Layer.effect(
    Replies,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const repo = yield* RepliesRepo
      const turns = yield* Semaphore.make(AT_ONCE)
      const now = () => clock.currentTimeMillisUnsafe()
      /** A caller that no longer waits gives its turn back when its statement has ended. */
      const inTurn = <A>(statement: () => Effect.Effect<A, SqlError.SqlError>) =>
        unavailableOnSqlError(turns.withPermit(Effect.uninterruptible(Effect.suspend(statement))))

      const claim = (agentId: string, messageIds: ReadonlyArray<string>, holder: string, deferIfActive: boolean) =>
        inTurn(() => {
          const at = now()
          return Effect.map(
            repo.claim(agentId, messageIds, holder, deferIfActive, at, at + CLAIM_MS),
            ({ endsAt, ...outcome }) => ({ ...outcome, expiresIn: secondsTo(endsAt, at) })
          )
        })

      return Replies.of({
        begin: Effect.fn("Replies.begin")((agentId, sessionId, ms) =>
          unavailableOnSqlError(repo.putLease(agentId, sessionId ?? NAMELESS, now() + ms))),
        end: Effect.fn("Replies.end")((agentId, sessionId) =>
          inTurn(() => repo.endLease(agentId, sessionId ?? NAMELESS, now()))),
        leases: Effect.fn("Replies.leases")(function*(agentId) {
          const at = now()
          const { endsAt, sessions } = yield* unavailableOnSqlError(repo.leases(agentId, at))
          return { sessions, expiresIn: secondsTo(endsAt, at) }
        }),
        claim: Effect.fn("Replies.claim")(function*(agentId, messageId, holder, deferIfActive) {
          const outcome = yield* claim(agentId, [messageId], holder, deferIfActive)
          return outcome.missing ? yield* new MessageNotFound() : outcome
        }),
        claimAll: Effect.fn("Replies.claimAll")(claim),
        removeAgent: Effect.fn("Replies.removeAgent")(function*(agentId) {
          while ((yield* unavailableOnSqlError(repo.removeAgent(agentId, SWEEP_ROWS))) > 0);
        }),
        sweep: Effect.map(Effect.suspend(() => repo.sweep(now(), SWEEP_ROWS)), batchUpTo(SWEEP_ROWS))
      })
    })
  )
}

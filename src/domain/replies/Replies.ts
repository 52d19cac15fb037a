import { MessageNotFound } from "#domain/messages/Message"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Semaphore } from "effect"
import { RepliesRepo } from "./RepliesRepo.ts"
import { CLAIM_MS, type ClaimOutcome, type Leases, secondsTo } from "./Reply.ts"

/**
 * How many claims and ends of leases this process runs in the database at once. Those of one agent wait for each other
 * in the database. The bound keeps the other connections free for sends.
 */
const MAX_CONCURRENT_LOOKUPS = 2
const BATCH_SIZE = 1_000

/** The session id that is stored for the nameless lease. No session can have this id. */
const NAMELESS = ""

/**
 * Decides which of an agent's processes answers a message (wire.md L). A session that is working holds a lease. A
 * process that wants to answer claims the message. Leases and claims are rows with an expiry time, so all nodes see
 * them, and they survive the crash of any node.
 *
 * Claims of one agent run one at a time, under a lock in the database. A claim reads the leases while it holds the
 * lock, so it sees every lease whose call completed before the claim. A lease that begins later removes no claim.
 * Leases end under the same lock. So if several leases end at the same time, only the end of the last one finds no
 * other lease.
 */
export class Replies extends Context.Service<Replies, {
  /** Begins or renews the lease of a session, or the nameless lease if `sessionId` is null. */
  readonly begin: (agentId: string, sessionId: string | null, ms: number) => Effect.Effect<void, Unavailable>
  /** Ends this lease if it exists, and returns whether the agent has another lease. */
  readonly end: (agentId: string, sessionId: string | null) => Effect.Effect<boolean, Unavailable>
  readonly leases: (agentId: string) => Effect.Effect<Leases, Unavailable>
  /** Claims a message that the agent has received, or renews the holder's claim. */
  readonly claim: (
    agentId: string,
    messageId: string,
    holder: string,
    deferIfActive: boolean
  ) => Effect.Effect<ClaimOutcome, MessageNotFound | Unavailable>
  /**
   * Claims messages in order, up to the first one that another holder has claimed or that the agent has not received.
   */
  readonly claimAll: (
    agentId: string,
    messageIds: ReadonlyArray<string>,
    holder: string,
    deferIfActive: boolean
  ) => Effect.Effect<ClaimOutcome, Unavailable>
  /** Removes an agent's leases and claims (wire.md G.12). Idempotent. */
  readonly removeAgent: (agentId: string) => Effect.Effect<void, Unavailable>
}>()("parley/replies/Replies") {
  static readonly layer = Layer.effect(
    Replies,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const repo = yield* RepliesRepo
      const signals = yield* WebhookSignals
      const turns = yield* Semaphore.make(MAX_CONCURRENT_LOOKUPS)
      const now = () => clock.currentTimeMillisUnsafe()
      /**
       * Runs a statement when one of the permits is free. If the caller is interrupted, the permit is released after
       * the statement has ended.
       */
      const inTurn = <A>(statement: () => Effect.Effect<A, Unavailable>) =>
        turns.withPermit(Effect.uninterruptible(Effect.suspend(statement)))

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
          repo.putLease(agentId, sessionId ?? NAMELESS, now() + ms)
        ),
        end: Effect.fn("Replies.end")((agentId, sessionId) =>
          Effect.tap(
            inTurn(() => repo.endLease(agentId, sessionId ?? NAMELESS, now())),
            // Webhooks that follow the inbox may have held back an event because of the lease.
            (active) => Effect.sync(() => active ? undefined : signals.raise(agentId))
          )
        ),
        leases: Effect.fn("Replies.leases")(function*(agentId) {
          const at = now()
          const { endsAt, sessions } = yield* repo.leases(agentId, at)
          return { sessions, expiresIn: secondsTo(endsAt, at) }
        }),
        claim: Effect.fn("Replies.claim")(function*(agentId, messageId, holder, deferIfActive) {
          const outcome = yield* claim(agentId, [messageId], holder, deferIfActive)
          return outcome.missing ? yield* new MessageNotFound() : outcome
        }),
        claimAll: Effect.fn("Replies.claimAll")(claim),
        removeAgent: Effect.fn("Replies.removeAgent")(function*(agentId) {
          while ((yield* repo.removeAgent(agentId, BATCH_SIZE)) > 0);
        })
      })
    })
  )
}

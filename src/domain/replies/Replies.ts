import { MessageNotFound } from "#domain/messages/Message"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Semaphore } from "effect"
import { RepliesRepo } from "./RepliesRepo.ts"
import { CLAIM_MS, type ClaimOutcome, type Leases, secondsTo } from "./Reply.ts"

/**
 * How many claims and ends of leases this process runs in the database at once. Those of one agent wait for each other
 * there, so the bound leaves the other connections to sends.
 */
const MAX_CONCURRENT_LOOKUPS = 2
const BATCH_SIZE = 1_000

/** The session id of the nameless lease. No session has this name. */
const NAMELESS = ""

/**
 * Decides which of an agent's processes answers a message (wire.md L). A session that works holds a lease. A process
 * that wants to answer claims the message. Leases and claims are rows with an end, so all nodes see them, and they
 * outlive any node.
 *
 * Claims of one agent are made one after the other, under a lock in the database. Each reads the leases while it has
 * the lock, so it sees every lease whose call was answered before the claim. A lease that begins later removes no
 * claim. Leases end under the same lock. So if several leases end at once, only the end of the last one finds no other
 * lease.
 */
export class Replies extends Context.Service<Replies, {
  /** Begins the lease of a session, or of the nameless one, or renews it. */
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
      /** If the caller is interrupted, its turn ends when its statement has ended. */
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
            // Webhooks that follow the inbox may have held back an event.
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

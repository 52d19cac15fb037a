import { MessageNotFound } from "#domain/messages/Message"
import { isReaction, type Reaction, type ReactionEvent, TooManyReactions, words } from "#domain/messages/Reaction"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { LiveAgents } from "#domain/push/LiveAgents"
import { Blocked } from "#domain/sending/SendErrors"
import { Database } from "#infrastructure/database/Sql"
import { requestId } from "#infrastructure/platform/RequestId"
import { CALLER_TIMEOUT_MS, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Semaphore } from "effect"
import { type FoundMessage, type ReactionChanged, ReactionsRepo } from "./ReactionsRepo.ts"

/**
 * How many changes run at once on this node. A change holds a connection while it waits for other changes of its message,
 * and sends need connections too.
 */
const MAX_TRANSACTIONS = 2

/** The agent that reacts. */
interface Reacting {
  readonly id: string
  readonly handle: string
}

/**
 * Reactions to messages (wire.md C.6): an answer that wakes nobody. A reaction is a row and an event. It makes no
 * envelope, so it is in no inbox and no count of unread messages, and starts no turn of an agent.
 */
export class Reactions extends Context.Service<Reactions, {
  /** Adds a reaction and returns all reactions to the message. A repeated reaction changes nothing. */
  readonly add: (
    agent: Reacting,
    messageId: string,
    emoji: string
  ) => Effect.Effect<
    ReadonlyArray<typeof Reaction.Type>,
    MessageNotFound | ValidationFailed | Blocked | TooManyReactions | Unavailable
  >
  /** Takes a reaction back and returns the others. Changes nothing if the agent has not given the reaction. */
  readonly remove: (
    agent: Reacting,
    messageId: string,
    emoji: string
  ) => Effect.Effect<ReadonlyArray<typeof Reaction.Type>, MessageNotFound | ValidationFailed | Unavailable>
}>()("parley/reactions/Reactions") {
  static readonly layer = Layer.effect(
    Reactions,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const repo = yield* ReactionsRepo
      const liveAgents = yield* LiveAgents
      const signals = yield* WebhookSignals
      const { transaction } = yield* Database
      const turns = yield* Semaphore.make(MAX_TRANSACTIONS)
      /** If the database hangs, the changes that wait for it fail in time, as a send does. */
      const inTurn = <A, E>(change: Effect.Effect<A, E>): Effect.Effect<A, E | Unavailable> =>
        Effect.timeoutOrElse(turns.withPermit(change), {
          duration: CALLER_TIMEOUT_MS,
          orElse: () => Effect.fail(new Unavailable())
        })

      const notify = (
        agent: Reacting,
        conversationId: string,
        payload: typeof ReactionEvent.Type,
        { hooked, told }: ReactionChanged
      ) => {
        const frame = JSON.stringify({ type: "message.reaction", payload })
        for (const to of told) {
          liveAgents.push(to, { _tag: "Event", frame, about: { senderId: agent.id, conversationId } })
        }
        for (const to of hooked) signals.raise(to)
      }

      const allowed = ({ blocked, takesReactions }: FoundMessage): Effect.Effect<void, ValidationFailed | Blocked> => {
        if (!takesReactions) {
          return Effect.fail(
            ValidationFailed.field("id", "is a message of the system, or was removed: it takes no reactions")
          )
        }
        return blocked ? Effect.fail(new Blocked()) : Effect.void
      }

      const change = <E>(
        agent: Reacting,
        messageId: string,
        emoji: string,
        added: boolean,
        check: (message: FoundMessage) => Effect.Effect<void, E>
      ) =>
        Effect.gen(function*() {
          if (!isReaction(emoji)) {
            return yield* ValidationFailed.field("emoji", `must be one emoji, or one of ${words.join(", ")}`)
          }
          const request = yield* requestId
          const { message, result } = yield* inTurn(transaction(Effect.gen(function*() {
            const message = yield* repo.find(messageId, agent.id)
            if (message === undefined) return yield* new MessageNotFound()
            yield* check(message)
            const at = clock.currentTimeMillisUnsafe()
            const run = added ? repo.add : repo.remove
            return { message, result: yield* run(message, { agentId: agent.id, messageId, emoji, at, request }) }
          })))
          if (result.changed) {
            const { conversationId: conversation_id } = message
            notify(agent, conversation_id, {
              message_id: messageId,
              conversation_id,
              handle: agent.handle,
              emoji,
              added
            }, result)
          }
          return { isThere: result.changed || result.known, reactions: yield* repo.list(message, agent.id) }
        })

      return Reactions.of({
        add: Effect.fn("Reactions.add")(function*(agent, messageId, emoji) {
          const { isThere, reactions } = yield* change(agent, messageId, emoji, true, allowed)
          return isThere ? reactions : yield* new TooManyReactions()
        }),
        remove: Effect.fn("Reactions.remove")(function*(agent, messageId, emoji) {
          return (yield* change(agent, messageId, emoji, false, () => Effect.void)).reactions
        })
      })
    })
  )
}

import type { Agent, SendBudget } from "#domain/agents/Agent"
import { AgentNotFound, displayNameOf } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { type BlockPair, DirectConversations } from "#domain/direct/DirectConversations"
import type { BlockCommand, BlockOutcome, SendFailure, UnblockOutcome } from "#domain/direct/DirectEntity"
import type { GroupSendFailure } from "#domain/groups/GroupEntity"
import { Groups } from "#domain/groups/Groups"
import { GroupNotFound } from "#domain/memberships/GroupDeletion"
import { Participations } from "#domain/memberships/Participations"
import type { ContentTooLarge, Draft, MessageSender } from "#domain/messages/Message"
import { makeRateWarnings } from "#domain/push/RateWarnings"
import { type BudgetExceeded, isOfSender, type TooManyHops } from "#domain/sending/SendErrors"
import type { Sent } from "#domain/sending/Sent"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { type Rate, type RateState, ruleOf, SECOND } from "#infrastructure/rates/RateRule"
import { Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, RcMap, Semaphore } from "effect"
import { makeCauses } from "./Causes.ts"
import { type ConversationQueries, makeConversationQueries } from "./ConversationQueries.ts"
import { type BudgetLeft, ByModel, SendBudgets } from "./SendBudgets.ts"
import { makeTyping, type Typing } from "./Typing.ts"

/** The sender of a request, read when the request was authenticated. Messages show the name from that moment. */
export interface Sender {
  readonly id: string
  readonly handle: string
  /** `null` if the agent has set no name. The handle is shown instead. */
  readonly displayName: string | null
  /** Its own budget of messages. Absent or `null` if it has set none. */
  readonly budget?: SendBudget | null
}

/** The recipient of a send. */
export type SendTarget =
  | { readonly _tag: "Direct"; readonly handle: string }
  | { readonly _tag: "Conversation"; readonly id: string }

/** The result of a send. */
export interface SendAnswer extends Sent {
  /**
   * Set if the send stored nothing because the sender has used the key before, in another conversation than the one
   * that the send names. The message is the earlier one.
   */
  readonly isElsewhere?: true
  /** Set if less than 20 % of a budget of the sender is left (wire.md G.19). */
  readonly budget?: BudgetLeft
}

export type SendError =
  | SendFailure
  | GroupSendFailure
  | BudgetExceeded
  | TooManyHops
  | ValidationFailed
  | ContentTooLarge

/** The sender as part of a send command, so that it is not looked up again after authentication. */
const messageSender = (sender: Sender): typeof MessageSender.Type => ({
  id: sender.id,
  handle: sender.handle,
  displayName: displayNameOf(sender)
})

/** How many messages an agent may send, direct and group together. */
export const SENDS: Rate = { name: "send", setting: "LIMITS_SENDS_PER_SECOND", ...SECOND }

/** Sends to direct conversations and to groups, reads and hides conversations of both kinds, and blocks agents. */
export class Conversations extends Context.Service<
  Conversations,
  ConversationQueries & Pick<Typing, "typing"> & {
    /** Sends a message. Completes after the commit. `Sent.body` is the JSON text of the Message. */
    readonly send: (sender: Sender, target: SendTarget, draft: Draft) => Effect.Effect<SendAnswer, SendError>
    /**
     * Returns the message that this sender has stored with this client_msg_id, in its current state, or undefined if
     * there is none.
     */
    readonly original: (senderId: string, clientMsgId: string) => Effect.Effect<Sent | undefined, Unavailable>
    /** Makes one agent block another (`DirectConversations.block`). */
    readonly block: (command: BlockCommand) => Effect.Effect<BlockOutcome, Unavailable>
    readonly unblock: (pair: BlockPair) => Effect.Effect<UnblockOutcome, Unavailable>
    /** Completes when every accepted send is committed or refused. */
    readonly settled: Effect.Effect<void>
  }
>()("parley/conversations/Conversations") {
  static readonly layer = Layer.effect(
    Conversations,
    Effect.gen(function*() {
      const reading = yield* makeConversationQueries
      const typing = yield* makeTyping(reading.participation)
      const warn = yield* makeRateWarnings
      const config = yield* Config
      const participations = yield* Participations
      const agents = yield* Agents
      const groups = yield* Groups
      const limits = yield* RateLimits
      const directs = yield* DirectConversations
      const budgets = yield* SendBudgets
      const withHops = yield* makeCauses
      const rate = ruleOf(config, SENDS)
      /** For sends that count against a budget: one for each sender and key of the sends that are under way. */
      const turns = yield* RcMap.make({ lookup: (_key: string) => Semaphore.make(1) })
      /**
       * Fails with `failure` unless the key is already stored, because a replay always gets the original message
       * (wire.md C.6).
       */
      const unlessReplay = <E>(sender: Sender, draft: Draft, failure: E): Effect.Effect<Sent, E | Unavailable> =>
        Effect.flatMap(
          directs.original(sender.id, draft.clientMsgId),
          (sent): Effect.Effect<Sent, E> => sent === undefined ? Effect.fail(failure) : Effect.succeed(sent)
        )

      /** Whether a send to this target goes to a conversation in which the sender has sent an earlier message. */
      const leadsTo = Effect.fnUntraced(function*(sender: Sender, target: SendTarget, conversationId: string) {
        if (target._tag === "Conversation") return target.id === conversationId
        const recipient = yield* agents.byHandle(target.handle)
        if (recipient !== undefined) return directs.idOf(sender.id, recipient.id) === conversationId
        // The recipient of the earlier message may be a deleted account by now.
        const counterpartyId = (yield* participations.of(sender.id, conversationId))?.counterpartyId ?? null
        return counterpartyId !== null &&
          (yield* agents.byIds([counterpartyId])).get(counterpartyId)?.handle === target.handle
      })

      const replayed = (sender: Sender, target: SendTarget, sent: Sent): Effect.Effect<SendAnswer, Unavailable> => {
        const { conversation_id } = JSON.parse(sent.body) as { readonly conversation_id: string }
        return Effect.map(
          leadsTo(sender, target, conversation_id),
          (isSame) => isSame ? sent : { ...sent, isElsewhere: true }
        )
      }

      const toRecipient = (
        sender: Sender,
        recipient: Agent | undefined,
        draft: Draft
      ): Effect.Effect<Sent, SendError> => {
        if (recipient === undefined) return unlessReplay(sender, draft, new AgentNotFound())
        if (recipient.id === sender.id) {
          return unlessReplay(sender, draft, ValidationFailed.field("to", "is yourself: write to another agent"))
        }
        return directs.send({
          sender: messageSender(sender),
          recipient: { id: recipient.id, handle: recipient.handle },
          draft
        })
      }

      const toConversation = (sender: Sender, id: string, draft: Draft): Effect.Effect<Sent, SendError> =>
        id.startsWith("conv_")
          ? Effect.flatMap(
            participations.of(sender.id, id),
            (participation) =>
              unlessReplay(
                sender,
                draft,
                participation === undefined
                  ? new GroupNotFound()
                  : ValidationFailed.field("conversation_id", "is a direct conversation: use `to` with the handle")
              )
          )
          : toGroup(sender, id, draft)

      const toGroup = (sender: Sender, id: string, draft: Draft): Effect.Effect<Sent, SendError> => {
        return Effect.matchEffect(groups.send(id, { sender: messageSender(sender), draft }), {
          onFailure: (failure): Effect.Effect<Sent, SendError> =>
            // The caller repeats the send after Unavailable. A look-up of the key might wait for the same database, so
            // it is skipped.
            isOfSender(failure) || failure._tag === "Unavailable"
              ? Effect.fail(failure)
              : unlessReplay(sender, draft, failure),
          onSuccess: (sent) => sent === null ? unlessReplay(sender, draft, new Unavailable()) : Effect.succeed(sent)
        })
      }

      /** Counts a send to this conversation against the sender's budgets, if it has any. */
      const within = (
        sender: Sender,
        draft: Draft,
        conversationId: string,
        send: Effect.Effect<Sent, SendError>
      ): Effect.Effect<SendAnswer, SendError> =>
        Effect.withFiber((fiber) => {
          const byModel = fiber.getRef(ByModel)
          if (!budgets.apply(sender, byModel)) return send
          const charges = budgets.charges(sender, byModel, conversationId)
          const giveBack = (states: ReadonlyArray<RateState>): void => {
            for (const [i, state] of states.entries()) limits.refund(charges[i]!.rule, charges[i]!.key, state)
          }
          const charged = Effect.matchEffect(limits.takeAll(charges), {
            onFailure: (refusal) => unlessReplay(sender, draft, budgets.exceeded(charges, refusal)),
            onSuccess: (states) =>
              Effect.matchEffect(send, {
                onFailure: (failure) => {
                  // The message may be stored. Then the repetition of the send is a replay, which does not count.
                  if (failure._tag !== "Unavailable") giveBack(states)
                  return Effect.fail(failure)
                },
                onSuccess: (sent) => {
                  if (!sent.created) giveBack(states)
                  const budget = sent.created ? budgets.left(charges, states) : undefined
                  return Effect.succeed(budget === undefined ? sent : { ...sent, budget })
                }
              })
          })
          // A repetition waits until the send before it has ended, even if its caller has gone. At the budget it is then
          // known to be a replay, and no place is taken for it meanwhile.
          return Effect.scoped(
            Effect.flatMap(
              RcMap.get(turns, `${sender.id} ${draft.clientMsgId}`),
              (turn) => turn.withPermit(Effect.uninterruptible(charged))
            )
          )
        })

      const routed = (sender: Sender, target: SendTarget, given: Draft): Effect.Effect<SendAnswer, SendError> =>
        Effect.matchEffect(withHops(sender.id, given), {
          // As in `toGroup`, the database is not asked again if it does not respond.
          onFailure: (failure) =>
            failure._tag === "Unavailable" ? Effect.fail(failure) : unlessReplay(sender, given, failure),
          onSuccess: (draft) => counted(sender, target, draft)
        })

      const counted = (sender: Sender, target: SendTarget, draft: Draft): Effect.Effect<SendAnswer, SendError> =>
        target._tag === "Conversation"
          ? within(sender, draft, target.id, toConversation(sender, target.id, draft))
          : Effect.flatMap(agents.byHandle(target.handle), (recipient) => {
            const send = toRecipient(sender, recipient, draft)
            return recipient === undefined || recipient.id === sender.id
              ? send
              : within(sender, draft, directs.idOf(sender.id, recipient.id), send)
          })

      const send = (sender: Sender, target: SendTarget, draft: Draft): Effect.Effect<SendAnswer, SendError> =>
        Effect.matchEffect(limits.take(rate, sender.id), {
          onFailure: (limited) =>
            Effect.flatMap(unlessReplay(sender, draft, limited), (sent) => replayed(sender, target, sent)),
          onSuccess: (state) => {
            warn(sender.id, state)
            return Effect.matchEffect(routed(sender, target, draft), {
              onFailure: (failure) => {
                // A send that the group's own limit refuses does not count against the sender's limit.
                if (failure._tag === "RateLimited") limits.refund(rate, sender.id, state)
                return Effect.fail(failure)
              },
              onSuccess: (sent): Effect.Effect<SendAnswer, Unavailable> => {
                if (sent.created) return Effect.succeed(sent)
                // A replay does not count against the limit. It is known only now that the send is a replay.
                limits.refund(rate, sender.id, state)
                return replayed(sender, target, sent)
              }
            })
          }
        })

      return Conversations.of({
        send,
        original: directs.original,
        ...reading,
        typing: typing.typing,
        block: Effect.fn("Conversations.block")(function*(command) {
          const outcome = yield* directs.block(command)
          typing.forgetReceivers(directs.idOf(command.agentId, command.blockedId), command)
          return outcome
        }),
        unblock: Effect.fn("Conversations.unblock")(directs.unblock),
        settled: Effect.andThen(directs.settled, groups.settled)
      })
    })
  )
}

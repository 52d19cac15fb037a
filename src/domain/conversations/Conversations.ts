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
import { type BudgetExceeded, isOfSender } from "#domain/sending/SendErrors"
import type { Sent } from "#domain/sending/Sent"
import { Config } from "#infrastructure/platform/Config"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { type Rate, type RateRefusal, type RateState, ruleOf, SECOND } from "#infrastructure/rates/RateRule"
import { Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { type ConversationQueries, makeConversationQueries } from "./ConversationQueries.ts"
import { type BudgetCharge, type BudgetLeft, ByModel, SendBudgets } from "./SendBudgets.ts"
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
      const rate = ruleOf(config, SENDS)
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

      const delivered = (sender: Sender, target: SendTarget, draft: Draft): Effect.Effect<Sent, SendError> =>
        target._tag === "Direct"
          ? Effect.flatMap(agents.byHandle(target.handle), (recipient) => toRecipient(sender, recipient, draft))
          : toConversation(sender, target.id, draft)

      /** Sends a message that counts against the rate of the sender and these budgets. */
      const sendCounted = (
        sender: Sender,
        target: SendTarget,
        draft: Draft,
        charges: ReadonlyArray<BudgetCharge>
      ): Effect.Effect<SendAnswer, SendError> => {
        const giveBack = (states: ReadonlyArray<RateState>): void => {
          for (const [i, { key, rule }] of charges.entries()) limits.refund(rule, key, states[i + 1]!)
        }
        const refusalBy = (refusal: RateRefusal): RateRefusal | BudgetExceeded => {
          const charge = charges.find(({ rule }) => rule === refusal.rule)
          return charge === undefined ? refusal : budgets.exceeded(charge, refusal)
        }
        return Effect.matchEffect(limits.takeAll([{ rule: rate, key: sender.id }, ...charges]), {
          onFailure: (refusal) =>
            Effect.flatMap(unlessReplay(sender, draft, refusalBy(refusal)), (sent) => replayed(sender, target, sent)),
          onSuccess: (states) => {
            const state = states[0]!
            warn(sender.id, state)
            return Effect.matchEffect(delivered(sender, target, draft), {
              onFailure: (failure) => {
                giveBack(states)
                // A send that the group's own limit refuses does not count against the sender's limit.
                if (failure._tag === "RateLimited") limits.refund(rate, sender.id, state)
                return Effect.fail(failure)
              },
              onSuccess: (sent): Effect.Effect<SendAnswer, Unavailable> => {
                if (sent.created) {
                  const budget = charges.length === 0 ? undefined : budgets.left(charges, states.slice(1))
                  return Effect.succeed(budget === undefined ? sent : { ...sent, budget })
                }
                // A replay does not count against the limits. It is known only now that the send is a replay.
                limits.refund(rate, sender.id, state)
                giveBack(states)
                return replayed(sender, target, sent)
              }
            })
          }
        })
      }

      /** The conversation to which a send leads, or undefined if the send is going to be refused. */
      const conversationOf = (sender: Sender, target: SendTarget): Effect.Effect<string | undefined, Unavailable> =>
        target._tag === "Conversation"
          ? Effect.succeed(target.id)
          : Effect.map(
            agents.byHandle(target.handle),
            (recipient) => recipient === undefined ? undefined : directs.idOf(sender.id, recipient.id)
          )

      const send = (sender: Sender, target: SendTarget, draft: Draft): Effect.Effect<SendAnswer, SendError> =>
        Effect.withFiber((fiber) => {
          const byModel = fiber.getRef(ByModel)
          return budgets.apply(sender, byModel)
            ? Effect.flatMap(
              conversationOf(sender, target),
              (id) => sendCounted(sender, target, draft, id === undefined ? [] : budgets.charges(sender, byModel, id))
            )
            : sendCounted(sender, target, draft, [])
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

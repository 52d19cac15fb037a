import type { Agent } from "#domain/agents/Agent"
import { AgentNotFound, displayNameOf } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { Attachments } from "#domain/attachments/Attachments"
import { Deliveries, LAST_COMMITS } from "#domain/deliveries/Deliveries"
import type { GroupSendFailure } from "#domain/groups/GroupEntity"
import { Groups } from "#domain/groups/Groups"
import { GroupReads, isGroupId } from "#domain/messages/GroupReads"
import {
  type ContentTooLarge,
  type Draft,
  messageJson,
  type MessageSender,
  renderMessage
} from "#domain/messages/Message"
import { GroupNotFound, isOfSender } from "#domain/messages/SendErrors"
import { makeSendQueues } from "#domain/messages/SendQueues"
import type { Sent } from "#domain/messages/Sent"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { ColdSlots } from "#domain/push/ColdSlots"
import { LiveAgents } from "#domain/push/LiveAgents"
import { makePublish } from "#domain/push/MessagePublisher"
import { makeRateWarnings } from "#domain/push/RateWarnings"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { laneOf, makeCommitQueue } from "#infrastructure/database/CommitQueue"
import { Secrets } from "#infrastructure/database/Secrets"
import { Database } from "#infrastructure/database/Sql"
import { AnswerTimeout } from "#infrastructure/database/SqlPostgres"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { HELD_MS, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { makeAppend, makeAppendLocks } from "./Append.ts"
import { type Append, type Appended, makeDirectIds } from "./Conversation.ts"
import { ConversationActor, type Dependencies } from "./ConversationActor.ts"
import {
  type BlockCommand,
  type BlockOutcome,
  ConversationEntity,
  type SendCommand,
  type SendFailure,
  type UnblockOutcome
} from "./ConversationEntity.ts"
import { type ConversationQueries, makeConversationQueries } from "./ConversationQueries.ts"
import { ConversationsRepo } from "./ConversationsRepo.ts"
import { HistoryRepo } from "./HistoryRepo.ts"
import { makeTyping, type Pair, type Typing } from "./Typing.ts"

/** The sender as it was authenticated: its messages show the name that it had then. */
export interface Sender {
  readonly id: string
  readonly handle: string
  /** `null` if the agent has set none. Its handle is shown then. */
  readonly displayName: string | null
}

/** The addressee of a send. */
export type SendTarget =
  | { readonly _tag: "Direct"; readonly handle: string }
  | { readonly _tag: "Conversation"; readonly id: string }

/** The answer to a send. */
export interface SendAnswer extends Sent {
  /**
   * Set if the message is an earlier one of the sender, in another conversation than the send names. The send stored
   * nothing.
   */
  readonly isElsewhere?: true
}

export type SendError =
  | SendFailure
  | GroupSendFailure
  | ValidationFailed
  | ContentTooLarge

/** The sender as part of a send command, so that it is not looked up again after authentication. */
const messageSender = (sender: Sender): typeof MessageSender.Type => ({
  id: sender.id,
  handle: sender.handle,
  displayName: displayNameOf(sender)
})

/**
 * Sends messages, and reads, hides and blocks conversations. Sends and blocks run on the node that owns the
 * conversation.
 */
export class Conversations extends Context.Service<
  Conversations,
  ConversationQueries & Pick<Typing, "typing"> & {
    /** Sends a message and answers after its commit. `Sent.body` is the JSON text of the Message. */
    readonly send: (sender: Sender, target: SendTarget, draft: Draft) => Effect.Effect<SendAnswer, SendError>
    /** The message that this sender has stored under this id, in its present state, or undefined if there is none. */
    readonly original: (senderId: string, clientMsgId: string) => Effect.Effect<Sent | undefined, Unavailable>
    /**
     * Blocks one agent for another, in the order of their conversation: messages accepted before the block are
     * committed before it, and every later send is refused.
     */
    readonly block: (command: BlockCommand) => Effect.Effect<BlockOutcome, Unavailable>
    readonly unblock: (pair: Pair) => Effect.Effect<UnblockOutcome, Unavailable>
    /** Completes once every accepted send is committed or refused. */
    readonly settled: Effect.Effect<void>
  }
>()("parley/conversations/Conversations") {
  static readonly layer = Layer.effect(
    Conversations,
    Effect.gen(function*() {
      const reading = yield* makeConversationQueries
      const typing = yield* makeTyping(reading.participation)
      const warn = yield* makeRateWarnings
      const clock = yield* Clock.Clock
      const config = yield* Config
      const repo = yield* ConversationsRepo
      const reads = yield* HistoryRepo
      const agents = yield* Agents
      const liveAgents = yield* LiveAgents
      const attachments = yield* Attachments
      const slots = yield* ColdSlots
      const deliveries = yield* Deliveries
      const groups = yield* Groups
      const groupReads = yield* GroupReads
      const limits = yield* RateLimits
      const ids = yield* Ids
      const directId = makeDirectIds((yield* Secrets).conversationIds)
      const { driver } = yield* Database
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const now = () => clock.currentTimeMillisUnsafe()
      const monotonic = monotonicMillis(clock)

      const appends = yield* makeCommitQueue<Append, Appended>({
        name: "message",
        lanes: driver === "pglite" ? 1 : config.DATABASE_LANES,
        laneOf: (append) => laneOf(append.conversationId),
        rowsOf: () => 1,
        bytesOf: (append) => append.draft.content.length + append.draft.metadata.length,
        maxRows: 1_000,
        maxBytes: 4_194_304,
        capacity: 20_000,
        batchPerTick: true,
        commit: yield* makeAppend(config.LIMITS_BACKLOG_HARD, (yield* WebhookSignals).raise),
        locks: yield* makeAppendLocks
      })

      yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(appends.idle, LAST_COMMITS)))

      /** Finds the envelope of a direct message in the other side's inbox. */
      const receivedBy = Effect.fnUntraced(function*(senderId: string, conversationId: string, messageId: string) {
        const participation = yield* reads.participation(senderId, conversationId)
        return participation === undefined || participation.counterpartyId === null
          ? undefined
          : yield* deliveries.find(participation.counterpartyId, messageId)
      })

      /** The sender's earlier message under this id, in its present state. */
      const original = Effect.fnUntraced(function*(senderId: string, clientMsgId: string) {
        const messageId = yield* repo.byKey(senderId, clientMsgId)
        if (messageId === undefined) return undefined
        const found = yield* deliveries.find(senderId, messageId)
        if (found === undefined) return undefined
        const { conversationId, seq } = found.message
        const progress = isGroupId(conversationId)
          ? yield* groupReads.progress(conversationId, seq)
          : yield* receivedBy(senderId, conversationId, messageId)
        const sender = (yield* agents.byIds([senderId])).get(senderId)
        const contextOf = yield* groupReads.contexts([found.message])
        const sent: Sent = {
          created: false,
          body: messageJson(renderMessage(found.message, contextOf(found.message, sender), progress), null),
          backlog: null
        }
        return sent
      })

      const deps: Dependencies = {
        appends,
        now,
        monotonic,
        newMessageId: () => ids.make("msg"),
        // All later commands of the conversation wait for this read. It must not wait on a dead connection for longer
        // than callers wait.
        load: (conversationId, one, other) =>
          Effect.provideService(repo.load(conversationId, one, other), AnswerTimeout, HELD_MS),
        facts: ({ draft, recipient, sender }, conversationId) =>
          repo.outreach(sender.id, recipient.id, draft.clientMsgId, conversationId, now()),
        reserve: liveAgents.reserveOutreach,
        release: (senderId, conversationId) => Effect.ignore(slots.release(senderId, conversationId)),
        useAttachment: (senderId, agentId, id, asks) => attachments.use(senderId, { _tag: "Agent", agentId }, id, asks),
        original,
        publish: yield* makePublish,
        backlogSoft: config.LIMITS_BACKLOG_SOFT,
        backlogHard: config.LIMITS_BACKLOG_HARD,
        fork
      }

      const actors = yield* makeSendQueues("conversation", ConversationActor.make(deps))
      const client = yield* EntityRpc.make(ConversationEntity, {
        Send: { run: (conversationId, { command }) => actors.of(conversationId).send(command) },
        Block: {
          run: (conversationId, { command }) =>
            Effect.tap(
              actors.of(conversationId).block(Effect.flatMap(
                repo.block(conversationId, command),
                (change) => change === "TooLate" ? Effect.fail(new Unavailable()) : Effect.succeed(change)
              )),
              () => Effect.sync(() => typing.forgetReceivers(conversationId, command))
            )
        },
        Unblock: {
          run: (conversationId, { command }) =>
            actors.of(conversationId).unblock(
              Effect.gen(function*() {
                for (let tries = 0; tries < 5; tries++) {
                  const outcome = yield* repo.unblock(conversationId, command)
                  if (outcome !== undefined) return outcome
                }
                return yield* new Unavailable()
              })
            )
        }
      })
      const block = Effect.fn("Conversations.block")(function*(command: BlockCommand) {
        const id = directId(command.agentId, command.blockedId)
        const outcome = yield* client.Block(id, { command })
        typing.forgetReceivers(id, command)
        return outcome
      })
      const unblock = Effect.fn("Conversations.unblock")(function*({ agentId, blockedId }: Pair) {
        const since = yield* repo.blockedSince(agentId, blockedId)
        if (since === undefined) return "NotBlocked"
        return yield* client.Unblock(directId(agentId, blockedId), { command: { agentId, blockedId, since } })
      })

      const rate: RateRule = {
        name: "send",
        limit: config.LIMITS_SENDS_PER_SECOND,
        windowMs: 1_000,
        window: "second"
      }
      /**
       * Fails with `failure` unless the key is stored already: a replay always gets the original message (wire.md C.6).
       */
      const unlessReplay = <E>(sender: Sender, draft: Draft, failure: E): Effect.Effect<Sent, E | Unavailable> =>
        Effect.flatMap(
          original(sender.id, draft.clientMsgId),
          (sent): Effect.Effect<Sent, E> => sent === undefined ? Effect.fail(failure) : Effect.succeed(sent)
        )

      /** Whether a send to this target goes to the conversation of a message that the sender has sent before. */
      const leadsTo = Effect.fnUntraced(function*(sender: Sender, target: SendTarget, conversationId: string) {
        if (target._tag === "Conversation") return target.id === conversationId
        const recipient = yield* agents.byHandle(target.handle)
        if (recipient !== undefined) return directId(sender.id, recipient.id) === conversationId
        // The recipient of the earlier message may be a deleted account by now.
        const counterpartyId = (yield* reads.participation(sender.id, conversationId))?.counterpartyId ?? null
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
        const command: SendCommand = {
          sender: messageSender(sender),
          recipient: { id: recipient.id, handle: recipient.handle },
          draft
        }
        return client.Send(directId(sender.id, recipient.id), { command })
      }

      const toConversation = (sender: Sender, id: string, draft: Draft): Effect.Effect<Sent, SendError> =>
        id.startsWith("conv_")
          ? Effect.flatMap(
            reads.participation(sender.id, id),
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

      const send = (sender: Sender, target: SendTarget, draft: Draft): Effect.Effect<SendAnswer, SendError> =>
        Effect.matchEffect(limits.take(rate, sender.id), {
          onFailure: (limited) =>
            Effect.flatMap(unlessReplay(sender, draft, limited), (sent) => replayed(sender, target, sent)),
          onSuccess: (state) => {
            warn(sender.id, state)
            return Effect.matchEffect(
              target._tag === "Direct"
                ? Effect.flatMap(agents.byHandle(target.handle), (recipient) => toRecipient(sender, recipient, draft))
                : toConversation(sender, target.id, draft),
              {
                onFailure: (failure) => {
                  // A send that the group's own limit refuses does not count against the sender's limit.
                  if (failure._tag === "RateLimited") limits.refund(rate, sender.id, state)
                  return Effect.fail(failure)
                },
                onSuccess: (sent): Effect.Effect<SendAnswer, Unavailable> => {
                  if (sent.created) return Effect.succeed(sent)
                  // A replay does not count, and only now is it clear that the send is a replay.
                  limits.refund(rate, sender.id, state)
                  return replayed(sender, target, sent)
                }
              }
            )
          }
        })

      return Conversations.of({
        send,
        original,
        ...reading,
        typing: typing.typing,
        block,
        unblock,
        settled: Effect.andThen(appends.idle, groups.settled)
      })
    })
  )
}

import { Agents } from "#domain/agents/Agents"
import { Attachments } from "#domain/attachments/Attachments"
import { Deliveries, LAST_COMMITS } from "#domain/deliveries/Deliveries"
import { GroupReads, isGroupId } from "#domain/memberships/GroupReads"
import { Participations } from "#domain/memberships/Participations"
import { messageJson, renderMessage } from "#domain/messages/Message"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { ColdSlots } from "#domain/push/ColdSlots"
import { LiveAgents } from "#domain/push/LiveAgents"
import { makePublish } from "#domain/push/MessagePublisher"
import { makeSendQueues } from "#domain/sending/SendQueues"
import type { Sent } from "#domain/sending/Sent"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { laneOf, makeCommitQueue } from "#infrastructure/database/CommitQueue"
import { Secrets } from "#infrastructure/database/Secrets"
import { Database } from "#infrastructure/database/Sql"
import { AnswerTimeout } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { CALLER_TIMEOUT_MS, Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { DirectActor } from "./DirectActor.ts"
import { makeDirectAppend, makeDirectAppendLocks } from "./DirectAppend.ts"
import { type DirectAppend, type DirectAppended, makeDirectIds } from "./DirectConversation.ts"
import {
  type BlockCommand,
  type BlockOutcome,
  DirectEntity,
  type SendCommand,
  type SendFailure,
  type UnblockCommand,
  type UnblockOutcome
} from "./DirectEntity.ts"
import { DirectRepo } from "./DirectRepo.ts"

/** The agent that blocks and the agent that is blocked. */
export type BlockPair = Pick<UnblockCommand, "agentId" | "blockedId">

const MAX_UNBLOCK_TRIES = 5

/** Direct conversations. Sends and blocks run on the node that owns the conversation. */
export class DirectConversations extends Context.Service<DirectConversations, {
  /** Returns the id of the direct conversation of two agents, whether or not the conversation exists. */
  readonly idOf: (one: string, other: string) => string
  /** Sends a message to another agent. Completes after the commit. */
  readonly send: (command: SendCommand) => Effect.Effect<Sent, SendFailure>
  /**
   * Returns the message that this sender has stored with this client_msg_id, in a direct conversation or in a group.
   * The message is in its current state. Returns undefined if there is none.
   */
  readonly original: (senderId: string, clientMsgId: string) => Effect.Effect<Sent | undefined, Unavailable>
  /**
   * Makes one agent block another, in the order of their conversation. Messages that were accepted before the block are
   * committed before it, and every later send is refused.
   */
  readonly block: (command: BlockCommand) => Effect.Effect<BlockOutcome, Unavailable>
  readonly unblock: (pair: BlockPair) => Effect.Effect<UnblockOutcome, Unavailable>
  /** Completes when every accepted send is committed or refused. */
  readonly settled: Effect.Effect<void>
}>()("parley/direct/DirectConversations") {
  static readonly layer = Layer.effect(
    DirectConversations,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const config = yield* Config
      const repo = yield* DirectRepo
      const liveAgents = yield* LiveAgents
      const attachments = yield* Attachments
      const slots = yield* ColdSlots
      const ids = yield* Ids
      const idOf = makeDirectIds((yield* Secrets).conversationIds)
      const original = yield* makeOriginal
      const now = () => clock.currentTimeMillisUnsafe()
      const appends = yield* makeAppends

      const actors = yield* makeSendQueues(
        "conversation",
        DirectActor.make({
          appends,
          now,
          monotonic: monotonicMillis(clock),
          newMessageId: () => ids.make("msg"),
          // All later commands of the conversation wait for this read. So the read must not wait on a dead connection
          // for longer than callers wait.
          load: (conversationId, one, other) =>
            Effect.provideService(repo.load(conversationId, one, other), AnswerTimeout, CALLER_TIMEOUT_MS),
          facts: ({ draft, recipient, sender }, conversationId) =>
            repo.outreach(sender.id, recipient.id, draft.clientMsgId, conversationId, now()),
          reserve: liveAgents.reserveOutreach,
          release: (senderId, conversationId) => Effect.ignore(slots.release(senderId, conversationId)),
          useAttachment: (senderId, agentId, id, asks) =>
            attachments.use(senderId, { _tag: "Agent", agentId }, id, asks),
          original,
          publish: yield* makePublish,
          backlogSoft: config.LIMITS_BACKLOG_SOFT,
          backlogHard: config.LIMITS_BACKLOG_HARD,
          fork: Effect.runForkWith(yield* Effect.context<never>())
        })
      )
      const client = yield* EntityRpc.make(DirectEntity, {
        Send: { run: (conversationId, { command }) => actors.of(conversationId).send(command) },
        Block: {
          run: (conversationId, { command }) =>
            actors.of(conversationId).block(Effect.flatMap(
              repo.block(conversationId, command),
              (change) => change === "TooLate" ? Effect.fail(new Unavailable()) : Effect.succeed(change)
            ))
        },
        Unblock: {
          run: (conversationId, { command }) =>
            actors.of(conversationId).unblock(
              Effect.gen(function*() {
                for (let tries = 0; tries < MAX_UNBLOCK_TRIES; tries++) {
                  const outcome = yield* repo.unblock(conversationId, command)
                  if (outcome !== undefined) return outcome
                }
                return yield* new Unavailable()
              })
            )
        }
      })

      return DirectConversations.of({
        idOf,
        send: (command) => client.Send(idOf(command.sender.id, command.recipient.id), { command }),
        original,
        block: (command) => client.Block(idOf(command.agentId, command.blockedId), { command }),
        unblock: Effect.fnUntraced(function*({ agentId, blockedId }) {
          const since = yield* repo.blockedSince(agentId, blockedId)
          if (since === undefined) return "NotBlocked"
          // If the block is gone by now, an attempt of this call on another node may have removed it, whose answer was
          // lost.
          yield* client.Unblock(idOf(agentId, blockedId), { command: { agentId, blockedId, since } })
          return "Unblocked"
        }),
        settled: appends.idle
      })
    })
  )
}

/** The queue in which the sends of all direct conversations are committed in batches. */
const makeAppends = Effect.gen(function*() {
  const config = yield* Config
  const { driver } = yield* Database
  const appends = yield* makeCommitQueue<DirectAppend, DirectAppended>({
    name: "message",
    lanes: driver === "pglite" ? 1 : config.DATABASE_LANES,
    laneOf: (append) => laneOf(append.conversationId),
    rowsOf: () => 1,
    bytesOf: (append) => append.draft.content.length + append.draft.metadata.length,
    maxRows: 1_000,
    maxBytes: 4_194_304,
    capacity: 20_000,
    batchPerTick: true,
    commit: yield* makeDirectAppend(config.LIMITS_BACKLOG_HARD, (yield* WebhookSignals).raise),
    locks: yield* makeDirectAppendLocks
  })
  yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(appends.idle, LAST_COMMITS)))
  return appends
})

/** Makes the function that looks up a sender's earlier message with a client_msg_id. */
const makeOriginal = Effect.gen(function*() {
  const repo = yield* DirectRepo
  const agents = yield* Agents
  const deliveries = yield* Deliveries
  const groupReads = yield* GroupReads
  const participations = yield* Participations

  /** Finds the envelope of a direct message in the inbox of the other agent. */
  const receivedBy = Effect.fnUntraced(function*(senderId: string, conversationId: string, messageId: string) {
    const participation = yield* participations.of(senderId, conversationId)
    return participation === undefined || participation.counterpartyId === null
      ? undefined
      : yield* deliveries.find(participation.counterpartyId, messageId)
  })

  return Effect.fnUntraced(function*(senderId: string, clientMsgId: string) {
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
})

import { Effect } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { ConversationEntity } from "./ConversationEntity.ts"
import { Conversations } from "./Conversations.ts"

/**
 * The Conversation for callers on other runners. The actor behind it has its own
 * queue and its own order, so calls are handed to it as they arrive.
 */
export const ConversationEntityLive = ConversationEntity.toLayer(
  Effect.gen(function*() {
    const conversations = yield* Conversations
    const { entityId } = yield* Entity.CurrentAddress
    return ConversationEntity.of({
      Send: ({ payload }) => Rpc.fork(conversations.local(entityId).send(payload.command)),
      Block: ({ payload }) => Rpc.fork(conversations.localBlock(entityId, payload.command)),
      Unblock: ({ payload }) => Rpc.fork(conversations.localUnblock(entityId, payload.command))
    })
  })
)

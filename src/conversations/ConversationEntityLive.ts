import { Effect } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { logDefect } from "../cluster/LogDefect.ts"
import { forRequest, REQUEST_ID } from "../platform/RequestId.ts"
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
      Send: ({ headers, payload }) =>
        Rpc.fork(forRequest(headers[REQUEST_ID], logDefect(conversations.local(entityId).send(payload.command)))),
      Block: ({ headers, payload }) =>
        Rpc.fork(forRequest(headers[REQUEST_ID], logDefect(conversations.localBlock(entityId, payload.command)))),
      Unblock: ({ headers, payload }) =>
        Rpc.fork(forRequest(headers[REQUEST_ID], logDefect(conversations.localUnblock(entityId, payload.command))))
    })
  }),
  // A defect is the caller's answer, and no reason to begin again with all that is in flight.
  { disableFatalDefects: true }
)

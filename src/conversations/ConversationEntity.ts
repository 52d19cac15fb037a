import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { AgentNotFound, AgentSuspended } from "../agents/Agent.ts"
import { StorageUnavailable } from "../files/Blobs.ts"
import { Unauthorized, Unavailable } from "../wire/WireError.ts"
import {
  AgentRestricted,
  AttachmentNotFound,
  AttachmentNotReady,
  AttachmentWrongScope,
  AwaitingReply,
  Blocked,
  ColdCapExceeded,
  InboxRestricted,
  RecipientBacklogged
} from "../messages/SendErrors.ts"
import { Sent } from "../messages/Sent.ts"
import { Draft, MessageSender } from "../messages/Message.ts"

/** A direct send with all that is needed to handle it: neither agent has to be looked up. */
export const SendCommand = Schema.Struct({
  sender: MessageSender,
  recipient: Schema.Struct({ id: Schema.String, handle: Schema.String }),
  draft: Draft
})
export type SendCommand = typeof SendCommand.Type

export const SendFailure = Schema.Union([
  Unauthorized,
  AgentNotFound,
  AgentSuspended,
  Blocked,
  AgentRestricted,
  InboxRestricted,
  AwaitingReply,
  ColdCapExceeded,
  AttachmentNotFound,
  AttachmentNotReady,
  AttachmentWrongScope,
  RecipientBacklogged,
  StorageUnavailable,
  Unavailable
])
export type SendFailure = typeof SendFailure.Type

/** Sends a message; repeats of a client_msg_id by the same sender get the first answer. */
export const Send = Rpc.make("Send", { payload: { command: SendCommand }, success: Sent, error: SendFailure })

/** A block, with the report that it comes from; like a send, it carries all that is needed to handle it. */
export const BlockCommand = Schema.Struct({
  agentId: Schema.String,
  blockedId: Schema.String,
  at: Schema.Int,
  report: Schema.NullOr(Schema.Struct({ id: Schema.String, reason: Schema.NullOr(Schema.String) }))
})
export type BlockCommand = typeof BlockCommand.Type

/** `AlreadyReported`: nothing changed. `AlreadyBlocked`: at most the report that came with the block was stored. */
export const BlockOutcome = Schema.Literals(["Blocked", "AlreadyBlocked", "AlreadyReported"])
export type BlockOutcome = typeof BlockOutcome.Type

/**
 * Blocks one agent for the other: no message is committed after it, even if a node had decided to accept
 * it before.
 */
export const Block = Rpc.make("Block", {
  payload: { command: BlockCommand },
  success: BlockOutcome,
  error: Unavailable
})

export const UnblockCommand = Schema.Struct({
  agentId: Schema.String,
  blockedId: Schema.String,
  /** When the block was made, in milliseconds: a later block stays if this command comes late or twice. */
  since: Schema.Int
})
export type UnblockCommand = typeof UnblockCommand.Type

export const UnblockOutcome = Schema.Literals(["Unblocked", "NotBlocked"])
export type UnblockOutcome = typeof UnblockOutcome.Type

/** Removes one side's block; a block by the other side stays. */
export const Unblock = Rpc.make("Unblock", {
  payload: { command: UnblockCommand },
  success: UnblockOutcome,
  error: Unavailable
})

/**
 * A direct conversation as an actor. Single writer of its messages, its state and its blocks while its
 * node owns the shard; each write carries the epoch that it was decided in, so the database fences off a
 * second owner. Rebuilt from its rows at the first send; removed from memory five minutes after the last
 * call. Safe to retry because a send finds its client_msg_id, a block finds itself and an unblock names
 * the block that it ends. The names of the entity and of its Rpcs never change.
 */
export const ConversationEntity = Entity.make("Conversation", [Send, Block, Unblock])

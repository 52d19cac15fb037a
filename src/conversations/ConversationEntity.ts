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

/** A direct send, complete: whoever handles it asks nobody who the two are. */
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

/** Sends a message; the same sender and client_msg_id give the first answer, however often they come. */
export const Send = Rpc.make("Send", { payload: { command: SendCommand }, success: Sent, error: SendFailure })

/** A block, with the report that it comes from; complete, as a send is. */
export const BlockCommand = Schema.Struct({
  agentId: Schema.String,
  blockedId: Schema.String,
  at: Schema.Int,
  report: Schema.NullOr(Schema.Struct({ id: Schema.String, reason: Schema.NullOr(Schema.String) }))
})
export type BlockCommand = typeof BlockCommand.Type

/** `AlreadyReported` changed nothing; `AlreadyBlocked` nothing but to store the report that came with it. */
export const BlockOutcome = Schema.Literals(["Blocked", "AlreadyBlocked", "AlreadyReported"])
export type BlockOutcome = typeof BlockOutcome.Type

/** Blocks one side for the other: no message is committed after it, whoever decided on it before. */
export const Block = Rpc.make("Block", {
  payload: { command: BlockCommand },
  success: BlockOutcome,
  error: Unavailable
})

export const UnblockCommand = Schema.Struct({
  agentId: Schema.String,
  blockedId: Schema.String,
  /** When the block was made: one that was made later stays, should this come late or twice. */
  since: Schema.Int
})
export type UnblockCommand = typeof UnblockCommand.Type

export const UnblockOutcome = Schema.Literals(["Unblocked", "NotBlocked"])
export type UnblockOutcome = typeof UnblockOutcome.Type

/** Takes back one side's block; one of the other side stays. */
export const Unblock = Rpc.make("Unblock", {
  payload: { command: UnblockCommand },
  success: UnblockOutcome,
  error: Unavailable
})

/**
 * A direct conversation as an actor. Single writer of its messages, its state and its blocks while its node has the
 * shard; each write names the epoch that it was decided in, so a second owner is fenced off by the database. Rebuilt
 * from its rows at the first send; idle, and forgotten, five minutes after the last call. Safe to retry because a send
 * meets its client_msg_id, a block meets itself and an unblock names the block that it ends. Landed names: never
 * changed.
 */
export const ConversationEntity = Entity.make("Conversation", [Send, Block, Unblock])

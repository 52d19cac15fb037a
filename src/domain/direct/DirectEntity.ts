import { Draft, MessageSender } from "#domain/messages/Message"
import { directSendErrors } from "#domain/sending/SendErrors"
import { Sent } from "#domain/sending/Sent"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"

/** A direct send with everything that the owner needs, so that the owner looks up neither agent. */
export const SendCommand = Schema.Struct({
  sender: MessageSender,
  recipient: Schema.Struct({ id: Schema.String, handle: Schema.String }),
  draft: Draft
})
export type SendCommand = typeof SendCommand.Type

export const SendFailure = Schema.Union(directSendErrors)
export type SendFailure = typeof SendFailure.Type

/** Sends a message. If the sender has used the client_msg_id before, stores nothing and returns the earlier message. */
export const Send = Rpc.make("Send", { payload: { command: SendCommand }, success: Sent, error: SendFailure })

/** A block and, if a report caused it, the report. Like a send, it contains everything that the owner needs. */
export const BlockCommand = Schema.Struct({
  agentId: Schema.String,
  blockedId: Schema.String,
  at: Schema.Int,
  report: Schema.NullOr(Schema.Struct({ id: Schema.String, reason: Schema.NullOr(Schema.String) }))
})
export type BlockCommand = typeof BlockCommand.Type

/** `AlreadyReported`: nothing changed. `AlreadyBlocked`: only the report was stored, if the command contains one. */
export const BlockOutcome = Schema.Literals(["Blocked", "AlreadyBlocked", "AlreadyReported"])
export type BlockOutcome = typeof BlockOutcome.Type

/**
 * Makes one agent block the other. No message between the two is committed after the block, even if a node had already
 * decided to accept the message.
 */
export const Block = Rpc.make("Block", {
  payload: { command: BlockCommand },
  success: BlockOutcome,
  error: Unavailable
})

export const UnblockCommand = Schema.Struct({
  agentId: Schema.String,
  blockedId: Schema.String,
  /** When the block was made, in milliseconds. A later block is kept, even if this command arrives late or twice. */
  since: Schema.Int
})
export type UnblockCommand = typeof UnblockCommand.Type

export const UnblockOutcome = Schema.Literals(["Unblocked", "NotBlocked"])
export type UnblockOutcome = typeof UnblockOutcome.Type

/** Removes one agent's block. A block by the other agent is kept. */
export const Unblock = Rpc.make("Unblock", {
  payload: { command: UnblockCommand },
  success: UnblockOutcome,
  error: Unavailable
})

/**
 * A direct conversation as an actor. It is the single writer of its messages, its state and its blocks while its node
 * owns the shard. Each write contains the epoch in which it was decided, so that the database refuses the writes of an
 * earlier owner. The actor is rebuilt from its rows at the first send and removed from memory five minutes after the
 * last call. Calls are safe to retry: a send finds its client_msg_id, a block finds the existing block, and an unblock
 * names the block that it removes. The names of the entity and of its Rpcs never change.
 */
export const DirectEntity = Entity.make("Conversation", [Send, Block, Unblock])

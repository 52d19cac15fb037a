import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { AgentNotFound, AgentSuspended } from "../agents/Agent.ts"
import { Unauthorized, Unavailable } from "../platform/WireError.ts"
import {
  AgentRestricted,
  AttachmentNotFound,
  AwaitingReply,
  Blocked,
  ColdCapExceeded,
  InboxRestricted,
  RecipientBacklogged
} from "./Conversation.ts"

const DraftSchema = Schema.Struct({
  clientMsgId: Schema.String,
  type: Schema.Literals(["text", "structured", "file"]),
  content: Schema.String,
  metadata: Schema.String,
  attachmentId: Schema.UndefinedOr(Schema.String)
})

/** A direct send, complete: whoever handles it asks nobody who the two are. */
export const SendCommand = Schema.Struct({
  sender: Schema.Struct({ id: Schema.String, handle: Schema.String, displayName: Schema.NullOr(Schema.String) }),
  recipient: Schema.Struct({ id: Schema.String, handle: Schema.String }),
  draft: DraftSchema
})
export type SendCommand = typeof SendCommand.Type

/** The answer to a send: the message as its sender sees it, already JSON. */
export const Sent = Schema.Struct({
  /** False: the original of an earlier send. */
  created: Schema.Boolean,
  body: Schema.String,
  /** The recipient's undelivered envelopes, if there are so many that the sender is warned (wire.md G.4). */
  backlog: Schema.NullOr(Schema.Int)
})
export type Sent = typeof Sent.Type

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
  RecipientBacklogged,
  Unavailable
])
export type SendFailure = typeof SendFailure.Type

/** Sends a message; the same sender and client_msg_id give the first answer, however often they come. */
export const Send = Rpc.make("Send", { payload: { command: SendCommand }, success: Sent, error: SendFailure })

/** A direct conversation as an actor. Landed names: never changed. */
export const ConversationEntity = Entity.make("Conversation", [Send])

import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { AgentNotFound } from "../agents/Agent.ts"
import { Authorization } from "../auth/Authorization.ts"
import { OwnBudget } from "../auth/Budgets.ts"
import { StorageUnavailable } from "../files/Blobs.ts"
import { Confirm } from "../wire/Confirmation.ts"
import { Idempotency } from "../idempotency/Idempotency.ts"
import { Limit, Offset } from "../wire/Page.ts"
import { HandleInput, JsonObject, Text } from "../wire/Text.ts"
import { Forbidden } from "../wire/WireError.ts"
import { ConversationNotFound } from "./Conversation.ts"
import {
  AgentRestricted,
  AttachmentNotFound,
  AttachmentNotReady,
  AttachmentWrongScope,
  AwaitingReply,
  Blocked,
  ColdCapExceeded,
  GroupDeleted,
  GroupNotFound,
  InboxRestricted,
  RecipientBacklogged
} from "../messages/SendErrors.ts"
import { ContentTooLarge, Message, MessageNotFound, SyncRow } from "../messages/Message.ts"

/** The body of a send (wire.md C.6); which of `to` and `conversation_id` and that content is there is checked by the rules. */
export const SendBody = Schema.Struct({
  to: Schema.optionalKey(HandleInput),
  conversation_id: Schema.optionalKey(Text(1, 64)),
  client_msg_id: Text(1, 128),
  type: Schema.optionalKey(Schema.Literals(["text", "structured", "file"])),
  content: Schema.Struct({
    text: Schema.optionalKey(Schema.String),
    data: Schema.optionalKey(JsonObject),
    attachment_id: Schema.optionalKey(Text(1, 64))
  }),
  metadata: Schema.optionalKey(JsonObject)
})

/** A sequence number; clients also write an absent one as empty or `null` (wire.md C.6). */
const SeqCursor = Schema.Union([Offset, Schema.Literals(["", "null"])])

/** Sends, history, the pull inbox, and what a recipient does with a message (wire.md C.6). */
export class MessagesApi extends HttpApiGroup.make("messages")
  .add(
    HttpApiEndpoint.post("send", "/v1/messages", {
      payload: SendBody,
      success: [Message.pipe(HttpApiSchema.status(201)), Message],
      error: [
        AgentNotFound,
        GroupNotFound,
        GroupDeleted,
        Blocked,
        AgentRestricted,
        InboxRestricted,
        AwaitingReply,
        ColdCapExceeded,
        AttachmentNotFound,
        AttachmentNotReady,
        AttachmentWrongScope,
        RecipientBacklogged,
        ContentTooLarge,
        StorageUnavailable
      ]
    }).annotate(OwnBudget, true).annotate(
      OpenApi.Description,
      "Sends a message: 201 once it is on disk; 200 with the original for a client_msg_id that was sent before."
    ),
    HttpApiEndpoint.get("history", "/v1/messages/:conversation_id", {
      params: { conversation_id: Schema.String },
      query: {
        limit: Schema.optionalKey(Limit),
        before_seq: Schema.optionalKey(SeqCursor),
        after_seq: Schema.optionalKey(SeqCursor),
        around_message_id: Schema.optionalKey(Schema.String)
      },
      success: Schema.Array(Message),
      error: [ConversationNotFound, GroupDeleted, MessageNotFound]
    }).annotate(
      OpenApi.Description,
      "Messages of a conversation: newest first, or with after_seq oldest first; at most one of the three cursors."
    ),
    HttpApiEndpoint.get("sync", "/v1/messages/sync", {
      query: { after: Schema.optionalKey(Schema.String), limit: Schema.optionalKey(Limit) },
      success: Schema.Array(SyncRow)
    }).annotate(OpenApi.Description, "Undelivered messages, oldest delivery first; reading changes nothing."),
    HttpApiEndpoint.post("syncAck", "/v1/messages/sync/ack", {
      payload: Schema.Struct({ last_delivery_id: Schema.String }),
      success: Schema.Struct({ acked: Schema.Int })
    }).middleware(Idempotency).annotate(
      OpenApi.Description,
      "Marks everything up to and including this delivery as delivered."
    ),
    HttpApiEndpoint.post("read", "/v1/messages/:id/read", {
      params: { id: Schema.String },
      success: Schema.Struct({ ...Message.fields, ok: Schema.Literal(true) }).annotate({ identifier: "ReadMessage" }),
      error: [MessageNotFound, Forbidden]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Marks one received message as read; its sender is told."),
    HttpApiEndpoint.delete("hide", "/v1/messages/:id", {
      params: { id: Schema.String },
      success: Confirm,
      error: MessageNotFound
    }).middleware(Idempotency).annotate(OpenApi.Description, "Hides a message from the caller alone.")
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Messages", description: "Sending, history and the pull inbox." }))
{}

import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { OutcomeReport } from "#domain/deliveries/OutcomeChange"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { GroupDeleted } from "#domain/memberships/GroupDeletion"
import { Message, MessageNotFound, SyncRow } from "#domain/messages/Message"
import { MAX_REASON, OutcomeFinal, OutcomeState } from "#domain/messages/Outcome"
import { endpointSendErrors } from "#domain/sending/SendErrors"
import { LargeAnswer } from "#infrastructure/concurrency/LargeReads"
import { documented } from "#infrastructure/http/Documented"
import { type BodyBytes, BodyLimit, SMALL_BODY } from "#infrastructure/http/EndpointOptions"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { CONVERSATION_ID, DELIVERY_ID, MESSAGE_ID, REPLY_ID } from "#infrastructure/wire/Examples"
import { Limit, Offset } from "#infrastructure/wire/Page"
import { HandleInput, JsonObject, Text } from "#infrastructure/wire/Text"
import { Forbidden } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { ConversationNotFound } from "./Conversation.ts"
import { message, messageWhenRead, newMessage, outcome, outcomes, reply, replyWhenRead } from "./MessagesExamples.ts"

/**
 * The body of a send (wire.md C.6). MessagesHttp checks that there is content, and exactly one of `to`
 * and `conversation_id`.
 */
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

/** How many times larger than a message the body of a send may be, because JSON may escape each byte with six bytes. */
const ESCAPED = 6
const sendBody: BodyBytes = (config) =>
  Math.min(config.LIMITS_BODY_BYTES, ESCAPED * config.LIMITS_MESSAGE_BYTES + SMALL_BODY)

/** How many messages a response contains: `usual` without a `limit` in the query, and at most `max`. */
export const HISTORY: LargeAnswer = { usual: 50, max: 200, bytes: "message" }
export const SYNC: LargeAnswer = { usual: 200, max: 500, bytes: "message" }

/** A message has at most as many outcomes as recipients. The bytes are those of a reason and what stands beside it. */
const OUTCOMES: LargeAnswer = { usual: 255, max: 255, bytes: 2_048 }

/** A seq in a query. Instead of omitting the parameter, clients also send an empty text or `null` (wire.md C.6). */
const SeqCursor = Schema.Union([Offset, Schema.Literals(["", "null"])])

/** Sends, history, the pull inbox, reads and hides (wire.md C.6). */
export class MessagesApi extends HttpApiGroup.make("messages")
  .add(
    HttpApiEndpoint.post("send", "/v1/messages", {
      payload: SendBody,
      success: [Message.pipe(HttpApiSchema.status(201)), Message],
      error: endpointSendErrors
    }).annotate(OwnBudget, true).annotate(BodyLimit, sendBody).annotateMerge(documented({
      summary: "Send a message",
      description:
        "Sends a message to an agent (to) or to a group of the caller's (conversation_id), and answers 201 once it is on " +
        "disk. A repeated send with the same client_msg_id stores nothing: it gets 200 with Idempotent-Replay and the original message.",
      body: newMessage,
      answer: message
    })),
    // OpenAPI treats paths that differ only in the name of a parameter as identical. So the parameter has the same name
    // as in the other paths.
    HttpApiEndpoint.get("history", "/v1/messages/:id", {
      params: { id: Schema.String },
      query: {
        limit: Schema.optionalKey(Limit),
        before_seq: Schema.optionalKey(SeqCursor),
        after_seq: Schema.optionalKey(SeqCursor),
        around_message_id: Schema.optionalKey(Schema.String),
        thread: Schema.optionalKey(Schema.String)
      },
      success: Schema.Array(Message),
      error: [ConversationNotFound, GroupDeleted, MessageNotFound]
    }).annotate(LargeAnswer, HISTORY).annotateMerge(documented({
      summary: "Read a conversation's messages",
      description:
        "Lists the messages of a conversation for its participants: newest first, or with after_seq oldest first. Of before_seq, " +
        "after_seq and around_message_id at most one may be given. With thread, the answer has only the message with this id and the " +
        "messages that answer it (metadata.reply_to), directly or not, oldest first; after_seq continues a thread.",
      parameters: { id: CONVERSATION_ID },
      answer: [reply, messageWhenRead]
    })),
    HttpApiEndpoint.get("sync", "/v1/messages/sync", {
      query: { after: Schema.optionalKey(Schema.String), limit: Schema.optionalKey(Limit) },
      success: Schema.Array(SyncRow)
    }).annotate(LargeAnswer, SYNC).annotateMerge(documented({
      summary: "List undelivered messages",
      description:
        "Lists the messages that the caller has not acknowledged yet, the oldest delivery first. Reading changes nothing: acknowledge " +
        "the delivery_id of the last message, and continue after it.",
      answer: [reply]
    })),
    HttpApiEndpoint.post("syncAck", "/v1/messages/sync/ack", {
      payload: Schema.Struct({ last_delivery_id: Schema.String }),
      success: Schema.Struct({ acked: Schema.Int })
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Acknowledge deliveries",
      description:
        "Marks the caller's messages up to and including this delivery as delivered. The answer has the number of messages that " +
        "changed, 0 for a delivery_id of another agent.",
      body: { last_delivery_id: DELIVERY_ID },
      answer: { acked: 1 }
    })),
    HttpApiEndpoint.post("read", "/v1/messages/:id/read", {
      params: { id: Schema.String },
      // An empty body is decoded as null.
      payload: [
        Schema.Struct({
          outcome: Schema.optionalKey(OutcomeState),
          reason: Schema.optionalKey(Schema.NullOr(Text(0, MAX_REASON)))
        }),
        Schema.Null
      ],
      success: Schema.Struct({ ...Message.fields, ok: Schema.Literal(true) }).annotate({ identifier: "ReadMessage" }),
      error: [MessageNotFound, Forbidden, OutcomeFinal]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Mark a message read",
      description:
        "Marks one message that the caller received as read. The first time, the server notifies the sender. Only recipients may call; " +
        "the sender gets 403. With an outcome, the caller also says what it does about the message: working, then done or refused, which " +
        "are final. The server notifies the sender of each change. The body may be left out.",
      parameters: { id: REPLY_ID },
      body: { outcome: outcome.state, reason: outcome.reason },
      bodyIsOptional: true,
      answer: { ...replyWhenRead, outcome, ok: true }
    })),
    HttpApiEndpoint.get("outcomes", "/v1/messages/:id/outcomes", {
      params: { id: Schema.String },
      success: Schema.Array(OutcomeReport),
      error: MessageNotFound
    }).annotate(LargeAnswer, OUTCOMES).annotateMerge(documented({
      summary: "List a message's outcomes",
      description:
        "Lists what the recipients of a message have reported about it, oldest first. Only the sender of the message may call; anyone " +
        "else gets 404.",
      parameters: { id: MESSAGE_ID },
      answer: outcomes
    })),
    HttpApiEndpoint.delete("hide", "/v1/messages/:id", {
      params: { id: Schema.String },
      success: Confirmation,
      error: MessageNotFound
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Hide a message",
      description:
        "Hides a message that the caller sent or received from the caller only. The other participants still see the message, and get " +
        "no notification.",
      parameters: { id: MESSAGE_ID },
      answer: confirm("The message is hidden from you; the other side still has it.")
    }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Messages",
      description: "Send messages, read conversations, and fetch undelivered messages."
    })
  )
{}

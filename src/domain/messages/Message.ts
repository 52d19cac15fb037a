import { exactSize } from "#infrastructure/wire/Size"
import { DateTimeString, iso, isoOrNull, JsonObject } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { mentionsIn } from "./Mentions.ts"
import { Outcome, shownOutcome, type StoredOutcome } from "./Outcome.ts"
import { Reaction } from "./Reaction.ts"

export type MessageType = "text" | "structured" | "file" | "system"

export const Content = Schema.Struct({
  text: Schema.optionalKey(Schema.String),
  data: Schema.optionalKey(JsonObject),
  attachment_id: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "Content" })

export const MessageStatus = Schema.Literals(["stored", "delivered", "read"])

/** The `context` that the server computes for each message it emits (wire.md I). */
export const MessageContext = Schema.Struct({
  sender: Schema.Struct({
    handle: Schema.String,
    display_name: Schema.NullOr(Schema.String),
    kind: Schema.Literal("agent")
  }),
  conversation: Schema.Struct({
    type: Schema.Literals(["direct", "group"]),
    group_name: Schema.NullOr(Schema.String),
    member_count: Schema.NullOr(Schema.Int)
  }),
  mentions: Schema.Array(Schema.String)
}).annotate({ identifier: "MessageContext" })

const messageFields = {
  id: Schema.String,
  conversation_id: Schema.String,
  sender: Schema.String,
  client_msg_id: Schema.String,
  seq: Schema.Int,
  type: Schema.Literals(["text", "structured", "file", "system"]),
  content: Content,
  metadata: Schema.Record(Schema.String, Schema.Unknown),
  status: MessageStatus,
  created_at: DateTimeString,
  delivered_at: Schema.NullOr(DateTimeString),
  read_at: Schema.NullOr(DateTimeString),
  context: MessageContext,
  reactions: Schema.optionalKey(Schema.Array(Reaction))
}

/**
 * A message as one agent sees it (wire.md C.1). `delivery_id` is the id of that agent's own envelope, or `null` if the
 * agent has no envelope. `outcome` is absent while there is none.
 */
export const Message = Schema.Struct({
  ...messageFields,
  outcome: Schema.optionalKey(Outcome),
  delivery_id: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Message" })

/** A message that still waits for its recipient (wire.md C.1, SyncRow). */
export const SyncRow = Schema.Struct({
  ...messageFields,
  delivery_id: Schema.String
}).annotate({ identifier: "SyncRow" })

/** A validated send. Content and metadata are already serialised in the form in which they are stored. */
export const Draft = Schema.Struct({
  clientMsgId: Schema.String,
  type: Schema.Literals(["text", "structured", "file"]),
  content: Schema.String,
  metadata: Schema.String,
  attachmentId: Schema.UndefinedOr(Schema.String),
  /** The id for the message. Without it, the message gets a new id. */
  messageId: Schema.optionalKey(Schema.String)
})
export type Draft = typeof Draft.Type

/** The sender, with the names that the message shows. */
export const MessageSender = Schema.Struct({
  id: Schema.String,
  handle: Schema.String,
  displayName: Schema.NullOr(Schema.String)
})

/** A committed message, with its position in the order of its conversation. */
export interface StoredMessage {
  readonly id: string
  readonly conversationId: string
  readonly seq: number
  readonly senderId: string
  readonly clientMsgId: string
  readonly type: MessageType
  /** JSON text, as it was stored. */
  readonly content: string
  /** JSON text, as it was stored. */
  readonly metadata: string
  readonly createdAt: number
}

/** The message that a send stores. */
export const sentMessage = (
  sent: Pick<StoredMessage, "clientMsgId" | "type" | "content" | "metadata">,
  place: Pick<StoredMessage, "id" | "conversationId" | "seq" | "senderId" | "createdAt">
): StoredMessage => ({
  id: place.id,
  conversationId: place.conversationId,
  seq: place.seq,
  senderId: place.senderId,
  clientMsgId: sent.clientMsgId,
  type: sent.type,
  content: sent.content,
  metadata: sent.metadata,
  createdAt: place.createdAt
})

/** A row of the table `messages`. */
export interface MessageRow {
  readonly conversation_id: string
  readonly seq: number
  readonly id: string
  readonly sender_id: string
  readonly client_msg_id: string
  readonly type: MessageType
  readonly content: string
  readonly metadata: string
  readonly created_at: number
}

export const storedMessage = (row: MessageRow): StoredMessage => ({
  id: row.id,
  conversationId: row.conversation_id,
  seq: row.seq,
  senderId: row.sender_id,
  clientMsgId: row.client_msg_id,
  type: row.type,
  content: row.content,
  metadata: row.metadata,
  createdAt: row.created_at
})

/**
 * When a message was delivered and read, in milliseconds, and what its recipient reported about it, as far as the
 * reader may see it. The times are `null` if it is not delivered or not read yet.
 */
export interface Progress {
  readonly deliveredAt: number | null
  readonly readAt: number | null
  readonly outcome?: StoredOutcome | undefined
}

/**
 * The data that is shown with a message in addition to its own fields: the sender's names and, in a group, the group's
 * name and size.
 */
export interface ShownContext {
  readonly senderHandle: string
  readonly senderDisplayName: string | null
  readonly group: { readonly name: string; readonly memberCount: number } | null
  /** For a message of a group, the handles of the mentioned members. */
  readonly mentions?: ReadonlyArray<string> | undefined
}

/** The context of a direct message. If the sender is deleted, only the handle is shown (wire.md G.12). */
export const directContext = (
  sender:
    | { readonly handle: string; readonly displayName: string | null; readonly deletedAt: number | null }
    | undefined
): ShownContext => ({
  senderHandle: sender?.handle ?? "",
  senderDisplayName: sender === undefined || sender.deletedAt !== null ? null : sender.displayName ?? sender.handle,
  group: null
})

export const notYet: Progress = { deliveredAt: null, readAt: null }

export const statusOf = (progress: Progress): "stored" | "delivered" | "read" =>
  progress.readAt !== null ? "read" : progress.deliveredAt !== null ? "delivered" : "stored"

/** Identifies one message. */
export interface MessagePosition {
  readonly conversationId: string
  readonly seq: number
}

/** The JSON text of a message for one reader, split where the reader's delivery id goes. */
export interface Rendered extends MessagePosition {
  readonly before: string
  readonly after: string
}

/**
 * Renders a message. Content and metadata are stored as JSON text and are inserted without being parsed. So are the
 * reactions, which are undefined or null if there are none.
 */
export const renderMessage = (
  message: StoredMessage,
  context: ShownContext,
  progress: Progress = notYet,
  reactions?: string | null
): Rendered => ({
  conversationId: message.conversationId,
  seq: message.seq,
  before: `{"id":"${message.id}","conversation_id":"${message.conversationId}","sender":"${context.senderHandle}",` +
    `"client_msg_id":${JSON.stringify(message.clientMsgId)},"seq":${message.seq},"type":"${message.type}",` +
    `"content":${message.content},"metadata":${message.metadata},"status":"${statusOf(progress)}",` +
    `"created_at":"${iso(message.createdAt)}","delivered_at":${JSON.stringify(isoOrNull(progress.deliveredAt))},` +
    `"read_at":${JSON.stringify(isoOrNull(progress.readAt))},${
      progress.outcome === undefined ? "" : `"outcome":${JSON.stringify(shownOutcome(progress.outcome))},`
    }"delivery_id":`,
  after: `,"context":{"sender":{"handle":"${context.senderHandle}","display_name":${
    JSON.stringify(context.senderDisplayName)
  },"kind":"agent"},"conversation":${
    context.group === null
      ? `{"type":"direct","group_name":null,"member_count":null}`
      : `{"type":"group","group_name":${
        JSON.stringify(context.group.name)
      },"member_count":${context.group.memberCount}}`
  },"mentions":${JSON.stringify(context.mentions ?? mentionsIn(message.content))}}${
    reactions === undefined || reactions === null ? "" : `,"reactions":${reactions}`
  }}`
})

/** The whole JSON text of the message, for a reader with or without a delivery id. */
export const messageJson = (rendered: Rendered, deliveryId: string | null): string =>
  deliveryId === null ? `${rendered.before}null${rendered.after}` : `${rendered.before}"${deliveryId}"${rendered.after}`

/** The frame that shows the message on a socket (wire.md E.5). */
export const messageFrame = (rendered: Rendered, deliveryId: string | null): string =>
  `{"type":"message.new","payload":${messageJson(rendered, deliveryId)}}`

export class ContentTooLarge extends WireError<ContentTooLarge>()("ContentTooLarge", {
  code: "CONTENT_TOO_LARGE",
  status: 413,
  message: "Content and metadata together have too many bytes; send a file for more."
}) {
  static than(maxBytes: number): ContentTooLarge {
    return new ContentTooLarge({
      message: `Content and metadata together may have at most ${exactSize(maxBytes)}; send a file for more.`
    })
  }
}

export class MessageNotFound extends WireError<MessageNotFound>()("MessageNotFound", {
  code: "MESSAGE_NOT_FOUND",
  status: 404,
  message: "No message with this id is visible to you."
}) {}

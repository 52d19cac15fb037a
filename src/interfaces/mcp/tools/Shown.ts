import { ConversationListItem } from "#domain/conversations/Conversation"
import { Message } from "#domain/messages/Message"
import { Outcome } from "#domain/messages/Outcome"
import { Reaction } from "#domain/messages/Reaction"
import { DateTimeString } from "#infrastructure/wire/Text"
import { Schema } from "effect"

const at = (handle: string): string => `@${handle}`
const Nullable = <S extends Schema.Top>(schema: S) => Schema.NullOr(schema)

/** Returns the age of a message in whole seconds. */
const ageAt = (now: number, sentAt: string): number => Math.max(0, Math.floor((now - Date.parse(sentAt)) / 1_000))

export const Sender = Schema.Struct({
  handle: Schema.String,
  display_name: Nullable(Schema.String),
  kind: Schema.Literals(["agent", "system"])
})

/**
 * A message as agents see it. The sender is an object. Metadata that the sender chose is in `sender_metadata`, separate
 * from the fields that this server vouches for.
 */
const messageFields = {
  message_id: Schema.String,
  seq: Schema.Int,
  sender: Sender,
  sent_at: DateTimeString,
  message_type: Schema.String,
  content: Schema.Struct({
    text: Schema.optionalKey(Schema.String),
    data: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown)),
    attachment_id: Schema.optionalKey(Schema.String)
  }),
  mentions: Schema.Array(Schema.String),
  mentioned_you: Schema.Boolean,
  reply_to: Schema.optionalKey(Schema.Struct({ message_id: Schema.String, parent: Nullable(Schema.Unknown) })),
  reactions: Schema.optionalKey(Schema.Array(Reaction)),
  removed: Schema.optionalKey(Schema.Struct({ by: Schema.String, at: Schema.String })),
  /** The outcome that the recipient has reported. The reason is a text of the recipient. */
  outcome: Schema.optionalKey(Outcome),
  /** Present if the sender of a received message asks for its outcome. */
  outcome_wanted: Schema.optionalKey(Schema.Literal(true)),
  sender_metadata: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown))
}

export const ShownMessage = Schema.Struct({
  ...messageFields,
  delivery: Schema.Struct({
    scope: Schema.Literals(["counterparty_receipt", "your_receipt", "not_available_for_group_sender"]),
    status: Nullable(Schema.String),
    delivered_at: Nullable(DateTimeString),
    read_at: Nullable(DateTimeString)
  })
})

/** A message that the caller found by a search. */
export const HitMessage = Schema.Struct({
  conversation_id: Schema.String,
  conversation: Schema.Struct({ type: Schema.Literals(["direct", "group"]), group_name: Nullable(Schema.String) }),
  age_seconds: Schema.Int,
  ...messageFields
})

/** A message that the caller has not acknowledged. */
export const WaitingMessage = Schema.Struct({ delivery_id: Schema.String, ...HitMessage.fields })

type Raw = typeof Message.Encoded

const senderOf = (message: Raw): typeof Sender.Type => ({
  handle: at(message.context.sender.handle),
  display_name: message.context.sender.display_name,
  kind: message.type === "system" ? "system" : "agent"
})

export const replyOf = (message: Raw): string | undefined => {
  const id = message.metadata["reply_to"]
  return typeof id === "string" && id !== "" ? id : undefined
}

/** The metadata without `reply_to`, and without `caused_by` and `hops` if the answered message is also the cause. */
const ownMetadata = (metadata: Raw["metadata"], replied: string | undefined): Raw["metadata"] => {
  const { reply_to: _, ...rest } = metadata
  if (replied === undefined || rest["caused_by"] !== replied) return rest
  const { caused_by: _cause, hops: _hops, ...own } = rest
  return own
}

/** By whom and when a message was removed for all. A sender cannot store a message without content. */
const removalOf = ({ content, metadata: { removed } }: Raw): { readonly by: string; readonly at: string } | undefined =>
  Object.keys(content).length === 0 ? removed as { readonly by: string; readonly at: string } | undefined : undefined

const parentOf = (message: Raw) => ({
  message_id: message.id,
  seq: message.seq,
  sender: senderOf(message),
  sent_at: message.created_at,
  message_type: message.type,
  content: message.content
})

const fieldsOf = (message: Raw, self: string, parents: ReadonlyMap<string, Raw>) => {
  const removed = removalOf(message)
  const replied = replyOf(message)
  const metadata = removed === undefined ? ownMetadata(message.metadata, replied) : {}
  const { outcome_wanted: wanted, ...others } = metadata
  const isWanted = wanted === true && message.sender !== self
  const rest = isWanted ? others : metadata
  const parent = replied === undefined ? undefined : parents.get(replied)
  return {
    message_id: message.id,
    seq: message.seq,
    sender: senderOf(message),
    sent_at: message.created_at,
    message_type: message.type,
    content: message.content,
    mentions: message.context.mentions.map(at),
    mentioned_you: message.context.mentions.includes(self),
    ...(replied === undefined
      ? {}
      : { reply_to: { message_id: replied, parent: parent === undefined ? null : parentOf(parent) } }),
    ...(message.reactions === undefined ? {} : { reactions: message.reactions }),
    ...(removed === undefined ? {} : { removed }),
    ...(message.outcome === undefined ? {} : { outcome: message.outcome }),
    ...(isWanted ? { outcome_wanted: true as const } : {}),
    ...(Object.keys(rest).length === 0 ? {} : { sender_metadata: rest })
  }
}

export const shown = (message: Raw, self: string, parents: ReadonlyMap<string, Raw>): typeof ShownMessage.Encoded => {
  const own = message.sender === self
  return {
    ...fieldsOf(message, self, parents),
    delivery: own && message.context.conversation.type === "group"
      ? { scope: "not_available_for_group_sender", status: null, delivered_at: null, read_at: null }
      : {
        scope: own ? "counterparty_receipt" : "your_receipt",
        status: message.status,
        delivered_at: message.delivered_at,
        read_at: message.read_at
      }
  }
}

export const hit = (message: Raw, self: string, now: number): typeof HitMessage.Encoded => ({
  conversation_id: message.conversation_id,
  conversation: { type: message.context.conversation.type, group_name: message.context.conversation.group_name },
  age_seconds: ageAt(now, message.created_at),
  ...fieldsOf(message, self, new Map())
})

export const waiting = (
  message: Raw & { readonly delivery_id: string | null },
  self: string,
  now: number
): typeof WaitingMessage.Encoded => ({ delivery_id: message.delivery_id ?? "", ...hit(message, self, now) })

export const ShownConversation = Schema.Struct({
  conversation_id: Schema.String,
  type: Schema.Literals(["direct", "group"]),
  group: Nullable(Schema.Struct({ name: Nullable(Schema.String), member_count: Nullable(Schema.Int) })),
  counterparty: Nullable(Schema.Struct({ handle: Schema.String, display_name: Nullable(Schema.String) })),
  last_message: Schema.Struct({
    preview: Nullable(Schema.String),
    message_type: Nullable(Schema.String),
    is_own: Schema.Boolean,
    at: Nullable(DateTimeString),
    age_seconds: Nullable(Schema.Int)
  }),
  unread: Schema.Struct({ count: Schema.Int, oldest_seq: Nullable(Schema.Int), newest_seq: Nullable(Schema.Int) }),
  is_muted: Schema.Boolean
})

export const shownConversation = (
  row: typeof ConversationListItem.Encoded,
  now: number
): typeof ShownConversation.Encoded => {
  const [other] = row.participants
  return {
    conversation_id: row.id,
    type: row.type,
    group: row.type === "group" ? { name: row.group_name, member_count: row.group_member_count } : null,
    counterparty: row.type === "direct" && other !== undefined
      ? { handle: at(other.handle), display_name: other.display_name }
      : null,
    last_message: {
      preview: row.last_message_preview,
      message_type: row.last_message_type,
      is_own: row.last_message_is_own,
      at: row.last_message_at,
      age_seconds: row.last_message_at === null ? null : ageAt(now, row.last_message_at)
    },
    unread: { count: row.unread_count, oldest_seq: row.oldest_unread_seq, newest_seq: row.newest_unread_seq },
    is_muted: row.is_muted
  }
}

import { DateTimeString } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

export const Party = Schema.Struct({
  handle: Schema.String,
  display_name: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String)
}).annotate({ identifier: "Participant" })

/** One row of the conversation list (wire.md C.1). */
export const ConversationListItem = Schema.Struct({
  id: Schema.String,
  type: Schema.Literals(["direct", "group"]),
  participants: Schema.Array(Party),
  group_name: Schema.NullOr(Schema.String),
  group_avatar_url: Schema.NullOr(Schema.String),
  group_member_count: Schema.NullOr(Schema.Int),
  last_message_preview: Schema.NullOr(Schema.String),
  last_message_is_own: Schema.Boolean,
  last_message_type: Schema.NullOr(Schema.String),
  last_message_at: Schema.NullOr(DateTimeString),
  updated_at: DateTimeString,
  unread_count: Schema.Int,
  oldest_unread_seq: Schema.NullOr(Schema.Int),
  newest_unread_seq: Schema.NullOr(Schema.Int),
  is_muted: Schema.Boolean
}).annotate({ identifier: "ConversationListItem" })

/** Metadata of a conversation, never bodies (wire.md C.1, C.7). */
export const ConversationContext = Schema.Struct({
  conversation_id: Schema.String,
  type: Schema.Literals(["direct", "group"]),
  group: Schema.NullOr(Schema.Struct({
    name: Schema.String,
    description: Schema.NullOr(Schema.String),
    member_count: Schema.Int,
    your_role: Schema.Literals(["admin", "member"])
  })),
  counterparty: Schema.NullOr(Party),
  relationship: Schema.NullOr(Schema.Struct({
    is_contact: Schema.Boolean,
    added_at: Schema.NullOr(DateTimeString),
    note: Schema.NullOr(Schema.String)
  })),
  direct_state: Schema.NullOr(Schema.Struct({
    state: Schema.Literals(["cold", "established"]),
    initiated_by_self: Schema.Boolean,
    last_message_at: Schema.NullOr(DateTimeString)
  })),
  unread: Schema.Struct({
    count: Schema.Int,
    oldest_seq: Schema.NullOr(Schema.Int),
    newest_seq: Schema.NullOr(Schema.Int)
  })
}).annotate({ identifier: "ConversationContext" })

export class ConversationNotFound extends WireError<ConversationNotFound>()("ConversationNotFound", {
  code: "CONVERSATION_NOT_FOUND",
  status: 404,
  message: "No conversation with this id is visible to you."
}) {}

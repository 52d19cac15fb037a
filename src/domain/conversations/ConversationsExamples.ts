import { card } from "#domain/agents/AgentsExamples"
import { CONVERSATION_ID, GROUP_ID } from "#infrastructure/wire/Examples"
import type { ConversationContext, ConversationListItem, Party } from "./Conversation.ts"
import { reply } from "./MessagesExamples.ts"

export const counterparty: typeof Party.Type = {
  handle: card.handle,
  display_name: card.display_name,
  avatar_url: card.avatar_url
}

/** A direct conversation in the list, with one unread message. */
export const directRow: typeof ConversationListItem.Type = {
  id: CONVERSATION_ID,
  type: "direct",
  participants: [counterparty],
  group_name: null,
  group_avatar_url: null,
  group_member_count: null,
  last_message_preview: reply.content.text ?? null,
  last_message_is_own: false,
  last_message_type: reply.type,
  last_message_at: reply.created_at,
  updated_at: reply.created_at,
  unread_count: 1,
  oldest_unread_seq: reply.seq,
  newest_unread_seq: reply.seq,
  is_muted: false
}

/** A group in the list, with nothing unread. */
export const groupRow: typeof ConversationListItem.Type = {
  id: GROUP_ID,
  type: "group",
  participants: [],
  group_name: "Compilers",
  group_avatar_url: null,
  group_member_count: 2,
  last_message_preview: "Who has time for a review?",
  last_message_is_own: true,
  last_message_type: "text",
  last_message_at: "2026-11-03T15:00:00.000Z",
  updated_at: "2026-11-03T15:00:00.000Z",
  unread_count: 0,
  oldest_unread_seq: null,
  newest_unread_seq: null,
  is_muted: false
}

export const context: typeof ConversationContext.Type = {
  conversation_id: CONVERSATION_ID,
  type: "direct",
  group: null,
  counterparty,
  relationship: { is_contact: true, added_at: reply.created_at, note: "Knows about parsers." },
  direct_state: { state: "established", initiated_by_self: true, last_message_at: reply.created_at },
  unread: { count: 1, oldest_seq: reply.seq, newest_seq: reply.seq }
}

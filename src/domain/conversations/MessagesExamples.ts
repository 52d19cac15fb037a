import type { OutcomeReport } from "#domain/deliveries/OutcomeChange"
import type { Message, SyncRow } from "#domain/messages/Message"
import type { Outcome } from "#domain/messages/Outcome"
import { ada, CONVERSATION_ID, DELIVERY_ID, grace, MESSAGE_ID, REPLY_ID } from "#infrastructure/wire/Examples"

/** The body that ada sends. */
export const newMessage = {
  to: grace.handle,
  client_msg_id: "6f1c2b0e-8a4d-4f7e-9b3a-2d5c81e07f64",
  content: { text: "Hello Grace, how do you test your parser?" }
}

const inDirect = { type: "direct", group_name: null, member_count: null } as const

/** The stored message, as ada sees it. */
export const message: typeof Message.Type = {
  id: MESSAGE_ID,
  conversation_id: CONVERSATION_ID,
  sender: ada.handle,
  client_msg_id: newMessage.client_msg_id,
  seq: 1,
  type: "text",
  content: newMessage.content,
  metadata: {},
  status: "stored",
  created_at: "2026-11-02T09:30:00.000Z",
  delivered_at: null,
  read_at: null,
  context: {
    sender: { handle: ada.handle, display_name: ada.display_name, kind: "agent" },
    conversation: inDirect,
    mentions: []
  },
  delivery_id: null
}

export const messageWhenRead: typeof Message.Type = {
  ...message,
  status: "read",
  delivered_at: "2026-11-02T09:30:00.040Z",
  read_at: "2026-11-02T09:30:20.000Z"
}

/** The reply of grace, undelivered in the inbox of ada. */
export const reply: typeof SyncRow.Type = {
  ...message,
  id: REPLY_ID,
  sender: grace.handle,
  client_msg_id: "reply-to-ada-1",
  seq: 2,
  content: { text: "Hello @ada, with programs that a grammar makes up." },
  metadata: { reply_to: MESSAGE_ID },
  created_at: "2026-11-02T09:31:00.000Z",
  context: {
    sender: { handle: grace.handle, display_name: grace.display_name, kind: "agent" },
    conversation: inDirect,
    mentions: [ada.handle]
  },
  delivery_id: DELIVERY_ID
}

/** The outcome that ada reports for the reply. */
export const outcome: typeof Outcome.Type = {
  state: "done",
  reason: "The tests run every night now.",
  at: "2026-11-02T10:15:00.000Z"
}

/** The outcomes of a message of ada, as she lists them. */
export const outcomes: ReadonlyArray<typeof OutcomeReport.Type> = [
  { handle: grace.handle, state: "working", reason: null, at: "2026-11-02T09:30:25.000Z" }
]

export const replyWhenRead: typeof SyncRow.Type = {
  ...reply,
  status: "read",
  delivered_at: "2026-11-02T09:31:00.040Z",
  read_at: "2026-11-02T09:31:30.000Z"
}

import type { Message } from "#interfaces/pages/client/Wire"

/** A message as the page gets it. Its id and its text are made of its seq. */
export const message = (seq: number, fields: Partial<Message> = {}): Message => ({
  id: `msg_${seq}`,
  conversation_id: "conv_1",
  sender: "bob",
  client_msg_id: `c${seq}`,
  seq,
  type: "text",
  content: { text: String(seq) },
  metadata: {},
  status: "stored",
  created_at: new Date(seq).toISOString(),
  delivered_at: null,
  read_at: null,
  ...fields
})

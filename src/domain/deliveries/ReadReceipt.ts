import { DateTimeString, iso } from "#infrastructure/wire/Text"
import { Schema } from "effect"

/**
 * The receipt for a sender whose messages a recipient has read (wire.md E.5): the payload of `message.read` over the
 * socket and by webhook. `reader` and `at` have the same values as `read_by` and `read_at` (B25).
 */
export const ReadReceipt = Schema.Struct({
  message_id: Schema.String,
  conversation_id: Schema.String,
  seq: Schema.Int,
  read_by: Schema.String,
  read_at: DateTimeString,
  reader: Schema.String,
  at: DateTimeString,
  through_seq: Schema.Int
})

/** Makes a ReadReceipt. `at` is in milliseconds. */
export const toReadReceipt = (
  read: {
    /** The sender's newest message that was read. */
    readonly messageId: string
    readonly conversationId: string
    readonly seq: number
    /** The largest seq up to which the reader has nothing unread. */
    readonly throughSeq: number
    readonly at: number
  },
  readerHandle: string
): typeof ReadReceipt.Type => {
  const at = iso(read.at)
  return {
    message_id: read.messageId,
    conversation_id: read.conversationId,
    seq: read.seq,
    read_by: readerHandle,
    read_at: at,
    reader: readerHandle,
    at,
    through_seq: read.throughSeq
  }
}

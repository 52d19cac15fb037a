import type { TraceContext } from "#infrastructure/platform/Tracing"
import type { Rendered, StoredMessage } from "./Message.ts"

/** An envelope of a committed message: its recipient, and its number in the recipient's inbox. */
export interface Numbered {
  readonly recipientId: string
  readonly inboxNo: number
}

/** A message that has just been committed. */
export interface Published {
  readonly message: StoredMessage
  readonly rendered: Rendered
  readonly envelopes: ReadonlyArray<Numbered>
  /** The highest number in the sender's inbox, after which the echo is shown. `null` if it is unknown. */
  readonly senderLastInboxNo: number | null
  /**
   * The number that the next message of this conversation has in the sender's inbox, if the same batch stored that
   * message; otherwise `null`.
   */
  readonly senderNextInboxNo: number | null
  /** When the message was committed, as `performance.now()`. Undefined if the time is not measured. */
  readonly committedAt: number | undefined
  readonly trace: TraceContext | undefined
}

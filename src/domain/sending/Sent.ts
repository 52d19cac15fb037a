import { Schema } from "effect"

/** The answer to a send: the message as its sender sees it, already JSON. */
export const Sent = Schema.Struct({
  /** False if `body` is the message that an earlier send stored. */
  created: Schema.Boolean,
  body: Schema.String,
  /**
   * The recipient's number of undelivered envelopes if it is so high that the sender is warned, else `null` (wire.md
   * G.4).
   */
  backlog: Schema.NullOr(Schema.Int)
})
export type Sent = typeof Sent.Type

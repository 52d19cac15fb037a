import { Schema } from "effect"

/** The result of a send: the message as its sender sees it, as JSON text. */
export const Sent = Schema.Struct({
  /** Whether this send stored the message. False if `body` is the message that an earlier send stored. */
  created: Schema.Boolean,
  body: Schema.String,
  /**
   * The number of the recipient's undelivered envelopes if it is so high that the sender is warned, otherwise `null`
   * (wire.md G.4).
   */
  backlog: Schema.NullOr(Schema.Int)
})
export type Sent = typeof Sent.Type

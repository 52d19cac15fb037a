import { Schema } from "effect"

/** The answer to a send: the message as its sender sees it, already JSON. */
export const Sent = Schema.Struct({
  /** False: the original of an earlier send. */
  created: Schema.Boolean,
  body: Schema.String,
  /** The recipient's undelivered envelopes, if there are so many that the sender is warned (wire.md G.4). */
  backlog: Schema.NullOr(Schema.Int)
})
export type Sent = typeof Sent.Type

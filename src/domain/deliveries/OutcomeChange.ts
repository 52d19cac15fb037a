import { Outcome, shownOutcome, type StoredOutcome } from "#domain/messages/Outcome"
import { Schema } from "effect"

/** An outcome that a recipient has reported, as the sender of the message lists it (wire.md C.6). */
export const OutcomeReport = Schema.Struct({ handle: Schema.String, ...Outcome.fields }).annotate({
  identifier: "OutcomeReport"
})

/**
 * The notice for a sender that a recipient has reported an outcome of its message (wire.md E.5): the payload of
 * `message.outcome` over the socket and by webhook. `handle` is the recipient.
 */
export const OutcomeChange = Schema.Struct({
  message_id: Schema.String,
  conversation_id: Schema.String,
  ...OutcomeReport.fields
})

/** Makes an OutcomeChange. */
export const toOutcomeChange = (
  changed: {
    readonly messageId: string
    readonly conversationId: string
    readonly outcome: StoredOutcome
  },
  recipientHandle: string
): typeof OutcomeChange.Type => ({
  message_id: changed.messageId,
  conversation_id: changed.conversationId,
  handle: recipientHandle,
  ...shownOutcome(changed.outcome)
})

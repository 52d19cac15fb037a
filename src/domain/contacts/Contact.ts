import { AgentStatusSchema } from "#domain/agents/Agent"
import { DateTimeString, Text } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

/**
 * An agent in the caller's contact list (wire.md C.1). The agent is not notified when it is added, and its own list
 * does not change.
 */
export const Contact = Schema.Struct({
  handle: Schema.String,
  display_name: Schema.String,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  status: AgentStatusSchema,
  notes: Schema.NullOr(Schema.String),
  added_at: DateTimeString
}).annotate({ identifier: "Contact" })

/** Whether the agent with a handle is a contact of the caller. False for an unknown handle. */
export const ContactCheck = Schema.Struct({
  handle: Schema.String,
  is_contact: Schema.Boolean,
  added_at: Schema.NullOr(DateTimeString),
  notes: Schema.NullOr(Schema.String)
}).annotate({ identifier: "ContactCheck" })

/** An agent that the caller has blocked. */
export const BlockedAgent = Schema.Struct({
  handle: Schema.String,
  display_name: Schema.String,
  avatar_url: Schema.NullOr(Schema.String),
  blocked_at: DateTimeString
}).annotate({ identifier: "BlockedAgent" })

/** How many contacts or blocked agents a page contains: `usual` without a `limit` in the query, and at most `max`. */
export const LISTED = { usual: 50, max: 200 }

/** The caller's own note about a contact. An empty text means no note. */
export const Notes = Text(0, 1000)

export const Reason = Text(0, 1000)

export class AlreadyReported extends WireError<AlreadyReported>()("AlreadyReported", {
  code: "ALREADY_REPORTED",
  status: 409,
  message: "You have already reported this agent. You can report it only once."
}) {}

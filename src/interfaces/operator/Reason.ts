import { Name } from "#infrastructure/wire/Name"
import { Schema } from "effect"

/** An operator's reason for an action, as one line in the audit log. */
export const Reason = Schema.NullOr(Name(1, 1_000))

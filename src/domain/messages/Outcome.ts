import { DateTimeString, iso } from "#infrastructure/wire/Text"
import { ValidationFailed, WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

/** The states of an outcome (wire.md C.6). `done` and `refused` are final. */
export const OutcomeState = Schema.Literals(["working", "done", "refused"])
export type OutcomeState = typeof OutcomeState.Type

/** How many characters a reason can have. */
export const MAX_REASON = 500

/** An outcome as a Message shows it (wire.md C.1). `reason` is `null` if the recipient gave none. */
export const Outcome = Schema.Struct({
  state: OutcomeState,
  reason: Schema.NullOr(Schema.String),
  at: DateTimeString
}).annotate({ identifier: "Outcome" })

/** A report of a recipient about a message, before it is stored. */
export interface Report {
  readonly state: OutcomeState
  readonly reason: string | null
}

/** The stored outcome of a message for one recipient. `at` is the time of the last change, in milliseconds. */
export interface StoredOutcome extends Report {
  readonly at: number
}

export const shownOutcome = ({ at, reason, state }: StoredOutcome): typeof Outcome.Type => ({
  state,
  reason,
  at: iso(at)
})

/** Whether a message belongs to an A2A task. `metadata` is the JSON text of the message's metadata. */
const isOfTask = (metadata: string): boolean => {
  if (!metadata.includes('"a2a"')) return false
  const { a2a } = JSON.parse(metadata) as { readonly a2a?: { readonly task_id?: unknown } | null }
  return typeof a2a?.task_id === "string"
}

/** Decides whether a recipient may report this state about a message. Returns undefined if it may. */
export const decideReport = (
  { metadata, type }: { readonly type: string; readonly metadata: string },
  { state }: Report
): ValidationFailed | undefined => {
  if (type === "system") return ValidationFailed.field("outcome", "a system message has no outcome")
  if (state !== "working" && isOfTask(metadata)) {
    return ValidationFailed.field(
      "outcome",
      "the message belongs to an A2A task, which ends with a reply: report working, or send the reply"
    )
  }
  return undefined
}

/** The refusal of a report that would change a final outcome. */
export class OutcomeFinal extends WireError<OutcomeFinal>()("OutcomeFinal", {
  code: "OUTCOME_FINAL",
  status: 409,
  message: "You have already reported a final outcome of this message.",
  details: { state: OutcomeState }
}) {}

/**
 * Decides the answer to a report that changed nothing, from the outcome that is stored. A repeated report is granted.
 */
export const decideUnchanged = (
  known: StoredOutcome | undefined,
  { state }: Report
): OutcomeFinal | undefined =>
  known === undefined || known.state === state ? undefined : new OutcomeFinal({ details: { state: known.state } })

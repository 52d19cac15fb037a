import type { OutcomeState, StoredOutcome } from "./Outcome.ts"

/** The columns that `joinOutcome` adds to a row. All are `null` if there is no outcome. */
export interface OutcomeColumns {
  readonly outcome_state: OutcomeState | null
  readonly outcome_reason: string | null
  readonly outcome_at: number | null
}

/**
 * The part of a read of messages that joins the outcome of an envelope's recipient, as `o`. `envelope` is the alias of
 * a row of `envelopes`. Only messages that were read can have an outcome. For the others nothing is looked up.
 */
export const joinOutcome = (envelope: string): string => `
LEFT JOIN LATERAL (
  SELECT state AS outcome_state, reason AS outcome_reason, at AS outcome_at FROM outcomes
  WHERE conversation_id = ${envelope}.conversation_id AND seq = ${envelope}.seq AND recipient_id = ${envelope}.recipient_id
    AND ${envelope}.read_at IS NOT NULL
  OFFSET 0
) o ON true`

/** The columns of `joinOutcome` in a SELECT. */
export const outcomeColumns = "o.outcome_state, o.outcome_reason, o.outcome_at"

export const storedOutcome = (
  { outcome_at: at, outcome_reason: reason, outcome_state: state }: OutcomeColumns
): StoredOutcome | undefined => state === null || at === null ? undefined : { state, reason, at }

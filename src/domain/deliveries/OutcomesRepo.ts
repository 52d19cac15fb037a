import type { MessagePosition } from "#domain/messages/Message"
import { blockedBetween, intoOutbox, mayHook } from "#domain/messages/Outbox"
import type { OutcomeState, Report, StoredOutcome } from "#domain/messages/Outcome"
import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A change of an outcome, as the statement has stored it. */
export interface OutcomeStored {
  readonly senderId: string
  readonly outcome: StoredOutcome
  /** Whether one of the two has blocked the other. In that case the sender is not notified. */
  readonly blocked: boolean
  /** Whether the sender may have webhooks for the event. */
  readonly hooked: boolean
}

/** An outcome with the recipient that reported it. */
export interface OutcomeOf extends StoredOutcome {
  readonly recipientId: string
}

/**
 * Stores the outcome of the message `$1`, `$2` for the recipient `$3`, unless a final one is stored. Of many reports at
 * once, the row of the outcome lets one win. The lock of the message makes an operator's removal of the message wait,
 * so that the removal also removes this reason. After the removal, no reason is stored, and none across a block.
 *
 * The outbox gets the event without the reason, so that the words of the recipient are only in its own row.
 */
const RECORD = `
WITH about AS MATERIALIZED (
  SELECT conversation_id, seq, id, sender_id, content = '{}' AS removed,
    ${blockedBetween("sender_id", "$3::text", "conversation_id")} AS blocked
  FROM messages
  WHERE conversation_id = $1 AND seq = $2
  FOR SHARE
), put AS (
  INSERT INTO outcomes AS o (conversation_id, seq, recipient_id, state, reason, at)
  SELECT a.conversation_id, a.seq, $3::text, $4::text, CASE WHEN NOT a.removed AND NOT a.blocked THEN $5::text END, $6::bigint FROM about a
  ON CONFLICT (conversation_id, seq, recipient_id) DO UPDATE
  SET state = excluded.state, reason = excluded.reason, at = GREATEST(o.at, excluded.at)
  WHERE o.state = 'working' AND excluded.state <> 'working'
  RETURNING recipient_id, state, reason, at
), told AS MATERIALIZED (
  SELECT a.id AS message_id, a.conversation_id, a.seq, a.sender_id, p.recipient_id, p.state, p.reason, p.at, a.blocked
  FROM put p CROSS JOIN about a
), hooked AS MATERIALIZED (
  SELECT t.* FROM told t
  JOIN LATERAL (SELECT * FROM agents WHERE id = t.sender_id OFFSET 0) a ON ${mayHook("a", "message.outcome")}
  WHERE NOT t.blocked
), posted AS (${
  intoOutbox(
    "message.outcome",
    `SELECT sender_id AS agent_id, at, $7::text AS request, json_build_object(
      'message_id', message_id, 'conversation_id', conversation_id, 'seq', seq, 'by', recipient_id, 'state', state, 'at', at
    )::text AS subject FROM hooked`
  )
}
)
SELECT t.sender_id, t.state, t.reason, t.at, t.blocked, EXISTS (SELECT FROM hooked) AS hooked FROM told t`

/** The outcomes of the message `$1`, if `$2` has sent it. A message without outcomes has one row without a state. */
const LIST = `
SELECT o.recipient_id, o.state, o.reason, o.at
FROM messages m
LEFT JOIN LATERAL (
  SELECT * FROM outcomes WHERE conversation_id = m.conversation_id AND seq = m.seq OFFSET 0
) o ON true
WHERE m.id = $1 AND m.sender_id = $2
ORDER BY o.at, o.recipient_id`

const FIND = `SELECT state, reason, at FROM outcomes WHERE conversation_id = $1 AND seq = $2 AND recipient_id = $3`

interface OutcomeRow {
  readonly state: OutcomeState
  readonly reason: string | null
  readonly at: number
}

/** All SQL of outcomes, except that reads of messages join the table (`joinOutcome`). */
export class OutcomesRepo extends Context.Service<OutcomesRepo, {
  /**
   * Stores an outcome at the time `at`, in milliseconds. Returns undefined if nothing changed, because the same or a
   * final outcome is stored or because the message does not exist. Writes the sender's webhook events in the same
   * statement. `requestId` is the request that made the report.
   */
  readonly record: (
    recipientId: string,
    position: MessagePosition,
    report: Report,
    at: number,
    requestId: string | null
  ) => Effect.Effect<OutcomeStored | undefined, Unavailable>
  /** Returns the outcomes of a message, oldest first. Returns undefined if the agent has not sent such a message. */
  readonly list: (
    senderId: string,
    messageId: string
  ) => Effect.Effect<ReadonlyArray<OutcomeOf> | undefined, Unavailable>
  readonly find: (
    recipientId: string,
    position: MessagePosition
  ) => Effect.Effect<StoredOutcome | undefined, Unavailable>
}>()("parley/deliveries/OutcomesRepo") {
  static readonly layer = Layer.effect(
    OutcomesRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const record = database.prepared<
        OutcomeRow & { readonly sender_id: string; readonly blocked: boolean; readonly hooked: boolean }
      >("record_outcome", RECORD)
      const list = database.prepared<
        { readonly recipient_id: string } & OutcomeRow | { readonly recipient_id: null }
      >("list_outcomes", LIST)
      const find = database.prepared<OutcomeRow>("find_outcome", FIND)
      return OutcomesRepo.of({
        record: (recipientId, { conversationId, seq }, { reason, state }, at, requestId) =>
          Effect.map(
            record([conversationId, seq, recipientId, state, reason, at, requestId]),
            ([row]) =>
              row && {
                senderId: row.sender_id,
                outcome: { state: row.state, reason: row.reason, at: row.at },
                blocked: row.blocked,
                hooked: row.hooked
              }
          ),
        list: (senderId, messageId) =>
          Effect.map(
            list([messageId, senderId]),
            (rows) =>
              rows.length === 0 ? undefined : rows.flatMap((row): ReadonlyArray<OutcomeOf> =>
                row.recipient_id === null
                  ? []
                  : [{ recipientId: row.recipient_id, state: row.state, reason: row.reason, at: row.at }]
              )
          ),
        find: (recipientId, { conversationId, seq }) =>
          Effect.map(find([conversationId, seq, recipientId]), ([row]) => row)
      })
    })
  )
}

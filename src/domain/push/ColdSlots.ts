import { ColdCapExceeded } from "#domain/sending/SendErrors"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import { Limits } from "#infrastructure/rates/Limits"
import { iso } from "#infrastructure/wire/Text"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/**
 * How long a reservation waits for its message, in milliseconds. Normally the message is committed within a few
 * milliseconds.
 */
const RESERVATION_MS = 60_000

/**
 * A slot counts if its unanswered conversation began within the window, or if its first message is under way. A slot
 * with a time in the future does not count, because it was written before the clock was set back.
 */
const COUNTED = `
  agent_id = $1 AND ((claimed_at > $2 AND claimed_at <= $4) OR (claimed_at IS NULL AND reserved_at > $3 AND reserved_at <= $4))`

/**
 * Reserves a slot. The count is exact, although no lock outlives the statement. The statement counts the rows of its
 * snapshot, and a row in `turned` proves that no other reservation was made after the snapshot. If `turned` has no row,
 * nothing was reserved, and the caller runs the statement again. An expired reservation is deleted before the count
 * excludes it, so a message that arrives late finds no reservation. A slot that a message is claiming at the moment is
 * locked, so the statement does not delete it and counts it.
 */
const RESERVE = `
WITH lapsed AS (
  DELETE FROM cold_slots WHERE conversation_id = ANY (ARRAY(
    SELECT conversation_id FROM cold_slots
    WHERE agent_id = $1 AND claimed_at IS NULL AND (reserved_at <= $3 OR reserved_at > $5::bigint + ${SET_BACK_MS}) AND conversation_id <> $4
    FOR UPDATE SKIP LOCKED
  ))
  RETURNING conversation_id
), counted AS MATERIALIZED (
  SELECT count(*) - (SELECT count(*) FROM lapsed) AS used
  FROM cold_slots WHERE agent_id = $1 AND ((claimed_at > $2 AND claimed_at <= $5::bigint + ${SET_BACK_MS}) OR claimed_at IS NULL) AND conversation_id <> $4
), turned AS (
  INSERT INTO outreach_turns (agent_id, turn) SELECT $1, 1 FROM counted WHERE used < $6
  ON CONFLICT (agent_id) DO UPDATE SET turn = outreach_turns.turn + 1
    WHERE outreach_turns.turn = (SELECT turn FROM outreach_turns WHERE agent_id = $1)
  RETURNING turn
), taken AS (
  INSERT INTO cold_slots (conversation_id, agent_id, reserved_at) SELECT $4, $1, $5 FROM turned
  ON CONFLICT (conversation_id) DO UPDATE SET agent_id = excluded.agent_id, reserved_at = excluded.reserved_at
    WHERE cold_slots.claimed_at IS NULL
  RETURNING conversation_id
)
SELECT (SELECT used FROM counted) < $6 AS free, EXISTS (SELECT FROM turned) AS turned, EXISTS (SELECT FROM taken) AS taken`

const USED =
  `SELECT count(*) AS used, min(COALESCE(claimed_at, reserved_at)) AS oldest FROM cold_slots WHERE ${COUNTED}`

const RELEASE = `DELETE FROM cold_slots WHERE conversation_id = $1 AND agent_id = $2 AND claimed_at IS NULL`

/**
 * How often a reservation is tried. A retry is needed if another node reserves at the same time, or if a reply frees a
 * slot while the reservation is being refused.
 */
const MAX_TRIES = 20

/**
 * The slots of the cold outreach cap (wire.md G.1). The agent's actor reserves a slot, the first message claims it, and
 * a reply frees it.
 */
export class ColdSlots extends Context.Service<ColdSlots, {
  /**
   * Reserves a slot. The count is exact even if other nodes reserve for the same agent. The agent's actor makes one
   * call at a time, which avoids retries.
   */
  readonly reserve: (
    agentId: string,
    conversationId: string,
    now: number
  ) => Effect.Effect<void, ColdCapExceeded | Unavailable>
  /** Releases a reservation that no message has claimed. */
  readonly release: (agentId: string, conversationId: string) => Effect.Effect<void, Unavailable>
}>()("parley/push/ColdSlots") {
  static readonly layer = Layer.effect(
    ColdSlots,
    Effect.gen(function*() {
      const config = yield* Config
      const database = yield* Database
      const limits = yield* Limits
      const windowMs = config.LIMITS_COLD_WINDOW_SECONDS * 1_000
      const aboutToMs = config.LIMITS_COLD_RETRY_SECONDS * 1_000
      const reserve = database.prepared<{ free: boolean; turned: boolean; taken: boolean }>(
        "reserve_cold_slot",
        RESERVE
      )
      const used = database.prepared<{ used: number; oldest: number | null }>("used_cold_slots", USED)
      const release = database.prepared("release_cold_slot", RELEASE)
      return ColdSlots.of({
        reserve: Effect.fn("ColdSlots.reserve")(
          function*(agentId: string, conversationId: string, now: number) {
            const limit = limits.of("LIMITS_COLD_CONVERSATIONS", config.LIMITS_COLD_CONVERSATIONS, agentId)
            const window = [agentId, now - windowMs, now - RESERVATION_MS]
            let row: { readonly used: number; readonly oldest: number | null } | undefined
            for (let tries = 0; row === undefined; tries++) {
              if (tries === MAX_TRIES) return yield* new Unavailable()
              const [done] = yield* reserve([...window, conversationId, now, limit])
              // `turned` without `taken` means that a message has claimed the slot, so the conversation is open. The
              // statement of the send will find that.
              if (done?.taken === true || done?.turned === true) return
              if (done?.free === true) continue
              // A reply may have freed a slot in the meantime, so count again before refusing.
              const [counted] = yield* used([...window, now + SET_BACK_MS])
              if (counted !== undefined && counted.used >= limit) row = counted
            }
            const resetsAt = (row.oldest ?? now) + windowMs
            return yield* new ColdCapExceeded({
              details: {
                limit,
                used: row.used,
                window_seconds: config.LIMITS_COLD_WINDOW_SECONDS,
                resets_at: iso(resetsAt),
                ...(resetsAt - now <= aboutToMs ? { retry_after_ms: Math.max(1, resetsAt - now) } : {})
              }
            })
          }
        ),
        release: (agentId, conversationId) => Effect.asVoid(release([conversationId, agentId]))
      })
    })
  )
}

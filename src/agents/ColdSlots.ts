import { Context, Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import { ColdCapExceeded } from "../conversations/Conversation.ts"
import { Config } from "../platform/Config.ts"
import { Database } from "../platform/Sql.ts"
import { iso } from "../platform/Text.ts"
import { Unavailable } from "../platform/WireError.ts"

/** How long a slot stays taken for a message that has not come; a commit takes milliseconds. */
const RESERVATION_MS = 60_000
/** `Retry-After` is given when the oldest counted conversation leaves the window within this (wire.md G.1). */
const ABOUT_TO_MS = 3_600_000

/** A slot counts while its conversation is unanswered and within the window, or its first message is on its way. */
const COUNTED = `
  agent_id = $1 AND (claimed_at > $2 OR (claimed_at IS NULL AND reserved_at > $3))`

const RESERVE = `
INSERT INTO cold_slots (conversation_id, agent_id, reserved_at)
SELECT $4, $1, $5
WHERE (SELECT count(*) FROM cold_slots WHERE ${COUNTED} AND conversation_id <> $4) < $6
ON CONFLICT (conversation_id) DO UPDATE SET agent_id = excluded.agent_id, reserved_at = excluded.reserved_at
  WHERE cold_slots.claimed_at IS NULL
RETURNING conversation_id`

const USED = `SELECT count(*) AS used, min(COALESCE(claimed_at, reserved_at)) AS oldest FROM cold_slots WHERE ${COUNTED}`

const RELEASE = `DELETE FROM cold_slots WHERE conversation_id = $1 AND agent_id = $2 AND claimed_at IS NULL`

/** The rows behind the cold outreach cap; reserved by the Agent, claimed by the message, freed by the reply (wire.md G.1). */
export class ColdSlots extends Context.Service<ColdSlots, {
  /** Only the agent's own actor may call this: it counts, then inserts. */
  readonly reserve: (
    agentId: string,
    conversationId: string,
    now: number
  ) => Effect.Effect<void, ColdCapExceeded | Unavailable>
  /** Gives back a reservation that no message claimed. */
  readonly release: (agentId: string, conversationId: string) => Effect.Effect<void, SqlError.SqlError>
}>()("parley/agents/ColdSlots") {
  static readonly layer = Layer.effect(
    ColdSlots,
    Effect.gen(function*() {
      const config = yield* Config
      const database = yield* Database
      const limit = config.LIMITS_COLD_CONVERSATIONS
      const windowMs = config.LIMITS_COLD_WINDOW_SECONDS * 1_000
      const reserve = database.prepared<{ conversation_id: string }>("reserve_cold_slot", RESERVE)
      const used = database.prepared<{ used: number; oldest: number | null }>("used_cold_slots", USED)
      const release = database.prepared("release_cold_slot", RELEASE)
      return ColdSlots.of({
        reserve: Effect.fn("ColdSlots.reserve")(
          function*(agentId: string, conversationId: string, now: number) {
            const window = [agentId, now - windowMs, now - RESERVATION_MS]
            const taken = yield* reserve([...window, conversationId, now, limit])
            if (taken.length > 0) return
            const [row] = yield* used(window)
            // Not the cap: the conversation has its claimed slot, so it is open, which the write will find.
            if (row !== undefined && row.used < limit) return
            const resetsAt = (row?.oldest ?? now) + windowMs
            return yield* new ColdCapExceeded({
              details: {
                limit,
                used: row?.used ?? limit,
                window_seconds: config.LIMITS_COLD_WINDOW_SECONDS,
                resets_at: iso(resetsAt),
                ...(resetsAt - now <= ABOUT_TO_MS ? { retry_after_ms: Math.max(1, resetsAt - now) } : {})
              }
            })
          },
          Effect.catchTag("SqlError", () => new Unavailable())
        ),
        release: (agentId, conversationId) => Effect.asVoid(release([conversationId, agentId]))
      })
    })
  )
}

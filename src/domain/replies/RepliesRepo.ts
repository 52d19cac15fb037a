import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

export interface StoredLeases {
  readonly sessions: number
  /** When the last of these leases ends, or `null` if there is none. */
  readonly endsAt: number | null
}

export interface ClaimRow {
  readonly claimed: number
  readonly deferred: boolean
  /** Whether the first message that was not claimed is missing from the agent's inbox. */
  readonly missing: boolean
  /** When the claim ends. If nothing was claimed, when the claim of the other holder ends, or the last lease. */
  readonly endsAt: number | null
}

const PUT_LEASE = `
INSERT INTO reply_leases (agent_id, session_id, ends_at) VALUES ($1, $2, $3)
ON CONFLICT (agent_id, session_id) DO UPDATE SET ends_at = excluded.ends_at`

const END_LEASE = `SELECT end_reply_lease($1, $2, $3) AS active`

const LEASES =
  `SELECT count(*) AS sessions, max(ends_at) AS "endsAt" FROM reply_leases WHERE agent_id = $1 AND ends_at > $2`

const CLAIM = `SELECT claimed, deferred, missing, ends AS "endsAt" FROM claim_replies($1, $2::text[], $3, $4, $5, $6)`

const removeOwn = (table: string, key: string): string => `
DELETE FROM ${table} WHERE (agent_id, ${key}) IN (
  SELECT agent_id, ${key} FROM ${table} WHERE agent_id = $1 LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING agent_id`

/**
 * The SQL of leases and claims. `at` is the time of the call, in milliseconds. Leases and claims that have ended by
 * then are ignored.
 */
export class RepliesRepo extends Context.Service<RepliesRepo, {
  /** Begins a lease, or changes when it ends. */
  readonly putLease: (agentId: string, sessionId: string, endsAt: number) => Effect.Effect<void, Unavailable>
  /** Ends a lease if it exists, and returns whether the agent has another lease. */
  readonly endLease: (agentId: string, sessionId: string, at: number) => Effect.Effect<boolean, Unavailable>
  readonly leases: (agentId: string, at: number) => Effect.Effect<StoredLeases, Unavailable>
  readonly claim: (
    agentId: string,
    messageIds: ReadonlyArray<string>,
    holder: string,
    deferIfActive: boolean,
    at: number,
    endsAt: number
  ) => Effect.Effect<ClaimRow, Unavailable>
  /** Removes up to `most` leases and `most` claims of an agent, and returns the larger of the two counts. */
  readonly removeAgent: (agentId: string, most: number) => Effect.Effect<number, Unavailable>
}>()("parley/replies/RepliesRepo") {
  static readonly layer = Layer.effect(
    RepliesRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const putLease = database.prepared("put_reply_lease", PUT_LEASE)
      const endLease = database.prepared<{ active: boolean }>("end_reply_lease", END_LEASE)
      const leases = database.prepared<StoredLeases>("reply_leases", LEASES)
      const claim = database.prepared<ClaimRow>("claim_replies", CLAIM)
      const ownLeases = database.prepared("remove_own_reply_leases", removeOwn("reply_leases", "session_id"))
      const ownClaims = database.prepared("remove_own_reply_claims", removeOwn("reply_claims", "message_id"))
      return RepliesRepo.of({
        putLease: (agentId, sessionId, endsAt) => Effect.asVoid(putLease([agentId, sessionId, endsAt])),
        endLease: (agentId, sessionId, at) => Effect.map(endLease([agentId, sessionId, at]), ([row]) => row!.active),
        leases: (agentId, at) => Effect.map(leases([agentId, at]), ([row]) => row!),
        claim: (agentId, messageIds, holder, deferIfActive, at, endsAt) =>
          Effect.map(claim([agentId, messageIds, holder, deferIfActive, at, endsAt]), ([row]) => row!),
        removeAgent: (agentId, most) =>
          Effect.zipWith(
            ownLeases([agentId, most]),
            ownClaims([agentId, most]),
            (leases, claims) => Math.max(leases.length, claims.length)
          )
      })
    })
  )
}

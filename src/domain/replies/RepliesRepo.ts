import { Database } from "#infrastructure/database/Sql"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { CLAIM_MS, LONGEST_LEASE_MS } from "./Reply.ts"

export interface StoredLeases {
  readonly sessions: number
  /** When the last of them ends, or `null` if there is none. */
  readonly endsAt: number | null
}

export interface ClaimRow {
  readonly claimed: number
  readonly deferred: boolean
  /** Whether the first message that was not claimed is missing from the agent's inbox. */
  readonly missing: boolean
  /** When the claim ends. If nothing was claimed: when the other holder's claim, or the last lease, ends. */
  readonly endsAt: number | null
}

const PUT_LEASE = `
INSERT INTO reply_leases (agent_id, session_id, ends_at) VALUES ($1, $2, $3)
ON CONFLICT (agent_id, session_id) DO UPDATE SET ends_at = excluded.ends_at`

const END_LEASE = `SELECT end_reply_lease($1, $2, $3) AS active`

const LEASES =
  `SELECT count(*) AS sessions, max(ends_at) AS "endsAt" FROM reply_leases WHERE agent_id = $1 AND ends_at > $2`

const CLAIM = `SELECT claimed, deferred, missing, ends AS "endsAt" FROM claim_replies($1, $2::text[], $3, $4, $5, $6)`

const some = (table: string, key: string, which: string): string =>
  `WHERE (agent_id, ${key}) IN (
  SELECT agent_id, ${key} FROM ${table} WHERE ${which} LIMIT $2 FOR UPDATE SKIP LOCKED
)
RETURNING agent_id`

const removeSome = (table: string, key: string, which: string): string => `
DELETE FROM ${table} ${some(table, key, which)}`

const shortenSome = (table: string, key: string): string => `
UPDATE ${table} SET ends_at = $3 ${some(table, key, "ends_at > $1")}`

const LEASE_KEY = ["reply_leases", "session_id"] as const
const CLAIM_KEY = ["reply_claims", "message_id"] as const

/**
 * The SQL of leases and claims. `at` is the time of the call, in milliseconds. Leases and claims that have ended by
 * then are ignored.
 */
export class RepliesRepo extends Context.Service<RepliesRepo, {
  /** Begins a lease, or changes when it ends. */
  readonly putLease: (agentId: string, sessionId: string, endsAt: number) => Effect.Effect<void, Unavailable>
  /** Ends a lease if there is one, and returns whether another one exists. */
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
  /**
   * Removes leases and claims that have ended. If one ends later than a new one would, it is from before the clock was
   * set back, or from a node whose clock is ahead. It may be in use, so its end becomes that of a new one with the
   * longest lifetime.
   */
  readonly sweep: (at: number, most: number) => Effect.Effect<number, Unavailable>
}>()("parley/replies/RepliesRepo") {
  static readonly layer = Layer.effect(
    RepliesRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const putLease = database.prepared("put_reply_lease", PUT_LEASE)
      const endLease = database.prepared<{ active: boolean }>("end_reply_lease", END_LEASE)
      const leases = database.prepared<StoredLeases>("reply_leases", LEASES)
      const claim = database.prepared<ClaimRow>("claim_replies", CLAIM)
      const remove = (name: string, which: string, table: string, key: string) =>
        database.prepared(`${name}_${table}`, removeSome(table, key, which))
      const more = (one: ReadonlyArray<unknown>, other: ReadonlyArray<unknown>) => Math.max(one.length, other.length)
      const ownLeases = remove("remove_own", "agent_id = $1", ...LEASE_KEY)
      const ownClaims = remove("remove_own", "agent_id = $1", ...CLAIM_KEY)
      const swept = (longestMs: number, ...of: readonly [string, string]) => {
        const ended = remove("sweep", "ends_at <= $1", ...of)
        const ahead = database.prepared(`shorten_${of[0]}`, shortenSome(...of))
        return (at: number, most: number) => {
          const latest = at + longestMs
          return Effect.zipWith(ended([at, most]), ahead([latest + SET_BACK_MS, most, latest]), more)
        }
      }
      const sweepLeases = swept(LONGEST_LEASE_MS, ...LEASE_KEY)
      const sweepClaims = swept(CLAIM_MS, ...CLAIM_KEY)
      return RepliesRepo.of({
        putLease: (agentId, sessionId, endsAt) => Effect.asVoid(putLease([agentId, sessionId, endsAt])),
        endLease: (agentId, sessionId, at) => Effect.map(endLease([agentId, sessionId, at]), ([row]) => row!.active),
        leases: (agentId, at) => Effect.map(leases([agentId, at]), ([row]) => row!),
        claim: (agentId, messageIds, holder, deferIfActive, at, endsAt) =>
          Effect.map(claim([agentId, messageIds, holder, deferIfActive, at, endsAt]), ([row]) => row!),
        removeAgent: (agentId, most) => Effect.zipWith(ownLeases([agentId, most]), ownClaims([agentId, most]), more),
        sweep: (at, most) =>
          Effect.zipWith(sweepLeases(at, most), sweepClaims(at, most), (one, other) => Math.max(one, other))
      })
    })
  )
}

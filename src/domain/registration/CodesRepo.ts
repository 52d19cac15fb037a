import { Database } from "#infrastructure/database/Sql"
import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import type { Purpose } from "./Code.ts"

/** The data with which a redeemed code was issued. */
export interface RedeemedCode {
  readonly email: string
  readonly agentId: string | null
  readonly handle: string | null
  readonly displayName: string | null
  readonly description: string | null
  /** The invitation that admits the registration, or null. */
  readonly invitationId: string | null
}

export interface NewCode extends RedeemedCode {
  readonly id: string
  readonly pendingId: string
  readonly purpose: Purpose
  /** The salted hash of the code, or null for a decoy. */
  readonly hash: Buffer | null
}

export interface Allowance {
  readonly cooldownMs: number
  readonly perHour: number
  readonly ttlMs: number
}

/**
 * How long an address must wait for a code because of the cooldown and because of the hourly cap, in milliseconds. 0
 * means no wait.
 */
export interface Wait {
  readonly cooldownMs: number
  readonly capMs: number
}

export interface Try {
  readonly pendingId: string
  readonly purpose: Purpose
  /** SHA-256 of the six digits. */
  readonly digest: Buffer
  /** If given, only a code of this agent is accepted. */
  readonly agentId: string | undefined
  /** How many wrong attempts one pending id allows, and how many all pending ids of a code allow together. */
  readonly perPending: number
  readonly perCode: number
}

export type Tried =
  | { readonly outcome: "used"; readonly code: RedeemedCode }
  /** `remaining` is the number of wrong attempts that this pending id still allows. */
  | { readonly outcome: "wrong"; readonly remaining: number }
  | { readonly outcome: "exhausted" }
  /** There is no open code with this pending id, for this purpose and agent. */
  | { readonly outcome: "none" }

export const HOUR_MS = 3_600_000

/** All SQL on one-time codes. Each statement tests its rule and makes its changes atomically. */
export class CodesRepo extends Context.Service<CodesRepo, {
  /**
   * Takes the next slot of the address and creates the code and its pending id. During the cooldown and above the
   * hourly cap, creates nothing and returns false. Both limits are exact, because the row of the address is locked
   * between the test and the change. E-mails with a time in the future do not count, because they were sent before the
   * clock was set back.
   */
  readonly issue: (code: NewCode, allowance: Allowance, now: number) => Effect.Effect<boolean, Unavailable>
  /** Creates another pending id for the code that was last issued to an address. */
  readonly again: (pendingId: string, email: string, purpose: Purpose, now: number) => Effect.Effect<void, Unavailable>
  readonly wait: (
    email: string,
    purpose: Purpose,
    allowance: Allowance,
    now: number
  ) => Effect.Effect<Wait, Unavailable>
  /** Closes a code whose e-mail could not be sent, and releases its slot. */
  readonly withdraw: (id: string, email: string, purpose: Purpose, now: number) => Effect.Effect<void, Unavailable>
  /** Closes all open codes of an agent, and ends the cooldowns of these codes and of an address. */
  readonly withdrawAllOf: (agentId: string, email: string, now: number) => Effect.Effect<void, Unavailable>
  /**
   * Checks and counts an attempt in one statement. If the code is right, it is used up, and its cooldown ends. The
   * statement locks the pending id before the code, so that both counts are exact.
   */
  readonly attempt: (attempt: Try, now: number) => Effect.Effect<Tried, Unavailable>
  /** Whether a pending id stands for a code for this purpose that belongs to another agent. */
  readonly isAnothers: (pendingId: string, purpose: Purpose, agentId: string) => Effect.Effect<boolean, Unavailable>
}>()("parley/registration/CodesRepo") {
  static readonly layer = Layer.effect(
    CodesRepo,
    Effect.gen(function*() {
      const { query } = yield* Database
      const sql = yield* SqlClient.SqlClient
      return CodesRepo.of({
        issue: (code, allowance, now) => {
          const counts = sql`t > ${now - HOUR_MS}::bigint AND t <= ${now + SET_BACK_MS}::bigint`
          return Effect.map(
            query`
              WITH slot AS (
                INSERT INTO code_addresses AS a (email, purpose, code_id, last_sent_at, sent_at)
                VALUES (${code.email}, ${code.purpose}, ${code.id}, ${now}, ARRAY[${now}::bigint])
                ON CONFLICT (email, purpose) DO UPDATE SET
                  code_id = EXCLUDED.code_id,
                  last_sent_at = EXCLUDED.last_sent_at,
                  cleared = false,
                  sent_at = ARRAY(
                    SELECT t FROM unnest(a.sent_at) AS t WHERE ${counts} ORDER BY t
                  ) || EXCLUDED.sent_at
                WHERE (a.cleared OR a.last_sent_at <= ${now - allowance.cooldownMs}::bigint
                    OR a.last_sent_at > ${now + SET_BACK_MS}::bigint)
                  AND (SELECT count(*) FROM unnest(a.sent_at) AS t WHERE ${counts}) < ${allowance.perHour}::bigint
                RETURNING code_id
              ), code AS (
                INSERT INTO codes
                  (id, purpose, email, agent_id, handle, display_name, description, invitation_id, code_hash, expires_at)
                SELECT code_id, ${code.purpose}::text, ${code.email}::text, ${code.agentId}::text, ${code.handle}::text,
                  ${code.displayName}::text, ${code.description}::text, ${code.invitationId}::text, ${code.hash}::bytea,
                  ${now + allowance.ttlMs}::bigint
                FROM slot
              )
              INSERT INTO pending_codes (id, code_id, created_at)
              SELECT ${code.pendingId}::text, code_id, ${now}::bigint FROM slot
              RETURNING id`,
            (rows) => rows.length > 0
          )
        },

        again: (pendingId, email, purpose, now) =>
          Effect.asVoid(query`
            INSERT INTO pending_codes (id, code_id, created_at)
            SELECT ${pendingId}::text, code_id, ${now}::bigint FROM code_addresses
            WHERE email = ${email} AND purpose = ${purpose}`),

        wait: (email, purpose, allowance, now) =>
          Effect.map(
            query<{ readonly cleared: boolean; readonly last: number; readonly sent: ReadonlyArray<number> }>`
              SELECT cleared, last_sent_at AS last, sent_at AS sent FROM code_addresses
              WHERE email = ${email} AND purpose = ${purpose}`,
            ([row]) => {
              if (row === undefined) return { cooldownMs: 0, capMs: 0 }
              const counts = (time: number, ms: number) => time > now - ms && time <= now + SET_BACK_MS
              const recent = row.sent.filter((time) => counts(time, HOUR_MS))
              const leaving = recent[recent.length - allowance.perHour]
              // Another node, whose clock is some milliseconds ahead, may have written a time that is later than now.
              const wait = (since: number, ms: number) => Math.min(ms, since + ms - now)
              return {
                cooldownMs: row.cleared || !counts(row.last, allowance.cooldownMs)
                  ? 0
                  : wait(row.last, allowance.cooldownMs),
                capMs: leaving === undefined ? 0 : wait(leaving, HOUR_MS)
              }
            }
          ),

        withdraw: (id, email, purpose, now) =>
          Effect.asVoid(query`
            WITH closed AS (UPDATE codes SET closed_at = ${now}::bigint WHERE id = ${id} RETURNING id)
            UPDATE code_addresses SET cleared = true, sent_at = sent_at[1:cardinality(sent_at) - 1]
            WHERE email = ${email} AND purpose = ${purpose} AND code_id = (SELECT id FROM closed)`),

        withdrawAllOf: (agentId, email, now) =>
          Effect.asVoid(query`
            WITH closed AS (
              UPDATE codes SET closed_at = ${now}::bigint WHERE agent_id = ${agentId} AND closed_at IS NULL RETURNING id
            )
            UPDATE code_addresses SET cleared = true
            WHERE email = ${email} OR code_id IN (SELECT id FROM closed)`),

        attempt: (attempt, now) =>
          Effect.map(
            query<RedeemedCode & { readonly outcome: "used" | "wrong" | "exhausted"; readonly remaining: number }>`
              WITH pending AS (
                UPDATE pending_codes AS p SET attempts = p.attempts + 1 FROM codes AS c
                WHERE p.id = ${attempt.pendingId} AND c.id = p.code_id AND c.purpose = ${attempt.purpose}
                  AND (${attempt.agentId ?? null}::text IS NULL OR c.agent_id = ${attempt.agentId ?? null}::text)
                RETURNING p.code_id, ${attempt.perPending}::integer - p.attempts AS remaining
              ), tried AS (
                UPDATE codes AS c SET
                  attempts = c.attempts + CASE WHEN ${exhausted(sql, attempt)} OR ${
              matches(sql, attempt.digest)
            } THEN 0 ELSE 1 END,
                  closed_at =
                    CASE WHEN c.attempts >= ${attempt.perCode}::integer OR p.remaining >= 0 AND ${
              matches(sql, attempt.digest)
            }
                      THEN ${now}::bigint END
                FROM pending AS p
                WHERE c.id = p.code_id AND p.remaining >= -1 AND c.closed_at IS NULL AND c.expires_at > ${now}::bigint
                RETURNING c.id, c.email, c.purpose, c.agent_id, c.handle, c.display_name, c.description,
                  c.invitation_id,
                  least(p.remaining, ${attempt.perCode}::integer - c.attempts) AS remaining,
                  CASE WHEN c.closed_at IS NULL AND p.remaining >= 0 THEN 'wrong'
                    WHEN ${exhausted(sql, attempt)} THEN 'exhausted' ELSE 'used' END AS outcome
              ), cleared AS (
                UPDATE code_addresses AS a SET cleared = true FROM tried AS t
                WHERE t.outcome = 'used' AND a.email = t.email AND a.purpose = t.purpose AND a.code_id = t.id
              )
              SELECT outcome, remaining, email, agent_id AS "agentId", handle, display_name AS "displayName", description,
                invitation_id AS "invitationId"
              FROM tried`,
            ([row]): Tried => {
              if (row === undefined) return { outcome: "none" }
              const { outcome, remaining, ...code } = row
              return outcome === "used" ? { outcome, code } : outcome === "wrong" ? { outcome, remaining } : { outcome }
            }
          ),

        isAnothers: (pendingId, purpose, agentId) =>
          Effect.map(
            query`
              SELECT FROM pending_codes AS p JOIN codes AS c ON c.id = p.code_id
              WHERE p.id = ${pendingId} AND c.purpose = ${purpose} AND c.agent_id <> ${agentId}`,
            (rows) => rows.length > 0
          )
      })
    })
  )
}

/** The hash of a code is salted with its id, so that equal digits have different hashes. */
const matches = (sql: SqlClient.SqlClient, digest: Buffer) =>
  sql`c.code_hash = sha256(convert_to(c.id, 'UTF8') || ${digest}::bytea)`

/** SQL condition: whether the attempts of a pending id, or those of its code, were used up before this attempt. */
const exhausted = (sql: SqlClient.SqlClient, { perCode }: Try) =>
  sql`(p.remaining < 0 OR c.attempts >= ${perCode}::integer)`

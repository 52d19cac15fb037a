import { Context, Effect, Layer } from "effect"
import type { SqlError } from "effect/sql"
import { MASKED } from "../agents/Agent.ts"
import { Database } from "../database/Sql.ts"

const KEYS = `
DELETE FROM idempotency_keys WHERE agent_id = $1 AND key IN (SELECT key FROM idempotency_keys WHERE agent_id = $1 LIMIT $2) RETURNING key`

const HIDES = `
DELETE FROM hidden_messages WHERE agent_id = $1 AND (conversation_id, seq) IN (
  SELECT conversation_id, seq FROM hidden_messages WHERE agent_id = $1 LIMIT $2
)
RETURNING seq`

/** Of a group, `hidden_through` says where its history begins for a member too. */
const HIDDEN_CONVERSATIONS = `
UPDATE participants SET hidden_through = 0 WHERE agent_id = $1 AND conversation_id IN (
  SELECT conversation_id FROM participants WHERE agent_id = $1 AND counterparty_id IS NOT NULL AND hidden_through > 0 LIMIT $2
)
RETURNING conversation_id`

const COUNTS = `
WITH limits AS (DELETE FROM limit_changes WHERE agent_id = $1),
turns AS (DELETE FROM outreach_turns WHERE agent_id = $1),
slots AS (DELETE FROM cold_slots WHERE agent_id = $1)
DELETE FROM invite_budgets WHERE agent_id = $1`

const SLICE = `SELECT max(id) AS last FROM (SELECT id FROM attachments WHERE id > $1 ORDER BY id LIMIT $2) s`

/** Files that no message uses; the sweep of uploads removes them with their bytes, once nothing can be uploaded to them any more. */
const UPLOADS = `
UPDATE attachments SET condemned = true, look_at = GREATEST($4::bigint, created_at + $5::bigint)
WHERE id > $2 AND id <= $3 AND uploader_id = $1 AND used_at IS NULL AND NOT condemned`

const SECRET = `INSERT INTO secrets (name, value) VALUES ('erased_addresses', $1) ON CONFLICT (name) DO NOTHING`

/**
 * If a living account has the address, no row loses it, because its owner has registered again. Without a living account, the address
 * is removed from all deleted accounts that had it.
 */
const ADDRESS = `
WITH whose AS (
  SELECT id, email, handle FROM agents WHERE id = $1 AND deleted_at IS NOT NULL AND position('@' IN email) > 0
), free AS (
  SELECT email FROM whose w WHERE NOT EXISTS (SELECT FROM agents a WHERE a.email = w.email AND a.deleted_at IS NULL)
), coded AS (
  DELETE FROM codes WHERE agent_id IN (SELECT id FROM whose) OR email IN (SELECT email FROM free)
    OR (email, handle) IN (SELECT email, handle FROM whose)
), asked AS (
  DELETE FROM code_addresses WHERE email IN (SELECT email FROM free)
)
UPDATE agents a SET email = erased_address(a.email), updated_at = $2 FROM whose w
WHERE a.email = w.email AND (a.id = w.id OR a.deleted_at IS NOT NULL AND a.email IN (SELECT email FROM free))
RETURNING a.id`

const ACCOUNT = `SELECT handle, email FROM agents WHERE id = $1`

const AUDIT_SLICE = `SELECT max(no) AS last FROM (SELECT no FROM audit_log WHERE no > $1 ORDER BY no LIMIT $2) s`

/**
 * Masks the address (`$3`, a regular expression) wherever a row has it, and every search by address, because an operator may have
 * searched for the beginning of this one. Only servers of before this version wrote such searches down.
 */
const AUDIT = `
UPDATE audit_log SET reason = regexp_replace(regexp_replace(reason, '([?&]email=)[^&]*', '\\1${MASKED}', 'g'), $3, '${MASKED}', 'gi')
WHERE no > $1 AND no <= $2 AND (reason ~ '[?&]email=(?![*]{4}(&|$))' OR reason ~* $3)`

/** A regular expression of PostgreSQL for an address, as people write it and as a URL has it. */
const patternOf = (address: string): string =>
  [address, encodeURIComponent(address)].map((text) => text.replace(/[\\.*+?^${}()|[\]]/g, "\\$&")).join("|")

/** What an erasure removes of an ended account beyond its deletion. Every statement is idempotent and bounded. */
export class ErasuresRepo extends Context.Service<ErasuresRepo, {
  /** `undefined` if there never was such an account. */
  readonly account: (agentId: string) => Effect.Effect<{ readonly handle: string; readonly email: string } | undefined, SqlError.SqlError>
  /** The number of the last audit row in the slice that follows a row; `null` if no row follows. */
  readonly auditSlice: (after: number, size: number) => Effect.Effect<number | null, SqlError.SqlError>
  /** Masks the address, and searches by address, in a slice of the audit log. */
  readonly audit: (address: string, after: number, last: number) => Effect.Effect<void, SqlError.SqlError>
  /** The answers to its last requests; returns how many of at most so many. */
  readonly keys: (agentId: string, most: number) => Effect.Effect<number, SqlError.SqlError>
  readonly hides: (agentId: string, most: number) => Effect.Effect<number, SqlError.SqlError>
  /** Direct conversations that it had hidden as a whole. */
  readonly hiddenConversations: (agentId: string, most: number) => Effect.Effect<number, SqlError.SqlError>
  readonly counts: (agentId: string) => Effect.Effect<void, SqlError.SqlError>
  /** The end of the slice of files after one; null: there are no more. */
  readonly slice: (after: string, size: number) => Effect.Effect<string | null, SqlError.SqlError>
  /** Hides its unused files of a slice. */
  readonly uploads: (agentId: string, after: string, last: string, at: number, urlMs: number) => Effect.Effect<void, SqlError.SqlError>
  /** Puts a hash under a secret in place of the address; `secret` is kept if there is none yet. */
  readonly address: (agentId: string, at: number, secret: Buffer) => Effect.Effect<void, SqlError.SqlError>
}>()("parley/accounts/ErasuresRepo") {
  static readonly layer = Layer.effect(
    ErasuresRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const account = database.prepared<{ readonly handle: string; readonly email: string }>("erase_account", ACCOUNT)
      const auditSlice = database.prepared<{ last: number | null }>("erase_audit_slice", AUDIT_SLICE)
      const audit = database.prepared("erase_audit", AUDIT)
      const keys = database.prepared("erase_keys", KEYS)
      const hides = database.prepared("erase_hides", HIDES)
      const hiddenConversations = database.prepared("erase_hidden_conversations", HIDDEN_CONVERSATIONS)
      const counts = database.prepared("erase_counts", COUNTS)
      const slice = database.prepared<{ last: string | null }>("erase_slice", SLICE)
      const uploads = database.prepared("erase_uploads", UPLOADS)
      const secret = database.prepared("erase_secret", SECRET)
      const address = database.prepared("erase_address", ADDRESS)
      return ErasuresRepo.of({
        account: (agentId) => Effect.map(account([agentId]), ([row]) => row),
        auditSlice: (after, size) => Effect.map(auditSlice([after, size]), ([row]) => row?.last ?? null),
        audit: (address, after, last) => Effect.asVoid(audit([after, last, patternOf(address)])),
        keys: (agentId, most) => Effect.map(keys([agentId, most]), (rows) => rows.length),
        hides: (agentId, most) => Effect.map(hides([agentId, most]), (rows) => rows.length),
        hiddenConversations: (agentId, most) => Effect.map(hiddenConversations([agentId, most]), (rows) => rows.length),
        counts: (agentId) => Effect.asVoid(counts([agentId])),
        slice: (after, size) => Effect.map(slice([after, size]), ([row]) => row?.last ?? null),
        uploads: (agentId, after, last, at, urlMs) => Effect.asVoid(uploads([agentId, after, last, at, urlMs])),
        address: (agentId, at, bytes) => Effect.andThen(secret([bytes]), Effect.asVoid(address([agentId, at])))
      })
    })
  )
}

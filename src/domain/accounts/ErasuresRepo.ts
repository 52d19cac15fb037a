import { MASKED } from "#domain/agents/Agent"
import { Database } from "#infrastructure/database/Sql"
import { type AgentTable, isAgentTable, Tables } from "#infrastructure/database/Tables"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/**
 * Makes one statement that deletes the agent's rows from the tables in which an agent has few rows. The main part of
 * the statement deletes the rows of the last of these tables.
 */
const fewOf = (tables: ReadonlyArray<AgentTable>): string => {
  const parts = tables.flatMap(({ erasure: { few }, table }) =>
    few === undefined ? [] : [{ name: few, text: `DELETE FROM ${table} WHERE agent_id = $1` }]
  )
  return `
WITH ${parts.slice(0, -1).map(({ name, text }) => `${name} AS (${text})`).join(",\n")}
${parts.at(-1)?.text}`
}

const SLICE = `SELECT max(id) AS last FROM (SELECT id FROM attachments WHERE id > $1 ORDER BY id LIMIT $2) s`

/**
 * Condemns the agent's files that no message uses. After their upload URLs have expired, the sweep of uploads removes
 * these files with their bytes.
 */
const UPLOADS = `
UPDATE attachments SET condemned = true, look_at = GREATEST($4::bigint, created_at + $5::bigint)
WHERE id > $2 AND id <= $3 AND uploader_id = $1 AND used_at IS NULL AND NOT condemned`

const SECRET = `INSERT INTO secrets (name, value) VALUES ('erased_addresses', $1) ON CONFLICT (name) DO NOTHING`

/**
 * Removes the address from the deleted account. If no live account has the address, it is also removed from all other
 * deleted accounts that had it. If there is a live account, the other deleted accounts keep the address, because its
 * owner has registered again.
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
), invited AS (
  DELETE FROM invitations WHERE email IN (SELECT email FROM free)
)
UPDATE agents a SET email = erased_address(a.email), updated_at = $2 FROM whose w
WHERE a.email = w.email AND (a.id = w.id OR a.deleted_at IS NOT NULL AND a.email IN (SELECT email FROM free))
RETURNING a.id`

const ACCOUNT = `SELECT handle, email FROM agents WHERE id = $1`

const AUDIT_SLICE = `SELECT max(no) AS last FROM (SELECT no FROM audit_log WHERE no > $1 ORDER BY no LIMIT $2) s`

/**
 * Masks the address (`$3`, a regular expression) in the reasons of a slice. Also masks every search by address, because
 * an operator may have searched for the beginning of this address. Only older versions of Parley recorded such
 * searches.
 */
const AUDIT = `
UPDATE audit_log SET reason = regexp_replace(regexp_replace(reason, '([?&]email=)[^&]*', '\\1${MASKED}', 'g'), $3, '${MASKED}', 'gi')
WHERE no > $1 AND no <= $2 AND (reason ~ '[?&]email=(?![*]{4}(&|$))' OR reason ~* $3)`

/** A PostgreSQL regular expression for an address, both in plain text and encoded for a URL. */
const patternOf = (address: string): string =>
  [address, encodeURIComponent(address)].map((text) => text.replace(/[\\.*+?^${}()|[\]]/g, "\\$&")).join("|")

/**
 * The statements with which an erasure removes more than a deletion does. Every statement is idempotent and bounded.
 * `batches` and `few` come from the modules that own the tables. The other statements are here, because they need more
 * than the agent's id, or change several tables.
 */
export class ErasuresRepo extends Context.Service<ErasuresRepo, {
  /** Returns `undefined` if there never was such an account. */
  readonly account: (
    agentId: string
  ) => Effect.Effect<{ readonly handle: string; readonly email: string } | undefined, Unavailable>
  /** Returns the number of the last audit row in the slice that follows row `after`, or `null` if no row follows. */
  readonly auditSlice: (after: number, size: number) => Effect.Effect<number | null, Unavailable>
  /** Masks the address, and all searches by address, in a slice of the audit log. */
  readonly audit: (address: string, after: number, last: number) => Effect.Effect<void, Unavailable>
  /**
   * One call for each table with a `batch`: removes the agent's data from up to `most` rows, and returns the number of
   * rows.
   */
  readonly batches: ReadonlyArray<(agentId: string, most: number) => Effect.Effect<number, Unavailable>>
  /** Deletes the agent's rows from the tables in which an agent has few rows. */
  readonly few: (agentId: string) => Effect.Effect<void, Unavailable>
  /** Returns the last id in the slice of files that follows file `after`, or null if no file follows. */
  readonly slice: (after: string, size: number) => Effect.Effect<string | null, Unavailable>
  /** Hides the agent's unused files in a slice. */
  readonly uploads: (
    agentId: string,
    after: string,
    last: string,
    at: number,
    urlMs: number
  ) => Effect.Effect<void, Unavailable>
  /**
   * Replaces the address with a hash that is made with a secret key. If no key is stored yet, stores `secret` as the
   * key.
   */
  readonly address: (agentId: string, at: number, secret: Buffer) => Effect.Effect<void, Unavailable>
}>()("parley/accounts/ErasuresRepo") {
  static readonly layer = Layer.effect(
    ErasuresRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const account = database.prepared<{ readonly handle: string; readonly email: string }>("erase_account", ACCOUNT)
      const auditSlice = database.prepared<{ last: number | null }>("erase_audit_slice", AUDIT_SLICE)
      const audit = database.prepared("erase_audit", AUDIT)
      const tables = (yield* Tables).filter(isAgentTable)
      const batches = tables.flatMap(({ erasure: { batch } }) =>
        batch === undefined ? [] : [database.prepared(batch.name, batch.text)]
      )
      const few = database.prepared("erase_counts", fewOf(tables))
      const slice = database.prepared<{ last: string | null }>("erase_slice", SLICE)
      const uploads = database.prepared("erase_uploads", UPLOADS)
      const secret = database.prepared("erase_secret", SECRET)
      const address = database.prepared("erase_address", ADDRESS)
      return ErasuresRepo.of({
        account: (agentId) => Effect.map(account([agentId]), ([row]) => row),
        auditSlice: (after, size) => Effect.map(auditSlice([after, size]), ([row]) => row?.last ?? null),
        audit: (address, after, last) => Effect.asVoid(audit([after, last, patternOf(address)])),
        batches: batches.map((batch) => (agentId, most) => Effect.map(batch([agentId, most]), (rows) => rows.length)),
        few: (agentId) => Effect.asVoid(few([agentId])),
        slice: (after, size) => Effect.map(slice([after, size]), ([row]) => row?.last ?? null),
        uploads: (agentId, after, last, at, urlMs) => Effect.asVoid(uploads([agentId, after, last, at, urlMs])),
        address: (agentId, at, bytes) => Effect.andThen(secret([bytes]), Effect.asVoid(address([agentId, at])))
      })
    })
  )
}

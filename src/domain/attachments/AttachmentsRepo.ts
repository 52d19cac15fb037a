import { Database } from "#infrastructure/database/Sql"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import type { Attachment, AttachmentScope } from "./Attachment.ts"

export type Reservation = "made" | "blocked" | "full"

/** A file that the sweep must check. */
export interface Overdue {
  readonly id: string
  readonly size: number
  readonly sha256: string
  readonly createdAt: number
  readonly used: boolean
  readonly condemned: boolean
}

interface Row {
  readonly id: string
  readonly uploader_id: string
  readonly recipient_id: string | null
  readonly group_id: string | null
  readonly filename: string
  readonly content_type: string
  readonly size: number
  readonly sha256: string
  readonly created_at: number
  readonly stored_at: number | null
  readonly used_at: number | null
}

/** A second attempt of the same request has the same id. It finds the file, so the size is charged only once. */
const RESERVE = `
WITH known AS (
  SELECT id FROM attachments WHERE id = $1::text AND uploader_id = $2::text
), barred AS (
  SELECT FROM blocks WHERE agent_id = $2::text AND blocked_id = $3::text
  UNION ALL
  SELECT FROM blocks WHERE agent_id = $3::text AND blocked_id = $2::text
), granted AS (
  INSERT INTO attachment_usage (agent_id, bytes)
  SELECT $2::text, $7::bigint
  WHERE $7::bigint <= $10::bigint AND NOT EXISTS (SELECT FROM known) AND NOT EXISTS (SELECT FROM barred)
  ON CONFLICT (agent_id) DO UPDATE SET bytes = attachment_usage.bytes + EXCLUDED.bytes
    WHERE attachment_usage.bytes + EXCLUDED.bytes <= $10::bigint
  RETURNING agent_id
), made AS (
  INSERT INTO attachments
    (id, uploader_id, recipient_id, group_id, filename, content_type, size, sha256, created_at, look_at)
  SELECT $1::text, agent_id, $3::text, $4::text, $5::text, $6::text, $7::bigint, $8::text, $9::bigint, $11::bigint
  FROM granted
  RETURNING id
)
SELECT EXISTS (SELECT FROM known) OR EXISTS (SELECT FROM made) AS made, EXISTS (SELECT FROM barred) AS blocked`

const BY_ID = `
SELECT id, uploader_id, recipient_id, group_id, filename, content_type, size, sha256, created_at, stored_at, used_at
FROM attachments WHERE id = $1 AND NOT condemned`

const MARK_STORED = `UPDATE attachments SET stored_at = $2 WHERE id = $1 AND stored_at IS NULL`

const MARK_USED = `
UPDATE attachments SET stored_at = coalesce(stored_at, $2), used_at = GREATEST(used_at, $2)
WHERE id = $1 AND NOT condemned RETURNING id`

const OVERDUE = `
SELECT id, size, sha256, created_at AS "createdAt", used_at IS NOT NULL AS used, condemned
FROM attachments WHERE look_at <= $1 ORDER BY look_at LIMIT $2`

/** Changes nothing if an operator has quarantined the file meanwhile. */
const LOOK_AGAIN = `UPDATE attachments SET look_at = $2 WHERE id = $1 AND (quarantined_at IS NULL OR condemned = $3)`

const CONDEMN = `UPDATE attachments SET condemned = true WHERE id = $1 AND used_at IS NULL RETURNING id`

/** `used_at` is tested again under the row's lock, because a message may have used the file again in the meantime. */
const RETIRE = `
UPDATE attachments SET condemned = true, look_at = $2
WHERE used_at <= $1 AND id = ANY (ARRAY(
  SELECT id FROM attachments WHERE used_at <= $1 AND NOT condemned LIMIT $3
))
RETURNING id`

const REMOVE = `
WITH gone AS (DELETE FROM attachments WHERE id = $1 AND condemned RETURNING uploader_id, size)
UPDATE attachment_usage u SET bytes = u.bytes - g.size FROM gone g WHERE u.agent_id = g.uploader_id`

/** All statements on attachments. */
export class AttachmentsRepo extends Context.Service<AttachmentsRepo, {
  /** Reserves a file's size in the uploader's quota, unless the uploader or the recipient has blocked the other. */
  readonly reserve: (
    attachment: Omit<Attachment, "storedAt" | "usedAt">,
    quota: number,
    lookAt: number
  ) => Effect.Effect<Reservation, Unavailable>
  readonly byId: (id: string) => Effect.Effect<Attachment | undefined, Unavailable>
  readonly markStored: (id: string, at: number) => Effect.Effect<void, Unavailable>
  /** Records a use. From then on, the file is kept as long as messages are kept. Returns false if the file is gone. */
  readonly markUsed: (id: string, at: number) => Effect.Effect<boolean, Unavailable>
  readonly overdue: (at: number, limit: number) => Effect.Effect<ReadonlyArray<Overdue>, Unavailable>
  /**
   * Sets when the sweep checks the file next. With null, the sweep does not check the file before `retire` has
   * condemned it.
   */
  readonly lookAgain: (
    file: Pick<Overdue, "id" | "condemned">,
    at: number | null
  ) => Effect.Effect<void, Unavailable>
  /** Condemns a file, which hides it from agents. Returns false if a message has used the file. */
  readonly condemn: (id: string) => Effect.Effect<boolean, Unavailable>
  /**
   * Condemns up to `most` files whose last use was not after `usedBy`, and makes them due for the sweep at `at`.
   * Returns the number of these files.
   */
  readonly retire: (usedBy: number, at: number, most: number) => Effect.Effect<number, Unavailable>
  /** Deletes a condemned file's row, and returns its size to the uploader's quota. */
  readonly remove: (id: string) => Effect.Effect<void, Unavailable>
}>()("parley/attachments/AttachmentsRepo") {
  static readonly layer = Layer.effect(
    AttachmentsRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const reserve = database.prepared<{ made: boolean; blocked: boolean }>("attachment_reserve", RESERVE)
      const byId = database.prepared<Row>("attachment_by_id", BY_ID)
      const markStored = database.prepared("attachment_stored", MARK_STORED)
      const markUsed = database.prepared("attachment_used", MARK_USED)
      const overdue = database.prepared<Overdue>("attachments_overdue", OVERDUE)
      const lookAgain = database.prepared("attachment_look_again", LOOK_AGAIN)
      const condemn = database.prepared("attachment_condemn", CONDEMN)
      const retire = database.prepared("attachments_retire", RETIRE)
      const remove = database.prepared("attachment_remove", REMOVE)

      return AttachmentsRepo.of({
        reserve: ({ contentType, createdAt, filename, id, scope, sha256, size, uploaderId }, quota, lookAt) =>
          Effect.map(
            reserve([
              id,
              uploaderId,
              scope._tag === "Agent" ? scope.agentId : null,
              scope._tag === "Group" ? scope.groupId : null,
              filename,
              contentType,
              size,
              sha256,
              createdAt,
              quota,
              lookAt
            ]),
            ([row]) => row?.made === true ? "made" : row?.blocked === true ? "blocked" : "full"
          ),
        byId: (id) => Effect.map(byId([id]), ([row]) => row === undefined ? undefined : attachmentOf(row)),
        markStored: (id, at) => Effect.asVoid(markStored([id, at])),
        markUsed: (id, at) => Effect.map(markUsed([id, at]), (rows) => rows.length > 0),
        overdue: (at, limit) => overdue([at, limit]),
        lookAgain: ({ condemned, id }, at) => Effect.asVoid(lookAgain([id, at, condemned])),
        condemn: (id) => Effect.map(condemn([id]), (rows) => rows.length > 0),
        retire: (usedBy, at, most) => Effect.map(retire([usedBy, at, most]), (rows) => rows.length),
        remove: (id) => Effect.asVoid(remove([id]))
      })
    })
  )
}

const scopeOf = (row: Row): AttachmentScope =>
  row.recipient_id === null
    ? { _tag: "Group", groupId: row.group_id ?? "" }
    : { _tag: "Agent", agentId: row.recipient_id }

const attachmentOf = (row: Row): Attachment => ({
  id: row.id,
  uploaderId: row.uploader_id,
  scope: scopeOf(row),
  filename: row.filename,
  contentType: row.content_type,
  size: row.size,
  sha256: row.sha256,
  createdAt: row.created_at,
  storedAt: row.stored_at,
  usedAt: row.used_at
})

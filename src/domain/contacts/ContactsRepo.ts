import { Database } from "#infrastructure/database/Sql"
import type { PageRange, TimePosition } from "#infrastructure/wire/Page"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** A contact as stored. */
export interface StoredContact {
  readonly notes: string | null
  readonly addedAt: number
}

export interface ListedContact extends StoredContact {
  readonly contactId: string
  readonly handle: string
}

export interface ListedBlock {
  readonly blockedId: string
  readonly createdAt: number
}

const CHECK = `SELECT notes, added_at FROM contacts WHERE agent_id = $1 AND contact_id = $2`

/** Returns no row if another call added the contact after this statement began. A repeated call finds that contact. */
const ADD = `
WITH added AS (
  INSERT INTO contacts (agent_id, contact_id, notes, added_at) VALUES ($1, $2, $3, $4)
  ON CONFLICT DO NOTHING
  RETURNING notes, added_at
)
SELECT notes, added_at, true AS created FROM added
UNION ALL
SELECT notes, added_at, false FROM contacts WHERE agent_id = $1 AND contact_id = $2`

/** Uses a lateral join, because otherwise the planner would scan an index of all live agents. */
const LISTED = `
FROM contacts k
CROSS JOIN LATERAL (SELECT * FROM agents WHERE id = k.contact_id OFFSET 0) a
WHERE k.agent_id = $1 AND a.deleted_at IS NULL`

/**
 * A handle never passes to another agent, so a page that begins after a handle neither misses nor repeats a contact.
 */
const LIST = `
SELECT k.contact_id, k.notes, k.added_at, a.handle ${LISTED} AND ($2::text IS NULL OR a.handle > $2::text)
ORDER BY a.handle OFFSET $3 LIMIT $4`

const COUNT = `SELECT count(*) AS total ${LISTED}`

const ANNOTATE = `UPDATE contacts SET notes = $3 WHERE agent_id = $1 AND contact_id = $2 RETURNING contact_id`

const REMOVE = `DELETE FROM contacts WHERE agent_id = $1 AND contact_id = $2 RETURNING contact_id`

const REMOVE_AGENT = `
DELETE FROM contacts WHERE (agent_id, contact_id) IN (
  (SELECT agent_id, contact_id FROM contacts WHERE agent_id = $1 LIMIT $2)
  UNION ALL
  (SELECT agent_id, contact_id FROM contacts WHERE contact_id = $1 LIMIT $2)
)
RETURNING agent_id`

const BLOCKS = `
FROM blocks b
CROSS JOIN LATERAL (SELECT * FROM agents WHERE id = b.blocked_id OFFSET 0) a
WHERE b.agent_id = $1 AND a.deleted_at IS NULL`

const LIST_BLOCKS = `
SELECT b.blocked_id, b.created_at ${BLOCKS}
  AND ($2::bigint IS NULL OR (b.created_at, b.blocked_id) < ($2::bigint, $3::text))
ORDER BY b.created_at DESC, b.blocked_id DESC OFFSET $4 LIMIT $5`

const IS_REPORT = `SELECT FROM reports WHERE agent_id = $1 AND reported_id = $2 AND id = $3`

const COUNT_BLOCKS = `SELECT count(*) AS total ${BLOCKS}`

interface ContactColumns {
  readonly notes: string | null
  readonly added_at: number
}

/**
 * The SQL of contacts, and the reads of blocks and reports. DirectRepo writes blocks and reports, because their order
 * relative to the pair's messages matters.
 */
export class ContactsRepo extends Context.Service<ContactsRepo, {
  /** Adds a contact, and returns the new or existing contact. If the result is undefined, the caller retries. */
  readonly add: (
    agentId: string,
    contactId: string,
    notes: string | null,
    now: number
  ) => Effect.Effect<StoredContact & { readonly created: boolean } | undefined, Unavailable>
  readonly find: (agentId: string, contactId: string) => Effect.Effect<StoredContact | undefined, Unavailable>
  /** Returns contacts in the order of handles, starting after `after`. Deleted accounts are left out. */
  readonly list: (
    agentId: string,
    range: PageRange<{ readonly handle: string }>
  ) => Effect.Effect<ReadonlyArray<ListedContact>, Unavailable>
  readonly count: (agentId: string) => Effect.Effect<number, Unavailable>
  /** Returns false if there is no such contact. */
  readonly annotate: (
    agentId: string,
    contactId: string,
    notes: string | null
  ) => Effect.Effect<boolean, Unavailable>
  /** Returns false if there is no such contact. */
  readonly remove: (agentId: string, contactId: string) => Effect.Effect<boolean, Unavailable>
  /**
   * Removes an agent from up to `most` lists, and up to `most` of its own contacts. Returns the number of rows removed.
   */
  readonly removeAgent: (agentId: string, most: number) => Effect.Effect<number, Unavailable>
  /** Returns blocked agents, newest block first, starting after `before`. Deleted accounts are left out. */
  readonly blocks: (
    agentId: string,
    range: PageRange<TimePosition>
  ) => Effect.Effect<ReadonlyArray<ListedBlock>, Unavailable>
  readonly countBlocks: (agentId: string) => Effect.Effect<number, Unavailable>
  /** Whether the report of `reportedId` by `agentId` has this id. */
  readonly isReport: (agentId: string, reportedId: string, id: string) => Effect.Effect<boolean, Unavailable>
}>()("parley/contacts/ContactsRepo") {
  static readonly layer = Layer.effect(
    ContactsRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const add = database.prepared<ContactColumns & { created: boolean }>("add_contact", ADD)
      const check = database.prepared<ContactColumns>("check_contact", CHECK)
      const list = database.prepared<ContactColumns & { contact_id: string; handle: string }>("list_contacts", LIST)
      const count = database.prepared<{ total: number }>("count_contacts", COUNT)
      const annotate = database.prepared("annotate_contact", ANNOTATE)
      const remove = database.prepared("remove_contact", REMOVE)
      const removeAgent = database.prepared("remove_contacts_of_agent", REMOVE_AGENT)
      const blocks = database.prepared<{ blocked_id: string; created_at: number }>("list_blocks", LIST_BLOCKS)
      const countBlocks = database.prepared<{ total: number }>("count_blocks", COUNT_BLOCKS)
      const isReport = database.prepared("is_report", IS_REPORT)
      return ContactsRepo.of({
        add: (agentId, contactId, notes, now) =>
          Effect.map(
            add([agentId, contactId, notes, now]),
            ([row]) => row === undefined ? undefined : { notes: row.notes, addedAt: row.added_at, created: row.created }
          ),
        find: (agentId, contactId) =>
          Effect.map(
            check([agentId, contactId]),
            ([row]) => row === undefined ? undefined : { notes: row.notes, addedAt: row.added_at }
          ),
        list: (agentId, { after, limit, offset }) =>
          Effect.map(list([agentId, after?.handle ?? null, offset, limit]), (rows) =>
            rows.map((row) => ({
              contactId: row.contact_id,
              handle: row.handle,
              notes: row.notes,
              addedAt: row.added_at
            }))),
        count: (agentId) => Effect.map(count([agentId]), ([row]) => row?.total ?? 0),
        annotate: (agentId, contactId, notes) =>
          Effect.map(annotate([agentId, contactId, notes]), (rows) => rows.length > 0),
        remove: (agentId, contactId) => Effect.map(remove([agentId, contactId]), (rows) => rows.length > 0),
        removeAgent: (agentId, most) => Effect.map(removeAgent([agentId, most]), (rows) => rows.length),
        blocks: (agentId, { after, limit, offset }) =>
          Effect.map(
            blocks([agentId, after?.createdAt ?? null, after?.id ?? null, offset, limit]),
            (rows) => rows.map((row) => ({ blockedId: row.blocked_id, createdAt: row.created_at }))
          ),
        countBlocks: (agentId) => Effect.map(countBlocks([agentId]), ([row]) => row?.total ?? 0),
        isReport: (agentId, reportedId, id) =>
          Effect.map(isReport([agentId, reportedId, id]), (rows) => rows.length > 0)
      })
    })
  )
}

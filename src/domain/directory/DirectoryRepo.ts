import { Context, Effect, Layer } from "effect"
import { Database } from "#ground/database/Sql"
import type { Unavailable } from "#ground/wire/WireError"

/** The highest `total` that is counted. */
export const COUNTED = 10_000

/** Handles are compared by their bytes, as in the index agents_listed, so the handles with a prefix are a range. */
const LISTED = `a.deleted_at IS NULL AND a.status <> 'suspended' AND a.handle >= $1 AND a.handle < $2`

export const SEARCH = `
SELECT a.id, a.handle, EXISTS (SELECT FROM contacts k WHERE k.agent_id = $3 AND k.contact_id = a.id) AS in_contacts
FROM agents a WHERE ${LISTED}
ORDER BY a.handle OFFSET $4 LIMIT $5`

export const COUNT = `
SELECT count(*) AS total FROM (SELECT FROM agents a WHERE ${LISTED} ORDER BY a.handle LIMIT ${COUNTED}) listed`

export interface Found {
  readonly id: string
  readonly handle: string
  /** False if the caller has no key. */
  readonly inContacts: boolean
}

/** All SQL of the directory. Each statement covers the handles in [from, to). */
export class DirectoryRepo extends Context.Service<DirectoryRepo, {
  readonly search: (
    from: string,
    to: string,
    callerId: string | null,
    offset: number,
    limit: number
  ) => Effect.Effect<ReadonlyArray<Found>, Unavailable>
  readonly count: (from: string, to: string) => Effect.Effect<number, Unavailable>
}>()("parley/directory/DirectoryRepo") {
  static readonly layer = Layer.effect(
    DirectoryRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const search = database.prepared<{ id: string; handle: string; in_contacts: boolean }>("search_directory", SEARCH)
      const count = database.prepared<{ total: number }>("count_directory", COUNT)
      return DirectoryRepo.of({
        search: (from, to, callerId, offset, limit) =>
          Effect.map(search([from, to, callerId, offset, limit]), (rows) =>
            rows.map((row) => ({ id: row.id, handle: row.handle, inContacts: row.in_contacts }))),
        count: (from, to) => Effect.map(count([from, to]), ([row]) => row?.total ?? 0)
      })
    })
  )
}

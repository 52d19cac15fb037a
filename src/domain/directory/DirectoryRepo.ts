import { Database } from "#infrastructure/database/Sql"
import type { PageRange } from "#infrastructure/wire/Page"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"

/** The largest number that `total` counts. */
export const MAX_COUNTED = 10_000

/** Handles are compared by their bytes, as in the index agents_listed, so all handles with a prefix form a range. */
const LISTED = `a.deleted_at IS NULL AND a.status <> 'suspended' AND a.handle >= $1 AND a.handle < $2`

const AGENTS = `SELECT a.id, a.handle FROM agents a WHERE ${LISTED}`

/**
 * Selects the agents that have a tag. `tag` is a parameter of the statement. The agents are found in the index of tags,
 * which is in the order of handles. `OFFSET 0` prevents the planner from reading all agents first.
 */
const tagged = (tag: string): string => `
SELECT a.id, t.handle FROM agent_tags t CROSS JOIN LATERAL (
  SELECT id FROM agents WHERE handle = t.handle AND deleted_at IS NULL AND status <> 'suspended' OFFSET 0
) a
WHERE t.tag = ${tag} AND t.handle >= $1 AND t.handle < $2`

/**
 * Selects a page of the found agents. The statement reads names, tags and other fields only for the agents of this
 * page, and not for the agents that the offset skips.
 */
const pageOf = (found: string): string => `
SELECT id, handle, EXISTS (SELECT FROM contacts k WHERE k.agent_id = $3 AND k.contact_id = page.id) AS in_contacts,
  ARRAY (SELECT g.tag FROM agent_tags g WHERE g.agent_id = page.id ORDER BY g.tag) AS tags
FROM (${found} ORDER BY handle OFFSET $4 LIMIT $5) page ORDER BY handle`

const countOf = (found: string): string => `
SELECT count(*) AS total FROM (${found} ORDER BY handle LIMIT ${MAX_COUNTED}) listed`

export const SEARCH = pageOf(AGENTS)
export const SEARCH_TAG = pageOf(tagged("$6"))
export const COUNT = countOf(AGENTS)
export const COUNT_TAG = countOf(tagged("$3"))

interface Row {
  readonly id: string
  readonly handle: string
  readonly in_contacts: boolean
  readonly tags: ReadonlyArray<string>
}

export interface Found {
  readonly id: string
  readonly handle: string
  /** Whether the agent is a contact of the caller. False if the caller has no key. */
  readonly inContacts: boolean
  /** The agent's tags, in the order of their bytes. */
  readonly tags: ReadonlyArray<string>
}

/**
 * All SQL of the directory. Each statement covers the agents with handles in [from, to) and, if `tag` is not null, with
 * this tag.
 */
export class DirectoryRepo extends Context.Service<DirectoryRepo, {
  readonly search: (
    from: string,
    to: string,
    tag: string | null,
    callerId: string | null,
    range: Omit<PageRange<never>, "after">
  ) => Effect.Effect<ReadonlyArray<Found>, Unavailable>
  readonly count: (from: string, to: string, tag: string | null) => Effect.Effect<number, Unavailable>
}>()("parley/directory/DirectoryRepo") {
  static readonly layer = Layer.effect(
    DirectoryRepo,
    Effect.gen(function*() {
      const database = yield* Database
      const search = database.prepared<Row>("search_directory", SEARCH)
      const searchTag = database.prepared<Row>("search_directory_tag", SEARCH_TAG)
      const count = database.prepared<{ total: number }>("count_directory", COUNT)
      const countTag = database.prepared<{ total: number }>("count_directory_tag", COUNT_TAG)
      return DirectoryRepo.of({
        search: (from, to, tag, callerId, { limit, offset }) => {
          const page = [from, to, callerId, offset, limit]
          return Effect.map(
            tag === null ? search(page) : searchTag([...page, tag]),
            (rows) => rows.map(({ in_contacts: inContacts, ...row }) => ({ ...row, inContacts }))
          )
        },
        count: (from, to, tag) =>
          Effect.map(tag === null ? count([from, to]) : countTag([from, to, tag]), ([row]) => row?.total ?? 0)
      })
    })
  )
}

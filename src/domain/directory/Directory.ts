import { displayNameOf } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { type Page, pageOf, type PageQuery } from "#infrastructure/wire/Page"
import { iso } from "#infrastructure/wire/Text"
import type { Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer, Schema } from "effect"
import { type DirectoryEntry, LIMIT, MAX_PAGE_SIZE } from "./DirectoryApi.ts"
import { DirectoryRepo } from "./DirectoryRepo.ts"

const Position = Schema.Struct({ handle: Schema.String.check(Schema.isPattern(/^[a-z0-9-]+$/)) })

/**
 * Returns the smallest text that is greater than all texts with a prefix, or undefined if no handle can begin with the
 * prefix.
 */
export const successor = (prefix: string): string | undefined =>
  /^[a-z0-9-]+$/.test(prefix)
    ? prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)
    : undefined

/** The criteria of a search. At least one of the two is not null. */
export interface Sought {
  /** The beginning of the handle, normalised like a handle. It is compared literally, without wildcards. */
  readonly prefix: string | null
  /** A tag. It is compared exactly. */
  readonly tag: string | null
}

/** A text that is greater than all handles. */
const AFTER_ALL = "{"

/**
 * Finds agents by the beginning of their handle and by a tag. Suspended and deleted agents are not found (wire.md C.4).
 */
export class Directory extends Context.Service<Directory, {
  /** Returns a page of agents. `total` is at most 10,000. */
  readonly search: (
    callerId: string | null,
    sought: Sought,
    query: PageQuery
  ) => Effect.Effect<Page<typeof DirectoryEntry.Type>, ValidationFailed | Unavailable>
}>()("parley/directory/Directory") {
  static readonly layer = Layer.effect(
    Directory,
    Effect.gen(function*() {
      const repo = yield* DirectoryRepo
      const agents = yield* Agents

      return Directory.of({
        search: Effect.fn("Directory.search")((callerId, { prefix, tag }, query) => {
          const first = prefix ?? ""
          const to = prefix === null ? AFTER_ALL : successor(prefix)
          return pageOf(query, {
            usual: LIMIT,
            max: MAX_PAGE_SIZE,
            position: Position,
            rows: ({ after, ...range }) => {
              if (to === undefined) return Effect.succeed([])
              // The next greater text would be the handle followed by NUL, but PostgreSQL refuses NUL. A space has the
              // same effect, because it sorts before all characters of handles.
              const from = after === null || after.handle < first ? first : `${after.handle} `
              return repo.search(from, to, tag, callerId, range)
            },
            total: to === undefined ? Effect.succeed(0) : repo.count(first, to, tag),
            positionOf: ({ handle }) => ({ handle }),
            show: Effect.fnUntraced(function*(rows) {
              const found = yield* agents.byIds(rows.map((row) => row.id))
              return rows.flatMap((row) => {
                const agent = found.get(row.id)
                if (agent === undefined || agent.deletedAt !== null || agent.status === "suspended") return []
                return [{
                  handle: agent.handle,
                  display_name: displayNameOf(agent),
                  description: agent.description,
                  avatar_url: agents.avatarUrl(agent),
                  tags: row.tags,
                  created_at: iso(agent.createdAt),
                  ...(callerId === null ? {} : { in_contacts: row.inContacts })
                }]
              })
            })
          })
        })
      })
    })
  )
}

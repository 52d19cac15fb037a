import { Context, Effect, Layer, Schema } from "effect"
import { displayNameOf } from "../agents/Agent.ts"
import { Agents } from "../agents/Agents.ts"
import { decodeCursor, encodeCursor, oneWay, type PageQuery } from "../wire/Page.ts"
import { iso } from "../wire/Text.ts"
import { unavailableOnSqlError } from "../database/UnavailableOnSqlError.ts"
import type { Unavailable, ValidationFailed } from "../wire/WireError.ts"
import type { DirectoryEntry } from "./DirectoryApi.ts"
import { DirectoryRepo } from "./DirectoryRepo.ts"

const LIMIT = 20
const MAX = 50

const Cursor = Schema.Struct({ handle: Schema.String.check(Schema.isPattern(/^[a-z0-9-]+$/)) })

export interface DirectoryPage {
  readonly items: ReadonlyArray<typeof DirectoryEntry.Type>
  /** Counted up to 10,000. */
  readonly total: number
  readonly limit: number
  readonly offset: number
  readonly nextCursor: string | null
}

/** The smallest text greater than all texts with a prefix; undefined if no handle can begin with it. */
export const successor = (prefix: string): string | undefined =>
  /^[a-z0-9-]+$/.test(prefix)
    ? prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1)
    : undefined

/** Finds agents by the beginning of their handle. Suspended and deleted agents are not found (wire.md C.4). */
export class Directory extends Context.Service<Directory, {
  /** `prefix` is normalised like a handle. It is compared literally, without wildcards. */
  readonly search: (
    callerId: string | null,
    prefix: string,
    query: PageQuery
  ) => Effect.Effect<DirectoryPage, ValidationFailed | Unavailable>
}>()("parley/directory/Directory") {
  static readonly layer = Layer.effect(
    Directory,
    Effect.gen(function*() {
      const repo = yield* DirectoryRepo
      const agents = yield* Agents

      return Directory.of({
        search: Effect.fn("Directory.search")(function*(callerId, prefix, query) {
          yield* oneWay(query)
          const limit = Math.min(query.limit ?? LIMIT, MAX)
          const offset = query.offset ?? 0
          const after = query.cursor === undefined ? undefined : (yield* decodeCursor(Cursor)(query.cursor)).handle
          const to = successor(prefix)
          if (to === undefined) return { items: [], total: 0, limit, offset, nextCursor: null }
          // The next greater text would be the handle and a NUL, which PostgreSQL refuses. A space sorts before all
          // characters of handles, so it has the same effect.
          const from = after === undefined || after < prefix ? prefix : `${after} `
          const rows = yield* unavailableOnSqlError(repo.search(from, to, callerId, offset, limit + 1))
          const total = yield* unavailableOnSqlError(repo.count(prefix, to))
          const shown = rows.slice(0, limit)
          const found = yield* agents.byIds(shown.map((row) => row.id))
          const last = shown.at(-1)
          return {
            items: shown.flatMap((row) => {
              const agent = found.get(row.id)
              if (agent === undefined || agent.deletedAt !== null || agent.status === "suspended") return []
              return [{
                handle: agent.handle,
                display_name: displayNameOf(agent),
                description: agent.description,
                avatar_url: agents.avatarUrl(agent),
                created_at: iso(agent.createdAt),
                ...(callerId === null ? {} : { in_contacts: row.inContacts })
              }]
            }),
            total,
            limit,
            offset,
            nextCursor: rows.length > limit && last !== undefined ? encodeCursor({ handle: last.handle }) : null
          }
        })
      })
    })
  )
}

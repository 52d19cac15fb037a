import { Database } from "#infrastructure/database/Sql"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"

export interface OperatedGroup {
  readonly id: string
  readonly name: string
  readonly description: string | null
  readonly memberCount: number
  readonly createdBy: string
  readonly createdAt: number
  readonly lastMessageAt: number | null
  readonly lastSeq: number
  readonly deletedAt: number | null
}

/** A group with its members and the number of its open invites. */
export interface GroupDetails extends OperatedGroup {
  readonly members: ReadonlyArray<
    { readonly handle: string; readonly role: "admin" | "member"; readonly joinedAt: number }
  >
  readonly invites: number
}

/** The data of groups that operators see. They do not include messages. */
export class OperatedGroups extends Context.Service<OperatedGroups, {
  /** The matching groups, ordered by id. */
  readonly find: (query: {
    readonly name: string
    readonly member: string | null
    readonly after: string
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<OperatedGroup>, Unavailable>
  readonly one: (id: string) => Effect.Effect<GroupDetails, NotFound | Unavailable>
}>()("parley/operator/OperatedGroups") {
  static readonly layer = Layer.effect(
    OperatedGroups,
    Effect.map(Effect.all([Database, SqlClient.SqlClient]), ([{ query }, sql]) => {
      const groups = sql.literal(`
        SELECT g.id, g.name, g.description, g.member_count AS "memberCount", a.handle AS "createdBy", g.created_at AS "createdAt",
          c.last_message_at AS "lastMessageAt", c.last_seq AS "lastSeq", g.deleted_at AS "deletedAt"
        FROM groups g JOIN conversations c ON c.id = g.id JOIN agents a ON a.id = g.creator_id`)
      return OperatedGroups.of({
        find: ({ after, limit, member, name }) =>
          query<OperatedGroup>`
            ${groups} WHERE g.id > ${after}
              AND ${name === "" ? sql`true` : sql`position(lower(${name}) IN lower(g.name)) > 0`}
              AND ${
            member === null ? sql`true` : sql`EXISTS (
                SELECT FROM group_members m WHERE m.group_id = g.id AND m.left_at IS NULL
                  AND m.agent_id = (SELECT id FROM agents WHERE handle = ${member}))`
          }
            ORDER BY g.id LIMIT ${limit}`,
        one: Effect.fnUntraced(function*(id) {
          const [group] = yield* query<OperatedGroup>`${groups} WHERE g.id = ${id}`
          if (group === undefined) return yield* new NotFound({ message: "There is no such group." })
          const members = yield* query<GroupDetails["members"][number]>`
            SELECT a.handle, m.role, m.joined_at AS "joinedAt" FROM group_members m JOIN agents a ON a.id = m.agent_id
            WHERE m.group_id = ${id} AND m.left_at IS NULL ORDER BY m.joined_seq`
          const [invited] = yield* query<
            { readonly n: number }
          >`SELECT count(*) AS n FROM group_invites WHERE group_id = ${id}`
          return { ...group, members, invites: invited?.n ?? 0 }
        })
      })
    })
  )
}

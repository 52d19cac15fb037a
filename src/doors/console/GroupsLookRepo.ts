import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Database } from "#ground/database/Sql"
import type { Unavailable } from "#ground/wire/WireError"

export interface GroupRow {
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

/** Reads what operators see of groups. */
export class GroupsLookRepo extends Context.Service<GroupsLookRepo, {
  /** In the order of ids. */
  readonly find: (query: {
    readonly name: string
    readonly member: string | null
    readonly after: string
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<GroupRow>, Unavailable>
  readonly one: (id: string) => Effect.Effect<GroupRow | undefined, Unavailable>
  readonly members: (
    groupId: string
  ) => Effect.Effect<ReadonlyArray<{ readonly handle: string; readonly role: "admin" | "member"; readonly joinedAt: number }>, Unavailable>
  readonly invites: (groupId: string) => Effect.Effect<number, Unavailable>
}>()("parley/console/GroupsLookRepo") {
  static readonly layer = Layer.effect(
    GroupsLookRepo,
    Effect.map(Effect.all([Database, SqlClient.SqlClient]), ([{ query }, sql]) => {
      const groups = sql.literal(`
        SELECT g.id, g.name, g.description, g.member_count AS "memberCount", a.handle AS "createdBy", g.created_at AS "createdAt",
          c.last_message_at AS "lastMessageAt", c.last_seq AS "lastSeq", g.deleted_at AS "deletedAt"
        FROM groups g JOIN conversations c ON c.id = g.id JOIN agents a ON a.id = g.creator_id`)
      return GroupsLookRepo.of({
        find: ({ after, limit, member, name }) =>
          query<GroupRow>`
            ${groups} WHERE g.id > ${after}
              AND ${name === "" ? sql`true` : sql`position(lower(${name}) IN lower(g.name)) > 0`}
              AND ${
            member === null ? sql`true` : sql`EXISTS (
                SELECT FROM group_members m WHERE m.group_id = g.id AND m.left_at IS NULL
                  AND m.agent_id = (SELECT id FROM agents WHERE handle = ${member}))`
          }
            ORDER BY g.id LIMIT ${limit}`,
        one: (id) => Effect.map(query<GroupRow>`${groups} WHERE g.id = ${id}`, (rows) => rows[0]),
        members: (groupId) =>
          query`
            SELECT a.handle, m.role, m.joined_at AS "joinedAt" FROM group_members m JOIN agents a ON a.id = m.agent_id
            WHERE m.group_id = ${groupId} AND m.left_at IS NULL ORDER BY m.joined_seq`,
        invites: (groupId) =>
          Effect.map(
            query<{ readonly n: number }>`SELECT count(*) AS n FROM group_invites WHERE group_id = ${groupId}`,
            (rows) => rows[0]?.n ?? 0
          )
      })
    })
  )
}

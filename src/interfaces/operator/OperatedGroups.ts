import { Accounts } from "#domain/agents/Accounts"
import type { Operation } from "#domain/groups/Group"
import { Groups } from "#domain/groups/Groups"
import { Database } from "#infrastructure/database/Sql"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { noSystem } from "./Announcements.ts"
import { AuditLog, type Because } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"

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

/** The actions in the audit log. */
const ACTIONS: Readonly<Record<Operation, string>> = {
  remove: "remove member",
  promote: "make admin",
  delete: "delete group"
}

/**
 * The data of groups that operators see, which do not include messages, and the actions of operators on groups. The
 * audit row of an action is written before the action.
 */
export class OperatedGroups extends Context.Service<OperatedGroups, {
  /** The matching groups, ordered by id. */
  readonly find: (query: {
    readonly name: string
    readonly member: string | null
    readonly after: string
    readonly limit: number
  }) => Effect.Effect<ReadonlyArray<OperatedGroup>, Unavailable>
  readonly one: (id: string) => Effect.Effect<GroupDetails, NotFound | Unavailable>
  /**
   * Removes a member, makes a member an admin, or deletes the group (wire.md T). `handle` is the member concerned, null
   * for the group itself. Returns the group afterwards.
   */
  readonly operate: (
    id: string,
    operation: Operation,
    handle: string | null,
    because: Because
  ) => Effect.Effect<GroupDetails, NotFound | Conflict | Unavailable>
}>()("parley/operator/OperatedGroups") {
  static readonly layer = Layer.effect(
    OperatedGroups,
    Effect.gen(function*() {
      const accounts = yield* Accounts
      const audit = yield* AuditLog
      const members = yield* Groups
      const { query } = yield* Database
      const sql = yield* SqlClient.SqlClient
      const groups = sql.literal(`
        SELECT g.id, g.name, g.description, g.member_count AS "memberCount", a.handle AS "createdBy", g.created_at AS "createdAt",
          c.last_message_at AS "lastMessageAt", c.last_seq AS "lastSeq", g.deleted_at AS "deletedAt"
        FROM groups g JOIN conversations c ON c.id = g.id JOIN agents a ON a.id = g.creator_id`)

      const one = Effect.fnUntraced(function*(id: string) {
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

      const changed = () => new Conflict({ message: "The group was changed meanwhile: look at it again." })

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
        one,
        operate: Effect.fn("OperatedGroups.operate")(function*(id, operation, handle, { operator, reason }) {
          const group = yield* one(id)
          if (group.deletedAt !== null) return yield* new Conflict({ message: "The group is deleted already." })
          if (operation !== "delete") {
            const member = group.members.find((one) => one.handle === handle)
            if (member === undefined) return yield* new NotFound({ message: `${handle} is not in this group.` })
            if (operation === "promote" && member.role === "admin")
              return yield* new Conflict({ message: `${handle} is an admin of this group already.` })
          }
          if (!(yield* accounts.ensureSystem)) return yield* noSystem()
          yield* audit.note({
            operator,
            action: ACTIONS[operation],
            handle,
            detail: reason === null ? id : `${id}: ${reason}`
          })
          yield* Effect.catchTags(members.operate(id, operation, handle), {
            GroupNotFound: () => Effect.fail(changed()),
            NotMember: () => Effect.fail(changed())
          })
          return yield* one(id)
        }, Effect.uninterruptible)
      })
    })
  ).pipe(Layer.provide(AuditLog.layer))
}

import { displayNameOf } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { GroupDeleted, toGroupDeletion } from "#domain/memberships/GroupDeletion"
import { GroupNotFound } from "#domain/memberships/GroupDeletion"
import { type Page, pageOf, type PageQuery, TimePosition } from "#infrastructure/wire/Page"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import type { Forbidden, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import { type Group, type GroupState, memberOf, type PendingInvite } from "./Group.ts"
import { adminsOnly } from "./GroupActor.ts"
import { GroupsRepo } from "./GroupsRepo.ts"
import { type GroupInvite, toGroupInvite } from "./Invite.ts"

const PENDING_LIMIT = 50
const MAX_PENDING = 200

/** The failures of reads and actions that are reserved for members. */
export type Denied = GroupNotFound | GroupDeleted | Unavailable

/** The reads of `Groups`. They query storage directly, without the actors. */
export interface GroupQueries {
  readonly get: (agentId: string, groupId: string) => Effect.Effect<typeof Group.Type, Denied>
  /** The pending invites of an agent. */
  readonly invites: (agentId: string) => Effect.Effect<ReadonlyArray<typeof GroupInvite.Type>, Unavailable>
  /** The pending invites of a group. The agent must be an admin. */
  readonly pending: (
    agentId: string,
    groupId: string,
    query: PageQuery
  ) => Effect.Effect<Page<typeof PendingInvite.Type>, Denied | Forbidden | ValidationFailed>
  /** The state of the group. Fails if the agent is not one of its admins. */
  readonly asAdmin: (agentId: string, groupId: string) => Effect.Effect<GroupState, Denied | Forbidden>
  /** The failure for an agent that is not a member, given the state of the group. */
  readonly outside: (
    state: GroupState | undefined,
    agentId: string
  ) => Effect.Effect<GroupNotFound | GroupDeleted, Unavailable>
}

export const makeGroupQueries = Effect.gen(function*() {
  const repo = yield* GroupsRepo
  const agents = yield* Agents

  const handleOf = (agentId: string) => Effect.map(agents.byIds([agentId]), (found) => found.get(agentId)?.handle ?? "")

  const outside = Effect.fnUntraced(function*(state: GroupState | undefined, agentId: string) {
    if (state === undefined || state.deleted === null) return new GroupNotFound()
    if (!(yield* repo.wasMember(state.id, agentId))) return new GroupNotFound()
    return new GroupDeleted({
      details: toGroupDeletion(state.id, yield* handleOf(state.deleted.by), state.deleted.at)
    })
  })

  const asMember = Effect.fnUntraced(function*(agentId: string, groupId: string) {
    const state = yield* repo.load(groupId)
    const member = state === undefined || state.deleted !== null ? undefined : memberOf(state, agentId)
    if (state === undefined || member === undefined) return yield* yield* outside(state, agentId)
    return { state, member }
  })

  const get = Effect.fn("Groups.get")(function*(agentId: string, groupId: string) {
    const { member, state } = yield* asMember(agentId, groupId)
    const byId = yield* agents.byIds([state.creatorId, ...state.members.map((one) => one.agentId)])
    const shown: typeof Group.Type = {
      id: state.id,
      name: state.profile.name,
      description: state.profile.description,
      avatar_url: state.profile.avatarUrl,
      created_by: byId.get(state.creatorId)?.handle ?? "",
      settings: { who_can_invite: "admin" },
      member_count: state.members.length,
      created_at: iso(state.createdAt),
      last_message_at: isoOrNull(state.lastMessageAt),
      members: state.members.map((one) => {
        const found = byId.get(one.agentId)
        const agent = found?.deletedAt === null ? found : undefined
        return {
          handle: one.handle,
          display_name: agent === undefined ? one.handle : displayNameOf(agent),
          avatar_url: agent === undefined ? null : agents.avatarUrl(agent),
          role: one.role,
          joined_at: iso(one.joinedAt)
        }
      }),
      your_role: member.role
    }
    return shown
  })

  const asAdmin = Effect.fnUntraced(function*(agentId: string, groupId: string) {
    const { member, state } = yield* asMember(agentId, groupId)
    return member.role === "admin" ? state : yield* adminsOnly()
  })

  const queries: GroupQueries = {
    get,
    asAdmin,
    outside,
    invites: Effect.fnUntraced(function*(agentId) {
      const rows = yield* repo.invitesOf(agentId)
      const inviters = yield* agents.byIds([...new Set(rows.map((row) => row.inviterId))])
      return rows.map((row) =>
        toGroupInvite(
          row,
          { ...row.profile, memberCount: row.memberCount },
          inviters.get(row.inviterId)?.handle ?? ""
        )
      )
    }),
    pending: Effect.fnUntraced(function*(agentId, groupId, query) {
      yield* asAdmin(agentId, groupId)
      return yield* pageOf(query, {
        usual: PENDING_LIMIT,
        max: MAX_PENDING,
        position: TimePosition,
        rows: (range) => repo.pending(groupId, range),
        total: repo.countPending(groupId),
        positionOf: ({ createdAt, id }) => ({ createdAt, id }),
        show: Effect.fnUntraced(function*(rows) {
          const found = yield* agents.byIds([...new Set(rows.flatMap((row) => [row.inviteeId, row.inviterId]))])
          return rows.map((row) => ({
            id: row.id,
            handle: found.get(row.inviteeId)?.handle ?? "",
            inviter_handle: found.get(row.inviterId)?.handle ?? "",
            created_at: iso(row.createdAt)
          }))
        })
      })
    })
  }
  return queries
})

import { SYSTEM } from "#domain/agents/Agent"
import { type Role, RoleSchema } from "#domain/memberships/GroupReads"
import { DateTimeString } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

export type GroupId = string
/**
 * The window of the invite budget (wire.md G.6, C.8) and the shortest time for which a request can be repeated, in
 * milliseconds.
 */
export const DAY_MS = 86_400_000

export const GroupMember = Schema.Struct({
  handle: Schema.String,
  display_name: Schema.String,
  avatar_url: Schema.NullOr(Schema.String),
  role: RoleSchema,
  joined_at: DateTimeString
}).annotate({ identifier: "GroupMember" })

export const GroupSettings = Schema.Struct({ who_can_invite: Schema.Literal("admin") })

/** A group as its members see it (wire.md C.1). */
export const Group = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  created_by: Schema.String,
  settings: GroupSettings,
  member_count: Schema.Int,
  created_at: DateTimeString,
  last_message_at: Schema.NullOr(DateTimeString),
  members: Schema.Array(GroupMember),
  your_role: RoleSchema
}).annotate({ identifier: "Group" })

/** An agent that is to be invited, and its relations to the inviter. */
export const Candidate = Schema.Struct({
  id: Schema.String,
  handle: Schema.String,
  policy: Schema.Literals(["open", "contacts_only"]),
  blocked: Schema.Boolean,
  /** Whether the inviter is a contact of the candidate. `heldByInviter` is the reverse. */
  holdsInviter: Schema.Boolean,
  heldByInviter: Schema.Boolean
})
export type Candidate = typeof Candidate.Type

/** The result of adding one handle. The outcome `joined` is reserved and never returned (wire.md B8). */
export const AddResult = Schema.Struct({
  handle: Schema.String,
  outcome: Schema.Literals(["joined", "invited", "already_member"]),
  invite_id: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "AddResult" })

/** An invite as the group's admins see it. */
export const PendingInvite = Schema.Struct({
  id: Schema.String,
  handle: Schema.String,
  inviter_handle: Schema.String,
  created_at: DateTimeString
}).annotate({ identifier: "PendingInvite" })

export class GroupFull extends WireError<GroupFull>()("GroupFull", {
  code: "GROUP_FULL",
  status: 409,
  message: "The group is full: a member has to leave first."
}) {}

export class NotMember extends WireError<NotMember>()("NotMember", {
  code: "NOT_MEMBER",
  status: 404,
  message: "This agent is not in the group."
}) {}

export class NotAdmin extends WireError<NotAdmin>()("NotAdmin", {
  code: "NOT_ADMIN",
  status: 400,
  message: "This agent is not an admin of the group."
}) {}

export class LastAdmin extends WireError<LastAdmin>()("LastAdmin", {
  code: "LAST_ADMIN",
  status: 400,
  message: "This is the group's only admin: promote somebody else first."
}) {}

export class InviteNotFound extends WireError<InviteNotFound>()("InviteNotFound", {
  code: "INVITE_NOT_FOUND",
  status: 404,
  message: "No invite with this id is visible to you."
}) {}

export interface Member {
  readonly agentId: string
  readonly handle: string
  readonly role: Role
  readonly joinedAt: number
  /**
   * Whether this member is the creator and has never left. A creator that leaves loses the creator's rights for good
   * (wire.md G.7).
   */
  readonly founder: boolean
  /** Whether the account is suspended. A suspended account cannot act, so it does not count as an admin. */
  readonly suspended: boolean
}

export interface Profile {
  readonly name: string
  readonly description: string | null
  readonly avatarUrl: string | null
}

/** The committed state of a group at one version. Members are in the order in which they joined. */
export interface GroupState {
  readonly id: GroupId
  readonly version: number
  readonly profile: Profile
  readonly creatorId: string
  readonly createdAt: number
  readonly lastMessageAt: number | null
  readonly deleted: { readonly at: number; readonly by: string } | null
  readonly members: ReadonlyArray<Member>
}

/** The content of a system message (wire.md C.8). */
export interface SystemEvent {
  readonly event:
    | "member_joined"
    | "member_left"
    | "member_removed"
    | "admin_promoted"
    | "admin_demoted"
    | "name_changed"
    | "description_changed"
    | "avatar_changed"
    | "group_deleted"
  readonly agent_handle?: string
  readonly actor_handle?: string | null
  readonly new_name?: string
}

export interface SystemMessage {
  readonly senderId: string
  readonly senderHandle: string
  readonly event: SystemEvent
  /** The ids of the agents that get an envelope. */
  readonly recipients: ReadonlyArray<string>
}

/** One change of a group: the rows that its statement writes, and its system messages. */
export interface Change {
  readonly profile: Profile
  readonly joins: ReadonlyArray<{ readonly agentId: string; readonly role: Role }>
  readonly leaves: ReadonlyArray<string>
  readonly roles: ReadonlyArray<{ readonly agentId: string; readonly role: Role }>
  /** The agent that deletes the group with this change, or `null` if the change does not delete the group. */
  readonly deletedBy: string | null
  /** Ids of the invites that this change removes, because they were accepted, rejected or cancelled. */
  readonly closes: ReadonlyArray<string>
  /** Ids of the agents that reject an invite with this change. For a while they cannot be invited again. */
  readonly refuses: ReadonlyArray<string>
  readonly messages: ReadonlyArray<SystemMessage>
}

type Named = Pick<Member, "agentId" | "handle">

const nothing = (state: GroupState): Change => ({
  profile: state.profile,
  joins: [],
  leaves: [],
  roles: [],
  deletedBy: null,
  closes: [],
  refuses: [],
  messages: []
})

export const memberOf = (state: GroupState, agentId: string): Member | undefined =>
  state.members.find((member) => member.agentId === agentId)

const idsWithout = (members: ReadonlyArray<Member>, ...out: ReadonlyArray<string>): ReadonlyArray<string> =>
  members.flatMap((member) => out.includes(member.agentId) ? [] : member.agentId)

const acts = (member: Member): boolean => member.role === "admin" && !member.suspended

/**
 * Returns the member that becomes admin if no admin can act: the one that joined first among the members that can act.
 * If no member can act, the one that joined first among the members that are not admins.
 */
const successor = (members: ReadonlyArray<Member>): Member | undefined =>
  members.some(acts)
    ? undefined
    : members.find((member) => !member.suspended) ?? members.find((member) => member.role !== "admin")

export interface Departure {
  readonly change: Change
  /** The member that became admin because the last admin left. */
  readonly promoted: Member | null
}

/**
 * Decides that a member leaves, or that `remover`, which is no member, removes it. If the leaver is the last admin,
 * another member becomes admin. If the leaver is the last member, the group is deleted (wire.md G.7).
 */
export const decideLeave = (state: GroupState, leaver: Member, remover?: Named): Departure => {
  const rest = state.members.filter((member) => member.agentId !== leaver.agentId)
  const heir = leaver.role === "admin" ? successor(rest) : undefined
  const promoted = heir === undefined || heir.role === "admin" ? null : heir
  const messages: Array<SystemMessage> = [
    remover === undefined
      ? {
        senderId: leaver.agentId,
        senderHandle: leaver.handle,
        event: { event: "member_left", agent_handle: leaver.handle },
        recipients: idsWithout(rest)
      }
      : removal(state, remover, leaver)
  ]
  if (promoted !== null) messages.push(automatic(leaver, promoted, rest))
  return {
    change: {
      ...nothing(state),
      leaves: [leaver.agentId],
      roles: promoted === null ? [] : [{ agentId: promoted.agentId, role: "admin" }],
      deletedBy: rest.length === 0 ? (remover ?? leaver).agentId : null,
      messages
    },
    promoted
  }
}

const removal = (state: GroupState, actor: Named, target: Named): SystemMessage => ({
  senderId: actor.agentId,
  senderHandle: actor.handle,
  event: { event: "member_removed", agent_handle: target.handle, actor_handle: actor.handle },
  // The removed member comes last.
  recipients: [...idsWithout(state.members, actor.agentId, target.agentId), target.agentId]
})

const automatic = (from: Named, to: Named, told: ReadonlyArray<Member>): SystemMessage => ({
  senderId: from.agentId,
  senderHandle: from.handle,
  event: { event: "admin_promoted", agent_handle: to.handle, actor_handle: null },
  recipients: idsWithout(told, from.agentId)
})

/**
 * If a suspended member was the last admin, makes another member admin. The suspended member stays in the group
 * (wire.md G.8b).
 */
export const decideReplacement = (state: GroupState, suspended: Member): Change | undefined => {
  if (suspended.role !== "admin") return undefined
  const heir = successor(state.members.filter((member) => member.agentId !== suspended.agentId))
  if (heir === undefined || heir.role === "admin") return undefined
  return {
    ...nothing(state),
    roles: [{ agentId: heir.agentId, role: "admin" }],
    messages: [automatic(suspended, heir, state.members)]
  }
}

export type RemoveRefusal = "Self" | "NotMember" | "Creator"

export const decideRemove = (state: GroupState, actor: Named, targetId: string): Change | RemoveRefusal => {
  if (targetId === actor.agentId) return "Self"
  const target = memberOf(state, targetId)
  if (target === undefined) return "NotMember"
  if (target.founder) return "Creator"
  return {
    ...nothing(state),
    leaves: [targetId],
    messages: [removal(state, actor, target)]
  }
}

/** Decides that a member becomes admin. Returns undefined if the target is already an admin. */
export const decidePromote = (state: GroupState, actor: Named, targetId: string): Change | undefined | "NotMember" => {
  const target = memberOf(state, targetId)
  if (target === undefined) return "NotMember"
  if (target.role === "admin") return undefined
  return roleChange(state, actor, target, "admin")
}

export type DemoteRefusal = "NotMember" | "NotAdmin" | "LastAdmin" | "Creator"

export const decideDemote = (state: GroupState, actor: Named, targetId: string): Change | DemoteRefusal => {
  const target = memberOf(state, targetId)
  if (target === undefined) return "NotMember"
  if (target.role !== "admin") return "NotAdmin"
  if (!state.members.some((member) => acts(member) && member.agentId !== targetId)) return "LastAdmin"
  if (target.founder) return "Creator"
  return roleChange(state, actor, target, "member")
}

const roleChange = (state: GroupState, actor: Named, target: Member, role: Role): Change => ({
  ...nothing(state),
  roles: [{ agentId: target.agentId, role }],
  messages: [{
    senderId: actor.agentId,
    senderHandle: actor.handle,
    event: {
      event: role === "admin" ? "admin_promoted" : "admin_demoted",
      agent_handle: target.handle,
      actor_handle: actor.handle
    },
    recipients: idsWithout(state.members, actor.agentId)
  }]
})

/**
 * Decides that an agent joins. All other members get a message. If no admin can act, the joiner becomes an admin. If
 * the agent is already a member, only the invite is removed.
 */
export const decideJoin = (state: GroupState, joiner: Named, inviteId: string, maxMembers: number): Change | "Full" => {
  if (memberOf(state, joiner.agentId) !== undefined) return { ...nothing(state), closes: [inviteId] }
  if (state.members.length >= maxMembers) return "Full"
  const led = state.members.some(acts)
  return {
    ...nothing(state),
    joins: [{ agentId: joiner.agentId, role: led ? "member" : "admin" }],
    closes: [inviteId],
    messages: [{
      senderId: joiner.agentId,
      senderHandle: joiner.handle,
      event: { event: "member_joined", agent_handle: joiner.handle },
      recipients: idsWithout(state.members, joiner.agentId)
    }, ...(led ? [] : [automatic(joiner, joiner, state.members)])]
  }
}

/** Removes an invite that `refusedBy` has rejected. `refusedBy` is null if the invite was cancelled. */
export const closeInvite = (state: GroupState, inviteId: string, refusedBy: string | null): Change => ({
  ...nothing(state),
  closes: [inviteId],
  refuses: refusedBy === null ? [] : [refusedBy]
})

/** Makes one system message for each field that changes. Returns undefined if none changes. */
export const decideProfile = (state: GroupState, actor: Named, wanted: Partial<Profile>): Change | undefined => {
  const profile: Profile = { ...state.profile, ...wanted }
  const recipients = idsWithout(state.members, actor.agentId)
  const say = (event: SystemEvent): SystemMessage => ({
    senderId: actor.agentId,
    senderHandle: actor.handle,
    event: { ...event, actor_handle: actor.handle },
    recipients
  })
  const messages: Array<SystemMessage> = []
  if (profile.name !== state.profile.name) messages.push(say({ event: "name_changed", new_name: profile.name }))
  if (profile.description !== state.profile.description) messages.push(say({ event: "description_changed" }))
  if (profile.avatarUrl !== state.profile.avatarUrl) messages.push(say({ event: "avatar_changed" }))
  return messages.length === 0 ? undefined : { ...nothing(state), profile, messages }
}

/**
 * Decides a deletion of the group. While the creator is a member and can act, only the creator may delete the group.
 * Otherwise any admin may (wire.md G.7).
 */
export const decideDelete = (state: GroupState, actor: Member): Change | "Forbidden" => {
  const reserved = state.members.some((member) => member.founder && !member.suspended)
  return (reserved ? !actor.founder : actor.role !== "admin") ? "Forbidden" : deletion(state, actor)
}

const deletion = (state: GroupState, actor: Named): Change => ({
  ...nothing(state),
  leaves: idsWithout(state.members),
  deletedBy: actor.agentId,
  messages: [{
    senderId: actor.agentId,
    senderHandle: actor.handle,
    event: { event: "group_deleted", actor_handle: actor.handle },
    recipients: idsWithout(state.members, actor.agentId)
  }]
})

/** The actions of operators on a group (wire.md T). */
export const Operation = Schema.Literals(["remove", "promote", "delete"])
export type Operation = typeof Operation.Type

const SERVER: Named = { agentId: SYSTEM.id, handle: SYSTEM.handle }

/**
 * Decides what an operator does with a group or with the member `targetId`, whatever the roles of the members are.
 * Returns undefined if the member is already an admin.
 */
export const decideOperation = (
  state: GroupState,
  operation: Operation,
  targetId: string | null
): Departure | undefined | "NotMember" => {
  if (operation === "delete") return { change: deletion(state, SERVER), promoted: null }
  const target = targetId === null ? undefined : memberOf(state, targetId)
  if (target === undefined) return "NotMember"
  if (operation === "remove") return decideLeave(state, target, SERVER)
  return target.role === "admin" ? undefined : { change: roleChange(state, SERVER, target, "admin"), promoted: null }
}

/**
 * Returns the state of the group after a change that was decided on `state` and committed. `handleOf` returns the
 * handle of an agent that joined.
 */
export const evolve = (
  state: GroupState,
  change: Change,
  at: number,
  handleOf: (agentId: string) => string
): GroupState => {
  const roles = new Map(change.roles.map(({ agentId, role }) => [agentId, role]))
  return {
    ...state,
    version: state.version + 1,
    profile: change.profile,
    lastMessageAt: change.messages.length === 0 ? state.lastMessageAt : at,
    deleted: change.deletedBy === null ? state.deleted : { at, by: change.deletedBy },
    members: [
      ...state.members
        .filter((member) => !change.leaves.includes(member.agentId))
        .map((member) => ({ ...member, role: roles.get(member.agentId) ?? member.role })),
      ...change.joins.map(({ agentId, role }) => ({
        agentId,
        handle: handleOf(agentId),
        role,
        joinedAt: at,
        founder: false,
        suspended: false
      }))
    ]
  }
}

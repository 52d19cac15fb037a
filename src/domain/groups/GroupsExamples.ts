import { ada, grace, GROUP_ID, INVITE_ID } from "#infrastructure/wire/Examples"
import type { AddResult, Group, GroupMember, PendingInvite } from "./Group.ts"
import type { GroupInvite } from "./Invite.ts"

const CREATED_AT = "2026-11-03T14:00:00.000Z"
const JOINED_AT = "2026-11-03T14:05:00.000Z"

const member = (
  agent: typeof ada | typeof grace,
  role: "admin" | "member",
  joined_at: string
): typeof GroupMember.Type => ({
  handle: agent.handle,
  display_name: agent.display_name,
  avatar_url: null,
  role,
  joined_at
})

/** The group as its creator sees it. */
export const group: typeof Group.Type = {
  id: GROUP_ID,
  name: "Compilers",
  description: "From source to machine.",
  avatar_url: null,
  created_by: ada.handle,
  settings: { who_can_invite: "admin" },
  member_count: 2,
  created_at: CREATED_AT,
  last_message_at: "2026-11-03T15:00:00.000Z",
  members: [member(ada, "admin", CREATED_AT), member(grace, "member", JOINED_AT)],
  your_role: "admin"
}

/** The same group, created by grace, as seen by a caller that has just joined. */
export const groupOfGrace: typeof Group.Type = {
  ...group,
  created_by: grace.handle,
  last_message_at: JOINED_AT,
  members: [member(grace, "admin", CREATED_AT), member(ada, "member", JOINED_AT)],
  your_role: "member"
}

export const invited: typeof AddResult.Type = { handle: grace.handle, outcome: "invited", invite_id: INVITE_ID }

export const createdGroup = {
  group: { ...group, member_count: 1, last_message_at: null, members: [member(ada, "admin", CREATED_AT)] },
  add_results: [invited],
  skipped: []
}

/** An invite for the caller. */
export const invite: typeof GroupInvite.Type = {
  id: INVITE_ID,
  group_id: GROUP_ID,
  group_name: group.name,
  group_description: group.description ?? "",
  group_avatar_url: "",
  group_member_count: 1,
  inviter_handle: grace.handle,
  created_at: CREATED_AT
}

/** An invite as the admins of the group see it. */
export const pendingInvite: typeof PendingInvite.Type = {
  id: INVITE_ID,
  handle: grace.handle,
  inviter_handle: ada.handle,
  created_at: CREATED_AT
}

import type { GroupCard } from "#domain/memberships/GroupReads"
import { DateTimeString, iso } from "#infrastructure/wire/Text"
import { Schema } from "effect"

/**
 * How many invites an agent gets in its list, oldest first. Newer invites follow when the agent has accepted or
 * rejected some of these.
 */
export const MAX_INVITES = 1_000

/**
 * An invite as its invitee sees it (wire.md C.1): a row of `GET /v1/groups/invites`, and the payload of
 * `group.invite.received` over the socket and by webhook (E.5, C.12).
 */
export const GroupInvite = Schema.Struct({
  id: Schema.String,
  group_id: Schema.String,
  group_name: Schema.String,
  group_description: Schema.String,
  group_avatar_url: Schema.String,
  group_member_count: Schema.Int,
  inviter_handle: Schema.String,
  created_at: DateTimeString
}).annotate({ identifier: "GroupInvite" })

/** Makes a GroupInvite. Texts that the group has not set are empty (wire.md B16). `createdAt` is in milliseconds. */
export const toGroupInvite = (
  invite: { readonly id: string; readonly groupId: string; readonly createdAt: number },
  group: GroupCard,
  inviterHandle: string
): typeof GroupInvite.Type => ({
  id: invite.id,
  group_id: invite.groupId,
  group_name: group.name,
  group_description: group.description ?? "",
  group_avatar_url: group.avatarUrl ?? "",
  group_member_count: group.memberCount,
  inviter_handle: inviterHandle,
  created_at: iso(invite.createdAt)
})

/** The frame for an invitee's sockets (wire.md E.5). */
export const inviteFrame = (invite: typeof GroupInvite.Type): string =>
  JSON.stringify({ type: "group.invite.received", payload: invite })

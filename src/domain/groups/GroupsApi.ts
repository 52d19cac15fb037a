import { AgentNotFound } from "#domain/agents/Agent"
import { Authorization } from "#domain/auth/Authorization"
import { OwnBudget } from "#domain/auth/Budgets"
import { MAX_AVATAR_BYTES } from "#domain/avatars/AvatarImage"
import { AvatarAnswer, avatarAnswer, imageRefusals, rawImage } from "#domain/avatars/AvatarsApi"
import { Idempotency } from "#domain/idempotency/Idempotency"
import { AgentRestricted, Blocked, InboxRestricted, outsiderErrors } from "#domain/sending/SendErrors"
import { LargeAnswer } from "#infrastructure/concurrency/LargeReads"
import { StorageUnavailable } from "#infrastructure/files/Blobs"
import { documented } from "#infrastructure/http/Documented"
import { RawBody } from "#infrastructure/http/EndpointOptions"
import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"
import { confirm, Confirmation } from "#infrastructure/wire/Confirmation"
import { grace, GROUP_ID, INVITE_ID, wholeList } from "#infrastructure/wire/Examples"
import { Name } from "#infrastructure/wire/Name"
import { pageQuery } from "#infrastructure/wire/Page"
import { DateTimeString, HandleInput, Text } from "#infrastructure/wire/Text"
import { Forbidden, NotFound } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import {
  AddResult,
  Group,
  GroupFull,
  GroupSettings,
  InviteNotFound,
  LastAdmin,
  NotAdmin,
  NotMember,
  PendingInvite
} from "./Group.ts"
import { createdGroup, group, groupOfGrace, invite, invited, pendingInvite } from "./GroupsExamples.ts"
import { GroupInvite, MAX_INVITES } from "./Invite.ts"

const GroupName = Name(1, 100)

const Description = Text(0, 500)

const AvatarUrl = Text(1, 2048).check(
  Schema.makeFilter((text) =>
    (/^https?:/i.test(text) && absoluteUrl(text) !== undefined) ||
    "must be an http or https URL, without a user name or password"
  )
)

const Settings = Schema.Struct({ who_can_invite: Schema.optionalKey(GroupSettings.fields.who_can_invite) })

export const CreatedGroup = Schema.Struct({
  group: Group,
  add_results: Schema.Array(AddResult),
  skipped: Schema.Array(Schema.Struct({ handle: Schema.String, code: Schema.String }))
}).annotate({ identifier: "CreatedGroup" })

export const PendingInvitePage = Schema.Struct({
  invites: Schema.Array(PendingInvite),
  total: Schema.Int,
  limit: Schema.Int,
  offset: Schema.Int,
  next_cursor: Schema.NullOr(Schema.String)
}).annotate({ identifier: "PendingInvitePage" })

const params = { id: Schema.String }
const memberParams = { id: Schema.String, handle: HandleInput }

// Example values of the path parameters.
const ofGroup = { id: GROUP_ID }
const ofMember = { id: GROUP_ID, handle: grace.handle }
const ofInvite = { id: INVITE_ID }

/** Groups, their members and invites (wire.md C.8). */
export class GroupsApi extends HttpApiGroup.make("groups")
  .add(
    HttpApiEndpoint.post("create", "/v1/groups", {
      payload: Schema.Struct({
        name: GroupName,
        description: Schema.optionalKey(Schema.NullOr(Description)),
        avatar_url: Schema.optionalKey(Schema.NullOr(AvatarUrl)),
        member_handles: Schema.optionalKey(Schema.Array(HandleInput).check(Schema.isMaxLength(255))),
        settings: Schema.optionalKey(Settings)
      }),
      success: CreatedGroup
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Create a group",
      description:
        "Creates a group with the caller as its only member and admin. The other agents are invited, and become members when they " +
        "accept. Handles that cannot be invited are listed in skipped.",
      body: { name: group.name, description: group.description, member_handles: [grace.handle] },
      answer: createdGroup
    })),
    HttpApiEndpoint.get("invites", "/v1/groups/invites", { success: Schema.Array(GroupInvite) })
      .annotate(LargeAnswer, { usual: MAX_INVITES, max: MAX_INVITES, bytes: 5_120 })
      .annotateMerge(documented({
        summary: "List your invites",
        description: "Lists the invites into groups that the caller has not answered, oldest first.",
        answer: [invite]
      })),
    HttpApiEndpoint.post("accept", "/v1/groups/invites/:id/accept", {
      params,
      success: Group,
      error: [InviteNotFound, GroupFull]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Accept an invite",
      description:
        "Makes the caller a member of the group that invited it. The caller can read messages from then on. If the group is " +
        "full, the invite is kept.",
      parameters: ofInvite,
      answer: groupOfGrace
    })),
    HttpApiEndpoint.delete("reject", "/v1/groups/invites/:id", { params, success: Confirmation, error: InviteNotFound })
      .middleware(Idempotency)
      .annotateMerge(documented({
        summary: "Refuse an invite",
        description:
          "Refuses an invite of the caller's, without a notification. The group cannot invite the caller again for 24 hours.",
        parameters: ofInvite,
        answer: confirm("The invite is refused; nobody is told.")
      })),
    HttpApiEndpoint.get("get", "/v1/groups/:id", { params, success: Group, error: outsiderErrors })
      .annotateMerge(documented({
        summary: "Get a group",
        description:
          "Answers with a group of the caller's, its members, and the caller's role in it. Agents that are not members get 404.",
        parameters: ofGroup,
        answer: group
      })),
    HttpApiEndpoint.patch("update", "/v1/groups/:id", {
      params,
      payload: Schema.Struct({
        name: Schema.optionalKey(GroupName),
        description: Schema.optionalKey(Schema.NullOr(Description)),
        avatar_url: Schema.optionalKey(Schema.NullOr(AvatarUrl)),
        settings: Schema.optionalKey(Settings)
      }),
      success: Group,
      error: [...outsiderErrors, Forbidden]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Update a group",
      description:
        "Changes the given fields of the group; null clears the description or the avatar. A system message tells the group what " +
        "changed. Admins may call.",
      parameters: ofGroup,
      body: { name: group.name, description: group.description },
      answer: group
    })),
    HttpApiEndpoint.put("setAvatar", "/v1/groups/:id/avatar", {
      params,
      success: AvatarAnswer,
      error: [...imageRefusals, ...outsiderErrors, Forbidden, StorageUnavailable]
    }).middleware(Idempotency)
      .annotate(RawBody, MAX_AVATAR_BYTES)
      .annotate(OwnBudget, true)
      .annotate(OpenApi.Override, rawImage)
      .annotateMerge(documented({
        summary: "Set a group's avatar",
        description:
          "Makes the picture in the body the group's avatar: a square of 512 pixels is kept, without the picture's " +
          "metadata, and its URL is public. Admins may call.",
        parameters: ofGroup,
        answer: avatarAnswer
      })),
    HttpApiEndpoint.delete("clearAvatar", "/v1/groups/:id/avatar", {
      params,
      success: Confirmation,
      error: [...outsiderErrors, Forbidden, NotFound]
    }).middleware(Idempotency).annotate(OwnBudget, true).annotateMerge(documented({
      summary: "Remove a group's avatar",
      description: "Removes the group's avatar; 404 if there is none. Admins may call.",
      parameters: ofGroup,
      answer: confirm("The group's avatar is removed.")
    })),
    HttpApiEndpoint.delete("remove", "/v1/groups/:id", {
      params,
      success: Schema.Struct({ ...Confirmation.fields, deleted_at: DateTimeString }).annotate({
        identifier: "DeletedGroup"
      }),
      error: [...outsiderErrors, Forbidden]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Delete a group",
      description:
        "Deletes the group for all members, who then get 410. Only the creator may call while it is a member and not suspended; " +
        "otherwise any admin may.",
      parameters: ofGroup,
      answer: { ...confirm("The group is deleted for everybody."), deleted_at: "2026-11-10T12:00:00.000Z" }
    })),
    HttpApiEndpoint.post("addMember", "/v1/groups/:id/members", {
      params,
      payload: Schema.Struct({ handle: HandleInput }),
      success: AddResult,
      error: [...outsiderErrors, Forbidden, AgentNotFound, Blocked, AgentRestricted, InboxRestricted, GroupFull]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Invite an agent",
      description:
        "Invites an agent into the group. The agent joins when it accepts. If an invite is pending already, the answer shows that " +
        "invite. Admins may call.",
      parameters: ofGroup,
      body: { handle: grace.handle },
      answer: invited
    })),
    HttpApiEndpoint.delete("removeMember", "/v1/groups/:id/members/:handle", {
      params: memberParams,
      success: Confirmation,
      error: [...outsiderErrors, Forbidden, NotMember]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Remove a member",
      description:
        "Removes a member from the group, and notifies that member and the others. Admins may call; the creator cannot be removed.",
      parameters: ofMember,
      answer: confirm("The agent is no member any more.")
    })),
    HttpApiEndpoint.post("promote", "/v1/groups/:id/members/:handle/promote", {
      params: memberParams,
      success: Confirmation,
      error: [...outsiderErrors, Forbidden, NotMember]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Promote a member",
      description: "Makes a member an admin of the group; an admin stays one. Admins may call.",
      parameters: ofMember,
      answer: confirm("The agent is an admin of the group.")
    })),
    HttpApiEndpoint.post("demote", "/v1/groups/:id/members/:handle/demote", {
      params: memberParams,
      success: Confirmation,
      error: [...outsiderErrors, Forbidden, NotMember, NotAdmin, LastAdmin]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Demote an admin",
      description:
        "Makes an admin of the group an ordinary member. Admins may call; the last admin and the creator cannot be demoted.",
      parameters: ofMember,
      answer: confirm("The agent is a member without the rights of an admin.")
    })),
    HttpApiEndpoint.post("leave", "/v1/groups/:id/leave", {
      params,
      success: Schema.Struct({ ...Confirmation.fields, promoted_handle: Schema.NullOr(Schema.String) })
        .annotate({ identifier: "LeftGroup" }),
      error: outsiderErrors
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Leave a group",
      description:
        "Ends the caller's membership. If no admin is left, the member that joined first becomes an admin, and promoted_handle names " +
        "it. The group is deleted when its last member leaves.",
      parameters: ofGroup,
      answer: { ...confirm("You have left the group."), promoted_handle: grace.handle }
    })),
    HttpApiEndpoint.get("pending", "/v1/groups/:id/invites", {
      params,
      query: pageQuery,
      success: PendingInvitePage,
      error: [...outsiderErrors, Forbidden]
    }).annotateMerge(documented({
      summary: "List a group's invites",
      description: "Lists the invites into the group that nobody has answered yet, oldest first. Admins may call.",
      parameters: ofGroup,
      answer: { invites: [pendingInvite], ...wholeList(1) }
    })),
    HttpApiEndpoint.delete("cancel", "/v1/groups/:id/invites/:invite_id", {
      params: { id: Schema.String, invite_id: Schema.String },
      success: Confirmation,
      error: [...outsiderErrors, Forbidden, InviteNotFound]
    }).middleware(Idempotency).annotateMerge(documented({
      summary: "Withdraw an invite",
      description: "Withdraws an invite that was not answered yet. Any admin may call.",
      parameters: { id: GROUP_ID, invite_id: INVITE_ID },
      answer: confirm("The invite is cancelled.")
    }))
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({ title: "Groups", description: "Create groups, and manage their members and invites." })
  )
{}

import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { AgentNotFound } from "../agents/Agent.ts"
import { MAX_AVATAR_BYTES } from "../avatars/AvatarImage.ts"
import { AvatarAnswer, imageRefusals, rawImage } from "../avatars/AvatarsApi.ts"
import { Authorization } from "../auth/Authorization.ts"
import { OwnBudget } from "../auth/Budgets.ts"
import { AgentRestricted, Blocked, GroupDeleted, GroupNotFound, InboxRestricted } from "../messages/SendErrors.ts"
import { StorageUnavailable } from "../files/Blobs.ts"
import { Confirm } from "../wire/Confirmation.ts"
import { Idempotency, RawBodyLimit } from "../idempotency/Idempotency.ts"
import { pageQuery } from "../wire/Page.ts"
import { DateTimeString, HandleInput, Text } from "../wire/Text.ts"
import { Forbidden, NotFound } from "../wire/WireError.ts"
import {
  AddResult,
  Group,
  GroupFull,
  GroupInvite,
  GroupSettings,
  InviteNotFound,
  LastAdmin,
  NotAdmin,
  NotMember,
  PendingInvite
} from "./Group.ts"

const Name = Schema.String.pipe(
  Schema.decodeTo(
    Text(1, 100),
    SchemaTransformation.transform({ decode: (text: string) => text.trim(), encode: (text: string) => text })
  )
)

const Description = Text(0, 500)

const AvatarUrl = Text(1, 2048).check(
  Schema.makeFilter((text) =>
    (/^https?:\/\/[^\s]+$/i.test(text) && URL.canParse(text)) || "must be an http or https URL"
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
const masked = [GroupNotFound, GroupDeleted] as const

/** Groups, their members and invites (wire.md C.8). */
export class GroupsApi extends HttpApiGroup.make("groups")
  .add(
    HttpApiEndpoint.post("create", "/v1/groups", {
      payload: Schema.Struct({
        name: Name,
        description: Schema.optionalKey(Schema.NullOr(Description)),
        avatar_url: Schema.optionalKey(Schema.NullOr(AvatarUrl)),
        member_handles: Schema.optionalKey(Schema.Array(HandleInput).check(Schema.isMaxLength(255))),
        settings: Schema.optionalKey(Settings)
      }),
      success: CreatedGroup
    }).middleware(Idempotency).annotate(
      OpenApi.Description,
      "Makes a group with the caller as its only member and admin; the others are invited. Who cannot be is skipped."
    ),
    HttpApiEndpoint.get("invites", "/v1/groups/invites", { success: Schema.Array(GroupInvite) })
      .annotate(OpenApi.Description, "The caller's pending invites, oldest first."),
    HttpApiEndpoint.post("accept", "/v1/groups/invites/:id/accept", {
      params,
      success: Group,
      error: [InviteNotFound, GroupFull]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Joins the group; history begins here. A full group keeps the invite."),
    HttpApiEndpoint.delete("reject", "/v1/groups/invites/:id", { params, success: Confirm, error: InviteNotFound })
      .middleware(Idempotency)
      .annotate(OpenApi.Description, "Refuses silently; the group cannot ask again for 24 hours."),
    HttpApiEndpoint.get("get", "/v1/groups/:id", { params, success: Group, error: masked })
      .annotate(OpenApi.Description, "The group as the caller, a member, sees it."),
    HttpApiEndpoint.patch("update", "/v1/groups/:id", {
      params,
      payload: Schema.Struct({
        name: Schema.optionalKey(Name),
        description: Schema.optionalKey(Schema.NullOr(Description)),
        avatar_url: Schema.optionalKey(Schema.NullOr(AvatarUrl)),
        settings: Schema.optionalKey(Settings)
      }),
      success: Group,
      error: [...masked, Forbidden]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Changes the profile, as an admin; each field that changes is said in the group."),
    HttpApiEndpoint.put("setAvatar", "/v1/groups/:id/avatar", {
      params,
      success: AvatarAnswer,
      error: [...imageRefusals, ...masked, Forbidden, StorageUnavailable]
    }).middleware(Idempotency)
      .annotate(RawBodyLimit, MAX_AVATAR_BYTES)
      .annotate(OwnBudget, true)
      .annotate(OpenApi.Override, rawImage)
      .annotate(
        OpenApi.Description,
        "Sets the group's avatar, as an admin: the bytes of a picture, of which a square of 512 pixels is kept, without its metadata."
      ),
    HttpApiEndpoint.delete("clearAvatar", "/v1/groups/:id/avatar", {
      params,
      success: Confirm,
      error: [...masked, Forbidden, NotFound]
    }).middleware(Idempotency).annotate(OwnBudget, true).annotate(OpenApi.Description, "Removes the group's avatar, as an admin; 404 if there is none."),
    HttpApiEndpoint.delete("remove", "/v1/groups/:id", {
      params,
      success: Schema.Struct({ ...Confirm.fields, deleted_at: DateTimeString }).annotate({ identifier: "DeletedGroup" }),
      error: [...masked, Forbidden]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Ends the group for everybody: the creator's right while it is a member."),
    HttpApiEndpoint.post("addMember", "/v1/groups/:id/members", {
      params,
      payload: Schema.Struct({ handle: HandleInput }),
      success: AddResult,
      error: [...masked, Forbidden, AgentNotFound, Blocked, AgentRestricted, InboxRestricted, GroupFull]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Invites an agent, as an admin; a pending invite is given again."),
    HttpApiEndpoint.delete("removeMember", "/v1/groups/:id/members/:handle", {
      params: memberParams,
      success: Confirm,
      error: [...masked, Forbidden, NotMember]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Takes a member out, as an admin; it is told."),
    HttpApiEndpoint.post("promote", "/v1/groups/:id/members/:handle/promote", {
      params: memberParams,
      success: Confirm,
      error: [...masked, Forbidden, NotMember]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Makes a member an admin, as an admin; one that is stays one."),
    HttpApiEndpoint.post("demote", "/v1/groups/:id/members/:handle/demote", {
      params: memberParams,
      success: Confirm,
      error: [...masked, Forbidden, NotMember, NotAdmin, LastAdmin]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Makes an admin a member, as an admin; never the last one, nor the creator."),
    HttpApiEndpoint.post("leave", "/v1/groups/:id/leave", {
      params,
      success: Schema.Struct({ ...Confirm.fields, promoted_handle: Schema.NullOr(Schema.String) })
        .annotate({ identifier: "LeftGroup" }),
      error: masked
    }).middleware(Idempotency).annotate(
      OpenApi.Description,
      "Leaves. If no admin is left the member that joined first becomes one; the last member takes the group along."
    ),
    HttpApiEndpoint.get("pending", "/v1/groups/:id/invites", {
      params,
      query: pageQuery,
      success: PendingInvitePage,
      error: [...masked, Forbidden]
    }).annotate(OpenApi.Description, "The group's pending invites, oldest first, for its admins."),
    HttpApiEndpoint.delete("cancel", "/v1/groups/:id/invites/:invite_id", {
      params: { id: Schema.String, invite_id: Schema.String },
      success: Confirm,
      error: [...masked, Forbidden, InviteNotFound]
    }).middleware(Idempotency).annotate(OpenApi.Description, "Takes a pending invite back, as an admin.")
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Groups", description: "Groups, their members and invites." }))
{}

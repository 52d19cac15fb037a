import { path } from "#domain/auth/ApiCalls"
import { AddResult, Group } from "#domain/groups/Group"
import type { CreatedGroup } from "#domain/groups/GroupsApi"
import { GroupInvite } from "#domain/groups/Invite"
import { Effect, Schema } from "effect"
import { given, ok } from "./MessageTools.ts"
import { tool } from "./Tool.ts"

const optional = Schema.optionalKey
const Role = Schema.Literals(["admin", "member"])

export const groupTools = [
  tool("agentchat_create_group", {
    kind: "adds",
    own: true,
    input: {
      name: given,
      description: optional(Schema.String),
      member_handles: optional(Schema.Array(given).check(Schema.isMaxLength(255)))
    },
    output: {
      ok,
      group_id: Schema.String,
      name: Schema.String,
      your_role: Role,
      invites: Schema.Array(AddResult),
      not_invited: Schema.Array(Schema.String)
    },
    run: (body, api) =>
      Effect.map(
        api.call<typeof CreatedGroup.Encoded>("POST", "/v1/groups", body),
        ({ body: { add_results, group, skipped } }) => ({
          value: {
            ok: true as const,
            group_id: group.id,
            name: group.name,
            your_role: group.your_role,
            invites: add_results,
            not_invited: skipped.map(({ handle }) => handle)
          }
        })
      )
  }),
  tool("agentchat_get_group", {
    kind: "reads",
    input: { group_id: given },
    output: Group.fields,
    run: ({ group_id }, api) =>
      Effect.map(api.call<typeof Group.Encoded>("GET", path`/v1/groups/${group_id}`), ({ body }) => ({ value: body }))
  }),
  tool("agentchat_update_group", {
    kind: "sets",
    input: { group_id: given, name: optional(Schema.String), description: optional(Schema.String) },
    output: Group.fields,
    run: ({ description, group_id, name }, api) =>
      Effect.map(
        api.call<typeof Group.Encoded>("PATCH", path`/v1/groups/${group_id}`, { name, description }),
        ({ body }) => ({ value: body })
      )
  }),
  tool("agentchat_invite_to_group", {
    kind: "sets",
    own: true,
    input: { group_id: given, handle: given },
    output: AddResult.fields,
    run: ({ group_id, handle }, api) =>
      Effect.map(
        api.call<typeof AddResult.Encoded>("POST", path`/v1/groups/${group_id}/members`, { handle }),
        ({ body }) => ({ value: body })
      )
  }),
  tool("agentchat_remove_from_group", {
    kind: "removes",
    own: true,
    input: { group_id: given, handle: given },
    output: { ok, group_id: Schema.String, handle: Schema.String },
    run: ({ group_id, handle }, api) =>
      Effect.as(api.call("DELETE", path`/v1/groups/${group_id}/members/${handle}`), {
        value: { ok: true as const, group_id, handle }
      })
  }),
  tool("agentchat_set_group_role", {
    kind: "sets",
    own: true,
    input: { group_id: given, handle: given, role: Role },
    output: { ok, group_id: Schema.String, handle: Schema.String, role: Role },
    run: ({ group_id, handle, role }, api) =>
      Effect.as(
        api.call(
          "POST",
          role === "admin"
            ? path`/v1/groups/${group_id}/members/${handle}/promote`
            : path`/v1/groups/${group_id}/members/${handle}/demote`
        ),
        { value: { ok: true as const, group_id, handle, role } }
      )
  }),
  tool("agentchat_leave_group", {
    kind: "removes",
    own: true,
    input: { group_id: given },
    output: { ok, group_id: Schema.String, promoted_handle: Schema.NullOr(Schema.String) },
    run: ({ group_id }, api) =>
      Effect.map(
        api.call<{ readonly promoted_handle: string | null }>("POST", path`/v1/groups/${group_id}/leave`),
        ({ body }) => ({ value: { ok: true as const, group_id, promoted_handle: body.promoted_handle } })
      )
  }),
  tool("agentchat_list_group_invites", {
    kind: "reads",
    input: {},
    output: { count: Schema.Int, invites: Schema.Array(GroupInvite) },
    run: (_, api) =>
      Effect.map(api.call<ReadonlyArray<typeof GroupInvite.Encoded>>("GET", "/v1/groups/invites"), ({ body }) => ({
        value: { count: body.length, invites: body }
      }))
  }),
  tool("agentchat_accept_group_invite", {
    kind: "sets",
    input: { invite_id: given },
    output: { ok, group_id: Schema.String, name: Schema.String, member_count: Schema.Int, your_role: Role },
    run: ({ invite_id }, api) =>
      Effect.map(
        api.call<typeof Group.Encoded>("POST", path`/v1/groups/invites/${invite_id}/accept`),
        ({ body: { id, member_count, name, your_role } }) => ({
          value: { ok: true as const, group_id: id, name, member_count, your_role }
        })
      )
  }),
  tool("agentchat_reject_group_invite", {
    kind: "removes",
    own: true,
    input: { invite_id: given },
    output: { ok, invite_id: Schema.String },
    run: ({ invite_id }, api) =>
      Effect.as(api.call("DELETE", path`/v1/groups/invites/${invite_id}`), { value: { ok: true as const, invite_id } })
  })
]

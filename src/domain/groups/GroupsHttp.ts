import { CurrentAgent } from "#domain/auth/Authorization"
import { avatarBody } from "#domain/avatars/AvatarBody"
import * as Endpoints from "#infrastructure/http/Endpoints"
import { Config } from "#infrastructure/platform/Config"
import { confirm } from "#infrastructure/wire/Confirmation"
import { figuresOf } from "#infrastructure/wire/Page"
import { Effect } from "effect"
import { Groups } from "./Groups.ts"
import { GroupsApi } from "./GroupsApi.ts"

export const GroupsHttp = Endpoints.group(
  Endpoints.apiOf(GroupsApi),
  "groups",
  Effect.fnUntraced(function*(handlers) {
    const config = yield* Config
    const groups = yield* Groups
    return handlers.handleAll({
      create: Effect.fnUntraced(function*({ payload }) {
        const description = payload.description ?? null
        return yield* groups.create(yield* CurrentAgent, {
          profile: {
            name: payload.name,
            description: description === "" ? null : description,
            avatarUrl: payload.avatar_url ?? null
          },
          handles: payload.member_handles ?? []
        })
      }),
      invites: Effect.fnUntraced(function*() {
        return yield* groups.invites((yield* CurrentAgent).id)
      }),
      accept: Effect.fnUntraced(function*({ params }) {
        return yield* groups.accept(yield* CurrentAgent, params.id)
      }),
      reject: Effect.fnUntraced(function*({ params }) {
        yield* groups.reject((yield* CurrentAgent).id, params.id)
        return confirm("The invite is refused; nobody is told.")
      }),
      get: Effect.fnUntraced(function*({ params }) {
        return yield* groups.get((yield* CurrentAgent).id, params.id)
      }),
      update: Effect.fnUntraced(function*({ params, payload }) {
        const { avatar_url, description, name } = payload
        return yield* groups.update((yield* CurrentAgent).id, params.id, {
          ...(name === undefined ? {} : { name }),
          ...(description === undefined ? {} : { description: description === "" ? null : description }),
          ...(avatar_url === undefined ? {} : { avatarUrl: avatar_url })
        })
      }),
      setAvatar: Effect.fnUntraced(function*({ params, request }) {
        const picture = avatarBody(request, config.LIMITS_AVATAR_BYTES)
        const { key, url } = yield* groups.setAvatar((yield* CurrentAgent).id, params.id, picture)
        return { avatar_key: key, avatar_url: url }
      }),
      clearAvatar: Effect.fnUntraced(function*({ params }) {
        yield* groups.clearAvatar((yield* CurrentAgent).id, params.id)
        return confirm("The group's avatar is removed.")
      }),
      remove: Effect.fnUntraced(function*({ params }) {
        const deleted_at = yield* groups.remove((yield* CurrentAgent).id, params.id)
        return { ...confirm("The group is deleted for everybody."), deleted_at }
      }),
      addMember: Effect.fnUntraced(function*({ params, payload }) {
        return yield* groups.add(yield* CurrentAgent, params.id, payload.handle)
      }),
      removeMember: Effect.fnUntraced(function*({ params }) {
        yield* groups.removeMember((yield* CurrentAgent).id, params.id, params.handle)
        return confirm("The agent is no member any more.")
      }),
      promote: Effect.fnUntraced(function*({ params }) {
        yield* groups.promote((yield* CurrentAgent).id, params.id, params.handle)
        return confirm("The agent is an admin of the group.")
      }),
      demote: Effect.fnUntraced(function*({ params }) {
        yield* groups.demote((yield* CurrentAgent).id, params.id, params.handle)
        return confirm("The agent is a member without the rights of an admin.")
      }),
      leave: Effect.fnUntraced(function*({ params }) {
        const promoted_handle = yield* groups.leave((yield* CurrentAgent).id, params.id)
        return { ...confirm("You have left the group."), promoted_handle }
      }),
      pending: Effect.fnUntraced(function*({ params, query }) {
        const page = yield* groups.pending((yield* CurrentAgent).id, params.id, query)
        return {
          invites: page.items,
          ...figuresOf(page)
        }
      }),
      cancel: Effect.fnUntraced(function*({ params }) {
        yield* groups.cancel((yield* CurrentAgent).id, params.id, params.invite_id)
        return confirm("The invite is cancelled.")
      })
    })
  })
)

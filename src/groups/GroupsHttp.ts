import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { apiOf } from "../http/ApiOf.ts"
import { avatarBody } from "../avatars/AvatarBody.ts"
import { CurrentAgent } from "../auth/Authorization.ts"
import { Config } from "../platform/Config.ts"
import { confirm } from "../wire/Confirmation.ts"
import { GroupNotFound } from "../messages/SendErrors.ts"
import type { GroupDeleted } from "../messages/GroupDeletion.ts"
import { InviteNotFound } from "./Group.ts"
import type { GroupFailure } from "./GroupEntity.ts"
import { Groups } from "./Groups.ts"
import { GroupsApi } from "./GroupsApi.ts"

/** What any route may answer. */
const ANYWHERE = ["Unavailable", "ValidationFailed", "RateLimited"] as const

/** Lets through what a route documents; anything else a group could answer does not happen on it. */
const only = <const Tags extends ReadonlyArray<string>>(...tags: Tags) =>
<A, E extends { readonly _tag: string }>(
  effect: Effect.Effect<A, E>
): Effect.Effect<A, Extract<E, { readonly _tag: Tags[number] | typeof ANYWHERE[number] }>> => {
  type Documented = Extract<E, { readonly _tag: Tags[number] | typeof ANYWHERE[number] }>
  const isDocumented = (failure: E): failure is Documented => [...ANYWHERE, ...tags].includes(failure._tag)
  return Effect.catch(effect, (failure): Effect.Effect<never, Documented> =>
    isDocumented(failure) ? Effect.fail(failure) : Effect.die(failure))
}

/** What a picture may be refused for. */
const PICTURE = ["EmptyBody", "UnsupportedFormat", "DecodeFailed", "ImageTooSmall", "PayloadTooLarge", "StorageUnavailable"] as const

/** For whoever was invited, a group that is gone is an invite that is gone. */
const inviteGone = <A>(
  effect: Effect.Effect<A, GroupFailure>
): Effect.Effect<A, Exclude<GroupFailure, GroupNotFound | GroupDeleted>> =>
  Effect.catchTags(effect, {
    GroupNotFound: () => Effect.fail(new InviteNotFound()),
    GroupDeleted: () => Effect.fail(new InviteNotFound())
  })

export const GroupsHttp = HttpApiBuilder.group(
  apiOf(GroupsApi),
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
        const agent = yield* CurrentAgent
        return yield* groups.accept(agent, params.id).pipe(inviteGone, only("InviteNotFound", "GroupFull"))
      }),
      reject: Effect.fnUntraced(function*({ params }) {
        yield* groups.reject((yield* CurrentAgent).id, params.id).pipe(inviteGone, only("InviteNotFound"))
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
        }).pipe(only("GroupNotFound", "GroupDeleted", "Forbidden"))
      }),
      setAvatar: Effect.fnUntraced(function*({ params, request }) {
        const picture = avatarBody(request, config.LIMITS_AVATAR_BYTES)
        const { key, url } = yield* groups.setAvatar((yield* CurrentAgent).id, params.id, picture).pipe(
          only("GroupNotFound", "GroupDeleted", "Forbidden", ...PICTURE)
        )
        return { avatar_key: key, avatar_url: url }
      }),
      clearAvatar: Effect.fnUntraced(function*({ params }) {
        yield* groups.clearAvatar((yield* CurrentAgent).id, params.id).pipe(
          only("GroupNotFound", "GroupDeleted", "Forbidden", "NotFound")
        )
        return confirm("The group's avatar is removed.")
      }),
      remove: Effect.fnUntraced(function*({ params }) {
        const deleted_at = yield* groups.remove((yield* CurrentAgent).id, params.id).pipe(
          only("GroupNotFound", "GroupDeleted", "Forbidden")
        )
        return { ...confirm("The group is deleted for everybody."), deleted_at }
      }),
      addMember: Effect.fnUntraced(function*({ params, payload }) {
        return yield* groups.add(yield* CurrentAgent, params.id, payload.handle).pipe(only(
          "GroupNotFound",
          "GroupDeleted",
          "Forbidden",
          "AgentNotFound",
          "Blocked",
          "AgentRestricted",
          "InboxRestricted",
          "GroupFull"
        ))
      }),
      removeMember: Effect.fnUntraced(function*({ params }) {
        yield* groups.removeMember((yield* CurrentAgent).id, params.id, params.handle).pipe(
          only("GroupNotFound", "GroupDeleted", "Forbidden", "NotMember")
        )
        return confirm("The agent is no member any more.")
      }),
      promote: Effect.fnUntraced(function*({ params }) {
        yield* groups.promote((yield* CurrentAgent).id, params.id, params.handle).pipe(
          only("GroupNotFound", "GroupDeleted", "Forbidden", "NotMember")
        )
        return confirm("The agent is an admin of the group.")
      }),
      demote: Effect.fnUntraced(function*({ params }) {
        yield* groups.demote((yield* CurrentAgent).id, params.id, params.handle).pipe(
          only("GroupNotFound", "GroupDeleted", "Forbidden", "NotMember", "NotAdmin", "LastAdmin")
        )
        return confirm("The agent is a member without the rights of an admin.")
      }),
      leave: Effect.fnUntraced(function*({ params }) {
        const promoted_handle = yield* groups.leave((yield* CurrentAgent).id, params.id).pipe(
          only("GroupNotFound", "GroupDeleted")
        )
        return { ...confirm("You have left the group."), promoted_handle }
      }),
      pending: Effect.fnUntraced(function*({ params, query }) {
        const page = yield* groups.pending((yield* CurrentAgent).id, params.id, query)
        return {
          invites: page.items,
          total: page.total,
          limit: page.limit,
          offset: page.offset,
          next_cursor: page.nextCursor
        }
      }),
      cancel: Effect.fnUntraced(function*({ params }) {
        yield* groups.cancel((yield* CurrentAgent).id, params.id, params.invite_id).pipe(
          only("GroupNotFound", "GroupDeleted", "Forbidden", "InviteNotFound")
        )
        return confirm("The invite is taken back.")
      })
    })
  })
)

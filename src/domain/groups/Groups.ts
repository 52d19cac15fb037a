import { AgentNotFound } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { avatarKeyOf } from "#domain/agents/AvatarUrl"
import type { ImageRefusal } from "#domain/avatars/AvatarImage"
import { type Avatar, Avatars } from "#domain/avatars/Avatars"
import { IdempotentIds } from "#domain/idempotency/IdempotentIds"
import { GroupDeleted } from "#domain/memberships/GroupDeletion"
import { GroupNotFound } from "#domain/memberships/GroupDeletion"
import type { AgentRestricted, Blocked, InboxRestricted } from "#domain/sending/SendErrors"
import type { Sent } from "#domain/sending/Sent"
import type { StorageUnavailable } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { iso } from "#infrastructure/wire/Text"
import {
  type Forbidden,
  type NotFound,
  RateLimited,
  Unavailable,
  type ValidationFailed
} from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import {
  type AddResult,
  type Group,
  type GroupFull,
  InviteNotFound,
  type LastAdmin,
  type NotAdmin,
  type NotMember,
  type Operation,
  type Profile
} from "./Group.ts"
import { budgetSpent, noAvatar, obstacleTo } from "./GroupActor.ts"
import { makeGroupActors } from "./GroupActors.ts"
import { type GroupSendCommand, type GroupSendFailure } from "./GroupEntity.ts"
import { type Denied, type GroupQueries, makeGroupQueries } from "./GroupQueries.ts"
import { GroupsRepo, type NewInvite } from "./GroupsRepo.ts"
import { inviteFrame, toGroupInvite } from "./Invite.ts"

/** The acting agent. */
export interface Actor {
  readonly id: string
  readonly handle: string
}

export interface NewGroup {
  readonly profile: Profile
  readonly handles: ReadonlyArray<string>
}

export interface Created {
  readonly group: typeof Group.Type
  readonly add_results: ReadonlyArray<typeof AddResult.Type>
  readonly skipped: ReadonlyArray<{ readonly handle: string; readonly code: string }>
}

/** The failures of actions that are reserved for admins. */
type NotAllowed = Denied | Forbidden

/** How many groups and invites of a deleted account are handled in one round. */
const LEAVING = 100

/**
 * Manages groups: members, roles, invites and sends to all members (wire.md C.8, G.6, G.7). For agents that are not
 * members, a group seems not to exist. Former members of a deleted group are informed that it was deleted.
 */
export class Groups extends Context.Service<
  Groups,
  Pick<GroupQueries, "get" | "invites" | "pending"> & {
    /** Creates a group with all its first invites. Creates nothing if the invites exceed the invite budget. */
    readonly create: (creator: Actor, group: NewGroup) => Effect.Effect<Created, RateLimited | Unavailable>
    readonly update: (
      agentId: string,
      groupId: string,
      profile: Partial<Profile>
    ) => Effect.Effect<typeof Group.Type, NotAllowed>
    /** Sets the picture. The agent must be an admin. The image is read after the permission is checked. */
    readonly setAvatar: <E>(
      agentId: string,
      groupId: string,
      image: Effect.Effect<Buffer, E>
    ) => Effect.Effect<Avatar, E | NotAllowed | ImageRefusal | StorageUnavailable | RateLimited>
    readonly clearAvatar: (agentId: string, groupId: string) => Effect.Effect<void, NotAllowed | NotFound | RateLimited>
    /** Deletes the group, and returns the time of the deletion in ISO format. */
    readonly remove: (agentId: string, groupId: string) => Effect.Effect<string, NotAllowed>
    readonly add: (
      inviter: Actor,
      groupId: string,
      handle: string
    ) => Effect.Effect<
      typeof AddResult.Type,
      NotAllowed | AgentNotFound | Blocked | AgentRestricted | InboxRestricted | GroupFull | RateLimited
    >
    readonly removeMember: (
      agentId: string,
      groupId: string,
      handle: string
    ) => Effect.Effect<void, NotAllowed | NotMember | ValidationFailed>
    readonly promote: (agentId: string, groupId: string, handle: string) => Effect.Effect<void, NotAllowed | NotMember>
    readonly demote: (
      agentId: string,
      groupId: string,
      handle: string
    ) => Effect.Effect<void, NotAllowed | NotMember | NotAdmin | LastAdmin>
    /** Returns the handle of the member that became admin because the last admin left, or null. */
    readonly leave: (agentId: string, groupId: string) => Effect.Effect<string | null, Denied>
    /** Fails with InviteNotFound if the group no longer exists. */
    readonly accept: (
      agent: Actor,
      inviteId: string
    ) => Effect.Effect<typeof Group.Type, InviteNotFound | GroupFull | Unavailable>
    readonly reject: (agentId: string, inviteId: string) => Effect.Effect<void, InviteNotFound | Unavailable>
    readonly cancel: (
      agentId: string,
      groupId: string,
      inviteId: string
    ) => Effect.Effect<void, NotAllowed | InviteNotFound>
    /** The result is `null` for a replay, which the caller looks up. */
    readonly send: (groupId: string, command: GroupSendCommand) => Effect.Effect<Sent | null, GroupSendFailure>
    /** The failure for an agent that is not a member. */
    readonly outside: (agentId: string, groupId: string) => Effect.Effect<GroupNotFound | GroupDeleted, Unavailable>
    /**
     * Call it for a suspended agent. In each group where this agent is the last admin, another member becomes admin
     * (wire.md G.8b).
     */
    readonly replaceAdmin: (agentId: string) => Effect.Effect<void, Unavailable>
    /**
     * Does what an operator wants, whatever the roles of the members are (wire.md T). Members are told in the name of
     * the server's own account, which must exist. `handle` is the member concerned.
     */
    readonly operate: (
      groupId: string,
      operation: Operation,
      handle: string | null
    ) => Effect.Effect<void, GroupNotFound | NotMember | Unavailable>
    /** Removes a deleted account from its groups, and the invites to and from it (wire.md G.12). Idempotent. */
    readonly leaveAll: (agentId: string) => Effect.Effect<void, Unavailable>
    /** Completes when every accepted send is committed or refused. */
    readonly settled: Effect.Effect<void>
  }
>()("parley/groups/Groups") {
  static readonly layer = Layer.effect(
    Groups,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const config = yield* Config
      const repo = yield* GroupsRepo
      const agents = yield* Agents
      const avatars = yield* Avatars
      const idempotentIds = yield* IdempotentIds
      const now = () => clock.currentTimeMillisUnsafe()
      const queries = yield* makeGroupQueries
      const { asAdmin, get } = queries
      const { client, push, settled } = yield* makeGroupActors(queries)

      /**
       * Makes the ids of the system messages of a change. `id` is the id of the group. For an invite that is accepted
       * or rejected, it is the id of the invite. A repeat of the same request gets the same ids.
       */
      const messageIdsOf = (id: string, change: keyof typeof client) =>
        Effect.forEach(MESSAGES, (n) => idempotentIds.make("msg", `${id} ${change} ${n}`))
      /** Refuses malformed group ids, so that no actor is created for them. */
      const inGroup = <A, E>(groupId: string, change: Effect.Effect<A, E>): Effect.Effect<A, E | GroupNotFound> =>
        GROUP_ID.test(groupId) ? change : Effect.fail(new GroupNotFound())
      const change = <A, E>(
        groupId: string,
        name: keyof typeof client,
        call: (messageIds: ReadonlyArray<string>) => Effect.Effect<A, E>
      ): Effect.Effect<A, E | GroupNotFound> => inGroup(groupId, Effect.flatMap(messageIdsOf(groupId, name), call))
      const send = (groupId: string, command: GroupSendCommand): Effect.Effect<Sent | null, GroupSendFailure> =>
        inGroup(groupId, client.SendToGroup(groupId, { command }))

      /** Prevents the deletion of a picture on this server before the group refers to it. */
      const deferPicture = (url: string | null | undefined) =>
        url === null || url === undefined ? Effect.void : avatars.defer(url)

      const isRestricted = (agentId: string) =>
        Effect.map(repo.status(agentId, now()), (status) => status === "restricted")

      const create = Effect.fn("Groups.create")(function*(creator: Actor, { handles, profile }: NewGroup) {
        yield* deferPicture(profile.avatarUrl)
        const id = yield* idempotentIds.make("grp")
        const wanted = [...new Set(handles)].filter((handle) => handle !== creator.handle)
        const candidates = new Map(
          wanted.length === 0
            ? []
            : (yield* repo.candidates(creator.id, wanted)).map((one) => [one.handle, one])
        )
        const restricted = yield* isRestricted(creator.id)
        const invites: Array<NewInvite> = []
        const results: Array<typeof AddResult.Type> = []
        const skipped: Array<{ readonly handle: string; readonly code: string }> = []
        for (const handle of wanted) {
          const candidate = candidates.get(handle)
          const obstacle = candidate === undefined ? new AgentNotFound() : obstacleTo(candidate, restricted)
          if (candidate === undefined || obstacle !== undefined) {
            skipped.push({ handle, code: (obstacle ?? new AgentNotFound()).code })
            continue
          }
          const inviteId = yield* idempotentIds.make("gri", handle)
          invites.push({ id: inviteId, inviteeId: candidate.id })
          results.push({ handle, outcome: "invited", invite_id: inviteId })
        }
        const at = now()
        // An earlier attempt with the same Idempotency-Key may have created the group.
        if ((yield* repo.load(id)) === undefined) {
          const made = yield* repo.create({
            id,
            creatorId: creator.id,
            profile,
            invites,
            at,
            limit: config.LIMITS_GROUP_INVITES_PER_DAY
          })
          if (!made) {
            const freeAt = yield* repo.roomAt(creator.id, invites.length, at, config.LIMITS_GROUP_INVITES_PER_DAY)
            return yield* budgetSpent(config.LIMITS_GROUP_INVITES_PER_DAY, freeAt - at)
          }
          const card = { ...profile, memberCount: 1 }
          for (const invite of invites) {
            const received = toGroupInvite({ id: invite.id, groupId: id, createdAt: at }, card, creator.handle)
            push(invite.inviteeId, inviteFrame(received), null)
          }
        }
        const group = yield* Effect.catchTags(get(creator.id, id), {
          // Another request deleted the group before this request completed.
          GroupNotFound: () => Effect.fail(new Unavailable()),
          GroupDeleted: () => Effect.fail(new Unavailable())
        })
        return { group, add_results: results, skipped }
      })

      const targetOf = (handle: string) => Effect.map(agents.byHandle(handle), (agent) => agent?.id ?? null)

      /**
       * Returns the group of an agent's invite. If the invite does not exist, an earlier attempt of this request may
       * have accepted or rejected it.
       */
      const groupOfInvite = Effect.fnUntraced(function*(
        agentId: string,
        inviteId: string,
        messageIds: ReadonlyArray<string>
      ) {
        const invite = yield* repo.inviteById(inviteId)
        if (invite?.inviteeId === agentId) return invite.groupId
        const earlier = yield* repo.earlier(messageIds)
        return earlier?.groupId ?? (yield* new InviteNotFound())
      })

      /** Does the work in all groups, also after one that is too busy to answer. Fails in the end if there was one. */
      const inAll = <E>(work: ReadonlyArray<Effect.Effect<unknown, E>>) =>
        Effect.flatMap(
          Effect.partition(work, (one) => one),
          ([, [failure]]) => failure === undefined ? Effect.void : Effect.fail(failure)
        )

      const leave = (agentId: string) => (groupId: string) =>
        Effect.flatMap(
          messageIdsOf(groupId, "Leave"),
          (messageIds) =>
            Effect.catchTags(client.Leave(groupId, { actorId: agentId, messageIds }), {
              GroupNotFound: () => Effect.void,
              GroupDeleted: () => Effect.void
            })
        )
      const withdraw = ({ groupId, id }: { readonly groupId: string; readonly id: string }) =>
        client.Withdraw(groupId, { inviteId: id })

      const leaveAll = Effect.fnUntraced(function*(agentId: string) {
        for (let before = "";;) {
          const memberships = yield* repo.memberships(agentId, LEAVING)
          const invites = yield* repo.invitesAbout(agentId, LEAVING)
          if (memberships.length === 0 && invites.length === 0) return
          const left = JSON.stringify([memberships, invites])
          // The last round changed nothing, so fail instead of repeating it for ever.
          if (left === before) return yield* new Unavailable()
          before = left
          yield* inAll([...memberships.map(leave(agentId)), ...invites.map(withdraw)])
        }
      })

      return Groups.of({
        create,
        get,
        invites: Effect.fn("Groups.invites")(queries.invites),
        pending: Effect.fn("Groups.pending")(queries.pending),
        update: Effect.fn("Groups.update")(function*(agentId, groupId, profile) {
          yield* deferPicture(profile.avatarUrl)
          const { avatarUrl, ...rest } = profile
          const avatarKey = typeof avatarUrl === "string" ? avatarKeyOf(config, avatarUrl) : null
          yield* change(groupId, "Update", (messageIds) =>
            client.Update(groupId, {
              actorId: agentId,
              messageIds,
              ...rest,
              ...(avatarKey === null ? avatarUrl === undefined ? {} : { avatarUrl } : { avatarKey })
            }))
          return yield* get(agentId, groupId)
        }),
        setAvatar: Effect.fn("Groups.setAvatar")(function*(agentId, groupId, image) {
          yield* asAdmin(agentId, groupId)
          return yield* avatars.counted(
            agentId,
            Effect.gen(function*() {
              const avatar = yield* avatars.store(yield* avatars.render(yield* image))
              yield* change(
                groupId,
                "Update",
                (messageIds) => client.Update(groupId, { actorId: agentId, messageIds, avatarKey: avatar.key })
              )
              return avatar
            })
          )
        }),
        clearAvatar: Effect.fn("Groups.clearAvatar")(function*(agentId, groupId) {
          const { profile } = yield* asAdmin(agentId, groupId)
          if (profile.avatarUrl === null) return yield* noAvatar()
          yield* avatars.counted(
            agentId,
            change(
              groupId,
              "ClearAvatar",
              (messageIds) => client.ClearAvatar(groupId, { actorId: agentId, messageIds })
            )
          )
        }),
        remove: Effect.fn("Groups.remove")(function*(agentId, groupId) {
          const { at } = yield* change(
            groupId,
            "Delete",
            (messageIds) => client.Delete(groupId, { actorId: agentId, messageIds })
          )
          return iso(at)
        }),
        add: Effect.fn("Groups.add")(function*(inviter, groupId, handle) {
          const [candidate] = yield* repo.candidates(inviter.id, [handle])
          return yield* inGroup(
            groupId,
            client.Add(groupId, {
              actorId: inviter.id,
              inviteId: yield* idempotentIds.make("gri"),
              restricted: yield* isRestricted(inviter.id),
              candidate: candidate ?? null
            })
          )
        }),
        removeMember: Effect.fn("Groups.removeMember")(function*(agentId, groupId, handle) {
          const targetId = yield* targetOf(handle)
          yield* change(
            groupId,
            "Remove",
            (messageIds) => client.Remove(groupId, { actorId: agentId, messageIds, targetId })
          )
        }),
        promote: Effect.fn("Groups.promote")(function*(agentId, groupId, handle) {
          const targetId = yield* targetOf(handle)
          yield* change(
            groupId,
            "Promote",
            (messageIds) => client.Promote(groupId, { actorId: agentId, messageIds, targetId })
          )
        }),
        demote: Effect.fn("Groups.demote")(function*(agentId, groupId, handle) {
          const targetId = yield* targetOf(handle)
          yield* change(
            groupId,
            "Demote",
            (messageIds) => client.Demote(groupId, { actorId: agentId, messageIds, targetId })
          )
        }),
        leave: Effect.fn("Groups.leave")(function*(agentId, groupId) {
          const { promotedHandle } = yield* change(
            groupId,
            "Leave",
            (messageIds) => client.Leave(groupId, { actorId: agentId, messageIds })
          )
          return promotedHandle
        }),
        accept: Effect.fn("Groups.accept")(function*(agent, inviteId) {
          const messageIds = yield* messageIdsOf(inviteId, "Accept")
          const groupId = yield* groupOfInvite(agent.id, inviteId, messageIds)
          yield* client.Accept(groupId, { actorId: agent.id, messageIds, handle: agent.handle, inviteId })
          return yield* Effect.catchTags(get(agent.id, groupId), {
            GroupNotFound: () => Effect.fail(new InviteNotFound()),
            GroupDeleted: () => Effect.fail(new InviteNotFound())
          })
        }),
        reject: Effect.fn("Groups.reject")(function*(agentId, inviteId) {
          const messageIds = yield* messageIdsOf(inviteId, "Reject")
          const groupId = yield* groupOfInvite(agentId, inviteId, messageIds)
          yield* client.Reject(groupId, { actorId: agentId, messageIds, inviteId })
        }),
        cancel: Effect.fn("Groups.cancel")(function*(agentId, groupId, inviteId) {
          yield* change(
            groupId,
            "Cancel",
            (messageIds) => client.Cancel(groupId, { actorId: agentId, messageIds, inviteId })
          )
        }),
        send,
        outside: (agentId, groupId) => Effect.flatMap(repo.load(groupId), (state) => queries.outside(state, agentId)),
        replaceAdmin: Effect.fn("Groups.replaceAdmin")(function*(agentId) {
          const memberships = yield* repo.memberships(agentId, 10_000)
          yield* inAll(memberships.map((groupId) =>
            Effect.flatMap(
              messageIdsOf(groupId, "Replace"),
              (messageIds) => client.Replace(groupId, { agentId, messageIds })
            )
          ))
        }),
        operate: Effect.fn("Groups.operate")(function*(groupId, operation, handle) {
          const targetId = handle === null ? null : yield* targetOf(handle)
          yield* change(
            groupId,
            "Operate",
            (messageIds) => client.Operate(groupId, { operation, targetId, messageIds })
          )
        }),
        leaveAll,
        settled
      })
    })
  )
}

const GROUP_ID = /^grp_[A-Za-z0-9_-]{16}$/

/** One number for each system message that a change may have. */
const MESSAGES = [1, 2, 3]

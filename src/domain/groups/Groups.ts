import { AgentNotFound, displayNameOf } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import { avatarKeyOf, avatarUrlOf } from "#domain/agents/AvatarUrl"
import { Attachments } from "#domain/attachments/Attachments"
import type { ImageRefusal } from "#domain/avatars/AvatarImage"
import { type Avatar, Avatars } from "#domain/avatars/Avatars"
import { LAST_COMMITS } from "#domain/deliveries/Deliveries"
import { IdempotentIds } from "#domain/idempotency/IdempotentIds"
import { GroupDeleted, toGroupDeletion } from "#domain/messages/GroupDeletion"
import { GroupNotFound } from "#domain/messages/SendErrors"
import type { AgentRestricted, Blocked, InboxRestricted } from "#domain/messages/SendErrors"
import { makeSendQueues } from "#domain/messages/SendQueues"
import type { Sent } from "#domain/messages/Sent"
import { WebhookSignals } from "#domain/messages/WebhookSignals"
import { LiveAgents } from "#domain/push/LiveAgents"
import { makePublish } from "#domain/push/MessagePublisher"
import * as EntityRpc from "#infrastructure/cluster/EntityRpc"
import { laneOf, makeCommitQueue } from "#infrastructure/database/CommitQueue"
import { Database } from "#infrastructure/database/Sql"
import { AnswerTimeout } from "#infrastructure/database/SqlPostgres"
import type { StorageUnavailable } from "#infrastructure/files/Blobs"
import { Config } from "#infrastructure/platform/Config"
import { Ids } from "#infrastructure/platform/Ids"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { SlidingWindows } from "#infrastructure/rates/SlidingWindows"
import { type Page, pageOf, type PageQuery, TimePosition } from "#infrastructure/wire/Page"
import { iso, isoOrNull } from "#infrastructure/wire/Text"
import {
  type Forbidden,
  HELD_MS,
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
  type GroupState,
  InviteNotFound,
  type LastAdmin,
  memberOf,
  type NotAdmin,
  type NotMember,
  type PendingInvite,
  type Profile
} from "./Group.ts"
import { adminsOnly, budgetSpent, GroupActor, type GroupDependencies, noAvatar, obstacleTo } from "./GroupActor.ts"
import { type GroupAppend, type GroupAppended, makeGroupAppend, makeGroupAppendLocks } from "./GroupAppend.ts"
import { GroupEntity, type GroupSendCommand, type GroupSendFailure } from "./GroupEntity.ts"
import { GroupsRepo, type NewInvite } from "./GroupsRepo.ts"
import { type GroupInvite, inviteFrame, toGroupInvite } from "./Invite.ts"

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

type Denied = GroupNotFound | GroupDeleted | Unavailable
/** The failures of actions that are reserved for admins. */
type NotAllowed = Denied | Forbidden

const LANES = 1
const LIMIT = 50
const MAX = 200
/** How many groups and invites of a deleted account are handled in one round. */
const LEAVING = 100

/**
 * Manages groups: members, roles, invites and sends to all members (wire.md C.8, G.6, G.7). For agents that are not
 * members, a group does not exist; former members of a deleted group learn that it was deleted.
 */
export class Groups extends Context.Service<Groups, {
  /** Creates a group with all its first invites, or nothing if they exceed the invite budget. */
  readonly create: (creator: Actor, group: NewGroup) => Effect.Effect<Created, RateLimited | Unavailable>
  readonly get: (agentId: string, groupId: string) => Effect.Effect<typeof Group.Type, Denied>
  readonly update: (
    agentId: string,
    groupId: string,
    profile: Partial<Profile>
  ) => Effect.Effect<typeof Group.Type, NotAllowed>
  /** Sets the picture, as an admin. The image is read after the permission is checked. */
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
  readonly invites: (agentId: string) => Effect.Effect<ReadonlyArray<typeof GroupInvite.Type>, Unavailable>
  /** Fails with InviteNotFound if the group no longer exists. */
  readonly accept: (
    agent: Actor,
    inviteId: string
  ) => Effect.Effect<typeof Group.Type, InviteNotFound | GroupFull | Unavailable>
  readonly reject: (agentId: string, inviteId: string) => Effect.Effect<void, InviteNotFound | Unavailable>
  readonly pending: (
    agentId: string,
    groupId: string,
    query: PageQuery
  ) => Effect.Effect<Page<typeof PendingInvite.Type>, Denied | Forbidden | ValidationFailed>
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
  /** Removes a deleted account from its groups, and the invites to and from it (wire.md G.12). Idempotent. */
  readonly leaveAll: (agentId: string) => Effect.Effect<void, Unavailable>
  /** Completes once every accepted send is committed or refused. */
  readonly settled: Effect.Effect<void>
}>()("parley/groups/Groups") {
  static readonly layer = Layer.effect(
    Groups,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const config = yield* Config
      const repo = yield* GroupsRepo
      const agents = yield* Agents
      const attachments = yield* Attachments
      const avatars = yield* Avatars
      const liveAgents = yield* LiveAgents
      const ids = yield* Ids
      const idempotentIds = yield* IdempotentIds
      const signals = yield* WebhookSignals
      const { driver } = yield* Database
      const now = () => clock.currentTimeMillisUnsafe()
      const monotonic = monotonicMillis(clock)
      const runFork = Effect.runForkWith(yield* Effect.context<never>())
      const inviteLimit = config.LIMITS_GROUP_INVITES_PER_DAY
      const refusalMs = config.LIMITS_GROUP_REFUSAL_SECONDS * 1_000

      const appends = yield* makeCommitQueue<GroupAppend, GroupAppended>({
        name: "group_message",
        lanes: LANES,
        laneOf: (append) => laneOf(append.groupId),
        // Each message costs about as much as ten envelopes.
        rowsOf: (append) => append.size + 10,
        bytesOf: (append) => append.draft.content.length + append.draft.metadata.length,
        maxRows: 2_000,
        maxBytes: 4_194_304,
        capacity: 20_000,
        batchPerTick: driver === "pglite",
        commit: yield* makeGroupAppend(signals.raise),
        locks: yield* makeGroupAppendLocks
      })
      yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(appends.idle, LAST_COMMITS)))

      const handleOf = (agentId: string) =>
        Effect.map(agents.byIds([agentId]), (found) => found.get(agentId)?.handle ?? "")

      const outside = Effect.fnUntraced(function*(state: GroupState | undefined, agentId: string) {
        if (state === undefined || state.deleted === null) return new GroupNotFound()
        if (!(yield* repo.wasMember(state.id, agentId))) return new GroupNotFound()
        return new GroupDeleted({
          details: toGroupDeletion(state.id, yield* handleOf(state.deleted.by), state.deleted.at)
        })
      })

      // The owner handles all sends of a group, so the group's rate window is kept in its memory only.
      const windows = new SlidingWindows(monotonic)
      const perGroup: RateRule = {
        name: "group_send",
        limit: config.LIMITS_GROUP_SENDS_PER_SECOND,
        windowMs: 1_000,
        window: "group",
        message: (limit) => `The group is busy: it takes at most ${limit} messages per second.`
      }
      const deps: GroupDependencies = {
        appends,
        now,
        monotonic,
        newMessageId: () => ids.make("msg"),
        // All later commands of the group wait for this read. It must not wait on a dead connection for longer than
        // callers wait.
        load: (groupId) => Effect.provideService(repo.load(groupId), AnswerTimeout, HELD_MS),
        outside,
        useAttachment: (senderId, groupId, id, asks) => attachments.use(senderId, { _tag: "Group", groupId }, id, asks),
        status: (agentId) => repo.status(agentId, now()),
        invite: (state, inviterId, invite, at) =>
          repo.invite({ state, inviterId, invite, at, limit: inviteLimit, refusedAfter: at - refusalMs }),
        inviteById: repo.inviteById,
        change: (state, change, notices, at, silentId) =>
          Effect.tap(repo.change(state, change, notices, at, silentId), (committed) =>
            Effect.sync(() => {
              for (const envelopes of committed?.envelopes ?? []) {
                for (const { recipientId } of envelopes) signals.raise(recipientId)
              }
            })),
        earlier: repo.earlier,
        displayNames: (agentIds) =>
          // Sends wait for these names too.
          Effect.map(Effect.provideService(agents.byIds(agentIds), AnswerTimeout, HELD_MS), (found) =>
            new Map([...found].map(([id, agent]) => [id, agent.deletedAt === null ? displayNameOf(agent) : null]))),
        publish: yield* makePublish,
        push: (agentId, frame, after) => {
          liveAgents.push(agentId, after === null ? { _tag: "Event", frame } : { _tag: "Event", frame, after })
          signals.raise(agentId)
        },
        avatarUrl: (key) => avatarUrlOf(config, key),
        inviteLimit,
        refusalMs,
        maxMembers: config.LIMITS_GROUP_MEMBERS,
        admit: config.LIMITS_GROUP_SENDS_PER_SECOND === 0 ? undefined : (groupId) => {
          const place = windows.take(perGroup, groupId)
          return place instanceof RateLimited ? place : () => windows.refund(perGroup, groupId, place)
        },
        fork: (effect) => {
          runFork(effect)
        }
      }

      const actors = yield* makeSendQueues("group", GroupActor.make(deps))
      const client = yield* EntityRpc.make(GroupEntity, {
        SendToGroup: { run: (groupId, { command }) => actors.of(groupId).send(command) },
        Update: { run: (groupId, command) => actors.of(groupId).update(command) },
        ClearAvatar: { run: (groupId, command) => actors.of(groupId).clearAvatar(command) },
        Delete: { run: (groupId, command) => actors.of(groupId).delete(command) },
        Add: { run: (groupId, command) => actors.of(groupId).add(command) },
        Remove: { run: (groupId, command) => actors.of(groupId).remove(command) },
        Promote: { run: (groupId, command) => actors.of(groupId).promote(command) },
        Demote: { run: (groupId, command) => actors.of(groupId).demote(command) },
        Leave: { run: (groupId, command) => actors.of(groupId).leave(command) },
        Accept: { run: (groupId, command) => actors.of(groupId).accept(command) },
        Reject: { run: (groupId, command) => actors.of(groupId).reject(command) },
        Cancel: { run: (groupId, command) => actors.of(groupId).cancel(command) },
        Withdraw: { run: (groupId, command) => actors.of(groupId).withdraw(command) },
        Replace: { run: (groupId, command) => actors.of(groupId).replace(command) }
      })
      /**
       * Ids for the system messages of a change of a group, or of an answer to an invite. A repeat of the same request
       * gets the same ids.
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

      /** Keeps a picture on this server from being deleted before the group refers to it. */
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
          const made = yield* repo.create({ id, creatorId: creator.id, profile, invites, at, limit: inviteLimit })
          if (!made) {
            const freeAt = yield* repo.roomAt(creator.id, invites.length, at, inviteLimit)
            return yield* budgetSpent(inviteLimit, freeAt - at)
          }
          const card = { ...profile, memberCount: 1 }
          for (const invite of invites) {
            const received = toGroupInvite({ id: invite.id, groupId: id, createdAt: at }, card, creator.handle)
            deps.push(invite.inviteeId, inviteFrame(received), null)
          }
        }
        const group = yield* Effect.catchTags(get(creator.id, id), {
          // Another request deleted the group before this one answered.
          GroupNotFound: () => Effect.fail(new Unavailable()),
          GroupDeleted: () => Effect.fail(new Unavailable())
        })
        return { group, add_results: results, skipped }
      })

      const targetOf = (handle: string) => Effect.map(agents.byHandle(handle), (agent) => agent?.id ?? null)

      /**
       * Returns the group of an agent's invite. If the invite does not exist, an earlier attempt at this request may
       * have answered it.
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

      const leaveAll = Effect.fnUntraced(function*(agentId: string) {
        for (let before = "";;) {
          const memberships = yield* repo.memberships(agentId, LEAVING)
          const invites = yield* repo.invitesAbout(agentId, LEAVING)
          if (memberships.length === 0 && invites.length === 0) return
          const left = JSON.stringify([memberships, invites])
          // The last round changed nothing: fail instead of repeating it for ever.
          if (left === before) return yield* new Unavailable()
          before = left
          for (const groupId of memberships) {
            const messageIds = yield* messageIdsOf(groupId, "Leave")
            yield* Effect.catchTags(client.Leave(groupId, { actorId: agentId, messageIds }), {
              GroupNotFound: () => Effect.void,
              GroupDeleted: () => Effect.void
            })
          }
          for (const { groupId, id } of invites) {
            yield* client.Withdraw(groupId, { inviteId: id })
          }
        }
      })

      return Groups.of({
        create,
        get,
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
        invites: Effect.fn("Groups.invites")(function*(agentId) {
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
        pending: Effect.fn("Groups.pending")(function*(agentId, groupId, query) {
          yield* asAdmin(agentId, groupId)
          return yield* pageOf(query, {
            usual: LIMIT,
            max: MAX,
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
        }),
        cancel: Effect.fn("Groups.cancel")(function*(agentId, groupId, inviteId) {
          yield* change(
            groupId,
            "Cancel",
            (messageIds) => client.Cancel(groupId, { actorId: agentId, messageIds, inviteId })
          )
        }),
        send,
        outside: (agentId, groupId) => Effect.flatMap(repo.load(groupId), (state) => outside(state, agentId)),
        replaceAdmin: Effect.fn("Groups.replaceAdmin")(function*(agentId) {
          for (const groupId of yield* repo.memberships(agentId, 10_000)) {
            yield* client.Replace(groupId, { agentId, messageIds: yield* messageIdsOf(groupId, "Replace") })
          }
        }),
        leaveAll,
        settled: appends.idle
      })
    })
  )
}

const GROUP_ID = /^grp_[A-Za-z0-9_-]{16}$/

/** One number for each system message that a change may have. */
const MESSAGES = [1, 2, 3]

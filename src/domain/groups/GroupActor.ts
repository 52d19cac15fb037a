import { AgentNotFound, type AgentStatus } from "#domain/agents/Agent"
import type { AttachmentRefusal } from "#domain/attachments/Attachments"
import { type GroupDeleted, toGroupDeletion } from "#domain/memberships/GroupDeletion"
import { GroupNotFound } from "#domain/memberships/GroupDeletion"
import { mentionsIn } from "#domain/messages/Mentions"
import { renderMessage, sentMessage } from "#domain/messages/Message"
import { AgentRestricted, Blocked, InboxRestricted } from "#domain/sending/SendErrors"
import {
  type Decision,
  RELOAD,
  REPLAY,
  type SendKind,
  type Settlement,
  type Stamp,
  type Verdict
} from "#domain/sending/SendKind"
import { CHANGED_EACH_TIME, logUnavailable, SendQueue, type SendQueueDependencies } from "#domain/sending/SendQueue"
import { Forbidden, NotFound, RateLimited, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Effect } from "effect"
import type { Rpc } from "effect/rpc"
import {
  type Change,
  closeInvite,
  decideDelete,
  decideDemote,
  decideJoin,
  decideLeave,
  decideOperation,
  decideProfile,
  decidePromote,
  decideRemove,
  decideReplacement,
  evolve,
  GroupFull,
  type GroupState,
  InviteNotFound,
  LastAdmin,
  type Member,
  memberOf,
  NotAdmin,
  NotMember,
  type SystemMessage
} from "./Group.ts"
import type { GroupAppend, GroupAppended } from "./GroupAppend.ts"
import type * as Entity from "./GroupEntity.ts"
import type { GroupSendCommand, GroupSendFailure } from "./GroupEntity.ts"
import type { CommittedChange, GroupsRepo, Invited, NewInvite, SystemNotice } from "./GroupsRepo.ts"
import { inviteFrame, toGroupInvite } from "./Invite.ts"

/** The functions and settings that the actor of a group uses. */
export interface GroupDependencies
  extends
    SendQueueDependencies<GroupAppend, GroupAppended>,
    Pick<GroupsRepo["Service"], "change" | "earlier" | "inviteById">
{
  readonly load: (groupId: string) => Effect.Effect<GroupState | undefined, Unavailable>
  /** The failure for an agent that is not a member. */
  readonly outside: (
    state: GroupState | undefined,
    agentId: string
  ) => Effect.Effect<GroupNotFound | GroupDeleted, Unavailable>
  /**
   * Checks that the sender may send this file to the group. The first use of a file sends a request to the file store:
   * `asks` is called with true before the request and with false after it.
   */
  readonly useAttachment: (
    senderId: string,
    groupId: string,
    attachmentId: string,
    asks: (isAsked: boolean) => void
  ) => Effect.Effect<void, AttachmentRefusal>
  readonly status: (agentId: string) => Effect.Effect<AgentStatus | undefined, Unavailable>
  readonly invite: (
    state: GroupState,
    inviterId: string,
    invite: NewInvite,
    at: number
  ) => Effect.Effect<Invited, Unavailable>
  readonly displayNames: (
    agentIds: ReadonlyArray<string>
  ) => Effect.Effect<ReadonlyMap<string, string | null>, Unavailable>
  readonly push: (agentId: string, frame: string, after: number | null) => void
  /** The URL of a picture on this server. */
  readonly avatarUrl: (key: string) => string
  readonly inviteLimit: number
  /** How long after a rejected invite the group cannot invite the agent again, in milliseconds. */
  readonly refusalMs: number
  readonly maxMembers: number
  /**
   * Takes a slot in the group's own rate window and returns the function that releases the slot. Undefined if groups
   * have no rate limit.
   */
  readonly admit: ((groupId: string) => (() => void) | RateLimited) | undefined
}

/** A member that acts, and the state of the group. */
interface Acting {
  readonly state: GroupState
  readonly member: Member
}

/** Finds the member that acts, or what it does. Fails with the reason why the agent may not act. */
type Check<A, E> = (state: GroupState | undefined) => Effect.Effect<A, E>

/** When a change was committed, and which member became admin because the last admin left. */
interface Committed {
  readonly at: number
  readonly promotedHandle: string | null
}

/** The payload of a command. */
type PayloadOf<R extends Rpc.Any> = Rpc.Payload<R>

/** The result of a decision. */
interface Step {
  readonly change: Change
  readonly promoted?: Member | null
  /** The agent that joins. */
  readonly joiner?: { readonly agentId: string; readonly handle: string }
}

export interface GroupSends {
  readonly command: GroupSendCommand
  /** `null` if there is no such group. */
  readonly state: GroupState | null
  readonly write: GroupAppend
  readonly outcome: GroupAppended
  readonly failure: GroupSendFailure
  readonly replay: null
}

const MAX_ATTEMPTS = 50

/** Decides a send. Members of a group that is not deleted may send. */
export const decideInGroup = (state: GroupState | null, { sender }: GroupSendCommand): Decision<GroupSendFailure> => {
  // Forget the state, because a group with this id may be created later.
  if (state === null) return { _tag: "Refuse", failure: new GroupNotFound(), forget: true }
  if (state.deleted !== null || memberOf(state, sender.id) === undefined) {
    return { _tag: "Refuse", failure: new GroupNotFound(), forget: false }
  }
  return APPEND
}

const APPEND = { _tag: "Append", alone: false } as const

const writeInGroup = (
  groupId: string,
  state: GroupState | null,
  { draft, sender }: GroupSendCommand,
  { at, messageId, requestId }: Stamp
): GroupAppend => ({
  groupId,
  version: state?.version ?? 0,
  size: state?.members.length ?? 0,
  senderId: sender.id,
  messageId,
  at,
  draft,
  requestId
})

/**
 * Decides what follows from the outcome of a write. The message shows the group in the state on which the write was
 * decided.
 */
export const settleInGroup = (
  current: GroupState | null | undefined,
  write: GroupAppend,
  outcome: GroupAppended,
  decidedOn: GroupState | null
): Settlement<GroupState | null, GroupSendFailure> => {
  switch (outcome._tag) {
    case "Stored":
      return {
        _tag: "Stored",
        state: current,
        seq: outcome.seq,
        envelopes: outcome.envelopes,
        senderLastInboxNo: outcome.senderLastInboxNo,
        senderNextInboxNo: outcome.senderNextInboxNo,
        group: decidedOn === null ? null : { name: decidedOn.profile.name, memberCount: decidedOn.members.length },
        mentions: mentionsIn(write.draft.content).filter((handle) =>
          decidedOn?.members.some((member) => member.handle === handle)
        ),
        backlog: null
      }
    case "Fenced":
      return { _tag: "Retry", state: write.version === current?.version ? undefined : current }
    case "Replayed":
      return REPLAY
    case "SenderGone":
      return { _tag: "RefuseSender" }
  }
}

const makeGroupSends = ({ admit, load, outside, status, useAttachment }: GroupDependencies): SendKind<GroupSends> => ({
  maxAttempts: MAX_ATTEMPTS,
  load: (groupId) => Effect.map(load(groupId), (state) => state ?? null),
  decide: decideInGroup,
  write: writeInGroup,
  settle: settleInGroup,
  admit: admit === undefined ? undefined : (groupId) => {
    const admitted = admit(groupId)
    return admitted instanceof RateLimited ? { failure: admitted } : admitted
  },
  open: undefined,
  release: () => undefined,
  confirm: ({ attempts, command, conversationId }, failure, state) => {
    if (failure._tag !== "GroupNotFound") return Effect.succeed({ _tag: "Refuse", failure })
    // The agent may have joined through another owner, so the rows are read before the send is refused. The members'
    // sends do not wait for this read, because anybody who knows the group's id can cause the read.
    const rows = state === null || attempts > 0 ? Effect.succeed(state ?? undefined) : load(conversationId)
    return Effect.flatMap(
      rows,
      (rows): Effect.Effect<Verdict<GroupSendFailure>, Unavailable> =>
        decideInGroup(rows ?? null, command)._tag === "Append"
          ? Effect.succeed(RELOAD)
          : Effect.map(outside(rows, command.sender.id), (failure) => ({ _tag: "Refuse", failure }))
    )
  },
  // The caller of the send looks up the earlier message.
  original: () => Effect.succeed(null),
  isSenderDeleted: (_groupId, { sender }) => Effect.map(status(sender.id), (found) => found === undefined),
  useAttachment: (groupId, { sender }, attachmentId, asks) => useAttachment(sender.id, groupId, attachmentId, asks)
})

/**
 * One group on this node: the single writer of its members, roles, invites and order. `SendQueue` documents what groups
 * share with direct conversations. Every decision is made on the rows of one version and committed only if the group
 * still has that version. So a second owner does no harm. Changes of the group read the rows, and run one at a time
 * between sends. Calls are safe to retry: a send finds its key, and a change finds its earlier commit. The result of a
 * send is `null` for a replay, which the caller looks up.
 */
export class GroupActor extends SendQueue<GroupSends> {
  private readonly services: GroupDependencies

  /** Returns the function that makes the actor of a group. */
  static make(services: GroupDependencies): (id: string) => GroupActor {
    const kind = makeGroupSends(services)
    return (id) => new GroupActor(id, kind, services)
  }

  private constructor(id: string, kind: SendKind<GroupSends>, services: GroupDependencies) {
    super(id, kind, services)
    this.services = services
  }

  update({ actorId, avatarKey, description, messageIds, name, ...given }: PayloadOf<typeof Entity.Update>) {
    const avatarUrl = avatarKey === undefined ? given.avatarUrl : this.services.avatarUrl(avatarKey)
    return Effect.asVoid(
      this.changeBy(this.admin(actorId), messageIds, ({ member, state }) => {
        const change = decideProfile(state, member, {
          ...(name === undefined ? {} : { name }),
          ...(description === undefined ? {} : { description }),
          ...(avatarUrl === undefined ? {} : { avatarUrl })
        })
        return Effect.succeed(change === undefined ? undefined : { change })
      })
    )
  }

  clearAvatar({ actorId, messageIds }: PayloadOf<typeof Entity.ClearAvatar>) {
    return Effect.asVoid(this.changeBy(this.admin(actorId), messageIds, ({ member, state }) => {
      const change = decideProfile(state, member, { avatarUrl: null })
      return change === undefined ? noAvatar() : Effect.succeed({ change })
    }))
  }

  delete({ actorId, messageIds }: PayloadOf<typeof Entity.Delete>) {
    const member = this.member(actorId)
    const deletes = (loaded: GroupState | undefined) =>
      Effect.flatMap(member(loaded), ({ member, state }) => {
        const change = decideDelete(state, member)
        return change === "Forbidden"
          ? Effect.fail(
            new Forbidden({ message: "Only the group's creator may delete the group while the creator is a member." })
          )
          : Effect.succeed({ change })
      })
    const deleted = this.changeBy(deletes, messageIds, (step) => Effect.succeed(step))
    return Effect.map(deleted, ({ at }) => ({ at }))
  }

  remove({ actorId, messageIds, targetId }: PayloadOf<typeof Entity.Remove>) {
    return Effect.asVoid(this.changeBy(this.admin(actorId), messageIds, ({ member, state }) =>
      Effect.gen(function*() {
        if (targetId === null) return yield* new NotMember()
        const change = decideRemove(state, member, targetId)
        if (change === "Self") return yield* ValidationFailed.field("handle", "is yourself: leave the group instead")
        if (change === "NotMember") return yield* new NotMember()
        if (change === "Creator") return yield* new Forbidden({ message: "The group's creator cannot be removed." })
        return { change }
      })))
  }

  promote({ actorId, messageIds, targetId }: PayloadOf<typeof Entity.Promote>) {
    return Effect.asVoid(this.changeBy(this.admin(actorId), messageIds, ({ member, state }) =>
      Effect.gen(function*() {
        if (targetId === null) return yield* new NotMember()
        const change = decidePromote(state, member, targetId)
        if (change === "NotMember") return yield* new NotMember()
        return change === undefined ? undefined : { change }
      })))
  }

  demote({ actorId, messageIds, targetId }: PayloadOf<typeof Entity.Demote>) {
    return Effect.asVoid(this.changeBy(this.admin(actorId), messageIds, ({ member, state }) =>
      Effect.gen(function*() {
        if (targetId === null) return yield* new NotMember()
        const change = decideDemote(state, member, targetId)
        if (change === "NotMember") return yield* new NotMember()
        if (change === "NotAdmin") return yield* new NotAdmin()
        if (change === "LastAdmin") return yield* new LastAdmin()
        if (change === "Creator") return yield* new Forbidden({ message: "The group's creator cannot be demoted." })
        return { change }
      })))
  }

  leave({ actorId, messageIds }: PayloadOf<typeof Entity.Leave>) {
    const left = this.changeBy(
      this.member(actorId),
      messageIds,
      ({ member, state }) => Effect.succeed(decideLeave(state, member))
    )
    return Effect.map(left, ({ promotedHandle }) => ({ promotedHandle }))
  }

  accept({ actorId, handle, inviteId, messageIds }: PayloadOf<typeof Entity.Accept>) {
    const joins = (loaded: GroupState | undefined) =>
      Effect.gen({ self: this }, function*() {
        const invite = yield* this.services.inviteById(inviteId)
        if (
          loaded === undefined || loaded.deleted !== null || invite === undefined || invite.groupId !== this.id ||
          invite.inviteeId !== actorId
        ) return yield* new InviteNotFound()
        const joiner = { agentId: actorId, handle }
        const change = decideJoin(loaded, joiner, inviteId, this.services.maxMembers)
        if (change === "Full") return yield* new GroupFull()
        return { change, joiner }
      })
    return Effect.asVoid(this.changeBy(joins, messageIds, (step) => Effect.succeed(step)))
  }

  reject({ actorId, inviteId, messageIds }: PayloadOf<typeof Entity.Reject>) {
    return Effect.asVoid(this.change(messageIds, (loaded) =>
      Effect.gen({ self: this }, function*() {
        const invite = yield* this.services.inviteById(inviteId)
        if (loaded === undefined || invite?.inviteeId !== actorId) return yield* new InviteNotFound()
        return { change: closeInvite(loaded, inviteId, actorId) }
      })))
  }

  cancel({ actorId, inviteId, messageIds }: PayloadOf<typeof Entity.Cancel>) {
    return Effect.asVoid(
      this.changeBy(this.admin(actorId), messageIds, ({ state }) =>
        Effect.gen({ self: this }, function*() {
          const invite = yield* this.services.inviteById(inviteId)
          if (invite?.groupId !== this.id) return yield* new InviteNotFound()
          return { change: closeInvite(state, inviteId, null) }
        }))
    )
  }

  withdraw({ inviteId }: PayloadOf<typeof Entity.Withdraw>) {
    return Effect.asVoid(
      this.change(
        [],
        (loaded) => Effect.succeed(loaded === undefined ? undefined : { change: closeInvite(loaded, inviteId, null) })
      )
    )
  }

  replace({ agentId, messageIds }: PayloadOf<typeof Entity.Replace>) {
    return Effect.asVoid(this.change(messageIds, (loaded) =>
      Effect.suspend(() => {
        // A membership without its group is an error in the rows. After this failure, the handover stays pending and is
        // retried later.
        if (loaded === undefined) return Effect.fail(new Unavailable())
        const member = memberOf(loaded, agentId)
        // The suspension may have ended in the meantime.
        if (loaded.deleted !== null || member?.suspended !== true) return Effect.succeed(undefined)
        const change = decideReplacement(loaded, member)
        return Effect.succeed(change === undefined ? undefined : { change })
      })))
  }

  operate({ messageIds, operation, targetId }: PayloadOf<typeof Entity.Operate>) {
    return Effect.asVoid(this.change(messageIds, (loaded) =>
      Effect.gen(function*() {
        if (loaded === undefined || loaded.deleted !== null) return yield* new GroupNotFound()
        const step = decideOperation(loaded, operation, targetId)
        return step === "NotMember" ? yield* new NotMember() : step
      })))
  }

  /** Invites a candidate after the checks of wire.md C.8, in their order. */
  add({ actorId, candidate, inviteId, restricted }: PayloadOf<typeof Entity.Add>) {
    const admin = this.admin(actorId)
    const invited = this.inTurn((loaded) =>
      Effect.gen({ self: this }, function*() {
        const deps = this.services
        const { member, state } = yield* admin(loaded)
        const at = deps.now()
        if (candidate === null) return yield* new AgentNotFound()
        if (memberOf(state, candidate.id) !== undefined) {
          return { handle: candidate.handle, outcome: "already_member" as const }
        }
        const obstacle = obstacleTo(candidate, restricted)
        if (obstacle !== undefined) return yield* obstacle
        if (state.members.length >= deps.maxMembers) return yield* new GroupFull()
        const invited = yield* deps.invite(state, actorId, { id: inviteId, inviteeId: candidate.id }, at)
        switch (invited._tag) {
          case "Fenced":
            return undefined
          case "Refused":
            return yield* new RateLimited({
              message: "This agent was invited recently and cannot be invited again yet.",
              details: { retry_after_ms: Math.max(1, invited.at + deps.refusalMs - at), limit: 1, window: "day" }
            })
          case "OverBudget":
            return yield* budgetSpent(deps.inviteLimit, invited.freeAt - at)
          case "Invited":
            deps.push(
              candidate.id,
              inviteFrame(toGroupInvite(
                { id: invited.inviteId, groupId: this.id, createdAt: at },
                { ...state.profile, memberCount: state.members.length },
                member.handle
              )),
              null
            )
            break
          case "Pending":
            break
        }
        return { handle: candidate.handle, outcome: "invited" as const, invite_id: invited.inviteId }
      })
    )
    return this.ifAllowed(admin, Effect.succeed(undefined), invited)
  }

  /**
   * Reads the rows and runs an attempt on them, one attempt at a time. An attempt returns undefined if another owner
   * changed the group first. It is then repeated on new rows.
   */
  private inTurn<A, E>(
    attempt: (loaded: GroupState | undefined) => Effect.Effect<A | undefined, E>
  ): Effect.Effect<A, E | Unavailable> {
    return this.exclusive(Effect.gen({ self: this }, function*() {
      for (let attempts = 0; attempts < MAX_ATTEMPTS; attempts++) {
        this.state = undefined
        const done = yield* attempt(yield* this.services.load(this.id))
        if (done !== undefined) return done
      }
      yield* logUnavailable(CHANGED_EACH_TIME)
      return yield* new Unavailable()
    }))
  }

  /**
   * Commits a decision with its messages, or nothing if the decision is undefined. If `decide` fails, the same call may
   * have succeeded before: on a node that has stopped, or in a commit whose response was lost. In that case, returns
   * the earlier result.
   */
  private change<E>(
    messageIds: ReadonlyArray<string>,
    decide: (loaded: GroupState | undefined) => Effect.Effect<Step | undefined, E>
  ): Effect.Effect<Committed, E | Unavailable> {
    return this.inTurn((loaded) =>
      Effect.catch(
        Effect.flatMap(decide(loaded), (step) => this.carryOut(loaded, step, messageIds)),
        (failure) =>
          Effect.flatMap(this.services.earlier(messageIds), (earlier): Effect.Effect<Committed, E | Unavailable> =>
            earlier === undefined ? Effect.fail(failure) : Effect.succeed(earlier))
      )
    )
  }

  /** A change that only some agents may make. */
  private changeBy<A, E, F>(
    check: Check<A, F>,
    messageIds: ReadonlyArray<string>,
    decide: (allowed: A) => Effect.Effect<Step | undefined, E>
  ): Effect.Effect<Committed, E | F | Unavailable> {
    return this.ifAllowed(
      check,
      this.services.earlier(messageIds),
      this.change(messageIds, (loaded) => Effect.flatMap(check(loaded), decide))
    )
  }

  /**
   * Runs a command of an agent that may give it. Otherwise, returns what an earlier attempt has done, or fails. The sends
   * of the members do not wait for this, because anybody who knows the group's id can cause it.
   */
  private ifAllowed<A, E, F>(
    check: Check<unknown, F>,
    earlier: Effect.Effect<A | undefined, Unavailable>,
    command: Effect.Effect<A, E>
  ): Effect.Effect<A, E | F | Unavailable> {
    const onRows = Effect.flatMap(
      this.services.load(this.id),
      (loaded): Effect.Effect<A, E | F | Unavailable> =>
        Effect.matchEffect(check(loaded), {
          onSuccess: () => command,
          onFailure: (failure) =>
            Effect.flatMap(earlier, (done) => done === undefined ? Effect.fail(failure) : Effect.succeed(done))
        })
    )
    return Effect.suspend(() => {
      const cached = this.state ?? undefined
      if (cached === undefined) return onRows
      return Effect.matchEffect(check(cached), { onSuccess: () => command, onFailure: () => onRows })
    })
  }

  private member(agentId: string): Check<Acting, GroupNotFound | GroupDeleted | Unavailable> {
    return (state) => {
      const member = state === undefined || state.deleted !== null ? undefined : memberOf(state, agentId)
      return state === undefined || member === undefined
        ? Effect.flatMap(this.services.outside(state, agentId), (failure) => Effect.fail(failure))
        : Effect.succeed({ state, member })
    }
  }

  private admin(agentId: string): Check<Acting, GroupNotFound | GroupDeleted | Forbidden | Unavailable> {
    const member = this.member(agentId)
    return (state) => Effect.filterOrFail(member(state), ({ member }) => member.role === "admin", adminsOnly)
  }

  /**
   * Commits a step and publishes its messages. Returns undefined if another owner changed the group first. The caller
   * then decides again.
   */
  private carryOut(
    loaded: GroupState | undefined,
    step: Step | undefined,
    messageIds: ReadonlyArray<string>
  ): Effect.Effect<Committed | undefined, Unavailable> {
    return Effect.gen({ self: this }, function*() {
      const at = this.services.now()
      if (step === undefined || loaded === undefined) return { at, promotedHandle: null }
      const notices = step.change.messages.map((message, i): SystemNotice => ({
        id: messageIds[i] ?? this.services.newMessageId(),
        senderId: message.senderId,
        content: JSON.stringify({ data: { schema_version: 1, ...message.event } }),
        recipients: message.recipients
      }))
      const silentId = notices.length === 0 ? messageIds[0] ?? null : null
      const committed = yield* this.services.change(loaded, step.change, notices, at, silentId)
      if (committed === undefined) return undefined
      const { joiner } = step
      const state = evolve(loaded, step.change, at, (id) => joiner?.agentId === id ? joiner.handle : "")
      this.state = state
      yield* this.announce(state, step.change, notices, committed, at)
      return { at, promotedHandle: step.promoted?.handle ?? null }
    })
  }

  private announce(
    state: GroupState,
    change: Change,
    notices: ReadonlyArray<SystemNotice>,
    committed: CommittedChange,
    at: number
  ): Effect.Effect<void, Unavailable> {
    return Effect.gen({ self: this }, function*() {
      const deps = this.services
      if (notices.length === 0) return
      // The change is committed, so it is published even if the names cannot be read.
      const names = yield* Effect.orElseSucceed(
        deps.displayNames(notices.map((notice) => notice.senderId)),
        () => new Map<string, string | null>()
      )
      for (const [i, notice] of notices.entries()) {
        const said: SystemMessage = change.messages[i]!
        const message = sentMessage(
          { clientMsgId: `sys_${notice.id}`, type: "system", content: notice.content, metadata: "{}" },
          {
            id: notice.id,
            conversationId: this.id,
            seq: committed.base + i + 1,
            senderId: notice.senderId,
            createdAt: at
          }
        )
        const rendered = renderMessage(message, {
          senderHandle: said.senderHandle,
          senderDisplayName: names.get(notice.senderId) ?? null,
          group: { name: state.profile.name, memberCount: state.members.length }
        })
        const envelopes = committed.envelopes[i]!
        const senderLastInboxNo = committed.reached.get(notice.senderId) ?? 0
        deps.publish({
          message,
          rendered,
          envelopes,
          senderLastInboxNo,
          senderNextInboxNo: null,
          committedAt: undefined,
          trace: undefined
        })
        if (said.event.event === "group_deleted") {
          const frame = JSON.stringify({
            type: "group.deleted",
            payload: toGroupDeletion(this.id, said.senderHandle, at)
          })
          for (const { inboxNo, recipientId } of envelopes) deps.push(recipientId, frame, inboxNo)
        }
      }
    })
  }
}

export const adminsOnly = (): Forbidden => new Forbidden({ message: "Only an admin of the group may do this." })

export const noAvatar = (): NotFound => new NotFound({ message: "The group has no avatar." })

/**
 * Returns why this candidate cannot be invited: the first reason in the order of wire.md C.8 and G.8a. Returns
 * undefined if the candidate can be invited.
 */
export const obstacleTo = (
  candidate: {
    readonly handle: string
    readonly policy: "open" | "contacts_only"
    readonly blocked: boolean
    readonly holdsInviter: boolean
    readonly heldByInviter: boolean
  },
  restricted: boolean
): Blocked | AgentRestricted | InboxRestricted | undefined => {
  if (candidate.blocked) return new Blocked()
  if (restricted && !candidate.heldByInviter) {
    return new AgentRestricted({ message: "This account is restricted: it can invite its contacts only." })
  }
  if (candidate.policy === "contacts_only" && !candidate.holdsInviter) {
    return new InboxRestricted({
      message: "This agent accepts invites from its contacts only.",
      details: { recipient_handle: candidate.handle }
    })
  }
  return undefined
}

export const budgetSpent = (limit: number, waitMs: number): RateLimited =>
  new RateLimited({
    message: `Too many invites: at most ${limit} in 24 hours.`,
    details: { retry_after_ms: Math.max(1, waitMs), limit, window: "day" }
  })

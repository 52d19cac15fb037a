import { AgentNotFound } from "#domain/agents/Agent"
import { GroupNotFound } from "#domain/memberships/GroupDeletion"
import { Draft, MessageSender } from "#domain/messages/Message"
import { AgentRestricted, Blocked, groupSendErrors, InboxRestricted, outsiderErrors } from "#domain/sending/SendErrors"
import { Sent } from "#domain/sending/Sent"
import { Forbidden, NotFound, RateLimited, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { AddResult, Candidate, GroupFull, InviteNotFound, LastAdmin, NotAdmin, NotMember, Operation } from "./Group.ts"

/** A group send with everything that the owner needs, so that the owner does not look up the sender. */
export const GroupSendCommand = Schema.Struct({ sender: MessageSender, draft: Draft })
export type GroupSendCommand = typeof GroupSendCommand.Type

export const GroupSendFailure = Schema.Union(groupSendErrors)
export type GroupSendFailure = typeof GroupSendFailure.Type

/** Sends a message to all members. The result is `null` if this sender has used the client_msg_id before. */
export const SendToGroup = Rpc.make("SendToGroup", {
  payload: { command: GroupSendCommand },
  success: Schema.NullOr(Sent),
  error: GroupSendFailure
})

/**
 * Ids for the system messages of a change, or for its trace if it has no messages. A repeat of a committed call has the
 * same ids, and gets the result of that call.
 */
const messageIds = Schema.Array(Schema.String)

/** The agent that changes a group. As in sends, the owner does not look up this agent. */
const byActor = { actorId: Schema.String, messageIds }

/** Changes the given fields of the profile. The actor must be an admin. */
export const Update = Rpc.make("Update", {
  payload: {
    ...byActor,
    name: Schema.optionalKey(Schema.String),
    description: Schema.optionalKey(Schema.NullOr(Schema.String)),
    avatarUrl: Schema.optionalKey(Schema.NullOr(Schema.String)),
    /**
     * The key of a picture on this server. It is sent instead of the URL, because another node may write the URL
     * differently.
     */
    avatarKey: Schema.optionalKey(Schema.String)
  },
  error: Schema.Union([...outsiderErrors, Forbidden, Unavailable])
})

/** Removes the picture. The actor must be an admin. Fails if there is no picture. */
export const ClearAvatar = Rpc.make("ClearAvatar", {
  payload: byActor,
  error: Schema.Union([...outsiderErrors, Forbidden, NotFound, Unavailable])
})

/** Deletes the group, and returns the time of the deletion in milliseconds. */
export const Delete = Rpc.make("Delete", {
  payload: byActor,
  success: Schema.Struct({ at: Schema.Int }),
  error: Schema.Union([...outsiderErrors, Forbidden, Unavailable])
})

/**
 * Invites an agent. The actor must be an admin. A repeated call finds the pending invite. There is no system message.
 */
export const Add = Rpc.make("Add", {
  payload: {
    actorId: Schema.String,
    /** The id of the invite, if the call creates one. */
    inviteId: Schema.String,
    restricted: Schema.Boolean,
    /** `null` if no agent has this handle. */
    candidate: Schema.NullOr(Candidate)
  },
  success: AddResult,
  error: Schema.Union([
    ...outsiderErrors,
    Forbidden,
    AgentNotFound,
    Blocked,
    AgentRestricted,
    InboxRestricted,
    GroupFull,
    RateLimited,
    Unavailable
  ])
})

/** The payload of a change of one member. `targetId` is `null` if no agent has the given handle. */
const ofTarget = { ...byActor, targetId: Schema.NullOr(Schema.String) }

/** Removes a member. The actor must be an admin. */
export const Remove = Rpc.make("Remove", {
  payload: ofTarget,
  error: Schema.Union([...outsiderErrors, Forbidden, NotMember, ValidationFailed, Unavailable])
})

/** Makes a member an admin. The actor must be an admin. Changes nothing if the target is already an admin. */
export const Promote = Rpc.make("Promote", {
  payload: ofTarget,
  error: Schema.Union([...outsiderErrors, Forbidden, NotMember, Unavailable])
})

/** Makes an admin an ordinary member. The actor must be an admin. */
export const Demote = Rpc.make("Demote", {
  payload: ofTarget,
  error: Schema.Union([...outsiderErrors, Forbidden, NotMember, NotAdmin, LastAdmin, Unavailable])
})

/** Leaves the group. If the last admin left, returns the handle of the member that became admin. */
export const Leave = Rpc.make("Leave", {
  payload: byActor,
  success: Schema.Struct({ promotedHandle: Schema.NullOr(Schema.String) }),
  error: Schema.Union([...outsiderErrors, Unavailable])
})

/** Accepts an invite: the invitee joins the group. */
export const Accept = Rpc.make("Accept", {
  payload: { ...byActor, handle: Schema.String, inviteId: Schema.String },
  error: Schema.Union([InviteNotFound, GroupFull, Unavailable])
})

/** Rejects an invite. The actor must be the invitee. */
export const Reject = Rpc.make("Reject", {
  payload: { ...byActor, inviteId: Schema.String },
  error: Schema.Union([InviteNotFound, Unavailable])
})

/** Cancels an invite. The actor must be an admin. */
export const Cancel = Rpc.make("Cancel", {
  payload: { ...byActor, inviteId: Schema.String },
  error: Schema.Union([...outsiderErrors, Forbidden, InviteNotFound, Unavailable])
})

/** Removes an invite to or from a deleted account. Succeeds if the invite does not exist. */
export const Withdraw = Rpc.make("Withdraw", { payload: { inviteId: Schema.String }, error: Unavailable })

/** If this suspended member was the last admin, makes another member admin. */
export const Replace = Rpc.make("Replace", { payload: { agentId: Schema.String, messageIds }, error: Unavailable })

/** Does for an operator what the roles of the members do not matter for. `targetId` is the member concerned. */
export const Operate = Rpc.make("Operate", {
  payload: { operation: Operation, targetId: Schema.NullOr(Schema.String), messageIds },
  error: Schema.Union([GroupNotFound, NotMember, Unavailable])
})

/**
 * A group as an actor. It is the single writer of its members, roles, invites and order while its node owns the shard.
 * Each write contains the version on which it was decided, so a second owner does no harm. The actor is rebuilt from
 * its rows when its state is not in memory, and removed from memory five minutes after the last call. Calls are safe to
 * retry: a send finds its client_msg_id, and a change finds its earlier commit. The names of the entity and of its Rpcs
 * never change.
 */
export const GroupEntity = Entity.make("Group", [
  SendToGroup,
  Update,
  ClearAvatar,
  Delete,
  Add,
  Remove,
  Promote,
  Demote,
  Leave,
  Accept,
  Reject,
  Cancel,
  Withdraw,
  Replace,
  Operate
])

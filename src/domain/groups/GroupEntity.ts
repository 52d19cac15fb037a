import { AgentNotFound } from "#domain/agents/Agent"
import { Draft, MessageSender } from "#domain/messages/Message"
import { AgentRestricted, Blocked, groupSendErrors, InboxRestricted, outsiderErrors } from "#domain/sending/SendErrors"
import { Sent } from "#domain/sending/Sent"
import { Forbidden, NotFound, RateLimited, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { AddResult, Candidate, GroupFull, InviteNotFound, LastAdmin, NotAdmin, NotMember } from "./Group.ts"

/** A group send with everything that the owner needs, so that it does not look up the sender. */
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
 * same ids, and gets the answer of that call.
 */
const messageIds = Schema.Array(Schema.String)

/** The agent that changes a group. As in sends, the owner does not look up this agent. */
const byActor = { actorId: Schema.String, messageIds }

/** Changes the given fields of the profile, as an admin. */
export const Update = Rpc.make("Update", {
  payload: {
    ...byActor,
    name: Schema.optionalKey(Schema.String),
    description: Schema.optionalKey(Schema.NullOr(Schema.String)),
    avatarUrl: Schema.optionalKey(Schema.NullOr(Schema.String)),
    /** The key of a picture on this server. It replaces the URL, because another node may write the URL differently. */
    avatarKey: Schema.optionalKey(Schema.String)
  },
  error: Schema.Union([...outsiderErrors, Forbidden, Unavailable])
})

/** Removes the picture, as an admin. Fails if there is none. */
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

/** Invites an agent, as an admin. A repeated call finds the pending invite. There is no system message. */
export const Add = Rpc.make("Add", {
  payload: {
    actorId: Schema.String,
    /** The id for the invite, if a new one is made. */
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

/** The payload for a change of one member. `targetId` is `null` if no agent has the given handle. */
const ofTarget = { ...byActor, targetId: Schema.NullOr(Schema.String) }

/** Removes a member, as an admin. */
export const Remove = Rpc.make("Remove", {
  payload: ofTarget,
  error: Schema.Union([...outsiderErrors, Forbidden, NotMember, ValidationFailed, Unavailable])
})

/** Makes a member an admin, as an admin. Changes nothing if the target is an admin already. */
export const Promote = Rpc.make("Promote", {
  payload: ofTarget,
  error: Schema.Union([...outsiderErrors, Forbidden, NotMember, Unavailable])
})

/** Makes an admin an ordinary member, as an admin. */
export const Demote = Rpc.make("Demote", {
  payload: ofTarget,
  error: Schema.Union([...outsiderErrors, Forbidden, NotMember, NotAdmin, LastAdmin, Unavailable])
})

/** Leaves the group, and returns the handle of the member that became admin if the last admin left. */
export const Leave = Rpc.make("Leave", {
  payload: byActor,
  success: Schema.Struct({ promotedHandle: Schema.NullOr(Schema.String) }),
  error: Schema.Union([...outsiderErrors, Unavailable])
})

/** Joins the group on an invite. */
export const Accept = Rpc.make("Accept", {
  payload: { ...byActor, handle: Schema.String, inviteId: Schema.String },
  error: Schema.Union([InviteNotFound, GroupFull, Unavailable])
})

/** Refuses an invite, as its invitee. */
export const Reject = Rpc.make("Reject", {
  payload: { ...byActor, inviteId: Schema.String },
  error: Schema.Union([InviteNotFound, Unavailable])
})

/** Cancels an invite, as an admin. */
export const Cancel = Rpc.make("Cancel", {
  payload: { ...byActor, inviteId: Schema.String },
  error: Schema.Union([...outsiderErrors, Forbidden, InviteNotFound, Unavailable])
})

/** Removes an invite to or from a deleted account. Succeeds if the invite does not exist. */
export const Withdraw = Rpc.make("Withdraw", { payload: { inviteId: Schema.String }, error: Unavailable })

/** If this suspended member was the last admin, makes another member admin. */
export const Replace = Rpc.make("Replace", { payload: { agentId: Schema.String, messageIds }, error: Unavailable })

/**
 * A group as an actor. It is the single writer of its members, roles, invites and order while its node owns the shard.
 * Each write carries the version on which it was decided, so a second owner does no harm. The actor is rebuilt from its
 * rows when its state is not in memory, and removed from memory five minutes after the last call. Calls are safe to
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
  Replace
])

import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { AgentNotFound, AgentSuspended } from "../agents/Agent.ts"
import {
  AgentRestricted,
  AttachmentNotFound,
  AttachmentNotReady,
  AttachmentWrongScope,
  Blocked,
  GroupNotFound,
  InboxRestricted
} from "../messages/SendErrors.ts"
import { GroupDeleted } from "../messages/GroupDeletion.ts"
import { Sent } from "../messages/Sent.ts"
import { Draft, MessageSender } from "../messages/Message.ts"
import { StorageUnavailable } from "../files/Blobs.ts"
import { Forbidden, NotFound, RateLimited, Unauthorized, Unavailable, ValidationFailed } from "../wire/WireError.ts"
import { AddResult, Candidate, GroupFull, InviteNotFound, LastAdmin, NotAdmin, NotMember } from "./Group.ts"

/** A group send, complete: whoever handles it asks nobody who the sender is. */
export const GroupSendCommand = Schema.Struct({ sender: MessageSender, draft: Draft })
export type GroupSendCommand = typeof GroupSendCommand.Type

export const GroupSendFailure = Schema.Union([
  GroupNotFound,
  GroupDeleted,
  AttachmentNotFound,
  AttachmentWrongScope,
  AttachmentNotReady,
  StorageUnavailable,
  RateLimited,
  AgentSuspended,
  Unauthorized,
  Unavailable
])
export type GroupSendFailure = typeof GroupSendFailure.Type

/** Sends to everybody in the group; null: this sender has used the client_msg_id before. */
export const SendToGroup = Rpc.make("SendToGroup", {
  payload: { command: GroupSendCommand },
  success: Schema.NullOr(Sent),
  error: GroupSendFailure
})

/**
 * Ids for the system messages of a change, or for its trace if it says nothing. Whoever repeats a call that was carried
 * out, with the same ids, gets its answer.
 */
const messageIds = Schema.Array(Schema.String)

/** Who changes a group. Commands are complete, as a send is: whoever handles one asks nobody who the actor is. */
const byActor = { actorId: Schema.String, messageIds }

/** What somebody who is no member is answered: outsiders learn nothing, former members that the group was deleted. */
const outside = [GroupNotFound, GroupDeleted] as const

/** Changes the profile, as an admin: the fields that are given. */
export const Update = Rpc.make("Update", {
  payload: {
    ...byActor,
    name: Schema.optionalKey(Schema.String),
    description: Schema.optionalKey(Schema.NullOr(Schema.String)),
    avatarUrl: Schema.optionalKey(Schema.NullOr(Schema.String)),
    /** A picture of this server's, in place of its URL, which another node may write in another way. */
    avatarKey: Schema.optionalKey(Schema.String)
  },
  error: Schema.Union([...outside, Forbidden, Unavailable])
})

/** Takes the picture away, as an admin; refused if there is none. */
export const ClearAvatar = Rpc.make("ClearAvatar", {
  payload: byActor,
  error: Schema.Union([...outside, Forbidden, NotFound, Unavailable])
})

/** Ends the group, and answers when. */
export const Delete = Rpc.make("Delete", {
  payload: byActor,
  success: Schema.Struct({ at: Schema.Int }),
  error: Schema.Union([...outside, Forbidden, Unavailable])
})

/** Invites an agent, as an admin. Says nothing: the invite's id is what a repeated call meets. */
export const Add = Rpc.make("Add", {
  payload: {
    actorId: Schema.String,
    /** For the invite, should there be a new one. */
    inviteId: Schema.String,
    restricted: Schema.Boolean,
    /** Null: nobody has this handle. */
    candidate: Schema.NullOr(Candidate)
  },
  success: AddResult,
  error: Schema.Union([
    ...outside,
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

/** Of a member; null: nobody has the handle that was given. */
const ofTarget = { ...byActor, targetId: Schema.NullOr(Schema.String) }

/** Takes a member out, as an admin. */
export const Remove = Rpc.make("Remove", {
  payload: ofTarget,
  error: Schema.Union([...outside, Forbidden, NotMember, ValidationFailed, Unavailable])
})

/** Makes a member an admin, as an admin; one that is an admin stays one. */
export const Promote = Rpc.make("Promote", {
  payload: ofTarget,
  error: Schema.Union([...outside, Forbidden, NotMember, Unavailable])
})

/** Makes an admin a member, as an admin. */
export const Demote = Rpc.make("Demote", {
  payload: ofTarget,
  error: Schema.Union([...outside, Forbidden, NotMember, NotAdmin, LastAdmin, Unavailable])
})

/** Leaves, and answers who became admin because the last one left. */
export const Leave = Rpc.make("Leave", {
  payload: byActor,
  success: Schema.Struct({ promotedHandle: Schema.NullOr(Schema.String) }),
  error: Schema.Union([...outside, Unavailable])
})

/** Joins, on an invite. */
export const Accept = Rpc.make("Accept", {
  payload: { ...byActor, handle: Schema.String, inviteId: Schema.String },
  error: Schema.Union([InviteNotFound, GroupFull, Unavailable])
})

/** Refuses an invite, as its invitee. */
export const Reject = Rpc.make("Reject", {
  payload: { ...byActor, inviteId: Schema.String },
  error: Schema.Union([InviteNotFound, Unavailable])
})

/** Takes an invite back, as an admin. */
export const Cancel = Rpc.make("Cancel", {
  payload: { ...byActor, inviteId: Schema.String },
  error: Schema.Union([...outside, Forbidden, InviteNotFound, Unavailable])
})

/** Drops an invite of an account that is deleted; one that is gone already is fine. */
export const Withdraw = Rpc.make("Withdraw", { payload: { inviteId: Schema.String }, error: Unavailable })

/** Replaces a member that is suspended and was the last admin. */
export const Replace = Rpc.make("Replace", { payload: { agentId: Schema.String, messageIds }, error: Unavailable })

/**
 * A group as an actor. Single writer of its members, roles, invites and order while its node has the shard; each write
 * names the version that it was decided on, so a second owner is harmless. Rebuilt from its rows whenever it does not
 * remember them; idle, and forgotten, five minutes after the last call. Safe to retry because a send meets its
 * client_msg_id and a change finds itself done. Landed names: never changed.
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

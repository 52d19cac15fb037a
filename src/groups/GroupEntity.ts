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

/** What is done to a group, and by whom; complete, as a send is. */
export const GroupCommand = Schema.Union([
  Schema.TaggedStruct("Update", {
    actorId: Schema.String,
    name: Schema.optionalKey(Schema.String),
    description: Schema.optionalKey(Schema.NullOr(Schema.String)),
    avatarUrl: Schema.optionalKey(Schema.NullOr(Schema.String)),
    /** A picture of this server's, in place of its URL, which another runner may write in another way. */
    avatarKey: Schema.optionalKey(Schema.String)
  }),
  /** Takes the picture away; refused if there is none. */
  Schema.TaggedStruct("ClearAvatar", { actorId: Schema.String }),
  Schema.TaggedStruct("Delete", { actorId: Schema.String }),
  Schema.TaggedStruct("Add", {
    actorId: Schema.String,
    /** For the invite, should there be a new one. */
    inviteId: Schema.String,
    restricted: Schema.Boolean,
    /** Null: nobody has this handle. */
    candidate: Schema.NullOr(Candidate)
  }),
  Schema.TaggedStruct("Remove", { actorId: Schema.String, targetId: Schema.NullOr(Schema.String) }),
  Schema.TaggedStruct("Promote", { actorId: Schema.String, targetId: Schema.NullOr(Schema.String) }),
  Schema.TaggedStruct("Demote", { actorId: Schema.String, targetId: Schema.NullOr(Schema.String) }),
  Schema.TaggedStruct("Leave", { actorId: Schema.String }),
  Schema.TaggedStruct("Accept", { actorId: Schema.String, handle: Schema.String, inviteId: Schema.String }),
  Schema.TaggedStruct("Reject", { actorId: Schema.String, inviteId: Schema.String }),
  Schema.TaggedStruct("Cancel", { actorId: Schema.String, inviteId: Schema.String }),
  /** An invite of an account that is deleted. */
  Schema.TaggedStruct("Withdraw", { inviteId: Schema.String }),
  /** A suspended member: as the last admin it is replaced. */
  Schema.TaggedStruct("Replace", { agentId: Schema.String })
])
export type GroupCommand = typeof GroupCommand.Type

export const GroupOutcome = Schema.Struct({
  /** When it was done. */
  at: Schema.Int,
  /** Who became admin because the last one left. */
  promotedHandle: Schema.NullOr(Schema.String),
  added: Schema.NullOr(AddResult)
})
export type GroupOutcome = typeof GroupOutcome.Type

export const GroupFailure = Schema.Union([
  ValidationFailed,
  GroupNotFound,
  GroupDeleted,
  Forbidden,
  AgentNotFound,
  Blocked,
  AgentRestricted,
  InboxRestricted,
  GroupFull,
  NotMember,
  NotAdmin,
  LastAdmin,
  InviteNotFound,
  NotFound,
  RateLimited,
  Unavailable
])
export type GroupFailure = typeof GroupFailure.Type

/** Sends to everybody in the group; null: this sender has used the client_msg_id before. */
export const SendToGroup = Rpc.make("SendToGroup", {
  payload: { command: GroupSendCommand },
  success: Schema.NullOr(Sent),
  error: GroupSendFailure
})

/**
 * Changes the group with what it says about it, in one commit. `said` has the ids for
 * that: whoever repeats a call that was carried out, with the same ids, gets its outcome.
 */
export const ChangeGroup = Rpc.make("ChangeGroup", {
  payload: { command: GroupCommand, said: Schema.Array(Schema.String) },
  success: GroupOutcome,
  error: GroupFailure
})

/** A group as an actor. Landed names: never changed. */
export const GroupEntity = Entity.make("Group", [SendToGroup, ChangeGroup])

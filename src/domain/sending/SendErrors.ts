import { AgentNotFound, AgentSuspended } from "#domain/agents/Agent"
import { GroupDeleted, GroupNotFound } from "#domain/memberships/GroupDeletion"
import { ContentTooLarge } from "#domain/messages/Message"
import { StorageUnavailable } from "#infrastructure/files/Blobs"
import { DateTimeString } from "#infrastructure/wire/Text"
import { RateLimited, Unauthorized, Unavailable, WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

export class Blocked extends WireError<Blocked>()("Blocked", {
  code: "BLOCKED",
  status: 403,
  message: "One of you has blocked the other."
}) {}

export class AgentRestricted extends WireError<AgentRestricted>()("AgentRestricted", {
  code: "AGENT_RESTRICTED",
  status: 403,
  message: "This account is restricted: it can write only in conversations that already exist."
}) {}

export class InboxRestricted extends WireError<InboxRestricted>()("InboxRestricted", {
  code: "INBOX_RESTRICTED",
  status: 403,
  message: "This agent accepts messages and invites only from its contacts.",
  details: { recipient_handle: Schema.String }
}) {}

export class AwaitingReply extends WireError<AwaitingReply>()("AwaitingReply", {
  code: "AWAITING_REPLY",
  status: 403,
  message: "Your first message is still unanswered: wait for a reply before you write again.",
  details: { recipient_handle: Schema.String, waiting_since: DateTimeString }
}) {}

export class ColdCapExceeded extends WireError<ColdCapExceeded>()("ColdCapExceeded", {
  code: "COLD_CAP_EXCEEDED",
  status: 429,
  message:
    "Too many conversations that you began are unanswered: wait for a reply, or until one of them no longer counts.",
  details: {
    limit: Schema.Int,
    used: Schema.Int,
    window_seconds: Schema.Int,
    resets_at: DateTimeString,
    retry_after_ms: Schema.optionalKey(Schema.Int)
  }
}) {}

const MESSAGES_PER_DAY = {
  conversation: (limit: number) =>
    `You have sent ${limit} messages to this conversation within 24 hours, all that your budget allows`,
  agent: (limit: number) => `You have sent ${limit} messages within 24 hours, all that your budget allows`
}

export class BudgetExceeded extends WireError<BudgetExceeded>()("BudgetExceeded", {
  code: "BUDGET_EXCEEDED",
  status: 429,
  message:
    "You have sent as many messages within 24 hours as your budget allows: stop until one of them no longer counts.",
  details: {
    scope: Schema.Literals(["conversation", "agent"]),
    limit: Schema.Int,
    window: Schema.Literal("24h"),
    resets_at: DateTimeString,
    retry_after_ms: Schema.Int
  }
}) {
  /** `resetsAt` is when the next message is allowed, `waitMs` the time until then. */
  static of(scope: "conversation" | "agent", limit: number, resetsAt: string, waitMs: number): BudgetExceeded {
    return new BudgetExceeded({
      message: `${MESSAGES_PER_DAY[scope](limit)}: stop until one of them no longer counts.`,
      details: { scope, limit, window: "24h", resets_at: resetsAt, retry_after_ms: waitMs }
    })
  }
}

export class TooManyHops extends WireError<TooManyHops>()("TooManyHops", {
  code: "TOO_MANY_HOPS",
  status: 403,
  message: "Too many messages have caused each other before this one: stop here.",
  details: { hops: Schema.Int, limit: Schema.Int }
}) {
  static beyond(limit: number, hops: number): TooManyHops {
    return new TooManyHops({
      message:
        `This would be message ${hops} in a row that agents have caused each other to send, and ${limit} are allowed: stop here.`,
      details: { hops, limit }
    })
  }
}

export class RecipientBacklogged extends WireError<RecipientBacklogged>()("RecipientBacklogged", {
  code: "RECIPIENT_BACKLOGGED",
  status: 429,
  message: "This agent has too many undelivered messages: wait until it has read some of them.",
  details: { recipient_handle: Schema.String, undelivered_count: Schema.Int }
}) {}

export class AttachmentNotFound extends WireError<AttachmentNotFound>()("AttachmentNotFound", {
  code: "ATTACHMENT_NOT_FOUND",
  status: 404,
  message: "You have uploaded no file with this id."
}) {}

export class AttachmentWrongScope extends WireError<AttachmentWrongScope>()("AttachmentWrongScope", {
  code: "ATTACHMENT_WRONG_SCOPE",
  status: 400,
  message: "This file was uploaded for another agent or group: upload it again for this recipient."
}) {}

export class AttachmentNotReady extends WireError<AttachmentNotReady>()("AttachmentNotReady", {
  code: "ATTACHMENT_NOT_READY",
  status: 409,
  message:
    "The bytes of this file were not uploaded, or differ from the announced bytes: PUT them to its upload_url first.",
  details: { reason: Schema.Literals(["missing", "size", "checksum"]) }
}) {}

/** The failures of a send that concern its sender. Endpoints declare them through `Authorization`. */
const senderErrors = [Unauthorized, AgentSuspended] as const

/** The failures of a send that concern its recipient. */
const recipientErrors = [
  AgentNotFound,
  Blocked,
  AgentRestricted,
  InboxRestricted,
  AwaitingReply,
  ColdCapExceeded,
  RecipientBacklogged
] as const

/**
 * The failures for agents that are not members of a group: GroupDeleted for former members of a deleted group,
 * otherwise GroupNotFound.
 */
export const outsiderErrors = [GroupNotFound, GroupDeleted] as const

/** The failures of a send that concern its attachment. */
export const fileErrors = [AttachmentNotFound, AttachmentNotReady, AttachmentWrongScope, StorageUnavailable] as const

/** The failures of a send to a direct conversation. */
export const directSendErrors = [...senderErrors, ...recipientErrors, ...fileErrors, Unavailable] as const
/** The failures of a send to a group. */
export const groupSendErrors = [...senderErrors, ...outsiderErrors, ...fileErrors, RateLimited, Unavailable] as const
/** The failures that the endpoint of sends declares itself. Its middleware declares the others. */
export const endpointSendErrors = [
  ...recipientErrors,
  ...outsiderErrors,
  ...fileErrors,
  BudgetExceeded,
  TooManyHops,
  ContentTooLarge
] as const

/** Whether a failure concerns the sender. With such a failure, even the repeat of a stored send is refused. */
export const isOfSender = (failure: { readonly _tag: string }): boolean =>
  failure._tag === "AgentSuspended" || failure._tag === "Unauthorized"

import { Schema } from "effect"

/**
 * What the wire shows, written down from the contract and not from the server's
 * own schemas, so that a slip there does not pass unnoticed here.
 */

const like = (pattern: RegExp) => Schema.String.check(Schema.isPattern(pattern))

export const Id = (prefix: string) => like(new RegExp(`^${prefix}_[A-Za-z0-9_-]{16}$`))
export const DeliveryId = like(/^del_[0-9a-f]{32}$/)
export const ApiKey = like(/^ac_[A-Za-z0-9_-]{43}$/)
export const Handle = like(/^[a-z](?:[a-z0-9]|-(?=[a-z0-9])){2,29}$/)
export const Time = like(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const Seq = Schema.Int.check(Schema.isGreaterThanOrEqualTo(1))

export const Confirmation = Schema.Struct({ ok: Schema.Literal(true), message: Schema.NonEmptyString })

export const Pending = Schema.Struct({ pending_id: Id("pnd"), message: Schema.NonEmptyString })

export const Registered = Schema.Struct({ ...Pending.fields, expires_in: Schema.Literal(600) })

const Status = Schema.Literals(["active", "restricted", "suspended"])
const Policy = Schema.Literals(["open", "contacts_only"])

const Skill = Schema.Struct({
  id: like(/^[a-z0-9-]{1,64}$/u),
  name: Schema.NonEmptyString,
  description: Schema.NonEmptyString,
  tags: Schema.NonEmptyArray(Schema.NonEmptyString),
  examples: Schema.optionalKey(Schema.Array(Schema.NonEmptyString))
})

export const Agent = Schema.Struct({
  id: Id("agt"),
  handle: Handle,
  email: Schema.String,
  email_masked: like(/^.\*{4}@.+$/u),
  display_name: Schema.NonEmptyString,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  skills: Schema.Array(Skill),
  status: Status,
  paused_by_owner: Schema.Literal("none"),
  settings: Schema.Struct({
    inbox_mode: Policy,
    group_invite_policy: Policy,
    budget: Schema.Struct({ per_conversation_per_day: Schema.NullOr(Schema.Int), per_day: Schema.NullOr(Schema.Int) })
  }),
  created_at: Time,
  updated_at: Time
})

export const Verified = Schema.Struct({ agent: Agent, api_key: ApiKey })

export const NewKey = Schema.Struct({ handle: Handle, api_key: ApiKey })

export const Card = Schema.Struct({
  handle: Handle,
  display_name: Schema.NonEmptyString,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  skills: Schema.Array(Skill),
  status: Status,
  created_at: Time
})

const Reaction = Schema.Struct({ emoji: Schema.NonEmptyString, count: Seq, mine: Schema.Boolean })

export const Reactions = Schema.Struct({ reactions: Schema.Array(Reaction) })

const messageFields = {
  id: Id("msg"),
  conversation_id: Id("(conv|grp)"),
  sender: Handle,
  client_msg_id: Schema.NonEmptyString,
  seq: Seq,
  type: Schema.Literals(["text", "structured", "file", "system"]),
  content: Schema.Struct({
    text: Schema.optionalKey(Schema.String),
    data: Schema.optionalKey(Schema.Record(Schema.String, Schema.Unknown)),
    attachment_id: Schema.optionalKey(Schema.String)
  }),
  metadata: Schema.Record(Schema.String, Schema.Unknown),
  status: Schema.Literals(["stored", "delivered", "read"]),
  created_at: Time,
  delivered_at: Schema.NullOr(Time),
  read_at: Schema.NullOr(Time),
  context: Schema.Struct({
    sender: Schema.Struct({
      handle: Handle,
      display_name: Schema.NullOr(Schema.String),
      kind: Schema.Literal("agent")
    }),
    conversation: Schema.Struct({
      type: Schema.Literals(["direct", "group"]),
      group_name: Schema.NullOr(Schema.String),
      member_count: Schema.NullOr(Count)
    }),
    mentions: Schema.Array(Handle)
  }),
  reactions: Schema.optionalKey(Schema.Array(Reaction))
}

interface Progress {
  readonly status: "stored" | "delivered" | "read"
  readonly delivered_at: string | null
  readonly read_at: string | null
}

/** Status and timestamps say the same thing: stored, neither; delivered, the first; read, both. */
const consistent = Schema.makeFilter((message: Progress) => {
  const [delivered, read] = [message.delivered_at !== null, message.read_at !== null]
  const expected = read ? "read" : delivered ? "delivered" : "stored"
  if (read && !delivered) return "a read message has no delivered_at"
  return message.status === expected || `status is ${message.status}, the timestamps say ${expected}`
})

const outcomeFields = {
  state: Schema.Literals(["working", "done", "refused"]),
  reason: Schema.NullOr(Schema.NonEmptyString),
  at: Time
}

export const Outcomes = Schema.Array(Schema.Struct({ handle: Handle, ...outcomeFields }))

export const OutcomeChange = Schema.Struct({
  message_id: Id("msg"),
  conversation_id: Id("(conv|grp)"),
  handle: Handle,
  ...outcomeFields
})

const nullable = {
  ...messageFields,
  outcome: Schema.optionalKey(Schema.Struct(outcomeFields)),
  delivery_id: Schema.NullOr(DeliveryId)
}

export const Message = Schema.Struct(nullable).check(consistent)
export type Message = typeof Message.Type

export const Messages = Schema.Array(Message)

export const ReadMessage = Schema.Struct({ ...nullable, ok: Schema.Literal(true) }).check(consistent)

export const SyncRow = Schema.Struct({
  ...messageFields,
  delivery_id: DeliveryId,
  status: Schema.Literal("stored"),
  delivered_at: Schema.Null,
  read_at: Schema.Null
})

export const SyncRows = Schema.Array(SyncRow)

export const Acked = Schema.Struct({ acked: Count })

export const Party = Schema.Struct({
  handle: Handle,
  display_name: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String)
})

export const Participants = Schema.Array(Party)

export const Conversation = Schema.Struct({
  id: Id("conv"),
  type: Schema.Literal("direct"),
  participants: Schema.Array(Party),
  group_name: Schema.Null,
  group_avatar_url: Schema.Null,
  group_member_count: Schema.Null,
  last_message_preview: Schema.NullOr(Schema.String),
  last_message_is_own: Schema.Boolean,
  last_message_type: Schema.NullOr(Schema.String),
  last_message_at: Schema.NullOr(Time),
  updated_at: Time,
  unread_count: Count,
  oldest_unread_seq: Schema.NullOr(Seq),
  newest_unread_seq: Schema.NullOr(Seq),
  is_muted: Schema.Boolean
})

export const Conversations = Schema.Array(Conversation)

export const ConversationPage = Schema.Struct({
  conversations: Conversations,
  total: Count,
  limit: Seq,
  offset: Count,
  next_cursor: Schema.NullOr(Schema.NonEmptyString)
})

export const DirectContext = Schema.Struct({
  conversation_id: Id("conv"),
  type: Schema.Literal("direct"),
  group: Schema.Null,
  counterparty: Party,
  relationship: Schema.Struct({
    is_contact: Schema.Boolean,
    added_at: Schema.NullOr(Time),
    note: Schema.NullOr(Schema.String)
  }),
  direct_state: Schema.Struct({
    state: Schema.Literals(["cold", "established"]),
    initiated_by_self: Schema.Boolean,
    last_message_at: Schema.NullOr(Time)
  }),
  unread: Schema.Struct({ count: Count, oldest_seq: Schema.NullOr(Seq), newest_seq: Schema.NullOr(Seq) })
})

export const Hidden = Schema.Struct({
  ok: Schema.Literal(true),
  hidden: Schema.Literal(true),
  message: Schema.NonEmptyString
})

export const HelloOk = Schema.Struct({
  type: Schema.Literal("hello.ok"),
  capabilities: Schema.Array(Schema.String),
  agent: Schema.Struct({ handle: Handle }),
  heartbeat_interval_ms: Schema.Literal(30_000)
})

/** A push to a recipient. */
export const Pushed = SyncRow

/** A push of an own message to its sender. */
export const Echoed = Schema.Struct({
  ...messageFields,
  delivery_id: Schema.Null,
  status: Schema.Literal("stored"),
  delivered_at: Schema.Null,
  read_at: Schema.Null
})

export const Receipt = Schema.Struct({
  message_id: Id("msg"),
  conversation_id: Id("(conv|grp)"),
  seq: Seq,
  read_by: Handle,
  read_at: Time,
  reader: Handle,
  at: Time,
  through_seq: Count
})

export const Typing = Schema.Struct({ conversation_id: Id("(conv|grp)"), sender: Handle })

export const FrameError = Schema.Struct({
  code: Schema.Literals(["UNSUPPORTED_ACTION", "VALIDATION_ERROR", "CONVERSATION_NOT_FOUND", "RATE_LIMITED"]),
  message: Schema.NonEmptyString,
  action: Schema.NullOr(Schema.String)
})

export const RateWarning = Schema.Struct({
  endpoint: Schema.NonEmptyString,
  limit: Seq,
  remaining: Count,
  reset_at: Time,
  message: Schema.NonEmptyString
})

export const Mute = Schema.Struct({
  muter_agent_id: Id("agt"),
  target_kind: Schema.Literals(["agent", "conversation"]),
  target_id: Id("(agt|conv|grp)"),
  target_handle: Schema.NullOr(Handle),
  muted_until: Schema.NullOr(Time),
  created_at: Time
})

export const Lease = Schema.Struct({ ok: Schema.Literal(true), active: Schema.Literal(true), expires_in: Seq })
export const LeaseEnded = Schema.Struct({ ok: Schema.Literal(true), active: Schema.Boolean })
export const Leases = Schema.Struct({ active: Schema.Boolean, sessions: Count, expires_in: Count })
export const Claim = Schema.Struct({ claimed: Schema.Boolean, deferred: Schema.Boolean, expires_in: Count })
export const BatchClaim = Schema.Struct({ claimed_count: Count, deferred: Schema.Boolean, expires_in: Count })

export const MutePage = Schema.Struct({
  mutes: Schema.Array(Mute),
  total: Count,
  limit: Seq,
  offset: Count,
  next_cursor: Schema.NullOr(Schema.NonEmptyString)
})

export const Presence = Schema.Struct({
  handle: Handle,
  status: Schema.Literals(["online", "offline", "busy"]),
  custom_message: Schema.NullOr(Schema.String),
  last_seen: Schema.NullOr(Time)
})

export const Presences = Schema.Struct({ presences: Schema.Array(Presence) })

const listOf = <F extends Schema.Struct.Fields>(items: F) =>
  Schema.Struct({ ...items, total: Count, limit: Seq, offset: Count, next_cursor: Schema.NullOr(Schema.String) })

export const Contact = Schema.Struct({
  handle: Handle,
  display_name: Schema.NonEmptyString,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  status: Status,
  notes: Schema.NullOr(Schema.String),
  added_at: Time
})

export const ContactPage = listOf({ contacts: Schema.Array(Contact) })

export const ContactCheck = Schema.Struct({
  handle: Schema.String,
  is_contact: Schema.Boolean,
  added_at: Schema.NullOr(Time),
  notes: Schema.NullOr(Schema.String)
})

export const BlockPage = listOf({
  blocks: Schema.Array(Schema.Struct({
    handle: Handle,
    display_name: Schema.NonEmptyString,
    avatar_url: Schema.NullOr(Schema.String),
    blocked_at: Time
  }))
})

const listed = {
  handle: Handle,
  display_name: Schema.NonEmptyString,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  tags: Schema.Array(Schema.NonEmptyString),
  created_at: Time
}

/** As a caller without a key sees it. */
export const AnonymousDirectory = listOf({ agents: Schema.Array(Schema.Struct(listed)) })

export const Directory = listOf({ agents: Schema.Array(Schema.Struct({ ...listed, in_contacts: Schema.Boolean })) })

/** The events that the published client knows. */
const CLIENT_EVENTS = [
  "message.new",
  "message.read",
  "presence.update",
  "contact.blocked",
  "group.invite.received",
  "group.deleted"
] as const

const webhookOf = <const Event extends string>(events: ReadonlyArray<Event>) => ({
  id: Id("whk"),
  url: Schema.NonEmptyString,
  events: Schema.NonEmptyArray(Schema.Literals(events)),
  active: Schema.Boolean,
  created_at: Time
})
const webhookFields = webhookOf(CLIENT_EVENTS)

export const Webhook = Schema.Struct(webhookFields)

export const CreatedWebhook = Schema.Struct({ ...webhookFields, secret: Schema.NonEmptyString })

/** With every event, also those that the published client does not know. */
export const AnyCreatedWebhook = Schema.Struct({
  ...webhookOf([...CLIENT_EVENTS, "message.outcome"]),
  secret: Schema.NonEmptyString
})

export const ConnectionList = Schema.Struct({
  connections: Schema.Array(Schema.Struct({
    id: Id("con"),
    client_name: Schema.NullOr(Schema.String),
    client_host: Schema.NullOr(Schema.NonEmptyString),
    redirect_host: Schema.NonEmptyString,
    scopes: Schema.Array(Schema.Literals(["agent:read", "agent:act"])),
    created_at: Time,
    last_used_at: Schema.NullOr(Time)
  }))
})

export const WebhookPage = listOf({ webhooks: Schema.Array(Webhook) })

const Role = Schema.Literals(["admin", "member"])

export const Group = Schema.Struct({
  id: Id("grp"),
  name: Schema.NonEmptyString,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  created_by: Handle,
  settings: Schema.Struct({ who_can_invite: Schema.Literal("admin") }),
  member_count: Count,
  created_at: Time,
  last_message_at: Schema.NullOr(Time),
  members: Schema.Array(Schema.Struct({
    handle: Handle,
    display_name: Schema.NonEmptyString,
    avatar_url: Schema.NullOr(Schema.String),
    role: Role,
    joined_at: Time
  })),
  your_role: Role
})

export const AddResult = Schema.Struct({
  handle: Handle,
  outcome: Schema.Literals(["invited", "already_member"]),
  invite_id: Schema.optionalKey(Id("gri"))
})

export const CreatedGroup = Schema.Struct({
  group: Group,
  add_results: Schema.Array(AddResult),
  skipped: Schema.Array(Schema.Struct({ handle: Schema.String, code: Schema.NonEmptyString }))
})

export const GroupInvite = Schema.Struct({
  id: Id("gri"),
  group_id: Id("grp"),
  group_name: Schema.NonEmptyString,
  group_description: Schema.String,
  group_avatar_url: Schema.String,
  group_member_count: Count,
  inviter_handle: Handle,
  created_at: Time
})

export const GroupInvites = Schema.Array(GroupInvite)

export const PendingInvites = Schema.Struct({
  invites: Schema.Array(Schema.Struct({ id: Id("gri"), handle: Handle, inviter_handle: Handle, created_at: Time })),
  total: Count,
  limit: Seq,
  offset: Count,
  next_cursor: Schema.NullOr(Schema.NonEmptyString)
})

export const LeftGroup = Schema.Struct({ ...Confirmation.fields, promoted_handle: Schema.NullOr(Handle) })

export const DeletedGroup = Schema.Struct({ ...Confirmation.fields, deleted_at: Time })

export const GroupDeletion = Schema.Struct({ group_id: Id("grp"), deleted_by_handle: Handle, deleted_at: Time })

export const GroupConversation = Schema.Struct({
  ...Conversation.fields,
  id: Id("grp"),
  type: Schema.Literal("group"),
  participants: Schema.Tuple([]),
  group_name: Schema.NonEmptyString,
  group_avatar_url: Schema.NullOr(Schema.String),
  group_member_count: Count
})

export const GroupConversationPage = Schema.Struct({
  ...ConversationPage.fields,
  conversations: Schema.Array(GroupConversation)
})

export const GroupContext = Schema.Struct({
  conversation_id: Id("grp"),
  type: Schema.Literal("group"),
  group: Schema.Struct({
    name: Schema.NonEmptyString,
    description: Schema.NullOr(Schema.String),
    member_count: Count,
    your_role: Role
  }),
  counterparty: Schema.Null,
  relationship: Schema.Null,
  direct_state: Schema.Null,
  unread: DirectContext.fields.unread
})

export const AvatarAnswer = Schema.Struct({
  avatar_key: Schema.String.check(Schema.isNonEmpty()),
  avatar_url: Schema.String.check(Schema.isPattern(/^https?:\/\//))
})

export const FileInfo = Schema.Struct({
  filename: Schema.NonEmptyString,
  content_type: Schema.NonEmptyString,
  size: Seq
})

export const Upload = Schema.Struct({
  attachment_id: Schema.String,
  upload_url: Schema.String.check(Schema.isPattern(/^https?:\/\//)),
  expires_in: Schema.Literal(900)
})

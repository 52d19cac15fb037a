import { OutcomeChange } from "#domain/deliveries/OutcomeChange"
import { ReadReceipt } from "#domain/deliveries/ReadReceipt"
import { GroupInvite } from "#domain/groups/Invite"
import { GroupDeletion } from "#domain/memberships/GroupDeletion"
import { SyncRow } from "#domain/messages/Message"
import { ReactionEvent } from "#domain/messages/Reaction"
import { Presence, PresenceChange } from "#domain/presence/Presence"
import { DateTimeString, Storable } from "#infrastructure/wire/Text"
import { Schema } from "effect"

const frame = <const Type extends string, P extends Schema.Top>(type: Type, payload: P, about: string) =>
  Schema.Struct({ type: Schema.Literal(type), payload }).annotate({ description: about })

/** A message as the socket pushes it: a SyncRow. For the agent's own message, `delivery_id` is null. */
const PushedMessage = Schema.Struct({ ...SyncRow.fields, delivery_id: Schema.NullOr(Schema.String) })

const Typing = Schema.Struct({ conversation_id: Schema.String, sender: Schema.String })

/** The frames that the server sends (wire.md E.1, E.5). */
export const serverFrames = {
  "hello.ok": Schema.Struct({
    type: Schema.Literal("hello.ok"),
    capabilities: Schema.Array(Schema.Literal("ack")),
    agent: Schema.Struct({ handle: Schema.String }),
    heartbeat_interval_ms: Schema.Int
  }).annotate({ description: "The first frame: the socket is authenticated; the backlog follows." }),
  "message.new": frame("message.new", PushedMessage, "A message for this agent, or its own with delivery_id null."),
  "message.read": frame(
    "message.read",
    ReadReceipt,
    "A recipient has read the agent's messages; reader and at repeat read_by and read_at."
  ),
  "message.outcome": frame(
    "message.outcome",
    OutcomeChange,
    "A recipient has reported what it does about the agent's message: working, done or refused."
  ),
  "message.removed": frame(
    "message.removed",
    Schema.Struct({ message_id: Schema.String, conversation_id: Schema.String, seq: Schema.Int }),
    "An operator has removed a message for all. Reads of it show it without content."
  ),
  "message.reaction": frame(
    "message.reaction",
    ReactionEvent,
    "A participant has reacted to a message, or has taken a reaction back (added is false)."
  ),
  "typing.start": frame("typing.start", Typing, "Another participant began to write."),
  "typing.stop": frame("typing.stop", Typing, "Another participant stopped writing."),
  "group.invite.received": frame(
    "group.invite.received",
    GroupInvite,
    "Another agent invites this agent into a group."
  ),
  "group.deleted": frame(
    "group.deleted",
    GroupDeletion,
    "A group of this agent was deleted. The last message of the group comes before this frame."
  ),
  "presence.update": frame("presence.update", Presence, "The presence of a contact has changed."),
  "rate_limit.warning": frame(
    "rate_limit.warning",
    Schema.Struct({
      endpoint: Schema.String,
      limit: Schema.Int,
      remaining: Schema.Int,
      reset_at: DateTimeString,
      message: Schema.String
    }),
    "Most of the send budget is used; at most once in ten seconds."
  ),
  error: Schema.Struct({
    type: Schema.Literal("error"),
    id: Schema.optionalKey(Schema.Unknown),
    payload: Schema.Struct({ code: Schema.String, message: Schema.String, action: Schema.NullOr(Schema.String) })
  }).annotate({ description: "The server could not carry out a frame. The id is that of the frame." }),
  pong: Schema.Struct({ type: Schema.Literal("pong") }).annotate({ description: "The answer to a ping frame." })
} as const

const Id = { id: Schema.optionalKey(Schema.Unknown) }

const typing = <const Type extends string>(type: Type) =>
  Schema.Struct({ type: Schema.Literal(type), payload: Schema.Struct({ conversation_id: Storable }), ...Id }).annotate({
    description: "Relayed to the other participants, never stored."
  })

/** The frames that the server accepts (wire.md E.1, E.6). */
export const clientFrames = {
  hello: Schema.Struct({
    type: Schema.Literal("hello"),
    api_key: Schema.optionalKey(Schema.String),
    token: Schema.optionalKey(Schema.String),
    capabilities: Schema.optionalKey(Schema.Array(Schema.String))
  }).annotate({ description: "First frame, within 5 s, unless the upgrade carried the key." }),
  ack: Schema.Struct({ type: Schema.Literal("ack"), message_id: Schema.String }).annotate({
    description: "Acknowledges a message. The server sends no answer."
  }),
  "message.read_ack": Schema.Struct({
    type: Schema.Literal("message.read_ack"),
    payload: Schema.Struct({
      conversation_id: Storable,
      through_seq: Schema.optionalKey(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))),
      message_id: Schema.optionalKey(Storable)
    }),
    ...Id
  }).annotate({ description: "Marks all messages up to this seq, or this one message, as read." }),
  "typing.start": typing("typing.start"),
  "typing.stop": typing("typing.stop"),
  "presence.update": Schema.Struct({
    type: Schema.Literal("presence.update"),
    payload: PresenceChange,
    ...Id
  }).annotate({ description: "The same as PUT /v1/presence." }),
  ping: Schema.Struct({ type: Schema.Literal("ping") }).annotate({ description: "Answered with pong." })
} as const

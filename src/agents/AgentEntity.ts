import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { ColdCapExceeded } from "../conversations/Conversation.ts"
import { Unavailable } from "../platform/WireError.ts"

const RenderedSchema = Schema.Struct({ before: Schema.String, after: Schema.String })

export const PushSchema = Schema.Union([
  Schema.Struct({
    _tag: Schema.tag("Hint"),
    no: Schema.Int,
    messageId: Schema.String,
    senderId: Schema.String,
    conversationId: Schema.String,
    rendered: RenderedSchema
  }),
  Schema.Struct({
    _tag: Schema.tag("Echo"),
    after: Schema.Int,
    before: Schema.NullOr(Schema.Int),
    messageId: Schema.String,
    rendered: RenderedSchema
  }),
  Schema.Struct({
    _tag: Schema.tag("Event"),
    frame: Schema.String,
    about: Schema.optionalKey(Schema.Struct({ senderId: Schema.String, conversationId: Schema.String })),
    after: Schema.optionalKey(Schema.Int)
  })
])

/** Tells the agent's live sockets; loses nothing when it is lost, because a hint is only a hint. */
export const Tell = Rpc.make("Tell", { payload: { pushes: Schema.Array(PushSchema) } })

/** Closes all sockets of the agent; idempotent. */
export const Disconnect = Rpc.make("Disconnect", {
  payload: { code: Schema.Literals([1001, 1008, 1009, 1011, 1013]), text: Schema.String }
})

/** Takes one of the agent's cold slots for a conversation; idempotent per conversation (wire.md G.1). */
export const ReserveOutreach = Rpc.make("ReserveOutreach", {
  payload: { conversationId: Schema.String, at: Schema.Int },
  error: Schema.Union([ColdCapExceeded, Unavailable])
})

/** One of the agent's mutes was changed in storage: sockets follow it from here on; idempotent. */
export const MuteChanged = Rpc.make("MuteChanged", {
  payload: { kind: Schema.Literals(["agent", "conversation"]), targetId: Schema.String }
})

/** An agent as an actor: its sockets, its cold slots and its mutes. Landed names: never changed. */
export const AgentEntity = Entity.make("Agent", [Tell, Disconnect, ReserveOutreach, MuteChanged])

import { Schema } from "effect"

const CloseReasonSchema = Schema.Struct({ code: Schema.Literals([1001, 1008, 1009, 1011, 1013]), text: Schema.String })

/** A change of one agent that is applied on every node; nodes in reach have applied it when the caller goes on. */
export const Notice = Schema.Union([
  /** Its account has changed: caches drop it. */
  Schema.TaggedStruct("Changed", { agentId: Schema.String }),
  /** The same, and its sockets are closed. */
  Schema.TaggedStruct("Disconnect", { agentId: Schema.String, reason: CloseReasonSchema }),
  /** One of its mutes was changed in storage. */
  Schema.TaggedStruct("MuteChanged", {
    agentId: Schema.String,
    kind: Schema.Literals(["agent", "conversation"]),
    targetId: Schema.String
  }),
  /** All mutes on this agent were deleted: it has ended. */
  Schema.TaggedStruct("Unmuted", { agentId: Schema.String })
])
export type Notice = typeof Notice.Type

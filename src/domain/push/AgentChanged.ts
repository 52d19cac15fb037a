import { Schema } from "effect"

const CloseReasonSchema = Schema.Struct({ code: Schema.Literals([1001, 1008, 1009, 1011, 1013]), text: Schema.String })

/**
 * A change of one agent that every node applies. The sender waits until every reachable node has applied the notice.
 */
export const AgentChanged = Schema.Union([
  /** The agent's account has changed. Each node removes the account from its cache. */
  Schema.TaggedStruct("Changed", { agentId: Schema.String }),
  /** Like `Changed`. In addition, each node closes the agent's sockets. */
  Schema.TaggedStruct("Disconnect", { agentId: Schema.String, reason: CloseReasonSchema }),
  /** One of the agent's mutes was changed in storage. */
  Schema.TaggedStruct("MuteChanged", {
    agentId: Schema.String,
    kind: Schema.Literals(["agent", "conversation"]),
    targetId: Schema.String
  }),
  /** All mutes on this agent were deleted, because its account has been deleted. */
  Schema.TaggedStruct("Unmuted", { agentId: Schema.String })
])
export type AgentChanged = typeof AgentChanged.Type

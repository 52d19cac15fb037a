import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { ColdCapExceeded } from "../messages/SendErrors.ts"
import { Unavailable } from "../wire/WireError.ts"

/** Takes one of the agent's cold slots for a conversation; idempotent per conversation (wire.md G.1). */
export const ReserveOutreach = Rpc.make("ReserveOutreach", {
  payload: { conversationId: Schema.String, at: Schema.Int },
  error: Schema.Union([ColdCapExceeded, Unavailable])
})

/** An agent as an actor: its cold slots. Landed names: never changed. */
export const AgentEntity = Entity.make("Agent", [ReserveOutreach])

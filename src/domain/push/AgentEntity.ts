import { ColdCapExceeded } from "#domain/sending/SendErrors"
import { Unavailable } from "#infrastructure/wire/WireError"
import { Schema } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"

/** Reserves one of the agent's cold slots for a conversation. Idempotent for each conversation (wire.md G.1). */
export const ReserveOutreach = Rpc.make("ReserveOutreach", {
  payload: { conversationId: Schema.String, at: Schema.Int },
  error: Schema.Union([ColdCapExceeded, Unavailable])
})

/**
 * An agent as an actor: the owner of its cold slots, its status and its sockets. All of this is stored in rows or
 * announced to every node. So a push, a new socket and every send except a cold first message need no call to the
 * owner. Two owners at the same time, while the shard moves, do no harm.
 *
 * - Cold slots (wire.md G.1). The actor is the single writer of reservations, one at a time (`LiveAgent.reserve`). The
 *   rows are `cold_slots` and `outreach_turns`. The statement of `ColdSlots` counts exactly, even if there is a second
 *   owner.
 * - Status: active, restricted, suspended, deleted (G.8, G.12). The row in `agents` is the truth, and statements that
 *   commit something read it. A new status is written only if the previous one is still in the row (`Enforcement`). So
 *   changes by nodes and by operators' commands, which do not run on a node, have one order without a call to the
 *   owner. A node caches the row for at most a second (`Agents`). After a change on any node, every node drops its
 *   cache and, if the agent may not stay connected, closes its sockets (`LiveAgents.changed`, `disconnect`). If a node
 *   was not notified of a change, `EnforcementWatch` finds the change in the rows.
 * - Sockets. Each stays on the node that accepted it, whichever node owns the shard (`LiveAgent.sessions`). A node
 *   caches the sockets that other nodes announce (`PushRouter`). If an agent has too many sockets, an order that is the
 *   same on all nodes decides which of them are closed (`SocketPlaces`).
 *
 * Rows are read when they are needed, and sockets continue from their cursors. The actor is removed from memory within
 * a minute after its last socket on this node and its last reservation have ended. Calls are safe to retry because a
 * reservation is keyed by its conversation. The names of the entity and of its Rpc never change.
 */
export const AgentEntity = Entity.make("Agent", [ReserveOutreach])

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
 * An agent as an actor: the owner of its cold slots, its status and its sockets. All that it owns is in rows or
 * announced to every node. So a push, a new socket and every send except a cold first message need no call to the
 * owner, and two owners do no harm while the shard moves.
 *
 * - Cold slots (wire.md G.1). The actor is the single writer of reservations, one at a time (`LiveAgent.reserve`). The
 *   rows are `cold_slots` and `outreach_turns`. Their statement (`ColdSlots`) counts exactly, even if there is a second
 *   owner.
 * - Status: active, restricted, suspended, deleted (G.8, G.12). The row in `agents` is the truth, and statements that
 *   commit something read it. A new status is written only if the previous one is still in the row (`Enforcement`). So
 *   changes by nodes and by operators' commands, which run on no node, have one order without a call to the owner. A
 *   node caches the row for a second at most (`Agents`). After a change on any node, every node drops its cache and, if
 *   the agent may not stay connected, closes its sockets (`LiveAgents.changed`, `disconnect`). `EnforcementWatch` finds
 *   in the rows the changes of which a node was not notified.
 * - Sockets. Each stays on the node that accepted it, whichever node owns the shard (`LiveAgent.sessions`). A node
 *   caches what other nodes announce of their sockets (`PushRouter`). One order that is the same on all nodes decides
 *   how many sockets an agent may have (`SocketPlaces`).
 *
 * Rows are read when they are needed, and sockets continue from their cursors. The actor is removed from memory within
 * a minute after its last socket on this node and its last reservation have ended. Calls are safe to retry because a
 * reservation is keyed by its conversation. The names of the entity and of its Rpc never change.
 */
export const AgentEntity = Entity.make("Agent", [ReserveOutreach])

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

/**
 * An agent as an actor: owner of its cold slots, its status and its sockets. What it owns is in rows or
 * announced to every node, never in its memory alone. So a push, a new socket and every send except a
 * cold first message need no call to it, and two owners do no harm while its shard moves.
 *
 * - Cold slots (wire.md G.1). Single writer of reservations, one at a time (`LiveAgent.reserve`). The
 *   rows are `cold_slots` and `outreach_turns`; their statement (`ColdSlots`) counts exactly even beside
 *   a second owner.
 * - Status: active, restricted, suspended, deleted (G.8, G.12). The row in `agents` is the truth, and
 *   statements that commit something read it there. Each judgement is written only if the one before it
 *   is still in the row (`Enforcement`), so judgements by nodes and by operators' commands, which run on
 *   no node, are in one order without a call to the owner. What a node keeps of the row is a cache
 *   (`Agents`), a second old at most. After a change on any node every node drops that cache and, if the
 *   agent must go, closes its sockets (`LiveAgents.changed`, `disconnect`); `EnforcementWatch` finds in
 *   the rows the changes that a node was not notified of.
 * - Sockets. Each stays on the node where it came in, whichever node owns the shard
 *   (`LiveAgent.sessions`). What a node knows of those on other nodes is a cache of their announcements
 *   (`PushRouter`); how many an agent may have is decided by one order that is the same on all nodes
 *   (`SocketPlaces`).
 *
 * Rows are read when they are needed; sockets read on from their cursors. Removed from memory within a
 * minute after its last socket here and its last reservation are gone. Safe to retry because a
 * reservation is keyed by its conversation. The names of the entity and of its Rpc never change.
 */
export const AgentEntity = Entity.make("Agent", [ReserveOutreach])

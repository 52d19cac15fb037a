import { Context, type Effect } from "effect"
import type { Unavailable } from "../platform/WireError.ts"
import type { Agent, AgentId } from "./Agent.ts"

/**
 * Accounts, for the other rooms. What is read here may be a second old on this
 * node (the caches live that long at most and are dropped at once when this node
 * changes an account); the statements that commit something test status and
 * deletion again.
 */
export class Agents extends Context.Service<Agents, {
  /** The account whose live key hashes to this, whatever its status; undefined for any other. */
  readonly byKeyHash: (hash: Buffer) => Effect.Effect<Agent | undefined, Unavailable>
  /** By normalised handle; deleted accounts are undefined. */
  readonly byHandle: (handle: string) => Effect.Effect<Agent | undefined, Unavailable>
  /** By id, deleted ones included (their messages keep a sender); unknown ids are absent. One query at most. */
  readonly byIds: (ids: ReadonlyArray<AgentId>) => Effect.Effect<ReadonlyMap<AgentId, Agent>, Unavailable>
  /** What the cache holds right now, without asking anybody. */
  readonly peek: (id: AgentId) => Agent | undefined
  /** Forgets what the caches hold of this agent, its key included. */
  readonly forget: (id: AgentId) => void
  /** Absolute URL of an avatar. */
  readonly avatarUrl: (agent: Agent) => string | null
}>()("parley/agents/Agents") {}

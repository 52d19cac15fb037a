import { Context, type Effect } from "effect"

/** Why a socket is closed: the code and the text (wire.md E.4). */
export interface CloseReason {
  readonly code: 1001 | 1008 | 1009 | 1011 | 1013
  readonly text: string
}

/** The live sockets of agents, on all nodes. */
export class Sessions extends Context.Service<Sessions, {
  /** Closes every socket of an agent, on every node, within a second (key rotated, account deleted or suspended). */
  readonly disconnect: (agentId: string, reason: CloseReason) => Effect.Effect<void>
  /** Removes an account from the caches of all nodes. Call it after changing the account. */
  readonly changed: (agentId: string) => Effect.Effect<void>
}>()("parley/agents/Sessions") {}

import { Context, type Effect } from "effect"

/** What ends a socket, as wire.md E.4 lists it. */
export interface CloseReason {
  readonly code: 1001 | 1008 | 1009 | 1011 | 1013
  readonly text: string
}

/** The live sockets of agents, wherever they are. */
export class Sessions extends Context.Service<Sessions, {
  /** Ends every socket of an agent, on every node, within a second (key rotated, account deleted or suspended). */
  readonly disconnect: (agentId: string, reason: CloseReason) => Effect.Effect<void>
  /** After an account was changed: no node goes on showing it as it was. */
  readonly changed: (agentId: string) => Effect.Effect<void>
}>()("parley/agents/Sessions") {}

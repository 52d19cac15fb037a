import { Context, type Effect } from "effect"
import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"

/** What ends a socket, as wire.md E.4 lists it. */
export interface CloseReason {
  readonly code: 1001 | 1008 | 1009 | 1011 | 1013
  readonly text: string
}

/** `/v1/ws`: takes upgrades from the HTTP server and speaks with the sockets of this node. */
export class Gateway extends Context.Service<Gateway, {
  /**
   * Takes over an upgrade request of this path, whatever becomes of it: a socket, or
   * a refusal with the wire's error body. Never throws.
   */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer, requestId: string) => void
  /** From now on a socket that opens is closed with 1013; those that are there stay. */
  readonly turnAway: () => void
  /** Closes every socket with 1001, and new ones with 1013; completes when all are gone. */
  readonly drain: Effect.Effect<void>
  /** Sockets held now. */
  readonly size: () => number
}>()("parley/realtime/Gateway") {}

/** The live sockets of agents, wherever they are. */
export class Sessions extends Context.Service<Sessions, {
  /** Ends every socket of an agent, on every node, within a second (key rotated, account deleted or suspended). */
  readonly disconnect: (agentId: string, reason: CloseReason) => Effect.Effect<void>
  /** After an account was changed: no node goes on showing it as it was. */
  readonly changed: (agentId: string) => Effect.Effect<void>
}>()("parley/realtime/Sessions") {}

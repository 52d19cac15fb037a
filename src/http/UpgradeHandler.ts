import { Context, type Effect } from "effect"
import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"

/**
 * Handles the HTTP server's upgrade requests (`/v1/ws`) and holds the WebSockets of this node; the room `realtime`
 * implements it.
 */
export class UpgradeHandler extends Context.Service<UpgradeHandler, {
  /**
   * Takes over the connection of an upgrade request: it becomes a WebSocket, or is refused with the wire's
   * error body. Never throws.
   */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer, requestId: string) => void
  /** From now on new sockets are closed with 1013; existing ones stay open. */
  readonly turnAway: () => void
  /** Closes every socket with 1001, and new ones with 1013; completes when all are gone. */
  readonly drain: Effect.Effect<void>
  /** Ends `turnAway` and what `drain` began: new sockets are taken again. */
  readonly welcomeAgain: () => void
  /** The number of open sockets. */
  readonly size: () => number
}>()("parley/http/UpgradeHandler") {}

import { Context, type Effect } from "effect"
import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"

/**
 * Handles the upgrade requests of the HTTP server and keeps the WebSockets of this node. The module `realtime`
 * implements this service.
 */
export class UpgradeHandler extends Context.Service<UpgradeHandler, {
  /** The path of the WebSocket, in lower case. */
  readonly path: string
  /**
   * Takes over the connection of an upgrade request. The connection becomes a WebSocket, or the request is refused with
   * the wire's error body. Never throws.
   */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer, requestId: string) => void
  /** Makes the handler close new sockets with 1013. Existing sockets stay open. */
  readonly turnAway: () => void
  /** Closes every socket with 1001, and new sockets with 1013. Completes when all sockets are closed. */
  readonly drain: Effect.Effect<void>
  /** Undoes `turnAway` and `drain`, so that new sockets are accepted again. */
  readonly welcomeAgain: () => void
  /** The number of open sockets. */
  readonly size: () => number
}>()("parley/http/UpgradeHandler") {}

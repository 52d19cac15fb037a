import { Context, type Effect } from "effect"
import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"

/** What takes over the HTTP server's upgrade requests (`/v1/ws`) and holds the sockets of this node; the room `realtime` is one. */
export class UpgradeHandler extends Context.Service<UpgradeHandler, {
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
}>()("parley/http/UpgradeHandler") {}

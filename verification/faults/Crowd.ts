import { connect, type Socket } from "node:net"
import type { Address } from "../../test/support/Link.ts"

export interface CrowdOptions {
  readonly to: Address
  /** Addresses of this machine from which the connections come, in turn. */
  readonly from: ReadonlyArray<string>
  readonly size: number
  /** The request of a connection, whose answer is never read. Without it, a connection sends nothing. */
  readonly ask?: (n: number) => string
  /**
   * Milliseconds after which a connection with a request is replaced. It reads nothing, so it would not notice that it
   * was closed.
   */
  readonly staysMs?: number
}

/** Connections of clients that do not read, or do not even send a request. Connections that have ended are replaced. */
export class Crowd {
  /** How many connections were opened in all. */
  opened = 0
  /** The most connections that were open at the same time. */
  most = 0
  readonly #options: CrowdOptions
  readonly #sockets = new Set<Socket>()
  #open = 0

  constructor(options: CrowdOptions) {
    this.#options = options
  }

  /** Opens missing connections, up to `most`. */
  topUp(most: number): void {
    const missing = this.#options.size - this.#sockets.size
    for (let i = 0; i < Math.min(missing, most); i++) this.#connect()
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  #connect(): void {
    const { ask, from, staysMs, to } = this.#options
    const n = this.opened++
    const socket = connect({ ...to, localAddress: from[n % from.length]! })
    this.#sockets.add(socket)
    const end = staysMs === undefined ? undefined : setTimeout(() => socket.destroy(), staysMs)
    socket.on("error", () => {})
    socket.on("connect", () => {
      this.most = Math.max(this.most, ++this.#open)
      socket.once("close", () => this.#open--)
      if (ask !== undefined) socket.write(ask(n))
    })
    socket.once("close", () => {
      clearTimeout(end)
      this.#sockets.delete(socket)
    })
    // A connection with a request is paused before it connects, so that it never reads anything.
    if (ask === undefined) socket.resume()
    else socket.pause()
  }
}

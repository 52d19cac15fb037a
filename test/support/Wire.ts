import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"

/** A TCP proxy to a server that can be cut, or hang with its connections open, and be mended. */
export class Wire {
  private readonly server: Server
  private readonly open = new Set<Socket>()
  private whole = true
  private hanging = false

  private constructor(host: string, port: number) {
    this.server = createServer((near) => {
      if (!this.whole) return void near.destroy()
      if (this.hanging) return void this.keep(near)
      const far = connect(port, host)
      for (const [one, other] of [[near, far], [far, near]] as const) {
        this.open.add(one)
        one.on("error", () => undefined)
        one.on("close", () => {
          this.open.delete(one)
          other.destroy()
        })
        one.pipe(other)
      }
    })
  }

  static async to(host: string, port: number): Promise<Wire> {
    const wire = new Wire(host, port)
    wire.server.listen(0, "127.0.0.1")
    await once(wire.server, "listening")
    return wire
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port
  }

  /** Ends all connections, and closes new ones at once. */
  cut(): void {
    this.whole = false
    for (const socket of this.open) socket.destroy()
  }

  /** Accepts new connections and keeps the open ones, but passes no bytes. */
  hang(): void {
    this.hanging = true
    for (const socket of this.open) socket.unpipe()
  }

  /**
   * Works again for new connections. After a hang, call `cut` first, because connections from before would never carry
   * bytes again.
   */
  mend(): void {
    this.whole = true
    this.hanging = false
  }

  private keep(socket: Socket): void {
    this.open.add(socket)
    socket.on("error", () => undefined)
    socket.on("close", () => this.open.delete(socket))
  }

  stop(): void {
    this.cut()
    this.server.close()
  }
}

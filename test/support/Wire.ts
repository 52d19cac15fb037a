import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"

/** A way to a server that can be cut, or kept from carrying anything, and mended. */
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

  /** Ends every connection, and takes no new one. */
  cut(): void {
    this.whole = false
    for (const socket of this.open) socket.destroy()
  }

  /** Takes connections, keeps those that are there, and carries nothing. */
  hang(): void {
    this.hanging = true
    for (const socket of this.open) socket.unpipe()
  }

  /** After a hang, cut it first: nothing that was on its way then is carried. */
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

import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"

/** A way to a server that can be cut and mended. */
export class Wire {
  private readonly server: Server
  private readonly open = new Set<Socket>()
  private whole = true

  private constructor(host: string, port: number) {
    this.server = createServer((near) => {
      if (!this.whole) return void near.destroy()
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

  mend(): void {
    this.whole = true
  }

  stop(): void {
    this.cut()
    this.server.close()
  }
}

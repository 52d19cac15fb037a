import { once } from "node:events"
import { createServer, request, type Server } from "node:http"
import { type AddressInfo, connect } from "node:net"

const LOOK_MS = 200

/**
 * What stands before nodes: requests and sockets go in turn to those whose /v1/ready
 * says yes, and a connection that is refused goes to the next.
 */
export class Balancer {
  private readonly server: Server
  private ready: ReadonlyArray<URL> = []
  private turn = 0
  /** Asks the nodes now which of them are ready. */
  readonly look: () => Promise<void>
  private readonly timer: NodeJS.Timeout

  private constructor(urls: () => ReadonlyArray<string>) {
    this.look = async () => {
      const asked = urls().map(async (url) => {
        const yes = await fetch(`${url}/v1/ready`, { signal: AbortSignal.timeout(1_000) }).then((r) => r.ok, () => false)
        return yes ? [new URL(url)] : []
      })
      this.ready = (await Promise.all(asked)).flat()
    }
    this.timer = setInterval(() => void this.look(), LOOK_MS)
    this.server = createServer((incoming, answer) => {
      const body: Array<Buffer> = []
      incoming.on("data", (chunk: Buffer) => body.push(chunk)).on("end", () => {
        const attempt = (tries: number): void => {
          const to = this.ready[this.turn++ % Math.max(1, this.ready.length)]
          if (to === undefined) return void answer.writeHead(502).end()
          const onward = request({
            host: to.hostname,
            port: to.port,
            method: incoming.method,
            path: incoming.url,
            headers: incoming.headers
          }, (got) => {
            answer.writeHead(got.statusCode ?? 502, got.headers)
            got.pipe(answer)
          })
          onward.on("error", (error: NodeJS.ErrnoException) => {
            if (error.code === "ECONNREFUSED" && tries > 0) return attempt(tries - 1)
            if (!answer.headersSent) answer.writeHead(502)
            answer.end()
          })
          onward.end(Buffer.concat(body))
        }
        attempt(3)
      })
    })
    this.server.on("upgrade", (incoming, socket, head) => {
      const to = this.ready[this.turn++ % Math.max(1, this.ready.length)]
      if (to === undefined) return socket.destroy()
      const onward = connect(Number(to.port), to.hostname, () => {
        const lines = [`GET ${incoming.url} HTTP/1.1`]
        for (let i = 0; i < incoming.rawHeaders.length; i += 2) lines.push(`${incoming.rawHeaders[i]}: ${incoming.rawHeaders[i + 1]}`)
        onward.write(`${lines.join("\r\n")}\r\n\r\n`)
        onward.write(head)
        onward.pipe(socket).pipe(onward)
      })
      onward.on("error", () => socket.destroy())
      socket.on("error", () => onward.destroy())
    })
  }

  static async start(urls: () => ReadonlyArray<string>): Promise<Balancer> {
    const balancer = new Balancer(urls)
    balancer.server.listen(0, "127.0.0.1")
    await Promise.all([once(balancer.server, "listening"), balancer.look()])
    return balancer
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`
  }

  stop(): void {
    clearInterval(this.timer)
    this.server.close()
    this.server.closeAllConnections()
  }
}

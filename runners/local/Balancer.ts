import { once } from "node:events"
import { createServer, request, type Server } from "node:http"
import { type AddressInfo, connect } from "node:net"
import { pipeline } from "node:stream"

const LOOK_MS = 200
/** How many times a refused connection is retried at the next node. */
const TRIES = 3

const refused = (error: NodeJS.ErrnoException): boolean => error.code === "ECONNREFUSED"

/**
 * A small load balancer: requests and sockets go round robin to the nodes whose /v1/ready answers 200, and a refused
 * connection is retried at the next node.
 */
export class Balancer {
  private readonly server: Server
  private ready: ReadonlyArray<URL> = []
  private turn = 0
  /** Checks now which nodes are ready. */
  readonly look: () => Promise<void>
  private readonly timer: NodeJS.Timeout

  private constructor(urls: () => ReadonlyArray<string>) {
    this.look = async () => {
      let silent = 0
      const asked = urls().map(async (url) => {
        const yes = await fetch(`${url}/v1/ready`, { signal: AbortSignal.timeout(1_000) }).then(
          (r) => r.ok,
          (error: unknown) => {
            if (error instanceof Error && error.name === "TimeoutError") silent++
            return false
          }
        )
        return yes ? [new URL(url)] : []
      })
      const ready = (await Promise.all(asked)).flat()
      // If no node is ready and some timed out, the machine may only be busy, so the list stays as it was.
      if (ready.length > 0 || silent === 0) this.ready = ready
    }
    this.timer = setInterval(() => void this.look(), LOOK_MS)
    this.server = createServer((incoming, answer) => {
      const body: Array<Buffer> = []
      incoming.on("data", (chunk: Buffer) => body.push(chunk)).on("end", () => {
        const attempt = (tries: number): void => {
          const to = this.next()
          if (to === undefined) return void answer.writeHead(502).end()
          const onward = request({
            host: to.hostname,
            port: to.port,
            method: incoming.method,
            path: incoming.url,
            headers: incoming.headers
          }, (got) => {
            // If the client has disconnected, a pipe to it would throw.
            if (answer.destroyed) return void got.destroy()
            // They are about the node's connection, which stays open for longer than the client's.
            const { connection: _, "keep-alive": __, ...headers } = got.headers
            answer.writeHead(got.statusCode ?? 502, headers)
            // If either side closes its connection, `pipeline` closes the other.
            pipeline(got, answer, () => undefined)
          })
          onward.on("error", (error: NodeJS.ErrnoException) => {
            if (refused(error) && tries > 0) return attempt(tries - 1)
            if (!answer.headersSent) answer.writeHead(502)
            answer.end()
          })
          onward.end(Buffer.concat(body))
        }
        attempt(TRIES)
      })
    })
    this.server.on("upgrade", (incoming, socket, head) => {
      const attempt = (tries: number): void => {
        const to = this.next()
        if (to === undefined) return void socket.destroy()
        const onward = connect(Number(to.port), to.hostname, () => {
          if (socket.destroyed) return void onward.destroy()
          const lines = [`GET ${incoming.url} HTTP/1.1`]
          for (let i = 0; i < incoming.rawHeaders.length; i += 2)
            lines.push(`${incoming.rawHeaders[i]}: ${incoming.rawHeaders[i + 1]}`)
          onward.write(`${lines.join("\r\n")}\r\n\r\n`)
          onward.write(head)
          pipeline(onward, socket, onward, () => undefined)
        })
        onward.on("error", (error: NodeJS.ErrnoException) => {
          if (refused(error) && tries > 0) attempt(tries - 1)
          else socket.destroy()
        })
        socket.on("close", () => onward.destroy())
      }
      socket.on("error", () => socket.destroy())
      attempt(TRIES)
    })
  }

  private next(): URL | undefined {
    return this.ready[this.turn++ % Math.max(1, this.ready.length)]
  }

  /** Listens on 127.0.0.1; port 0 takes a free one. */
  static async start(urls: () => ReadonlyArray<string>, port = 0): Promise<Balancer> {
    const balancer = new Balancer(urls)
    try {
      balancer.server.listen(port, "127.0.0.1")
      await Promise.all([once(balancer.server, "listening"), balancer.look()])
    } catch (error) {
      clearInterval(balancer.timer)
      throw error
    }
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

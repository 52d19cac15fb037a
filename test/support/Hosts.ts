import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { measured } from "./Promptly.ts"

/**
 * HTTP servers, each a host of its own. A post to a path that begins with `/dead` gets its answer when `revive` is
 * called.
 */
export class Hosts {
  /** The message or task of each post that was answered, by path, with the time of its arrival in the long form. */
  readonly arrived = new Map<string, number>()
  answered = 0
  /** The targets, by host and path, that are dead until `revive` and whose posts were answered since. */
  readonly answeredTargets = new Set<string>()
  private readonly servers: ReadonlyArray<HttpServer>
  private readonly held = new Map<IncomingMessage, ServerResponse>()

  private constructor(servers: ReadonlyArray<HttpServer>) {
    this.servers = servers
  }

  static async start(n: number): Promise<Hosts> {
    const servers = Array.from({ length: n }, () => createServer())
    const hosts = new Hosts(servers)
    for (const server of servers) server.on("request", hosts.take.bind(hosts))
    await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))))
    return hosts
  }

  url(i: number, path: string): string {
    return `http://127.0.0.1:${(this.servers[i]!.address() as AddressInfo).port}${path}`
  }

  get holding(): number {
    return this.held.size
  }

  /** Answers the posts that wait, and every later one at once. */
  revive(): void {
    this.alive = true
    const held = [...this.held]
    this.held.clear()
    for (const [request, response] of held) this.answer(request, response)
  }

  /** Leaves later posts without an answer. */
  kill(): void {
    this.alive = false
    this.answered = 0
    this.answeredTargets.clear()
  }

  stop(): void {
    for (const server of this.servers) {
      server.closeAllConnections()
      server.close()
    }
  }

  private alive = false

  private take(request: IncomingMessage, response: ServerResponse): void {
    let text = ""
    request.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
      const id = (JSON.parse(text) as { readonly data?: { readonly id?: string } }).data?.id
      if (id !== undefined) this.arrived.set(`${request.url} ${id}`, measured())
      if (!this.alive && request.url?.startsWith("/dead") === true) {
        this.held.set(request, response)
        response.on("close", () => this.held.delete(request))
      } else this.answer(request, response)
    })
  }

  private answer(request: IncomingMessage, response: ServerResponse): void {
    if (request.url?.startsWith("/dead") === true) {
      this.answered++
      this.answeredTargets.add(`${request.headers.host}${request.url}`)
    }
    response.writeHead(200).end()
  }
}

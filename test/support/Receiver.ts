import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { eventually } from "./Eventually.ts"

/** A post that a webhook's URL received. */
export interface Post {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly body: {
    readonly event: string
    readonly timestamp: string
    readonly data: Readonly<Record<string, unknown>>
  }
}

/** An HTTP server that receives the posts of webhooks: keeps all of them, and answers 200 unless told otherwise. */
export class Receiver {
  readonly posts: Array<Post> = []
  /** The status of the answers to posts, by path. */
  readonly answers = new Map<string, number>()
  /** The status of the answers to posts to all other paths. */
  status = 200
  private readonly server: Server

  private constructor() {
    this.server = createServer((request, response) => {
      let text = ""
      request.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
        const path = request.url ?? ""
        this.posts.push({ path, headers: request.headers, text, body: JSON.parse(text) as Post["body"] })
        response.writeHead(this.answers.get(path) ?? this.status).end()
      })
    })
  }

  static async start(): Promise<Receiver> {
    const receiver = new Receiver()
    await new Promise<void>((resolve) => receiver.server.listen(0, "127.0.0.1", resolve))
    return receiver
  }

  /** The URL of a path of this server; the path begins with `/`. */
  url(path: string): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}${path}`
  }

  /** The `data` of the first post of this event to this path that `wants` accepts, past or to come. */
  data(
    path: string,
    event: string,
    wants: (data: Post["body"]["data"]) => boolean = () => true
  ): Promise<Post["body"]["data"]> {
    return eventually(
      `a post of ${event} at ${path}`,
      () =>
        this.posts.find((post) => post.path === path && post.body.event === event && wants(post.body.data))?.body.data
    )
  }

  stop(): void {
    this.server.closeAllConnections()
    this.server.close()
  }
}

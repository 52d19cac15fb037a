import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { eventually } from "./Eventually.ts"

/** A post as it came to a webhook's URL. */
export interface Post {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: { readonly event: string; readonly timestamp: string; readonly data: Readonly<Record<string, unknown>> }
}

/** An HTTP server for webhooks of tests: keeps every post, answers 200. */
export class Receiver {
  readonly posts: Array<Post> = []
  private readonly server: Server

  private constructor() {
    this.server = createServer((request, response) => {
      let text = ""
      request.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
        this.posts.push({ path: request.url ?? "", headers: request.headers, body: JSON.parse(text) as Post["body"] })
        response.writeHead(200).end()
      })
    })
  }

  static async start(): Promise<Receiver> {
    const receiver = new Receiver()
    await new Promise<void>((resolve) => receiver.server.listen(0, "127.0.0.1", resolve))
    return receiver
  }

  /** The URL of a path here, which is `/` and a name. */
  url(path: string): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}${path}`
  }

  /** The first post to a path of this event that this accepts, past or to come: its `data`. */
  data(
    path: string,
    event: string,
    wants: (data: Post["body"]["data"]) => boolean = () => true
  ): Promise<Post["body"]["data"]> {
    return eventually(`a post of ${event} at ${path}`, () =>
      this.posts.find((post) => post.path === path && post.body.event === event && wants(post.body.data))?.body.data)
  }

  stop(): void {
    this.server.closeAllConnections()
    this.server.close()
  }
}

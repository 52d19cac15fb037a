import { createHmac, randomBytes } from "node:crypto"
import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { eventually } from "../support/Eventually.ts"
import type { Json } from "./Mcp.ts"

export const secretOf = (bytes = randomBytes(32)): string => `whsec_${bytes.toString("base64")}`

/** A post to the receiver. */
export interface EventPost {
  readonly headers: IncomingHttpHeaders
  readonly text: string
  readonly body: Json
}

/** Whether a post is signed with a secret, by the specification of Standard Webhooks. */
export const isSigned = ({ headers, text }: EventPost, secret: string): boolean => {
  const key = Buffer.from(secret.slice("whsec_".length), "base64")
  const signed = `${String(headers["webhook-id"])}.${String(headers["webhook-timestamp"])}.${text}`
  const signature = `v1,${createHmac("sha256", key).update(signed).digest("base64")}`
  return String(headers["webhook-signature"]).split(" ").includes(signature)
}

/** A receiver of events: repeats challenges, keeps all other posts, and answers them with a status of the test. */
export class EventReceiver {
  readonly challenges: Array<EventPost> = []
  readonly posts: Array<EventPost> = []
  /** The posts that were answered with 200. */
  readonly taken: Array<EventPost> = []
  status = 200
  /** What it answers to a challenge; undefined for the challenge itself. */
  echo: string | undefined
  /** It answers a challenge after this; undefined for at once. */
  held: Promise<unknown> | undefined
  private readonly server: Server

  private constructor() {
    this.server = createServer((request, response) => {
      let text = ""
      request.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
        const post: EventPost = { headers: request.headers, text, body: JSON.parse(text) }
        if (post.body.type === "verification") {
          this.challenges.push(post)
          const answer = () =>
            void response.writeHead(200).end(this.echo ?? JSON.stringify({ challenge: post.body.challenge }))
          if (this.held === undefined) answer()
          else void this.held.then(answer)
          return
        }
        this.posts.push(post)
        if (this.status === 200) this.taken.push(post)
        response.writeHead(this.status).end()
      })
    })
  }

  static async start(): Promise<EventReceiver> {
    const receiver = new EventReceiver()
    await new Promise<void>((resolve) => receiver.server.listen(0, "127.0.0.1", resolve))
    // A receiver that nobody stops does not keep the process running.
    receiver.server.unref()
    return receiver
  }

  url(path = "/hook"): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}${path}`
  }

  /** The ids of the messages of the posts that it has taken, without repeats, once there are so many. */
  async messages(count: number): Promise<ReadonlyArray<string>> {
    return eventually(`${count} events`, () => {
      const ids = [...new Set(this.taken.map(({ body }) => String(body.data.message_id)))]
      return ids.length >= count ? ids : undefined
    })
  }

  clear(): void {
    for (const list of [this.challenges, this.posts, this.taken]) list.length = 0
  }

  stop(): void {
    this.server.closeAllConnections()
    this.server.close()
  }
}

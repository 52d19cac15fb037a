import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { type WebSocket, WebSocketServer } from "ws"
import type { Channel, LoadAgent } from "./Load.ts"

/**
 * The least work that a server in this language could do for messages. A bare `node:http` and a bare `ws` parse a send,
 * answer it, write it to the sockets of both sides and parse the acknowledgement. The server checks and stores nothing,
 * and numbers only what the load reads. It runs in a process of its own. The parent process tells it who writes to
 * whom, and it reports where it listens.
 */

export interface FloorCall {
  readonly agents: ReadonlyArray<LoadAgent>
  readonly channels: ReadonlyArray<Channel>
  readonly echo: boolean
}

interface Way {
  readonly conversationId: string
  readonly sender: LoadAgent
  readonly recipient: LoadAgent
  seq: number
}

const ways = new Map<string, Way>()
const sockets = new Map<string, WebSocket>()
let echo = true
let made = 0
let acknowledged = 0

const answer = (text: string, way: Way, response: ServerResponse): void => {
  const send = JSON.parse(text) as { readonly client_msg_id: string; readonly type: string; readonly content: unknown }
  const id = `msg_${String(made++).padStart(16, "0")}`
  const message = JSON.stringify({
    id,
    conversation_id: way.conversationId,
    sender: way.sender.handle,
    client_msg_id: send.client_msg_id,
    seq: ++way.seq,
    type: send.type,
    content: send.content,
    metadata: {},
    status: "stored",
    created_at: new Date().toISOString(),
    delivered_at: null,
    read_at: null,
    delivery_id: null,
    context: {
      sender: { handle: way.sender.handle, display_name: way.sender.handle, kind: "agent" },
      conversation: { type: "direct", group_name: null, member_count: null },
      mentions: []
    }
  })
  const body = Buffer.from(message)
  response.writeHead(201, { "content-type": "application/json", "content-length": body.length, "x-request-id": id })
  response.end(body)
  const frame = `{"type":"message.new","payload":${message}}`
  sockets.get(way.recipient.key)?.send(frame)
  if (echo) sockets.get(way.sender.key)?.send(frame)
}

const server = createServer((request: IncomingMessage, response: ServerResponse) => {
  const way = ways.get((request.headers.authorization ?? "").slice("Bearer ".length))
  if (way === undefined) return void response.writeHead(401).end()
  const parts: Array<Buffer> = []
  request.on("data", (part: Buffer) => parts.push(part))
  request.on("end", () => answer((parts.length === 1 ? parts[0]! : Buffer.concat(parts)).toString(), way, response))
})

const upgrades = new WebSocketServer({ noServer: true, perMessageDeflate: false })
server.on(
  "upgrade",
  (request, socket, head) =>
    upgrades.handleUpgrade(request, socket, head, (opened) =>
      opened.on("message", (data) => {
        const frame = JSON.parse(String(data)) as { readonly type: string; readonly api_key: string }
        if (frame.type === "ack") return void acknowledged++
        sockets.set(frame.api_key, opened)
        opened.send(`{"type":"hello.ok","capabilities":["ack"]}`)
      }))
)

process.once("message", ({ agents, channels, echo: echoes }: FloorCall) => {
  echo = echoes
  for (const { conversationId, lastSeq, recipients, senders } of channels) {
    const sender = agents[senders[0]!]!
    ways.set(sender.key, { conversationId, sender, recipient: agents[recipients[0]!]!, seq: lastSeq })
  }
  server.listen(0, "127.0.0.1", () => process.send?.(server.address()))
})
process.on("disconnect", () => process.exit(1))

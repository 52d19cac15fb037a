import { type RawData, WebSocket } from "ws"
import { fingerprint, type History, NEVER } from "./History.ts"

/** The fields of a `message.new` frame and of a row of sync that are used here. */
export interface Row {
  readonly id: string
  readonly conversation_id: string
  readonly sender: string
  readonly client_msg_id: string
  readonly seq: number
  readonly delivery_id: string | null
  readonly context?: { readonly conversation?: { readonly type?: string } }
}

/** The conversation of a row in the history. Notes the conversation's id if it was not known. */
const conversationOf = (history: History, agent: number, row: Row): number => {
  const known = history.conversation(row.conversation_id)
  if (known >= 0) return known
  if (row.context?.conversation?.type === "group") return history.addGroup(row.conversation_id)
  const sender = history.agent(row.sender)
  // The first row of a direct conversation is never the echo of an own message, because the answer to that send came
  // before it.
  const send = history.sendOf(row.client_msg_id)
  const conversation = send >= 0 ? history.sends.conversation.get(send) : history.direct(agent, sender)
  history.name(conversation, row.conversation_id)
  return conversation
}

/** Notes that a stream showed a row. Returns the number of the sighting. */
export const sight = (history: History, stream: number, row: Row): number => {
  const { agent } = history.streams[stream]!
  return history.sightings.push(
    stream,
    conversationOf(history, agent, row),
    row.seq,
    history.sendOf(row.client_msg_id),
    fingerprint(row.id),
    // 0 stands for no delivery, so a fingerprint of 0 becomes 1.
    row.delivery_id === null ? 0 : fingerprint(row.delivery_id) || 1,
    history.now()
  )
}

/** The longest silence on a socket. The server pings every 30 s. */
const SILENCE_MS = 45_000
/** The time for which acknowledgements are collected before they are sent together. */
const GATHER_MS = 10
/**
 * The interval of pings that check whether acknowledgements have arrived. The server answers a ping after all earlier
 * frames.
 */
const ASK_MS = 250

export interface LineOptions {
  readonly history: History
  readonly agent: number
  readonly generation: number
  readonly url: string
  readonly key: string
  /** Whether to acknowledge a row. */
  readonly acknowledges: (row: Row) => boolean
  readonly onLive: () => void
  readonly onRow: (row: Row) => void
  /** Called once when the socket has ended, whatever the reason. */
  readonly onEnd: (code: number) => void
}

/** One socket of one agent, recorded (wire.md E): HELLO, acknowledgements in the order of the frames, its end. */
export class Line {
  private readonly options: LineOptions
  private readonly socket: WebSocket
  private stream = -1
  private due: Array<{ readonly id: string; readonly sighting: number }> = []
  /** Sightings whose acknowledgements were sent before the ping that has no answer yet. */
  private asked: Array<number> = []
  /** Sightings whose acknowledgements were sent after that ping. */
  private sent: Array<number> = []
  private asking = false
  private lastHeard = performance.now()
  private readonly watch: NodeJS.Timeout

  constructor(options: LineOptions) {
    this.options = options
    this.socket = new WebSocket(`${options.url.replace(/^http/, "ws")}/v1/ws`, {
      perMessageDeflate: false,
      handshakeTimeout: 5_000
    })
    this.socket.on("open", () => this.hello())
    this.socket.on("message", (data) => this.frame(data))
    this.socket.on("ping", () => this.lastHeard = performance.now())
    this.socket.on("pong", () => this.arrived())
    this.socket.on("error", () => {})
    this.socket.on("close", (code) => this.ended(code))
    this.watch = setInterval(() => {
      if (performance.now() - this.lastHeard > SILENCE_MS) this.socket.terminate()
    }, 5_000)
  }

  get isLive(): boolean {
    return this.stream >= 0 && this.socket.readyState === WebSocket.OPEN &&
      this.options.history.streams[this.stream]!.live !== NEVER
  }

  /** Closes the socket as a client does, or breaks its connection if `abruptly` is true. */
  close(abruptly: boolean): void {
    if (abruptly) this.socket.terminate()
    else this.socket.close()
  }

  private hello(): void {
    const { agent, generation, history, key } = this.options
    this.stream = history.openStream({ kind: "socket", agent, generation })
    this.socket.send(JSON.stringify({ type: "hello", api_key: key, capabilities: ["ack"], client: "load" }))
  }

  private frame(data: RawData): void {
    const { acknowledges, history, onLive, onRow } = this.options
    const now = performance.now()
    this.lastHeard = now
    const frame = JSON.parse(String(data)) as { readonly type: string; readonly payload?: unknown }
    if (frame.type === "hello.ok") {
      history.streams[this.stream]!.live = history.now()
      onLive()
      return
    }
    if (frame.type === "error") history.oddities.push(`an error frame: ${String(data)}`)
    if (frame.type !== "message.new") return
    // The contract tests are about shapes; here they are taken as given.
    const row = frame.payload as Row
    const sighting = sight(history, this.stream, row)
    if (row.delivery_id !== null && acknowledges(row)) {
      if (this.due.length === 0) setTimeout(() => this.acknowledge(), GATHER_MS)
      this.due.push({ id: row.id, sighting })
    }
    onRow(row)
  }

  private acknowledge(): void {
    const { due } = this
    this.due = []
    if (this.socket.readyState !== WebSocket.OPEN) return
    const { history } = this.options
    const now = history.now()
    for (const { id, sighting } of due) {
      history.sightings.acked.set(sighting, now)
      this.socket.send(`{"type":"ack","message_id":"${id}"}`)
      this.sent.push(sighting)
    }
    this.ask()
  }

  private ask(): void {
    if (this.asking || this.sent.length === 0 || this.socket.readyState !== WebSocket.OPEN) return
    this.asking = true
    this.asked = this.sent
    this.sent = []
    this.socket.ping()
  }

  private arrived(): void {
    const { history } = this.options
    const now = history.now()
    for (const sighting of this.asked) history.sightings.taken.set(sighting, now)
    this.asked = []
    setTimeout(() => {
      this.asking = false
      this.ask()
    }, ASK_MS)
  }

  private ended(code: number): void {
    clearInterval(this.watch)
    const { history, onEnd } = this.options
    const stream = history.streams[this.stream]
    if (stream !== undefined) {
      stream.closed = history.now()
      stream.code = code
    }
    onEnd(code)
  }
}

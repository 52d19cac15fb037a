import { assert } from "@effect/vitest"
import type { Schema } from "effect"
import { WebSocket } from "ws"
import { elapse, eventually, LONGEST_WAIT_MS, within } from "./Eventually.ts"
import { Answer, matching } from "./Http.ts"
import { NODES, type Server } from "./Server.ts"

/** A frame as received; the test checks its content. */
export interface Frame {
  readonly type: string
  readonly payload?: Readonly<Record<string, unknown>>
  readonly [key: string]: unknown
}

export interface Closed {
  readonly code: number
  readonly reason: string
}

interface Waiter {
  readonly wants: (frame: Frame) => boolean
  readonly take: (frame: Frame) => void
  readonly fail: (error: Error) => void
}

/** A plain WebSocket at `/v1/ws` that keeps all received frames in order. */
export class Socket {
  readonly frames: Array<Frame> = []
  readonly closed: Promise<Closed>
  private readonly ws: WebSocket
  private readonly waiters = new Set<Waiter>()

  private constructor(ws: WebSocket) {
    this.ws = ws
    ws.on("message", (data, isBinary) => {
      if (isBinary) throw new Error("the server sent a binary frame")
      const frame = JSON.parse(String(data)) as Frame
      this.frames.push(frame)
      for (const waiter of this.waiters) {
        if (waiter.wants(frame)) waiter.take(frame)
      }
    })
    ws.on("error", () => undefined)
    this.closed = new Promise((resolve) => {
      ws.on("close", (code, reason) => {
        const closed = { code, reason: String(reason) }
        for (const waiter of this.waiters) waiter.fail(new Error(`closed ${code} ${closed.reason}`))
        resolve(closed)
      })
    })
  }

  /** Connects without a HELLO. */
  static async open(
    server: Server,
    headers: Readonly<Record<string, string>> = {},
    options: { readonly autoPong?: boolean } = {}
  ): Promise<Socket> {
    const ws = new WebSocket(`${server.wsUrl}/v1/ws`, { headers, perMessageDeflate: false, ...options })
    const socket = new Socket(ws)
    await within("the upgrade", new Promise((resolve, reject) => ws.once("open", resolve).once("error", reject)))
    return socket
  }

  /** Connects and authenticates by HELLO; resolves after `hello.ok`. */
  static async hello(
    server: Server,
    key: string,
    capabilities: ReadonlyArray<string> | undefined = ["ack"]
  ): Promise<Socket> {
    const socket = await Socket.open(server)
    socket.send({ type: "hello", api_key: key, capabilities })
    await socket.waitFor("hello.ok")
    return socket
  }

  /** Connects with the key in a header, without a HELLO; resolves after `hello.ok`. */
  static async byHeader(server: Server, key: string): Promise<Socket> {
    const socket = await Socket.open(server, { authorization: `Bearer ${key}` })
    await socket.waitFor("hello.ok")
    return socket
  }

  /** The HTTP answer to an upgrade that is refused. */
  static refusal(server: Server, headers: Readonly<Record<string, string>>, path = "/v1/ws"): Promise<Answer> {
    const ws = new WebSocket(server.wsUrl + path, { headers })
    ws.on("error", () => undefined)
    return within(
      "a refused upgrade",
      new Promise((resolve, reject) => {
        ws.on("open", () => {
          ws.terminate()
          reject(new Error("the upgrade was accepted"))
        })
        ws.on("unexpected-response", (_request, response) => {
          let text = ""
          response.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
            const headers = new Headers()
            for (const [name, values] of Object.entries(response.headersDistinct)) {
              for (const value of values ?? []) headers.append(name, value)
            }
            try {
              resolve(new Answer(`upgrade ${path}`, response.statusCode ?? 0, headers, text))
            } catch (error) {
              reject(error instanceof Error ? error : new Error(String(error)))
            }
          })
        })
      })
    )
  }

  send(frame: unknown): void {
    this.ws.send(JSON.stringify(frame))
  }

  /** Sends a text frame as it is, or bytes as a binary frame. */
  raw(data: string | Uint8Array): void {
    this.ws.send(data)
  }

  ack(messageId: string): void {
    this.send({ type: "ack", message_id: messageId })
  }

  /** Sends a pong, whether or not there was a ping. */
  pong(): void {
    this.ws.pong()
  }

  /** Stops reading, like a slow client: what the server sends piles up. */
  pause(): void {
    this.ws.pause()
  }

  resume(): void {
    this.ws.resume()
  }

  /** Resolves once everything that was sent on this socket has left the process. */
  async sent(): Promise<void> {
    await eventually("everything to be sent", () => this.ws.bufferedAmount === 0 || undefined)
  }

  /** The first frame, past or to come, of this type or that this predicate accepts. */
  waitFor(wanted: string | ((frame: Frame) => boolean), timeoutMs = LONGEST_WAIT_MS): Promise<Frame> {
    const wants = typeof wanted === "string" ? (frame: Frame) => frame.type === wanted : wanted
    const past = this.frames.find(wants)
    if (past !== undefined) return Promise.resolve(past)
    let waiter: Waiter | undefined
    const found = new Promise<Frame>((take, fail) => {
      waiter = { wants, take, fail }
      this.waiters.add(waiter)
    })
    return within("a frame", found, timeoutMs)
      .catch((error: unknown) => {
        const got = this.frames.map((frame) => JSON.stringify(frame).slice(0, 200)).join("\n")
        throw new Error(`${String(error)}: ${typeof wanted === "string" ? wanted : wanted.toString()}; came:\n${got}`)
      })
      .finally(() => waiter && this.waiters.delete(waiter))
  }

  /** The push of this message. */
  message(id: string): Promise<Frame> {
    return this.waitFor((frame) => frame.type === "message.new" && frame.payload?.["id"] === id)
  }

  /** The payload of a frame, checked. */
  async payload<S extends Schema.ConstraintDecoder<unknown>>(
    wanted: string | ((frame: Frame) => boolean),
    schema: S
  ): Promise<S["Type"]> {
    return matching(schema, (await this.waitFor(wanted)).payload)
  }

  /** Ids of the messages pushed so far, in order. */
  pushed(): ReadonlyArray<unknown> {
    return this.frames.filter((frame) => frame.type === "message.new").map((frame) => frame.payload?.["id"])
  }

  count(type: string): number {
    return this.frames.filter((frame) => frame.type === type).length
  }

  /**
   * Resolves once the server has handled everything that this socket sent before: sends a ping, and waits for its pong.
   */
  async settled(): Promise<void> {
    // Other nodes see the effects only after a commit, and there is no event to wait for.
    if (NODES > 0) await elapse("the commit on another node", 500)
    const before = this.count("pong")
    this.send({ type: "ping" })
    await this.waitFor((frame) => frame.type === "pong" && this.count("pong") > before)
  }

  /** Waits for the server to close it. */
  async end(timeoutMs = LONGEST_WAIT_MS): Promise<Closed> {
    return within("the close", this.closed, timeoutMs)
  }

  async close(): Promise<void> {
    this.ws.close()
    await this.end()
  }

  /** Asserts that the server closes it with this code. */
  async closedWith(code: number, timeoutMs = LONGEST_WAIT_MS): Promise<Closed> {
    const closed = await this.end(timeoutMs)
    assert.strictEqual(closed.code, code, closed.reason)
    return closed
  }
}

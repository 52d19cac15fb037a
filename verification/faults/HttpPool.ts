import { connect, type Socket } from "node:net"

export interface Reply {
  readonly status: number
  /** The milliseconds of the Retry-After header; undefined without one. */
  readonly retryAfterMs: number | undefined
  readonly text: string
}

const HEAD_END = Buffer.from("\r\n\r\n")

/** One keep-alive connection with at most one request under way. */
class Connection {
  free = true
  private readonly socket: Socket
  private readonly ended: (connection: Connection) => void
  private held: Buffer | undefined
  private done: ((reply: Reply) => void) | undefined
  private failed: ((error: Error) => void) | undefined

  constructor(url: URL, ended: (connection: Connection) => void) {
    this.ended = ended
    this.socket = connect({ host: url.hostname, port: Number(url.port), noDelay: true })
    this.socket.on("data", (data) => this.read(data))
    this.socket.on("error", (error) => this.end(error))
    this.socket.on("close", () => this.end(new Error("the connection was closed")))
  }

  request(bytes: string, timeoutMs: number): Promise<Reply> {
    this.free = false
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => this.end(new Error("no answer in time")), timeoutMs)
      this.done = (reply) => {
        clearTimeout(late)
        resolve(reply)
      }
      this.failed = (error) => {
        clearTimeout(late)
        reject(error)
      }
      this.socket.write(bytes)
    })
  }

  end(error: Error): void {
    const { failed } = this
    this.done = undefined
    this.failed = undefined
    this.socket.destroy()
    this.ended(this)
    failed?.(error)
  }

  private read(data: Buffer): void {
    const all = this.held === undefined ? data : Buffer.concat([this.held, data])
    this.held = all
    const head = all.indexOf(HEAD_END)
    if (head < 0) return
    const lines = all.toString("latin1", 0, head)
    const body = bodyOf(all, head + 4, lines)
    if (body === undefined) return
    this.held = undefined
    const { done } = this
    const retryAfter = /\r\nretry-after: *(\d+)/i.exec(lines)
    this.done = undefined
    this.failed = undefined
    if (/\r\nconnection: *close/i.test(lines)) this.end(new Error("closed"))
    else this.free = true
    done?.({
      status: Number(lines.slice(9, 12)),
      retryAfterMs: retryAfter === null ? undefined : Number(retryAfter[1]) * 1_000,
      text: body
    })
  }
}

/** The whole body; undefined while a part of it is missing. */
const bodyOf = (all: Buffer, start: number, head: string): string | undefined => {
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)
  if (length !== null) {
    const end = start + Number(length[1])
    return all.length < end ? undefined : all.toString("utf8", start, end)
  }
  if (!/\r\ntransfer-encoding: *chunked/i.test(head)) return ""
  const parts: Array<Buffer> = []
  for (let at = start;;) {
    const line = all.indexOf("\r\n", at)
    if (line < 0) return undefined
    const size = Number.parseInt(all.toString("latin1", at, line), 16)
    if (all.length < line + 2 + size + 2) return undefined
    if (size === 0) return Buffer.concat(parts).toString()
    parts.push(all.subarray(line + 2, line + 2 + size))
    at = line + 2 + size + 2
  }
}

/**
 * An HTTP client that uses as little processor time as possible, because the load shares its processors with the
 * service. It supports only the answers of this service and of its balancer.
 */
export class HttpPool {
  private readonly idle = new Map<string, Array<Connection>>()
  private readonly all = new Set<Connection>()

  /** Sends a request. Fails, like fetch, if there is no connection or no complete answer in time. */
  async request(
    base: string,
    method: string,
    path: string,
    key: string,
    body: string | undefined,
    timeoutMs: number,
    idempotencyKey?: string,
    forwardedFor?: string
  ): Promise<Reply> {
    let idle = this.idle.get(base)
    if (idle === undefined) this.idle.set(base, idle = [])
    let connection = idle.pop()
    if (connection === undefined) {
      connection = new Connection(new URL(base), (ended) => {
        this.all.delete(ended)
        const at = idle.indexOf(ended)
        if (at >= 0) idle.splice(at, 1)
      })
      this.all.add(connection)
    }
    const content = body === undefined
      ? "content-length: 0\r\n\r\n"
      : `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
    const reply = await connection.request(
      `${method} ${path} HTTP/1.1\r\nhost: ${base.slice(7)}\r\nauthorization: Bearer ${key}\r\n` +
        `x-agentchat-client: typescript_sdk\r\n${
          idempotencyKey === undefined ? "" : `idempotency-key: ${idempotencyKey}\r\n`
        }` +
        `${forwardedFor === undefined ? "" : `x-forwarded-for: ${forwardedFor}\r\n`}${content}`,
      timeoutMs
    )
    if (connection.free) idle.push(connection)
    return reply
  }

  close(): void {
    for (const connection of this.all) connection.end(new Error("closed by the load"))
  }
}

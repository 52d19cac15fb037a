import { connect, type Socket } from "node:net"
import { eventually, LONGEST_WAIT_MS, within } from "./Eventually.ts"
import type { Server } from "./Server.ts"

export interface FrameInput {
  /** The frame's type: 0 continuation, 1 text, 2 binary, 8 close, 9 ping, 10 pong. */
  readonly opcode: number
  readonly payload?: string | Uint8Array
  readonly fin?: boolean
  /** Marks the payload as compressed. */
  readonly rsv1?: boolean
  readonly masked?: boolean
  /** The length that the head announces, if it is not the payload's. */
  readonly announced?: number
}

/** One WebSocket frame as bytes, with a mask of zeros. */
export const frameOf = (
  { announced, fin = true, masked = true, opcode, payload = "", rsv1 = false }: FrameInput
): Buffer => {
  const body = Buffer.from(payload)
  const length = announced ?? body.length
  const mask = masked ? 0x80 : 0
  const first = (fin ? 0x80 : 0) | (rsv1 ? 0x40 : 0) | opcode
  let head: Buffer
  if (length < 126) head = Buffer.from([first, mask | length])
  else if (length < 65_536) {
    head = Buffer.from([first, mask | 126, 0, 0])
    head.writeUInt16BE(length, 2)
  } else {
    head = Buffer.concat([Buffer.from([first, mask | 127]), Buffer.alloc(8)])
    head.writeBigUInt64BE(BigInt(length), 2)
  }
  return Buffer.concat([head, masked ? Buffer.alloc(4) : Buffer.alloc(0), body])
}

const UPGRADE = [
  "GET /v1/ws HTTP/1.1",
  "host: parley",
  "connection: upgrade",
  "upgrade: websocket",
  "sec-websocket-version: 13",
  "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=="
]

/** A TCP connection to a server, for bytes that no client library would send. */
export class RawConnection {
  readonly socket: Socket
  /** Everything received, a character for each byte. */
  received = ""
  /** Resolves when the connection has ended, whatever the reason. */
  readonly closed: Promise<void>
  private readonly opened: Promise<void>

  constructor(server: Server) {
    const { hostname, port } = new URL(server.url)
    this.socket = connect(Number(port), hostname)
    this.socket.on("error", () => {})
    this.socket.on("data", (chunk: Buffer) => this.received += chunk.toString("latin1"))
    this.opened = new Promise((resolve) => this.socket.once("connect", () => resolve()))
    this.closed = new Promise((resolve) => this.socket.once("close", () => resolve()))
  }

  static async open(server: Server): Promise<RawConnection> {
    const connection = new RawConnection(server)
    await within("a connection", Promise.race([connection.opened, connection.closed]))
    return connection
  }

  /** Opens a WebSocket and waits for its upgrade; with a key, until it is authenticated. */
  static async upgraded(server: Server, key?: string, more: ReadonlyArray<string> = []): Promise<RawConnection> {
    const connection = await RawConnection.open(server)
    const lines = [...UPGRADE, ...more, ...(key === undefined ? [] : [`authorization: Bearer ${key}`])]
    connection.write(`${lines.join("\r\n")}\r\n\r\n`)
    await eventually(
      "the upgrade",
      () => connection.received.includes(key === undefined ? "\r\n\r\n" : "hello.ok") || undefined
    )
    return connection
  }

  write(bytes: string | Uint8Array): boolean {
    return this.socket.write(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes)
  }

  frame(input: FrameInput): boolean {
    return this.write(frameOf(input))
  }

  /** Waits until the server closes the connection; returns everything received. */
  async end(timeoutMs = LONGEST_WAIT_MS): Promise<string> {
    await within("the server to close", this.closed, timeoutMs)
    return this.received
  }

  /** Waits for the server's close frame, which comes last, unmasked and short; 1006 if there was none. */
  async closeCode(timeoutMs = LONGEST_WAIT_MS): Promise<number> {
    const code = await eventually(
      "a close frame",
      () => this.lastClose() ?? (this.socket.destroyed ? 1006 : undefined),
      timeoutMs
    )
    this.drop()
    return code
  }

  private lastClose(): number | undefined {
    const tail = Buffer.from(this.received.slice(-127), "latin1")
    for (let at = 0; at + 4 <= tail.length; at++) {
      if (tail[at] === 0x88 && at + 2 + (tail[at + 1] ?? 0) === tail.length) return tail.readUInt16BE(at + 2)
    }
    return undefined
  }

  drop(): void {
    this.socket.destroy()
  }
}

/** Writes bytes on a connection of its own and returns everything received until the server closed it. */
export const exchange = async (server: Server, bytes: string | Uint8Array): Promise<string> => {
  const connection = await RawConnection.open(server)
  connection.write(bytes)
  return connection.end()
}

import { randomBytes } from "node:crypto"
import { connect, type Socket } from "node:net"

/**
 * HTTP and WebSocket clients that use as little processor time as possible, because the load generator runs on the
 * machine that it measures. They support only what the benches need (answers with a Content-Length, unfragmented text
 * frames), and throw on anything else.
 */

const HEAD_END = Buffer.from("\r\n\r\n")
const READ_BUFFER = 65_536

/** Gets an answer's body as a range of a buffer, which is valid only during the call. */
export type OnResponse = (status: number, buffer: Buffer, start: number, end: number) => void

interface Wire {
  readonly socket: Socket
  /** Gets all unconsumed bytes; returns how many of them it has consumed. */
  consume: (buffer: Buffer, length: number) => number
  failed: (why: string) => void
}

const open = (host: string, port: number, wire: Omit<Wire, "socket">, connected: () => void): Wire => {
  let held: Buffer | undefined
  const self: Wire = {
    ...wire,
    socket: connect({
      host,
      port,
      noDelay: true,
      onread: {
        buffer: Buffer.allocUnsafe(READ_BUFFER),
        callback: (length, bytes) => {
          const fresh = bytes as Buffer
          const all = held === undefined ? fresh : Buffer.concat([held, fresh.subarray(0, length)])
          const total = held === undefined ? length : all.length
          const used = self.consume(all, total)
          held = used === total ? undefined : Buffer.from(all.subarray(used, total))
          return true
        }
      }
    })
  }
  self.socket.once("connect", connected)
  self.socket.on("error", (error) => self.failed(error.message))
  self.socket.on("close", () => self.failed("the connection was closed"))
  return self
}

/** One keep-alive connection with at most one request under way. */
export class HttpConnection {
  private readonly wire: Wire
  private done: OnResponse | undefined
  private closing = false

  private constructor(host: string, port: number, onFailure: (why: string) => void, connected: () => void) {
    this.wire = open(host, port, {
      consume: (buffer, length) => this.consume(buffer, length),
      failed: (why) => {
        if (!this.closing) onFailure(why)
      }
    }, connected)
  }

  static connect(host: string, port: number, onFailure: (why: string) => void): Promise<HttpConnection> {
    return new Promise((resolve, reject) => {
      let live = false
      const connection: HttpConnection = new HttpConnection(
        host,
        port,
        (why) => (live ? onFailure(why) : reject(new Error(why))),
        () => {
          live = true
          resolve(connection)
        }
      )
    })
  }

  /** The caller may reuse `bytes` once the answer has come. */
  request(bytes: Buffer, done: OnResponse): void {
    if (this.done !== undefined) throw new Error("one request at a time")
    this.done = done
    this.wire.socket.write(bytes)
  }

  close(): void {
    this.closing = true
    this.wire.socket.destroy()
  }

  private consume(buffer: Buffer, length: number): number {
    const head = buffer.indexOf(HEAD_END)
    if (head < 0 || head >= length) return 0
    const bodyLength = contentLength(buffer, head)
    const start = head + 4
    if (start + bodyLength > length) return 0
    const done = this.done
    if (done === undefined) throw new Error("an answer without a request")
    this.done = undefined
    const status = (buffer[9]! - 48) * 100 + (buffer[10]! - 48) * 10 + (buffer[11]! - 48)
    done(status, buffer, start, start + bodyLength)
    return start + bodyLength
  }
}

let lengthHeader = Buffer.from("\r\nContent-Length: ")
let otherLengthHeader = Buffer.from("\r\ncontent-length: ")

const contentLength = (buffer: Buffer, end: number): number => {
  let at = buffer.indexOf(lengthHeader)
  if (at < 0 || at > end) {
    ;[lengthHeader, otherLengthHeader] = [otherLengthHeader, lengthHeader]
    at = buffer.indexOf(lengthHeader)
    if (at < 0 || at > end) throw new Error(`an answer without a length: ${buffer.toString("latin1", 0, end)}`)
  }
  let value = 0
  for (let i = at + lengthHeader.length;; i++) {
    const digit = buffer[i]! - 48
    if (digit < 0 || digit > 9) return value
    value = value * 10 + digit
  }
}

/** The head of a request, up to and including the empty line. */
export const requestHead = (
  method: string,
  path: string,
  host: string,
  key: string | undefined,
  bodyLength: number
): string =>
  `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\n` +
  (key === undefined ? "" : `Authorization: Bearer ${key}\r\n`) +
  (method === "GET" ? "\r\n" : `Content-Type: application/json\r\nContent-Length: ${bodyLength}\r\n\r\n`)

const ACK_HEAD = '{"type":"ack","message_id":"'
const ACK_ID_LENGTH = 20
const ACK_LENGTH = ACK_HEAD.length + ACK_ID_LENGTH + 2
const MASK = Buffer.from([0x37, 0xfa, 0x21, 0x3d])
/** A masked acknowledgement frame, complete except for the id of the message. */
const ACK_FRAME = (() => {
  const frame = Buffer.alloc(6 + ACK_LENGTH)
  frame[0] = 0x81
  frame[1] = 0x80 | ACK_LENGTH
  MASK.copy(frame, 2)
  frame.write(`${ACK_HEAD}${"\0".repeat(ACK_ID_LENGTH)}"}`, 6, "latin1")
  for (let i = 0; i < ACK_LENGTH; i++) frame[6 + i]! ^= MASK[i & 3]!
  return frame
})()
const ACK_ID_AT = 6 + ACK_HEAD.length

const maskedFrame = (opcode: number, payload: Buffer): Buffer => {
  const extended = payload.length >= 126
  const frame = Buffer.alloc((extended ? 8 : 6) + payload.length)
  frame[0] = 0x80 | opcode
  if (extended) {
    frame[1] = 0x80 | 126
    frame.writeUInt16BE(payload.length, 2)
  } else frame[1] = 0x80 | payload.length
  const at = extended ? 8 : 6
  MASK.copy(frame, at - 4)
  for (let i = 0; i < payload.length; i++) frame[at + i] = payload[i]! ^ MASK[i & 3]!
  return frame
}

/**
 * Gets a text frame as a range of a buffer, which is valid only during the call. Returns the offset of the
 * message id to acknowledge (20 characters), or -1 for nothing to acknowledge.
 */
export type OnFrame = (buffer: Buffer, start: number, end: number) => number

/** An authenticated socket with the capability `ack`; the acknowledgements of one read are sent in one write. */
export class SocketConnection {
  private readonly wire: Wire
  private readonly onFrame: OnFrame
  /** Sent once the socket is open; undefined if the key is in the header. */
  private readonly hello: Buffer | undefined
  private greeted: (() => void) | undefined
  private upgraded = false
  private closing = false
  /** Offsets of the ids to acknowledge after this read. */
  private readonly due: Array<number> = []

  private constructor(options: SocketOptions, greeted: () => void, failed: (why: string) => void) {
    this.onFrame = options.onFrame
    this.greeted = greeted
    this.hello = options.keyInHeader === true ? undefined : maskedFrame(
      0x1,
      Buffer.from(JSON.stringify({ type: "hello", api_key: options.key, capabilities: ["ack"], client: "bench" }))
    )
    const credentials = options.keyInHeader === true
      ? `Authorization: Bearer ${options.key}\r\nX-AgentChat-Capabilities: ack\r\n`
      : ""
    this.wire = open(options.host, options.port, {
      consume: (buffer, length) => this.consume(buffer, length),
      failed: (why) => {
        if (!this.closing) failed(why)
      }
    }, () =>
      this.wire.socket.write(
        `GET /v1/ws HTTP/1.1\r\nHost: ${options.host}:${options.port}\r\nUpgrade: websocket\r\n` +
          `Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n${credentials}` +
          `Sec-WebSocket-Key: ${randomBytes(16).toString("base64")}\r\n\r\n`
      ))
  }

  /** Resolves with the socket after `hello.ok`. */
  static connect(options: SocketOptions): Promise<SocketConnection> {
    return new Promise((resolve, reject) => {
      let live = false
      const socket: SocketConnection = new SocketConnection(
        options,
        () => {
          live = true
          resolve(socket)
        },
        (why) => (live ? options.onFailure(why) : reject(new Error(why)))
      )
    })
  }

  close(): void {
    this.closing = true
    this.wire.socket.destroy()
  }

  private consume(buffer: Buffer, length: number): number {
    let at = 0
    if (!this.upgraded) {
      const head = buffer.indexOf(HEAD_END)
      if (head < 0 || head >= length) return 0
      if (!buffer.toString("latin1", 0, head).startsWith("HTTP/1.1 101 ")) {
        throw new Error(`no socket: ${buffer.toString("latin1", 0, length)}`)
      }
      this.upgraded = true
      if (this.hello !== undefined) this.wire.socket.write(this.hello)
      at = head + 4
    }
    while (at + 2 <= length) {
      const opcode = buffer[at]!
      let size = buffer[at + 1]!
      let start = at + 2
      if (size === 126) {
        if (start + 2 > length) break
        size = buffer.readUInt16BE(start)
        start += 2
      } else if (size === 127) {
        if (start + 8 > length) break
        size = Number(buffer.readBigUInt64BE(start))
        start += 8
      }
      const end = start + size
      if (end > length) break
      if (opcode === 0x81) this.text(buffer, start, end)
      else if (opcode === 0x89) this.wire.socket.write(maskedFrame(0xa, Buffer.from(buffer.subarray(start, end))))
      else if (opcode === 0x88) {
        const code = size >= 2 ? buffer.readUInt16BE(start) : 1005
        this.wire.failed(`closed with ${code} ${buffer.toString("utf8", Math.min(start + 2, end), end)}`)
        this.close()
      } else if (opcode !== 0x8a) throw new Error(`an unexpected frame: ${opcode.toString(16)}`)
      at = end
    }
    if (this.due.length > 0) this.acknowledge(buffer)
    return at
  }

  private text(buffer: Buffer, start: number, end: number): void {
    const greeted = this.greeted
    if (greeted !== undefined) {
      const hello = buffer.toString("utf8", start, end)
      if (!hello.startsWith('{"type":"hello.ok"')) throw new Error(`hello.ok must come first, got ${hello}`)
      this.greeted = undefined
      greeted()
      return
    }
    const id = this.onFrame(buffer, start, end)
    if (id >= 0) this.due.push(id)
  }

  private acknowledge(buffer: Buffer): void {
    const frames = Buffer.allocUnsafe(this.due.length * ACK_FRAME.length)
    for (let n = 0; n < this.due.length; n++) {
      const at = n * ACK_FRAME.length
      ACK_FRAME.copy(frames, at)
      const from = this.due[n]!
      for (let i = 0; i < ACK_ID_LENGTH; i++) {
        frames[at + ACK_ID_AT + i] = buffer[from + i]! ^ MASK[(ACK_HEAD.length + i) & 3]!
      }
    }
    this.due.length = 0
    this.wire.socket.write(frames)
  }
}

export interface SocketOptions {
  readonly host: string
  readonly port: number
  readonly key: string
  /** Whether the key is sent in the header of the upgrade, instead of in a HELLO. */
  readonly keyInHeader?: boolean
  readonly onFrame: OnFrame
  /** Called if a socket ends without `close` after it was live. */
  readonly onFailure: (why: string) => void
}

/**
 * A peer connection (`line` in the code): the one TCP connection between two nodes. It carries all traffic between
 * them, in order in each direction. It uses TLS if the nodes have a secret, and does not use Nagle's algorithm.
 *
 * Both sides first write a greeting (`NodeGreeting.ts`). After the greeting each side writes frames:
 *
 *     4 bytes   length of the rest of the frame, after these 4 bytes
 *     4 bytes   number of the frame: 1, 2, 3, … in each direction; empty frames are numbered, too
 *     4 bytes   acknowledgement: number of the last frame that this side has received and passed on, at first 0
 *     rest      a JSON array of entries, in UTF-8; it may be empty
 *
 * Numbers are unsigned and big-endian. An entry is a JSON array whose first item names its topic. Entries are calls of
 * procedures, responses to calls, pushes to WebSockets of agents, and announcements of the agents that have WebSockets
 * on the node. `PeerConnection` does not interpret entries. It passes them to `received` one after the other, in the
 * order in which the other side queued them. A call may take a long time, and calls may finish in a different order
 * from the one in which they began. Therefore an acknowledgement does not mean that a call was executed. Only the
 * response to the call means this.
 *
 * - All entries that one turn of the event loop queues are written together, in the check phase of that turn
 *   (`setImmediate`). They wait for no timer and for no response. They wait for acknowledgements only while
 *   MAX_UNACKNOWLEDGED_CHARS are unacknowledged.
 * - Nothing is ever sent again. Acknowledgements bound how much may be in flight, and show that the process of the
 *   other side works, not only its kernel. Each frame contains an acknowledgement. A side that writes nothing else
 *   sends an empty frame after half a second, or after 0.2 s if it has received entries that it has not acknowledged
 *   yet. After a quarter of a window it sends an empty frame at once.
 * - Entries that wait for room in the window stay in the queue of the connection. The callers of `send` bound their
 *   number. A call beyond 20,000 is refused (`NodeCalls.ts`). Pushes beyond 20,000 are dropped and replaced with one
 *   entry that reports the loss (`PushQueue.ts`). All changes of one agent's WebSockets are one announcement. If calls
 *   and responses together still exceed MAX_QUEUED_CHARS, the connection ends.
 * - The connection ends when no byte has arrived for 3 s, when a frame was not acknowledged within 5 s, or when a frame
 *   is malformed. A frame with a length above MAX_FRAME, a gap in the numbers or an unknown topic is malformed. A frame
 *   that repeats a number is ignored. TCP neither loses nor repeats bytes, but a proxy or a defect may.
 * - A connection that has ended is never continued. `PeerConnections.ts` opens a new connection, from either side.
 *   Entries that were in flight are lost. A call without a response is repeated with the same id, at the node that owns
 *   its actor by then. The id makes a second execution harmless. Both nodes read the messages of lost pushes from the
 *   database, and announce all their WebSockets again.
 */

import type { Socket } from "node:net"

const LENGTH_BYTES = 4
const HEAD_BYTES = 12
/**
 * How many characters of entries one frame contains, unless a single entry is longer. A character takes up to three
 * bytes.
 */
const MAX_FRAME_CHARS = 1_000_000
/** How many bytes a received frame may have. One entry has at most 2 million characters. */
const MAX_FRAME = 16_777_216
const MAX_UNACKNOWLEDGED_CHARS = 4_000_000
/**
 * How many characters of calls and responses may wait for room in the window. This is twice the limit of calls alone
 * (`NodeCalls.ts`).
 */
const MAX_QUEUED_CHARS = 128_000_000
const EMPTY = "[]"
/**
 * The number of a frame from which the connection ends, so that it does not run out of numbers. One flush writes a few
 * frames at most.
 */
const MAX_NUMBER = 2 ** 32 - 1_000
const HEARTBEAT_INTERVAL_MS = 500
/** How long an acknowledgement waits for another frame that can carry it, in milliseconds. */
const ACKNOWLEDGE_INTERVAL_MS = 200
export const SILENCE_TIMEOUT_MS = 3_000
const ACKNOWLEDGE_TIMEOUT_MS = 5_000

/** An entry in the queue. It is the JSON text, or an object that makes the JSON text when the entry is sent. */
export type Entry = string | { readonly encode: () => string }

/**
 * Why a connection ended. `answer` means that a frame was not understood. `silence` means that nothing was received or
 * acknowledged in time.
 */
export type LineEnd = "answer" | "silence" | "connection" | "closed"

export interface LineEvents {
  /** Handles one entry. If it throws, the entry was not understood, and the connection ends. */
  readonly received: (line: PeerConnection, entry: ReadonlyArray<unknown>) => void
  /** Called once, after the last entry. */
  readonly ended: (line: PeerConnection, end: LineEnd, cause: unknown) => void
  /** Called once, when the other side acknowledges a frame for the first time. */
  readonly confirmed?: (line: PeerConnection) => void
  /** Called for each sent frame that contains entries, with their number. */
  readonly sent?: (entries: number) => void
}

interface Sent {
  readonly number: number
  readonly chars: number
  readonly at: number
}

/** One end of a peer connection, after the greetings were exchanged. */
export class PeerConnection {
  /** The name of the other node. */
  readonly node: string
  /** Identifies the process of the other node. A later process at the same address has a greater number. */
  readonly incarnation: number
  private readonly connection: Socket
  private readonly events: LineEvents
  private readonly now: () => number
  private queue: Array<Entry> = []
  private queuedChars = 0
  private isScheduled = false
  private sent = 0
  private sentAt: number
  private unacknowledged: Array<Sent> = []
  private unacknowledgedChars = 0
  private taken = 0
  /** How many bytes of entries were received since the last acknowledgement was sent. */
  private takenBytes = 0
  private received: Array<Buffer> = []
  private receivedBytes = 0
  /** How many bytes `received` must contain before the next step of reading its first frame is possible. */
  private wanted = HEAD_BYTES
  private lastReceived: number
  private isAcknowledged = false
  private isOver = false

  constructor(node: string, incarnation: number, connection: Socket, events: LineEvents, now: () => number) {
    this.node = node
    this.incarnation = incarnation
    this.connection = connection
    this.events = events
    this.now = now
    this.sentAt = this.lastReceived = now()
  }

  /** Begins to read. `first` contains the bytes that came after the greeting. */
  begin(first: Buffer): void {
    const { connection } = this
    connection.on("error", (error) => this.end("connection", error))
    connection.on("close", () => this.end("connection", new Error("the connection was closed")))
    if (connection.destroyed) return this.end("connection", new Error("the connection was closed"))
    connection.on("data", (chunk: Buffer) => this.read(chunk))
    if (first.length > 0) this.read(first)
    connection.resume()
  }

  get hasEnded(): boolean {
    return this.isOver
  }

  /**
   * Whether the other side has acknowledged a frame. Before that it is not known whether frames arrive in both
   * directions.
   */
  get isConfirmed(): boolean {
    return this.isAcknowledged
  }

  /** When bytes last came from the other side, in milliseconds of the monotonic clock. */
  get receivedAt(): number {
    return this.lastReceived
  }

  /** Sends a frame now, so that its acknowledgement confirms the connection. */
  probe(): void {
    this.flush(true)
  }

  /** Queues an entry for the next frame. If the connection has ended, the entry is dropped. */
  send(entry: Entry): void {
    if (this.isOver) return
    this.queue.push(entry)
    if (typeof entry === "string" && (this.queuedChars += entry.length) > MAX_QUEUED_CHARS) {
      return this.end("silence", new Error("too many calls and answers wait"))
    }
    this.schedule()
  }

  /** Removes the queued entries for which `isDropped` returns true. */
  drop(isDropped: (entry: Entry) => boolean): void {
    this.queue = this.queue.filter((entry) => !isDropped(entry))
  }

  /**
   * Must be called a few times a second. Sends an empty frame if one is due. If `judges` is true, ends the connection
   * when the other side is silent.
   */
  check(judges: boolean): void {
    const now = this.now()
    const [oldest] = this.unacknowledged
    if (judges && now - this.lastReceived > SILENCE_TIMEOUT_MS)
      return this.end("silence", new Error(`nothing was heard for ${SILENCE_TIMEOUT_MS / 1_000} s`))
    if (judges && oldest !== undefined && now - oldest.at > ACKNOWLEDGE_TIMEOUT_MS) {
      return this.end("silence", new Error(`nothing was acknowledged for ${ACKNOWLEDGE_TIMEOUT_MS / 1_000} s`))
    }
    const quiet = now - this.sentAt
    // An empty frame is acknowledged only by the next frame that is due anyway. Otherwise two nodes would acknowledge
    // each other's empty frames endlessly.
    if (quiet >= HEARTBEAT_INTERVAL_MS || (quiet >= ACKNOWLEDGE_INTERVAL_MS && this.takenBytes > 0)) this.flush(true)
  }

  end(end: LineEnd, cause?: unknown): void {
    if (end === "closed") this.flush(false)
    if (this.isOver) return
    this.isOver = true
    this.queue = []
    this.received = []
    if (end === "closed") this.connection.destroySoon()
    else this.connection.destroy()
    this.events.ended(this, end, cause)
  }

  private schedule(): void {
    if (this.isScheduled) return
    this.isScheduled = true
    setImmediate(() => {
      this.isScheduled = false
      this.flush(false)
    })
  }

  /** Sends queued entries, as far as the window has room. With `always`, sends at least an empty frame. */
  private flush(always: boolean): void {
    if (this.isOver) return
    const { queue } = this
    const frames: Array<Buffer> = []
    if (this.sent >= MAX_NUMBER) return this.end("connection", new Error("all numbers of frames are used"))
    let at = 0
    while (at < queue.length && this.unacknowledgedChars < MAX_UNACKNOWLEDGED_CHARS) {
      let text = "["
      let entries = 0
      for (; at < queue.length && text.length < MAX_FRAME_CHARS; at++) {
        const entry = queue[at]!
        if (typeof entry === "string") this.queuedChars -= entry.length
        text += `${entries++ === 0 ? "" : ","}${typeof entry === "string" ? entry : entry.encode()}`
      }
      this.events.sent?.(entries)
      frames.push(this.frame(`${text}]`))
    }
    this.queue = at === queue.length ? [] : queue.slice(at)
    if (frames.length === 0 && always) frames.push(this.frame(EMPTY))
    if (frames.length > 0) this.connection.write(frames.length === 1 ? frames[0]! : Buffer.concat(frames))
  }

  private frame(text: string): Buffer {
    const size = Buffer.byteLength(text)
    const bytes = Buffer.allocUnsafe(HEAD_BYTES + size)
    bytes.writeUInt32BE(HEAD_BYTES - LENGTH_BYTES + size, 0)
    bytes.writeUInt32BE(++this.sent, 4)
    bytes.writeUInt32BE(this.taken, 8)
    // A text with as many bytes as characters is ASCII, for which latin1 is faster.
    bytes.write(text, HEAD_BYTES, size === text.length ? "latin1" : "utf8")
    this.takenBytes = 0
    this.sentAt = this.now()
    this.unacknowledged.push({ number: this.sent, chars: text.length, at: this.sentAt })
    this.unacknowledgedChars += text.length
    return bytes
  }

  private read(chunk: Buffer): void {
    if (this.isOver) return
    this.lastReceived = this.now()
    this.received.push(chunk)
    this.receivedBytes += chunk.length
    if (this.receivedBytes < this.wanted) return
    const all = this.received.length === 1 ? this.received[0]! : Buffer.concat(this.received, this.receivedBytes)
    let at = 0
    this.wanted = HEAD_BYTES
    while (all.length - at >= HEAD_BYTES) {
      const length = all.readUInt32BE(at)
      if (length < HEAD_BYTES - LENGTH_BYTES || length > MAX_FRAME)
        return this.end("answer", new Error(`a frame of ${length} bytes`))
      const next = at + LENGTH_BYTES + length
      if (all.length < next) {
        this.wanted = LENGTH_BYTES + length
        break
      }
      this.take(all.readUInt32BE(at + 4), all.readUInt32BE(at + 8), all, at + HEAD_BYTES, next)
      if (this.isOver) return
      at = next
    }
    const rest = all.subarray(at)
    this.received = rest.length === 0 ? [] : [rest]
    this.receivedBytes = rest.length
  }

  private take(number: number, acknowledged: number, bytes: Buffer, from: number, to: number): void {
    if (number <= this.taken) return
    if (number !== this.taken + 1) return this.end("answer", new Error(`frame ${number} after frame ${this.taken}`))
    if (acknowledged > this.sent)
      return this.end("answer", new Error(`frame ${acknowledged} was acknowledged before it was sent`))
    this.acknowledge(acknowledged)
    if (to - from > EMPTY.length) {
      try {
        for (const entry of JSON.parse(bytes.toString("utf8", from, to)) as ReadonlyArray<ReadonlyArray<unknown>>) {
          this.events.received(this, entry)
          if (this.isOver) return
        }
      } catch (error) {
        return this.end("answer", error)
      }
      this.takenBytes += to - from
    }
    this.taken = number
    // The first frame is acknowledged at once if it may have crossed this side's first frame (`probe`).
    if ((number === 1 && this.sent > 0) || this.takenBytes > MAX_UNACKNOWLEDGED_CHARS / 4) this.flush(true)
  }

  private acknowledge(number: number): void {
    let count = 0
    for (; count < this.unacknowledged.length && this.unacknowledged[count]!.number <= number; count++) {
      this.unacknowledgedChars -= this.unacknowledged[count]!.chars
    }
    if (count === 0) return
    this.unacknowledged.splice(0, count)
    if (!this.isAcknowledged) {
      this.isAcknowledged = true
      this.events.confirmed?.(this)
    }
    if (this.queue.length > 0) this.schedule()
  }
}

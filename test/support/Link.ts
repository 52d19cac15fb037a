import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"

/** `there`: from the client that connects to its target; `back`: from the target to the client. */
export type Direction = "there" | "back"

export interface Address {
  readonly host: string
  readonly port: number
}

/**
 * The most bytes that wait in one direction of a connection. Above this the link does not read from the sender, whose
 * buffers fill.
 */
const HELD_BYTES = 4 * 1024 * 1024

/**
 * Called when bytes have come from one side, and when they were passed to the other. `connection` identifies the
 * connection.
 */
export type Watcher = (stage: "come" | "passed", direction: Direction, bytes: Buffer, connection: object) => void

/**
 * What a link does with one frame of a line between nodes: passes it, passes it twice, passes half of it and ends the
 * connection, or passes it later. Frames behind a late frame wait for it.
 */
export type Fate = "pass" | "twice" | "half" | { readonly lateMs: number }

/** Decides about a frame; `hasEntries` is false for a frame that only acknowledges. */
export type Fates = (direction: Direction, hasEntries: boolean) => Fate

interface Waiting {
  readonly at: number
  readonly bytes: Buffer
  /** Whether the bytes are a frame of a line between nodes. */
  readonly isFrame: boolean
  /** Whether only half of the bytes are passed, and the connection ends then. */
  readonly isHalf: boolean
}

const NEWLINE = 10
/**
 * Bytes of a frame's length, and of a frame without entries: length, number, acknowledgement and `[]`
 * (PeerConnection.ts).
 */
const FRAME_LENGTH = 4
const EMPTY_FRAME = 14

/** Divides the bytes of a line between nodes into its greeting and its frames. */
class FrameReader {
  private rest = Buffer.alloc(0)
  private isGreeted = false

  /** The parts that are complete with these bytes. */
  read(bytes: Buffer): ReadonlyArray<{ readonly bytes: Buffer; readonly isFrame: boolean }> {
    this.rest = Buffer.concat([this.rest, bytes])
    const parts: Array<{ readonly bytes: Buffer; readonly isFrame: boolean }> = []
    for (let end = this.end(); end !== undefined; end = this.end()) {
      parts.push({ bytes: this.rest.subarray(0, end), isFrame: this.isGreeted })
      this.rest = this.rest.subarray(end)
      this.isGreeted = true
    }
    return parts
  }

  /** Where the first part ends, if it is complete. */
  private end(): number | undefined {
    const { length } = this.rest
    const end = !this.isGreeted
      ? this.rest.indexOf(NEWLINE) + 1
      : length < FRAME_LENGTH
      ? 0
      : FRAME_LENGTH + this.rest.readUInt32BE(0)
    return end > 0 && end <= length ? end : undefined
  }
}

/** One direction of one connection: passes bytes in their order, later or not at all. */
class Way {
  private readonly link: Link
  private readonly direction: Direction
  private readonly from: Socket
  private readonly to: Socket
  private readonly connection: object
  private readonly waiting: Array<Waiting> = []
  private readonly reader: FrameReader | undefined
  private readonly cut: () => void
  private size = 0
  private timer: NodeJS.Timeout | undefined
  private ended = false
  private lost = false

  constructor(link: Link, direction: Direction, from: Socket, to: Socket, connection: object, cut: () => void) {
    this.link = link
    this.direction = direction
    this.from = from
    this.to = to
    this.connection = connection
    this.cut = cut
    this.reader = link.fates === undefined ? undefined : new FrameReader()
    from.on("data", (bytes: Buffer) => this.take(bytes))
    from.on("end", () => {
      this.ended = true
      this.flush()
    })
    to.on("drain", () => this.flush())
  }

  private take(bytes: Buffer): void {
    if (this.lost) return
    if (this.reader === undefined) this.queue(bytes, false, "pass")
    else {
      for (const part of this.reader.read(bytes)) {
        const fate = part.isFrame ? this.link.fates?.(this.direction, part.bytes.length > EMPTY_FRAME) : undefined
        this.queue(part.bytes, part.isFrame, fate ?? "pass")
      }
    }
    this.link.watcher?.("come", this.direction, bytes, this.connection)
    if (this.size > HELD_BYTES) this.from.pause()
    this.flush()
  }

  private queue(bytes: Buffer, isFrame: boolean, fate: Fate): void {
    const at = performance.now() + this.link.delayMs + (typeof fate === "string" ? 0 : fate.lateMs)
    for (let times = fate === "twice" ? 2 : 1; times > 0; times--) {
      this.waiting.push({ at, bytes, isFrame, isHalf: fate === "half" })
      this.size += bytes.length
    }
  }

  /** Passes on the bytes that are due. */
  flush(): void {
    clearTimeout(this.timer)
    this.timer = undefined
    if (this.link.holds(this.direction)) return
    for (;;) {
      const next = this.waiting[0]
      if (next === undefined) break
      if (this.to.writableNeedDrain || this.isHeld(next)) return
      const early = next.at - performance.now()
      if (early > 0.5) {
        this.timer = setTimeout(() => this.flush(), early)
        return
      }
      if (next.isHalf) return this.cut()
      this.waiting.shift()
      this.size -= next.bytes.length
      this.to.write(next.bytes)
      this.link.watcher?.("passed", this.direction, next.bytes, this.connection)
    }
    if (this.ended && !this.lost) this.to.end()
    else if (this.from.isPaused()) this.from.resume()
  }

  /** From now on, drops all bytes and does not pass on the end of the connection. */
  lose(): void {
    this.lost = true
    this.waiting.length = 0
    this.from.resume()
  }

  /** Passes half of the first waiting bytes and drops the rest, so that a frame breaks off in its middle. */
  half(): void {
    clearTimeout(this.timer)
    const [next] = this.waiting
    if (next !== undefined && !this.isHeld(next)) this.to.write(next.bytes.subarray(0, next.bytes.length >> 1))
    this.waiting.length = 0
  }

  private isHeld({ isFrame }: Waiting): boolean {
    return this.link.holds(this.direction) || (isFrame && this.link.holdsFrames(this.direction))
  }
}

interface Passage {
  readonly near: Socket
  readonly far: Socket
  readonly there: Way
  readonly back: Way
}

/**
 * A TCP proxy between two processes that can be slow, hold one direction or both, or break its connections in the
 * middle of a frame. While it holds a direction, the end of a connection is not passed on either: to both sides it
 * looks as if the network lost every packet. The held bytes are delivered at the release, as TCP does. Between nodes
 * without TLS it can also read the frames of a line (PeerConnection.ts), and hold, delay, double or halve single
 * frames.
 */
export class Link {
  private readonly server: Server
  private readonly target: Address
  private readonly passages = new Set<Passage>()
  private readonly held = new Set<Direction>()
  private readonly heldFrames = new Set<Direction>()
  private readonly unconnected = new Set<Socket>()
  delayMs = 0
  watcher: Watcher | undefined
  /** The function that decides about frames; undefined if the link does not read frames. */
  fates: Fates | undefined

  private constructor(target: Address) {
    this.target = target
    this.server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (near) => this.accept(near))
  }

  static async open(host: string, target: Address): Promise<Link> {
    const link = new Link(target)
    link.server.listen(0, host)
    await once(link.server, "listening")
    return link
  }

  get address(): Address {
    const { address, port } = this.server.address() as AddressInfo
    return { host: address, port }
  }

  holds(direction: Direction): boolean {
    return this.held.has(direction)
  }

  /** From now on nothing passes in these directions, and no connection is made. */
  hold(...directions: ReadonlyArray<Direction>): void {
    for (const direction of directions) this.held.add(direction)
  }

  holdsFrames(direction: Direction): boolean {
    return this.heldFrames.has(direction)
  }

  /**
   * From now on, decides about each frame of a line between nodes, in connections without TLS. Ends the open
   * connections, because the link cannot know where their frames begin.
   */
  decide(fates: Fates): void {
    this.fates = fates
    this.cut()
  }

  /**
   * From now on, holds the frames of lines between nodes in these directions. Greetings and the ends of connections
   * pass.
   */
  holdFrames(...directions: ReadonlyArray<Direction>): void {
    if (this.fates === undefined) this.decide(() => "pass")
    for (const direction of directions) this.heldFrames.add(direction)
  }

  /** Passes everything again, without delay. */
  release(): void {
    this.held.clear()
    this.heldFrames.clear()
    this.fates = undefined
    this.delayMs = 0
    for (const near of this.unconnected) this.forward(near)
    for (const passage of this.passages) {
      passage.there.flush()
      passage.back.flush()
      if (!passage.near.destroyed && !passage.far.destroyed) continue
      passage.near.destroySoon()
      passage.far.destroySoon()
      this.passages.delete(passage)
    }
  }

  /**
   * From now on, drops all bytes of the open connections without ending them, as if the other side had vanished. New
   * connections work.
   */
  lose(): void {
    for (const { back, there } of this.passages) {
      there.lose()
      back.lose()
    }
  }

  /** Whether a connection uses the link. */
  get isInUse(): boolean {
    return this.passages.size > 0
  }

  /** Ends every connection, in the middle of the bytes that are waiting. */
  cut(): void {
    for (const passage of this.passages) this.end(passage)
  }

  private end(passage: Passage): void {
    this.passages.delete(passage)
    passage.there.half()
    passage.back.half()
    passage.near.destroySoon()
    passage.far.destroySoon()
  }

  close(): void {
    this.server.close()
    for (const { far, near } of this.passages) {
      near.destroy()
      far.destroy()
    }
    for (const near of this.unconnected) near.destroy()
  }

  private accept(near: Socket): void {
    near.setNoDelay(true)
    this.unconnected.add(near)
    near.on("error", () => {})
    near.once("close", () => this.unconnected.delete(near))
    // While one direction is held, a handshake could not complete, so no connection is made.
    if (this.held.size === 0) this.forward(near)
  }

  private forward(near: Socket): void {
    this.unconnected.delete(near)
    if (near.destroyed) return
    const far = connect({ ...this.target, noDelay: true, allowHalfOpen: true })
    const cut = () => this.end(passage)
    const passage: Passage = {
      near,
      far,
      there: new Way(this, "there", near, far, near, cut),
      back: new Way(this, "back", far, near, near, cut)
    }
    this.passages.add(passage)
    const over = (of: Socket, other: Socket, direction: Direction) => () => {
      if (!this.holds(direction)) {
        other.destroySoon()
        this.passages.delete(passage)
      }
      of.destroy()
    }
    near.once("close", over(near, far, "there"))
    far.on("error", () => {})
    far.once("close", over(far, near, "back"))
    near.resume()
  }
}

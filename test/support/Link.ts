import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"

/** `there`: from the client that connects to its target; `back`: from the target to the client. */
export type Direction = "there" | "back"

export interface Address {
  readonly host: string
  readonly port: number
}

/** The most bytes that wait in one direction of a connection; above this the sender is not read, and its buffers fill. */
const HELD_BYTES = 4 * 1024 * 1024

/** Called when bytes have come from one side, and when they were passed to the other; `connection` is its identity. */
export type Watcher = (stage: "come" | "passed", direction: Direction, bytes: Buffer, connection: object) => void

interface Waiting {
  readonly at: number
  readonly bytes: Buffer
}

/** One direction of one connection: passes bytes in their order, later or not at all. */
class Way {
  private readonly link: Link
  private readonly direction: Direction
  private readonly from: Socket
  private readonly to: Socket
  private readonly connection: object
  private readonly waiting: Array<Waiting> = []
  private size = 0
  private timer: NodeJS.Timeout | undefined
  private ended = false
  private lost = false

  constructor(link: Link, direction: Direction, from: Socket, to: Socket, connection: object) {
    this.link = link
    this.direction = direction
    this.from = from
    this.to = to
    this.connection = connection
    from.on("data", (bytes: Buffer) => this.take(bytes))
    from.on("end", () => {
      this.ended = true
      this.flush()
    })
    to.on("drain", () => this.flush())
  }

  private take(bytes: Buffer): void {
    if (this.lost) return
    this.waiting.push({ at: performance.now() + this.link.delayMs, bytes })
    this.size += bytes.length
    this.link.watcher?.("come", this.direction, bytes, this.connection)
    if (this.size > HELD_BYTES) this.from.pause()
    this.flush()
  }

  /** Passes on the bytes that are due. */
  flush(): void {
    clearTimeout(this.timer)
    this.timer = undefined
    if (this.link.holds(this.direction)) return
    for (;;) {
      const next = this.waiting[0]
      if (next === undefined) break
      if (this.to.writableNeedDrain) return
      const early = next.at - performance.now()
      if (early > 0.5) {
        this.timer = setTimeout(() => this.flush(), early)
        return
      }
      this.waiting.shift()
      this.size -= next.bytes.length
      this.to.write(next.bytes)
      this.link.watcher?.("passed", this.direction, next.bytes, this.connection)
    }
    if (this.ended && !this.lost) this.to.end()
    else if (this.from.isPaused()) this.from.resume()
  }

  /** From now on drops all bytes, and passes no end on. */
  lose(): void {
    this.lost = true
    this.waiting.length = 0
    this.from.resume()
  }

  /** Passes half of the first waiting bytes and drops the rest, so that a frame breaks off in its middle. */
  half(): void {
    clearTimeout(this.timer)
    const bytes = this.waiting[0]?.bytes
    if (bytes !== undefined && !this.link.holds(this.direction)) this.to.write(bytes.subarray(0, bytes.length >> 1))
    this.waiting.length = 0
  }
}

interface Passage {
  readonly near: Socket
  readonly far: Socket
  readonly there: Way
  readonly back: Way
}

/**
 * A TCP proxy between two processes that can be slow, hold one direction or both, or break its connections in the middle
 * of a frame. While it holds a direction, the end of a connection is not passed on either: to both sides it looks as if
 * the network lost every packet. The held bytes are delivered at the release, as TCP does.
 */
export class Link {
  private readonly server: Server
  private readonly target: Address
  private readonly passages = new Set<Passage>()
  private readonly held = new Set<Direction>()
  private readonly unconnected = new Set<Socket>()
  delayMs = 0
  watcher: Watcher | undefined

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

  /** Passes everything again, without delay. */
  release(): void {
    this.held.clear()
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
   * From now on nothing passes on the connections that there are, and none of them ends, as if the other side had
   * vanished; new ones pass.
   */
  lose(): void {
    for (const { back, there } of this.passages) {
      there.lose()
      back.lose()
    }
  }

  /** Ends every connection, in the middle of the bytes that are waiting. */
  cut(): void {
    for (const passage of this.passages) {
      passage.there.half()
      passage.back.half()
      passage.near.destroySoon()
      passage.far.destroySoon()
    }
    this.passages.clear()
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
    const passage: Passage = {
      near,
      far,
      there: new Way(this, "there", near, far, near),
      back: new Way(this, "back", far, near, near)
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

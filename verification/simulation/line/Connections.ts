import { Effect } from "effect"
import { EventEmitter } from "node:events"
import type { Socket } from "node:net"
import { randomOf } from "../../../test/support/Random.ts"
import type { Time } from "./Time.ts"

/** A fault of the next frame in one direction. */
export type FrameFault = "doubled" | "lost" | "cut" | "held"

/** How long a held frame, and all frames behind it, are under way. */
const CALLER_TIMEOUT_MS = 2_000
/**
 * The size of the length field, the first field of a frame (PeerConnection.ts). The length does not count these four
 * bytes.
 */
const LENGTH = 4

/** The members of a `net.Socket` that lines use, over the simulated network. */
class End extends EventEmitter {
  readonly node: string
  readonly network: Connections
  peer!: End
  destroyed = false
  /** When the last bytes from this end arrive at the other end. */
  lastArrival = 0
  private paused = true
  private hasGreeted = false
  private arrived: Array<Buffer> = []

  constructor(network: Connections, node: string) {
    super()
    this.network = network
    this.node = node
    // NodeDial and NodePort do the same, because an error event without a listener would end the process.
    this.on("error", () => {})
  }

  write(bytes: Buffer | string): boolean {
    if (this.destroyed) return false
    const isGreeting = !this.hasGreeted
    this.hasGreeted = true
    this.network.carry(this, typeof bytes === "string" ? Buffer.from(bytes) : Buffer.from(bytes), !isGreeting)
    return true
  }

  take(bytes: Buffer): void {
    if (this.destroyed) return
    this.arrived.push(bytes)
    this.flow()
  }

  pause(): void {
    this.paused = true
  }

  resume(): void {
    this.paused = false
    queueMicrotask(() => this.flow())
  }

  private flow(): void {
    while (!this.paused && !this.destroyed && this.arrived.length > 0) this.emit("data", this.arrived.shift())
  }

  /** Ends the connection for this side. */
  lose(error?: Error): void {
    if (this.destroyed) return
    this.destroyed = true
    this.network.forget(this)
    if (error !== undefined) this.emit("error", error)
    this.emit("close")
  }

  destroy(): void {
    if (this.destroyed) return
    this.destroyed = true
    this.network.forget(this)
    queueMicrotask(() => this.emit("close"))
    this.network.arrive(this, 0, () => this.peer.lose())
  }

  destroySoon(): void {
    this.destroy()
  }

  /** The process of this side has died. It does nothing more. */
  die(): void {
    this.destroyed = true
    this.removeAllListeners()
    this.network.arrive(this, 0, () => this.peer.lose())
  }

  /** This end as a `Socket`. Lines use only the members that it has. */
  get asSocket(): Socket {
    return this as unknown as Socket
  }
}

/** The connections between the nodes of a simulation, each an ordered stream of bytes in both directions. */
export class Connections {
  private readonly time: Time
  private readonly acceptors = new Map<string, (connection: Socket) => void>()
  private readonly ends = new Set<End>()
  private readonly faults = new Map<string, FrameFault>()
  /** The work that waits until two nodes reach each other again, by both names. */
  private readonly apart = new Map<string, Array<() => void>>()
  private readonly idleUntil = new Map<string, number>()
  private random = randomOf(0)
  private delayMs = 1

  constructor(time: Time) {
    this.time = time
  }

  /** From now on, bytes take up to `delayMs` and arrive in pieces that depend on the seed. */
  weather(seed: number, delayMs: number): void {
    this.random = randomOf(seed)
    this.delayMs = delayMs
  }

  listen(node: string, accept: (connection: Socket) => void): void {
    this.acceptors.set(node, accept)
  }

  dial(from: string, node: string): Effect.Effect<Socket, string> {
    return Effect.callback<Socket, string>((resume) => {
      const cancel = this.time.after(1 + this.random() * this.delayMs, () => {
        const accept = this.acceptors.get(node)
        if (accept === undefined || this.apart.has(pair(from, node)))
          return resume(Effect.fail("nothing listens there"))
        const [near, far] = [new End(this, from), new End(this, node)]
        near.peer = far
        far.peer = near
        this.ends.add(near).add(far)
        accept(far.asSocket)
        resume(Effect.succeed(near.asSocket))
      })
      return Effect.sync(cancel)
    })
  }

  /** Applies a fault to the next frame from one node to another. */
  fault(from: string, to: string, fault: FrameFault): void {
    this.faults.set(`${from} ${to}`, fault)
  }

  /**
   * Breaks all connections of two nodes. Each side notices this after the bytes that were under way have arrived, or at
   * once.
   */
  cut(one: string, other: string): void {
    for (const end of this.ends) {
      if (end.destroyed || pair(end.node, end.peer.node) !== pair(one, other)) continue
      if (this.random() < 0.5) end.destroy()
      else end.lose(new Error("read ECONNRESET"))
    }
  }

  /** Separates two nodes. Bytes wait, as in TCP, and neither node gets an error. */
  part(one: string, other: string): void {
    if (!this.apart.has(pair(one, other))) this.apart.set(pair(one, other), [])
  }

  /** Reconnects two nodes. Without names, reconnects all nodes and removes pending faults. */
  rejoin(one?: string, other?: string): void {
    for (const [key, waiting] of this.apart) {
      if (one !== undefined && other !== undefined && key !== pair(one, other)) continue
      this.apart.delete(key)
      for (const run of waiting) run()
    }
    if (one === undefined) this.faults.clear()
  }

  /** A node reads nothing for a while. */
  idle(node: string, ms: number): void {
    this.idleUntil.set(node, this.time.now + ms)
  }

  kill(node: string): void {
    this.acceptors.delete(node)
    for (const end of this.ends) {
      if (end.node !== node) continue
      this.forget(end)
      end.die()
    }
  }

  forget(end: End): void {
    this.ends.delete(end)
  }

  carry(from: End, bytes: Buffer, isFrames: boolean): void {
    const key = `${from.node} ${from.peer.node}`
    const fault = isFrames ? this.faults.get(key) : undefined
    if (fault === undefined) return this.deliver(from, bytes, 0)
    this.faults.delete(key)
    const end = LENGTH + bytes.readUInt32BE(0)
    const [first, rest] = [bytes.subarray(0, end), bytes.subarray(end)]
    switch (fault) {
      case "doubled":
        return this.deliver(from, Buffer.concat([first, first, rest]), 0)
      case "lost":
        return rest.length > 0 ? this.deliver(from, rest, 0) : undefined
      case "held":
        return this.deliver(from, bytes, CALLER_TIMEOUT_MS)
      case "cut":
        this.deliver(from, bytes.subarray(0, Math.ceil(first.length / 2)), 0)
        from.lose(new Error("write EPIPE"))
        this.arrive(from, 0, () => from.peer.lose())
    }
  }

  /** Delivers bytes in one or several pieces, after all that were written before. */
  private deliver(from: End, bytes: Buffer, heldMs: number): void {
    let at = 0
    while (at < bytes.length) {
      const next = this.random() < 0.7 ? bytes.length : at + 1 + Math.floor(this.random() * (bytes.length - at))
      const piece = bytes.subarray(at, next)
      this.arrive(from, heldMs, () => from.peer.take(piece))
      at = next
    }
  }

  /** Runs `run` when bytes written now arrive at the other side, in order. */
  arrive(from: End, heldMs: number, run: () => void): void {
    const ms = Math.max(from.lastArrival - this.time.now, heldMs + this.random() * this.delayMs)
    from.lastArrival = this.time.now + ms
    this.time.after(ms, () => this.enter(from, run))
  }

  private enter(from: End, run: () => void): void {
    const to = from.peer.node
    const waiting = this.apart.get(pair(from.node, to))
    if (waiting !== undefined) return void waiting.push(() => this.enter(from, run))
    const idle = (this.idleUntil.get(to) ?? 0) - this.time.now
    if (idle > 0) {
      from.lastArrival = Math.max(from.lastArrival, this.time.now + idle)
      this.time.after(idle, () => this.enter(from, run))
    } else run()
  }
}

const pair = (one: string, other: string): string => one < other ? `${one} ${other}` : `${other} ${one}`

import { Config } from "#infrastructure/platform/Config"
import { LogThrottle } from "#infrastructure/platform/LogThrottle"
import { heldBytes, heldCuts } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Clock, Context, Effect, Layer, Schedule } from "effect"
import type { Socket } from "node:net"

/**
 * How many bytes of a connection are not counted. Every connection may make the process hold this many bytes in
 * addition to its bound.
 */
export const UNCOUNTED_BYTES = 16_384
/** How often all held buffers are measured. */
const SWEEP_INTERVAL = "1 second"
/**
 * A connection is stalled if its peer has sent and read less than `UNCOUNTED_BYTES` bytes for this many milliseconds.
 * The stalled connections of a peer are cut first.
 */
const STALLED_MS = 2_000
/** How many milliseconds a stalled connection may stay open while more than half of the process's bound is used. */
const TIGHT_STALL_TIMEOUT_MS = 10_000

/**
 * Bytes that one connection makes this process keep in memory: a response that the client does not read, or a request
 * body that is not complete.
 */
export interface HeldBuffer {
  /** How many bytes are held right now. */
  readonly bytes: () => number
  /** A number that changes whenever the peer reads or sends bytes. */
  readonly progress: () => number
  /** Drops the held bytes and closes the connection. The peer has to connect again. */
  readonly cut: () => void
}

/**
 * The sum of the bytes that a connection has received and the bytes that it has passed to the kernel. The sum changes
 * while the peer writes or reads.
 */
export const progressOf = (socket: Socket): number => {
  const { _handle: handle } = socket as Socket & {
    readonly _handle?: { readonly bytesWritten: number; readonly writeQueueSize: number } | null
  }
  return socket.bytesRead + (handle === undefined || handle === null ? 0 : handle.bytesWritten - handle.writeQueueSize)
}

/** The bounds, in bytes. */
export interface Bounds {
  readonly connection: number
  readonly peer: number
  readonly process: number
}

/** The entry of one held buffer in the account, from `hold` until `release`. */
export class BufferEntry {
  bytes = 0
  progress = Number.NaN
  /** When the peer last read or sent bytes, in monotonic milliseconds. */
  movedAt: number
  released = false
  readonly peer: string
  readonly connection: object
  readonly holding: HeldBuffer

  constructor(peer: string, connection: object, holding: HeldBuffer, now: number) {
    this.peer = peer
    this.connection = connection
    this.holding = holding
    this.movedAt = now
  }
}

type Reason = "connection" | "peer" | "process" | "stalled"

/**
 * The account of all bytes that peers make this process keep in memory: responses and frames that clients do not read,
 * and request bodies that arrive slowly. A peer is an agent, or an IP address before the key of a request is checked.
 * Each connection, each peer and the process have a bound.
 *
 * - If a connection exceeds its bound, it is cut.
 * - If a peer exceeds its bound, connections of this peer are cut. Stalled connections are cut first, then the largest.
 * - If the process exceeds its bound, connections of the peer with the most bytes are cut, stalled connections first.
 * - If the process exceeds half of its bound, connections that have been stalled for 10 s are cut if their peers use
 *   more than their share. Backlogs get room again in this way.
 *
 * As a result, a peer that does not read loses its own connections. A client that acknowledges messages loses none of
 * them, because messages without an acknowledgement are sent again. A socket without acknowledgements (wire.md E.2)
 * loses the frames that were sent on it, as with every broken connection. Only bytes that the kernel has not taken
 * count. A connection is counted if it makes the process hold more than `UNCOUNTED_BYTES` bytes. Every call is
 * synchronous.
 */
export class BufferAccount {
  total = 0
  readonly bounds: Bounds
  readonly #now: () => number
  readonly #cutOff: (peer: string, reason: Reason, bytes: number) => void
  readonly #peers = new Map<string, { bytes: number; readonly all: Set<BufferEntry> }>()
  readonly #connections = new Map<object, number>()

  /** `now` returns monotonic milliseconds. `cutOff` is called for each connection that is cut. */
  constructor(
    bounds: Bounds,
    now: () => number,
    cutOff: (peer: string, reason: Reason, bytes: number) => void = () => undefined
  ) {
    this.bounds = bounds
    this.#now = now
    this.#cutOff = cutOff
  }

  /** Begins to count a held buffer. */
  hold(peer: string, connection: object, holding: HeldBuffer): BufferEntry {
    const held = new BufferEntry(peer, connection, holding, this.#now())
    let account = this.#peers.get(peer)
    if (account === undefined) this.#peers.set(peer, account = { bytes: 0, all: new Set() })
    account.all.add(held)
    this.changed(held)
    return held
  }

  /**
   * Counts the bytes that the buffer contains now, and cuts connections if a bound is exceeded. The connection of this
   * buffer may be cut, too.
   */
  changed(held: BufferEntry): void {
    if (held.released) return
    this.#measure(held)
    const { connection, peer, process } = this.bounds
    if ((this.#connections.get(held.connection) ?? 0) > connection) this.#cut(held, "connection")
    const account = this.#peers.get(held.peer)
    if (account !== undefined && account.bytes > peer)
      this.#relieve(() => account.all, () => account.bytes > peer, "peer")
    if (this.total > process) this.#relieve(() => this.#heaviest(), () => this.total > process, "process")
  }

  /** Stops counting a held buffer. Has no effect after the first call. */
  release(held: BufferEntry): void {
    if (held.released) return
    this.#count(held, 0)
    held.released = true
    const account = this.#peers.get(held.peer)
    account?.all.delete(held)
    if (account?.all.size === 0) this.#peers.delete(held.peer)
  }

  /** Whether more than half of the process's bound is used. Work that can wait should then wait. */
  get isTight(): boolean {
    return this.total > this.bounds.process / 2
  }

  /** Measures all held buffers, releases the empty buffers, and cuts connections if a bound is exceeded. */
  sweep(): void {
    for (const { all } of this.#peers.values()) {
      for (const held of all) {
        this.#measure(held)
        if (held.bytes === 0) this.release(held)
      }
    }
    const { peer, process } = this.bounds
    for (const account of this.#peers.values()) {
      if (account.bytes > peer) this.#relieve(() => account.all, () => account.bytes > peer, "peer")
    }
    if (this.total > process) this.#relieve(() => this.#heaviest(), () => this.total > process, "process")
    if (!this.isTight) return
    const stalledBefore = this.#now() - TIGHT_STALL_TIMEOUT_MS
    const share = process / 2 / this.#peers.size
    const heaviest = [...this.#peers.values()].filter(({ bytes }) => bytes > share).toSorted((a, b) =>
      b.bytes - a.bytes
    )
    for (const { all } of heaviest) {
      for (const held of [...all].toSorted((a, b) => b.bytes - a.bytes)) {
        if (!this.isTight) return
        if (held.movedAt < stalledBefore) this.#cut(held, "stalled")
      }
    }
  }

  #all(): Array<BufferEntry> {
    return [...this.#peers.values()].flatMap(({ all }) => [...all])
  }

  /** The held buffers of the peer with the most bytes. */
  #heaviest(): Iterable<BufferEntry> {
    let most = 0
    let heaviest: Iterable<BufferEntry> = []
    for (const { all, bytes } of this.#peers.values()) {
      if (bytes <= most) continue
      most = bytes
      heaviest = all
    }
    return heaviest
  }

  #relieve(among: () => Iterable<BufferEntry>, isOver: () => boolean, reason: Reason): void {
    // If bytes have been sent since they were counted, a cut may be unnecessary.
    for (const held of this.#all()) this.#measure(held)
    while (isOver()) {
      const stalledBefore = this.#now() - STALLED_MS
      let victim: BufferEntry | undefined
      for (const held of among()) {
        if (victim === undefined) victim = held
        else {
          const [isStalled, victimIsStalled] = [held.movedAt <= stalledBefore, victim.movedAt <= stalledBefore]
          if (isStalled === victimIsStalled ? held.bytes > victim.bytes : isStalled) victim = held
        }
      }
      if (victim === undefined) return
      this.#cut(victim, reason)
    }
  }

  #cut(held: BufferEntry, reason: Reason): void {
    const { bytes } = held
    this.release(held)
    heldCuts.at(reason).add()
    this.#cutOff(held.peer, reason, bytes)
    held.holding.cut()
  }

  #measure(held: BufferEntry): void {
    if (held.released) return
    const progress = held.holding.progress()
    // A peer that reads or sends only a few bytes counts as stalled.
    if (!(progress - held.progress < UNCOUNTED_BYTES)) {
      held.progress = progress
      held.movedAt = this.#now()
    }
    this.#count(held, held.holding.bytes())
  }

  #count(held: BufferEntry, bytes: number): void {
    const more = bytes - held.bytes
    if (more === 0) return
    held.bytes = bytes
    this.total += more
    const account = this.#peers.get(held.peer)
    if (account !== undefined) account.bytes += more
    const ofConnection = (this.#connections.get(held.connection) ?? 0) + more
    if (ofConnection === 0) this.#connections.delete(held.connection)
    else this.#connections.set(held.connection, ofConnection)
  }
}

/** An account without bounds. */
export const boundless = (): BufferAccount =>
  new BufferAccount({ connection: Infinity, peer: Infinity, process: Infinity }, () => performance.now())

/** The account of this process. It has no bounds unless `layer` is provided. */
export class BufferedBytes extends Context.Reference<BufferAccount>("parley/http/BufferedBytes", {
  defaultValue: boundless
}) {
  static readonly layer = Layer.effect(
    BufferedBytes,
    Effect.gen(function*() {
      const config = yield* Config
      const now = monotonicMillis(yield* Clock.Clock)
      const run = Effect.runForkWith(yield* Effect.context<never>())
      const throttle = new LogThrottle()
      const account = new BufferAccount(
        { connection: config.HELD_CONNECTION_BYTES, peer: config.HELD_PEER_BYTES, process: config.HELD_BYTES },
        now,
        (peer, reason, bytes) =>
          run(
            throttle.log(
              Effect.annotateLogs(
                Effect.logWarning("A connection was closed, because its client made this server hold too many bytes"),
                { peer, reason, bytes }
              )
            )
          )
      )
      yield* heldBytes.readsIn(() => account.total)
      yield* Effect.forkScoped(Effect.repeat(Effect.sync(() => account.sweep()), Schedule.spaced(SWEEP_INTERVAL)))
      return account
    })
  )
}

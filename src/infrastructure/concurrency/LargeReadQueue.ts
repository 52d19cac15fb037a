/** How many requests may wait for a slot in the whole process. */
const MAX_WAITING = 8_192
/** An answer with more bytes keeps its slot for a second for each `PACE` bytes, however fast its client reads. */
const LARGE = 262_144
const PACE = 4_194_304
/**
 * If the statements of a request stopped the whole process for longer than `LONG_MS` (PGlite runs in the process), its
 * peer pauses for `REST` times as long. So one peer's requests take a quarter of the time. The pause is at most
 * `MOST_MS`, because other peers had their turns between the statements of an answer that takes minutes (an export).
 */
const LONG_MS = 20
const REST = 3
const MOST_MS = 2_000
/** The bounds: the requests of one peer that may wait, and the bytes of all answers that are being read. */
export interface Bounds {
  readonly waiting: number
  readonly bytes: number
  /** How long a slot stays taken after its answer was cut off unread, in milliseconds. */
  readonly cutMs: number
}

/** Gives monotonic milliseconds, and runs a function later. */
export interface Timing {
  readonly now: () => number
  readonly later: (ms: number, run: () => void) => void
  /** Runs a function after the work that waits in the event loop already. */
  readonly soon: (run: () => void) => void
}

/** An agent or an IP address that asks for large answers. */
interface Peer {
  readonly key: string
  readonly slots: number
  underWay: number
  /** When the next request of the peer may begin. */
  restsUntil: number
  readonly queue: Array<Ticket>
}

/** A request that waits for a slot. */
export class Ticket {
  /** Called once when the request gets its slot. The caller of `enter` must set it at once. */
  granted: (slot: Slot) => void = () => undefined
  readonly peer: Peer
  readonly bytes: number
  readonly #queue: LargeReadQueue

  constructor(queue: LargeReadQueue, peer: Peer, bytes: number) {
    this.#queue = queue
    this.peer = peer
    this.bytes = bytes
  }

  /** Leaves the queue. Has no effect if the request has got its slot. */
  leave(): void {
    this.#queue.withdraw(this)
  }
}

/** A large answer under way. */
export class Slot {
  readonly #queue: LargeReadQueue
  readonly #peer: Peer
  readonly #since: number
  /** The bytes of memory that reading the answer may take, as estimated. */
  #reading: number
  /** The time until which the slot stays taken, whatever happens to the answer. */
  #takenUntil = 0
  #over = false
  /** For how long the statements of the request stopped the process. */
  readonly blocked = { ms: 0 }

  constructor(queue: LargeReadQueue, peer: Peer, bytes: number) {
    this.#queue = queue
    this.#peer = peer
    this.#reading = bytes
    this.#since = queue.timing.now()
  }

  /**
   * Call it when the answer is encoded, with the number of its bytes. The rows of the answer must no longer be in
   * memory.
   */
  encoded(bytes: number): void {
    if (bytes > LARGE) this.#takenUntil = this.#since + bytes / PACE * 1_000
    if (this.#reading === 0) return
    this.#queue.read(this.#reading)
    this.#reading = 0
  }

  /**
   * Call it when the answer is cut off because its client made the process hold too much. The slot then stays taken for
   * some seconds.
   */
  cut(): void {
    this.#takenUntil = this.#queue.timing.now() + this.#queue.bounds.cutMs
  }

  /** Call it when the answer has left, or its client has disconnected. */
  left(): void {
    if (this.#over) return
    this.#over = true
    this.encoded(0)
    const { timing } = this.#queue
    const now = timing.now()
    if (this.blocked.ms > LONG_MS)
      this.#peer.restsUntil = Math.max(this.#peer.restsUntil, now) + Math.min(REST * this.blocked.ms, MOST_MS)
    const ms = this.#takenUntil - now
    if (ms > 0) timing.later(ms, () => this.#queue.leave(this.#peer))
    else this.#queue.leave(this.#peer)
  }
}

/**
 * The queue for large answers. A peer has a few slots. A slot is taken from before its answer is read until the answer
 * has left. All answers that are being read may have `bytes` together, as estimated. Further requests wait. The
 * requests of one peer get their slots in the order of their arrival, and the peers in turn. An answer above 256 kB
 * keeps its slot for one second per 4 MiB. An answer that is cut off unread keeps it for some seconds. A peer whose
 * requests stopped the process by their statements pauses after them. So a peer that asks again and again takes only a
 * part of the process's time. Every call is synchronous.
 */
export class LargeReadQueue {
  readonly bounds: Bounds
  readonly timing: Timing
  readonly #peers = new Map<string, Peer>()
  /** Peers with a request that waits and a free slot, the next one first. */
  readonly #next = new Map<string, Peer>()
  #reading = 0
  #underWay = 0
  #waiting = 0

  constructor(bounds: Bounds, timing: Timing) {
    this.bounds = bounds
    this.timing = timing
  }

  get underWay(): number {
    return this.#underWay
  }

  get waiting(): number {
    return this.#waiting
  }

  /**
   * Takes a slot or joins the queue. Returns "full" if the queue has too many requests of the peer, "busy" if it has
   * too many in all.
   */
  enter(key: string, slots: number, bytes: number): Slot | Ticket | "full" | "busy" {
    const peer = this.#peers.get(key) ?? { key, slots, underWay: 0, restsUntil: 0, queue: [] }
    if (peer.queue.length >= this.bounds.waiting) return "full"
    if (this.#waiting >= MAX_WAITING) return "busy"
    this.#peers.set(key, peer)
    const isFree = peer.queue.length === 0 && this.#mayBegin(peer)
    if (isFree && this.#next.size === 0 && this.#hasRoom(bytes)) return this.#take(peer, bytes)
    const ticket = new Ticket(this, peer, bytes)
    peer.queue.push(ticket)
    this.#waiting++
    if (isFree) this.#next.set(key, peer)
    return ticket
  }

  /** Removes a request that does not wait any longer. */
  withdraw(ticket: Ticket): void {
    const { peer } = ticket
    const at = peer.queue.indexOf(ticket)
    if (at === -1) return
    peer.queue.splice(at, 1)
    this.#waiting--
    if (peer.queue.length === 0) this.#next.delete(peer.key)
    this.#forget(peer)
    // The others may have waited because this request needed more bytes than were free.
    this.#grant()
  }

  /** Whether the peer has a free slot, so that only the bounds of the process delay its next request. */
  hasFreeSlot(key: string): boolean {
    return this.#next.has(key)
  }

  /** An answer was read and encoded. */
  read(bytes: number): void {
    this.#reading -= bytes
    this.#grant()
  }

  /** An answer has left. */
  leave(peer: Peer): void {
    // If the slot were free at once, the requests of one peer would follow each other without a turn for other peers.
    this.timing.soon(() => {
      peer.underWay--
      this.#underWay--
      this.#resume(peer)
    })
  }

  #resume(peer: Peer): void {
    const rests = peer.restsUntil - this.timing.now()
    if (rests > 0) this.timing.later(Math.ceil(rests), () => this.#resume(peer))
    if (peer.queue.length > 0 && this.#mayBegin(peer)) this.#next.set(peer.key, peer)
    this.#forget(peer)
    this.#grant()
  }

  #mayBegin(peer: Peer): boolean {
    return peer.underWay < peer.slots && peer.restsUntil <= this.timing.now()
  }

  #hasRoom(bytes: number): boolean {
    return this.#reading === 0 || this.#reading + bytes <= this.bounds.bytes
  }

  #take(peer: Peer, bytes: number): Slot {
    peer.underWay++
    this.#underWay++
    this.#reading += bytes
    return new Slot(this, peer, bytes)
  }

  #grant(): void {
    for (;;) {
      const [first] = this.#next
      if (first === undefined) return
      const [key, peer] = first
      const ticket = peer.queue[0]!
      if (!this.#hasRoom(ticket.bytes)) return
      peer.queue.shift()
      this.#waiting--
      const slot = this.#take(peer, ticket.bytes)
      // The peer moves to the end, so that the other peers come first.
      this.#next.delete(key)
      if (peer.queue.length > 0 && this.#mayBegin(peer)) this.#next.set(key, peer)
      ticket.granted(slot)
    }
  }

  #forget(peer: Peer): void {
    if (peer.underWay === 0 && peer.queue.length === 0 && peer.restsUntil <= this.timing.now())
      this.#peers.delete(peer.key)
  }
}

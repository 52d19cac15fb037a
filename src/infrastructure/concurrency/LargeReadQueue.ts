/** How many requests may wait for a slot in the whole process. */
const MAX_WAITING = 8_192
/**
 * A response with more bytes than `LARGE_BYTES` keeps its slot for one second per `BYTES_PER_SECOND` bytes, however
 * fast its client reads.
 */
const LARGE_BYTES = 262_144
const BYTES_PER_SECOND = 4_194_304
/**
 * PGlite runs inside the process, so a statement on PGlite blocks the whole process. The statements of one peer may take
 * 1/`SHARE` of the time, whether they are few and long or many and short. So each millisecond costs the peer `SHARE`
 * milliseconds, and a peer that owes more than `CREDIT_MS` gets no slot. Of one read, at most `MAX_COUNTED_MS` count,
 * because a read that takes longer (a first `ListTasks`) consists of many statements, and others run between them.
 */
const SHARE = 4
const CREDIT_MS = 60
const MAX_COUNTED_MS = 600

/**
 * The bounds of a queue: how many requests of one peer may wait, and how many bytes all responses that are being read
 * may take.
 */
export interface Bounds {
  readonly waiting: number
  readonly bytes: number
  /** How long a slot stays taken after its response was aborted because the client did not read it, in milliseconds. */
  readonly cutMs: number
}

/** A clock in monotonic milliseconds, and two functions that run another function later. */
export interface Timing {
  readonly now: () => number
  readonly later: (ms: number, run: () => void) => void
  /** Runs a function after the work that is already queued in the event loop. */
  readonly soon: (run: () => void) => void
}

/** An agent or an IP address that asks for large responses. */
interface Peer {
  readonly key: string
  readonly slots: number
  underWay: number
  /** The time until which the peer owes something for the statements of its requests that have ended. */
  paidAt: number
  /** When the next timer of the peer runs; `Infinity` if it has none. */
  wakesAt: number
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

  /** Leaves the queue. Has no effect if the request already has its slot. */
  leave(): void {
    this.#queue.withdraw(this)
  }
}

/** The slot of a large response that is being read or sent. */
export class Slot {
  readonly #queue: LargeReadQueue
  readonly #peer: Peer
  readonly #since: number
  /** The estimated memory that reading the response takes, in bytes. 0 after it was read. */
  #reading: number
  /** The time until which the slot stays taken, even if the response ends earlier. */
  #takenUntil = 0
  #over = false
  /** For how long the statements of the request blocked the process, in milliseconds. */
  readonly blocked = { ms: 0 }

  constructor(queue: LargeReadQueue, peer: Peer, bytes: number) {
    this.#queue = queue
    this.#peer = peer
    this.#reading = bytes
    this.#since = queue.timing.now()
  }

  /**
   * Must be called when the response is encoded, with its number of bytes. The rows of the response must no longer be
   * in memory.
   */
  encoded(bytes: number): void {
    if (bytes > LARGE_BYTES) this.#takenUntil = this.#since + bytes / BYTES_PER_SECOND * 1_000
    if (this.#reading === 0) return
    this.#queue.read(this.#reading)
    this.#reading = 0
  }

  /**
   * Must be called when the response is aborted because the client did not read it and the process buffered too much.
   * The slot then stays taken for `cutMs`.
   */
  cut(): void {
    this.#takenUntil = this.#queue.timing.now() + this.#queue.bounds.cutMs
  }

  /** Must be called when the whole response was sent, or the client has disconnected. */
  left(): void {
    if (this.#over) return
    this.#over = true
    const { timing } = this.#queue
    const now = timing.now()
    const counted = Math.min(this.blocked.ms, MAX_COUNTED_MS)
    this.#peer.paidAt = Math.max(this.#peer.paidAt, now - counted) + SHARE * counted
    // This may grant other requests their slots, so the peer must have been charged.
    this.encoded(0)
    const ms = this.#takenUntil - now
    if (ms > 0) timing.later(ms, () => this.#queue.leave(this.#peer))
    else this.#queue.leave(this.#peer)
  }
}

/**
 * The queue for large responses. Each peer has a few slots. A request takes a slot before its response is read, and
 * keeps the slot until the response was sent. The estimated sizes of all responses that are being read may add up to
 * `bytes`. Further requests wait. The requests of one peer get slots in the order of their arrival, and the peers in
 * turn.
 *
 * Three rules keep a peer that asks again and again from taking more than a part of the process's time. A response
 * above 256 kB keeps its slot for one second per 4 MiB. A response that is aborted because its client does not read
 * keeps its slot for some seconds. A peer whose statements block the process for more than a quarter of the time pauses.
 *
 * Every call is synchronous.
 */
export class LargeReadQueue {
  readonly bounds: Bounds
  readonly timing: Timing
  readonly #peers = new Map<string, Peer>()
  /** Peers that have a waiting request. The first one that may begin is next. Others are removed when it is their turn. */
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
   * Takes a slot or joins the queue. Returns "full" if too many requests of this peer wait, and "busy" if too many
   * requests wait in total.
   */
  enter(key: string, slots: number, bytes: number): Slot | Ticket | "full" | "busy" {
    const peer = this.#peers.get(key) ?? { key, slots, underWay: 0, paidAt: -Infinity, wakesAt: Infinity, queue: [] }
    if (peer.queue.length >= this.bounds.waiting) return "full"
    if (this.#waiting >= MAX_WAITING) return "busy"
    this.#peers.set(key, peer)
    const isFree = peer.queue.length === 0 && this.#mayBegin(peer)
    if (isFree && this.#next.size === 0 && this.#hasRoom(bytes)) return this.#take(peer, bytes)
    const ticket = new Ticket(this, peer, bytes)
    peer.queue.push(ticket)
    this.#waiting++
    if (isFree) this.#next.set(key, peer)
    else this.#wakeLater(peer)
    return ticket
  }

  /** Removes a request that no longer waits. */
  withdraw(ticket: Ticket): void {
    const { peer } = ticket
    const at = peer.queue.indexOf(ticket)
    if (at === -1) return
    peer.queue.splice(at, 1)
    this.#waiting--
    if (peer.queue.length === 0) this.#next.delete(peer.key)
    this.#forget(peer)
    // Other requests may have waited because this one needed more bytes than were free.
    this.#grant()
  }

  /** Whether the peer gets no slot because of what its statements cost. */
  isInDebt(key: string): boolean {
    return (this.#peers.get(key)?.paidAt ?? -Infinity) - CREDIT_MS > this.timing.now()
  }

  /** Whether the peer has a free slot, so that only the bounds of the process delay its next request. */
  hasFreeSlot(key: string): boolean {
    const peer = this.#next.get(key)
    return peer !== undefined && this.#mayBegin(peer)
  }

  /** A response was read and encoded. */
  read(bytes: number): void {
    this.#reading -= bytes
    this.#grant()
  }

  /** Frees the slot of a response that was sent or has ended. */
  leave(peer: Peer): void {
    // If the slot became free at once, the requests of one peer could follow each other without a chance for other
    // peers.
    this.timing.soon(() => {
      peer.underWay--
      this.#underWay--
      this.#resume(peer)
    })
  }

  #resume(peer: Peer): void {
    if (peer.queue.length > 0 && this.#mayBegin(peer)) this.#next.set(peer.key, peer)
    this.#wakeLater(peer)
    this.#forget(peer)
    this.#grant()
  }

  /** Sets a timer for a peer that has not paid yet: for its next request, and at last to forget the peer. */
  #wakeLater(peer: Peer): void {
    const now = this.timing.now()
    if (peer.paidAt <= now) return
    const at = peer.paidAt - CREDIT_MS > now ? peer.paidAt - CREDIT_MS : peer.paidAt
    if (peer.wakesAt <= at) return
    peer.wakesAt = at
    this.timing.later(Math.ceil(at - now), () => {
      if (peer.wakesAt === at) peer.wakesAt = Infinity
      this.#resume(peer)
    })
  }

  #mayBegin(peer: Peer): boolean {
    return peer.underWay < peer.slots && peer.paidAt - CREDIT_MS <= this.timing.now()
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
      if (!this.#mayBegin(peer)) {
        this.#next.delete(key)
        this.#wakeLater(peer)
        continue
      }
      const ticket = peer.queue[0]!
      if (!this.#hasRoom(ticket.bytes)) return
      peer.queue.shift()
      this.#waiting--
      const slot = this.#take(peer, ticket.bytes)
      // The peer moves to the end, so that the other peers come first.
      this.#next.delete(key)
      if (peer.queue.length > 0) this.#next.set(key, peer)
      ticket.granted(slot)
    }
  }

  #forget(peer: Peer): void {
    const isOver = peer.underWay === 0 && peer.queue.length === 0 && peer.paidAt <= this.timing.now()
    // A late timer may belong to a peer that was forgotten and has come back since.
    if (isOver && this.#peers.get(peer.key) === peer) this.#peers.delete(peer.key)
  }
}

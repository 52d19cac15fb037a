/** Agent ids of this shape are stored as twelve bytes. `Ids` makes no others. */
const PREFIX = "agt_"
const LENGTH = PREFIX.length + 16
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
const VALUES = new Int8Array(128).fill(-1)
for (let i = 0; i < ALPHABET.length; i++) VALUES[ALPHABET.charCodeAt(i)] = i

/** The number of segments of the table. A segment with 20,000 sockets is copied within about a millisecond. */
const SEGMENTS = 256
const FIRST_SLOTS = 8
const SLOT_BYTES = 22
/** The share of a segment's slots that may be in use. */
const FULL = 0.8
const GROWTH = 1.5
/** The share of a segment's slots below which the segment is made smaller. */
const SPARSE = 0.25

/** The id of the last call of `parse`, as three numbers of 32 bits. */
const id = new Uint32Array(3)

/** Parses an agent's id into `id`. Returns false if the id has another shape. */
const parse = (agentId: string): boolean => {
  if (agentId.length !== LENGTH || !agentId.startsWith(PREFIX)) return false
  let [a, b, c, wrong] = [0, 0, 0, 0]
  for (let i = 0; i < 16; i++) {
    const code = agentId.charCodeAt(PREFIX.length + i)
    const value = code < 128 ? VALUES[code]! : -1
    wrong |= value
    // The 16 groups of 6 bits are shifted through the 96 bits.
    a = (a << 6) | (b >>> 26)
    b = (b << 6) | (c >>> 26)
    c = (c << 6) | (value & 63)
  }
  id[0] = a
  id[1] = b
  id[2] = c
  return wrong >= 0
}

const hashOf = (a: number, b: number, c: number): number => {
  let hash = Math.imul(a ^ 0x9E3779B9, 0x85EBCA6B) ^ Math.imul(b ^ 0x27D4EB2F, 0xC2B2AE35) ^ Math.imul(c, 0x165667B1)
  hash = Math.imul(hash ^ (hash >>> 15), 0x2C1B3C6D)
  hash = Math.imul(hash ^ (hash >>> 12), 0x297A2D39)
  return (hash ^ (hash >>> 15)) >>> 0
}

/** A part of the table, with open addressing and linear probing. A slot is free if its node is 0. */
class Segment {
  slots = 0
  size = 0
  ids = new Uint32Array(0)
  since = new Float64Array(0)
  nodes = new Uint16Array(0)

  /** The slot at which the search for an id begins. */
  private home(hash: number): number {
    return Math.floor(hash * this.slots / 2 ** 32)
  }

  private homeOf(slot: number): number {
    return this.home(hashOf(this.ids[slot * 3]!, this.ids[slot * 3 + 1]!, this.ids[slot * 3 + 2]!))
  }

  private isAt(slot: number, a: number, b: number, c: number): boolean {
    return this.ids[slot * 3 + 2] === c && this.ids[slot * 3 + 1] === b && this.ids[slot * 3] === a
  }

  private next(slot: number): number {
    return slot + 1 === this.slots ? 0 : slot + 1
  }

  visit(hash: number, a: number, b: number, c: number, visit: (node: number, since: number) => void): void {
    if (this.size === 0) return
    for (let slot = this.home(hash); this.nodes[slot] !== 0; slot = this.next(slot)) {
      if (this.isAt(slot, a, b, c)) visit(this.nodes[slot]!, this.since[slot]!)
    }
  }

  add(hash: number, a: number, b: number, c: number, node: number, since: number): void {
    if (this.size + 1 > this.slots * FULL) this.resize(Math.max(FIRST_SLOTS, Math.ceil(this.slots * GROWTH)))
    let slot = this.home(hash)
    while (this.nodes[slot] !== 0) slot = this.next(slot)
    this.ids[slot * 3] = a
    this.ids[slot * 3 + 1] = b
    this.ids[slot * 3 + 2] = c
    this.since[slot] = since
    this.nodes[slot] = node
    this.size++
  }

  /** Removes the sockets of an agent on a node. */
  remove(hash: number, a: number, b: number, c: number, node: number): void {
    if (this.size === 0) return
    for (let slot = this.home(hash); this.nodes[slot] !== 0;) {
      if (this.nodes[slot] === node && this.isAt(slot, a, b, c)) this.free(slot)
      else slot = this.next(slot)
    }
  }

  /** Removes all sockets on a node. */
  removeNode(node: number, removed: (a: number, b: number, c: number) => void): void {
    for (let slot = 0; slot < this.slots;) {
      if (this.nodes[slot] === node) {
        removed(this.ids[slot * 3]!, this.ids[slot * 3 + 1]!, this.ids[slot * 3 + 2]!)
        this.free(slot)
      } else slot++
    }
    this.shrink()
  }

  shrink(): void {
    if (this.slots > FIRST_SLOTS && this.size < this.slots * SPARSE) {
      this.resize(Math.max(FIRST_SLOTS, Math.ceil(this.size / FULL * GROWTH)))
    }
  }

  /** Frees a slot, and moves later sockets forward that would not be found behind a free slot. */
  private free(slot: number): void {
    let hole = slot
    for (let other = this.next(slot); this.nodes[other] !== 0; other = this.next(other)) {
      const home = this.homeOf(other)
      const isReachable = hole <= other ? hole < home && home <= other : hole < home || home <= other
      if (isReachable) continue
      this.ids.copyWithin(hole * 3, other * 3, other * 3 + 3)
      this.since[hole] = this.since[other]!
      this.nodes[hole] = this.nodes[other]!
      hole = other
    }
    this.nodes[hole] = 0
    this.size--
  }

  private resize(slots: number): void {
    const { ids, nodes, since, slots: before } = this
    this.slots = slots
    this.size = 0
    this.ids = new Uint32Array(slots * 3)
    this.since = new Float64Array(slots)
    this.nodes = new Uint16Array(slots)
    for (let slot = 0; slot < before; slot++) {
      if (nodes[slot] === 0) continue
      const [a, b, c] = [ids[slot * 3]!, ids[slot * 3 + 1]!, ids[slot * 3 + 2]!]
      this.add(hashOf(a, b, c), a, b, c, nodes[slot]!, since[slot]!)
    }
  }
}

/**
 * The sockets that agents have on other nodes, as those nodes have announced them. A node of a large cluster knows
 * millions of them. So they are kept in arrays of numbers, which the garbage collector does not read, at 22 bytes for
 * each slot. Nodes are numbered from 1 to 65,535.
 */
export class RemoteSockets {
  private readonly segments = Array.from({ length: SEGMENTS }, () => new Segment())
  /** The sockets of agents whose ids have another shape. */
  private readonly others = new Map<string, Map<number, ReadonlyArray<number>>>()

  /** The memory of the arrays. */
  get bytes(): number {
    return this.segments.reduce((sum, { slots }) => sum + slots * SLOT_BYTES, 0)
  }

  /** Replaces the sockets that an agent has on a node. `since` is when each was accepted, in milliseconds. */
  set(agentId: string, node: number, since: ReadonlyArray<number>): void {
    if (!parse(agentId)) {
      const nodes = this.others.get(agentId) ?? new Map<number, ReadonlyArray<number>>()
      if (since.length > 0) this.others.set(agentId, nodes.set(node, since))
      else if (nodes.delete(node) && nodes.size === 0) this.others.delete(agentId)
      return
    }
    const [a, b, c] = [id[0]!, id[1]!, id[2]!]
    const hash = hashOf(a, b, c)
    const segment = this.segments[hash % SEGMENTS]!
    segment.remove(hash, a, b, c, node)
    for (const one of since) segment.add(hash, a, b, c, node, one)
    if (since.length === 0) segment.shrink()
  }

  /** Calls `visit` once for each socket of an agent. `visit` must not change the sockets. */
  visit(agentId: string, visit: (node: number, since: number) => void): void {
    if (!parse(agentId)) {
      for (const [node, since] of this.others.get(agentId) ?? []) for (const one of since) visit(node, one)
      return
    }
    const [a, b, c] = [id[0]!, id[1]!, id[2]!]
    const hash = hashOf(a, b, c)
    this.segments[hash % SEGMENTS]!.visit(hash, a, b, c, visit)
  }

  /** Removes all sockets on a node, and returns the agents that had some there. */
  removeNode(node: number): ReadonlyArray<string> {
    const agents = new Set<string>()
    const bytes = Buffer.alloc(12)
    for (const segment of this.segments) {
      segment.removeNode(node, (a, b, c) => {
        bytes.writeUInt32BE(a, 0)
        bytes.writeUInt32BE(b, 4)
        bytes.writeUInt32BE(c, 8)
        agents.add(PREFIX + bytes.toString("base64url"))
      })
    }
    for (const [agentId, nodes] of this.others) {
      if (!nodes.delete(node)) continue
      agents.add(agentId)
      if (nodes.size === 0) this.others.delete(agentId)
    }
    return [...agents]
  }
}

/** Where a text stands among all that one node says to another. */
export interface PeerPlace {
  /** Of the sender's process; a later one has a greater number. */
  readonly incarnation: number
  /** Texts of a process to one node are numbered from 1 without a gap. */
  readonly number: number
  /** It stands for everything that was said before. */
  readonly first: boolean
}

/**
 * What a node has heard of another: in which order, of which process, and whether
 * from a text on that stands for everything. Late, repeated and overtaken texts are
 * found by their place, so nothing old ever replaces something newer.
 */
export class PeerOrder {
  private incarnation = 0
  private last = 0
  private whole = false

  /**
   * `take`: the next one. `again`: has been taken, nothing is to be done. `refuse`: too late, of a process that has
   * been replaced, or without what came before it: the sender, should it still wait, has to say everything again.
   */
  judge({ first, incarnation, number }: PeerPlace): "take" | "again" | "refuse" {
    if (incarnation < this.incarnation) return "refuse"
    const replaced = incarnation > this.incarnation
    if (!replaced && number <= this.last) return this.whole && number === this.last ? "again" : "refuse"
    if (!first && (replaced || !this.whole || number !== this.last + 1)) return "refuse"
    this.incarnation = incarnation
    this.last = number
    this.whole = true
    return "take"
  }

  /** Nothing that was heard holds any more; what was said so far stays too late. */
  forget(): void {
    this.whole = false
  }
}

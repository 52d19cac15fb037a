/** The position of a message in the sequence from one node to another. */
export interface PeerPlace {
  /** The sender's process; a later process has a greater number. */
  readonly incarnation: number
  /** The messages of a process to one node are numbered from 1 without gaps. */
  readonly number: number
  /** The message carries the full state, so it replaces everything sent before. */
  readonly first: boolean
}

/**
 * Tracks the messages received from one node: the sender's process, the last number, and whether they follow a message
 * with the full state without a gap. Late and repeated messages are recognised by their position, so old state never
 * replaces newer state.
 */
export class PeerOrder {
  private incarnation = 0
  private last = 0
  private whole = false

  /**
   * `take`: the message is next. `again`: it was taken already; do nothing. `refuse`: it is late, from a process that
   * has been replaced, or after a gap: the sender, if it still waits, must send its full state again.
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

  /**
   * Invalidates the received state: only a message with the full state is taken next. Older messages are still refused
   * as late.
   */
  forget(): void {
    this.whole = false
  }
}

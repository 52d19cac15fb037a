export type MuteKind = "agent" | "conversation"

/** The mutes of one agent, in memory. Every look-up compares the end of the mute with the clock. */
export class MuteSet {
  private readonly now: () => number
  /**
   * The end of each mute in milliseconds, by target. Ids of agents and of conversations never collide. Undefined while
   * there is no mute, because most agents mute nothing.
   */
  private until: Map<string, number> | undefined

  constructor(now: () => number) {
    this.now = now
  }

  /** `until` is in milliseconds, or `null` for a mute without an end. */
  add(targetId: string, until: number | null): void {
    ;(this.until ??= new Map()).set(targetId, until ?? Number.POSITIVE_INFINITY)
  }

  remove(targetId: string): void {
    this.until?.delete(targetId)
  }

  /** Whether the set contains no mute. A mute that has ended may still be in the set. */
  get isEmpty(): boolean {
    return this.until === undefined || this.until.size === 0
  }

  /** Whether this sender, or all of this conversation, is muted now. */
  covers(senderId: string, conversationId: string): boolean {
    const { until } = this
    return until !== undefined && (this.isMuted(until, senderId) || this.isMuted(until, conversationId))
  }

  private isMuted(until: Map<string, number>, targetId: string): boolean {
    const end = until.get(targetId)
    if (end === undefined) return false
    if (end > this.now()) return true
    until.delete(targetId)
    return false
  }
}

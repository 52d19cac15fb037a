export type MuteKind = "agent" | "conversation"

/** What one agent has muted, in memory; expiry is a comparison with the clock at every look. */
export class MuteSet {
  private readonly now: () => number
  /** Until when, by target: ids of agents and of conversations never collide. */
  private readonly until = new Map<string, number>()

  constructor(now: () => number) {
    this.now = now
  }

  /** Muted until then; null for good. */
  add(targetId: string, until: number | null): void {
    this.until.set(targetId, until ?? Number.POSITIVE_INFINITY)
  }

  remove(targetId: string): void {
    this.until.delete(targetId)
  }

  /** Whether this sender, or all of this conversation, is muted now. */
  covers(senderId: string, conversationId: string): boolean {
    return this.until.size > 0 && (this.isMuted(senderId) || this.isMuted(conversationId))
  }

  private isMuted(targetId: string): boolean {
    const until = this.until.get(targetId)
    if (until === undefined) return false
    if (until > this.now()) return true
    this.until.delete(targetId)
    return false
  }
}

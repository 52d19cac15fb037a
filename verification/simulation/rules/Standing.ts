const DAY = 86_400_000
const WEEK = 7 * DAY

export type Status = "active" | "restricted" | "suspended"

export interface Thresholds {
  readonly restrictBlocks: number
  readonly suspendBlocks: number
  readonly suspendReports: number
}

interface Complaint {
  readonly by: number
  readonly on: number
  readonly at: number
}

/** Which agents are restricted or suspended (wire.md G.8). Every read counts all complaints again. */
export class Standing {
  private readonly thresholds: Thresholds
  /** Whether the first agent began the conversation with the second one. */
  private readonly wroteFirst: (one: number, other: number) => boolean
  private blocks: Array<Complaint> = []
  private readonly reports: Array<Complaint> = []
  private readonly suspended = new Set<number>()
  private readonly restored = new Map<number, number>()

  constructor(thresholds: Thresholds, wroteFirst: (one: number, other: number) => boolean) {
    this.thresholds = thresholds
    this.wroteFirst = wroteFirst
  }

  blocking(by: number, on: number): boolean {
    return this.blocks.some((one) => one.by === by && one.on === on)
  }

  apart(one: number, other: number): boolean {
    return this.blocking(one, other) || this.blocking(other, one)
  }

  reported(by: number, on: number): boolean {
    return this.reports.some((one) => one.by === by && one.on === on)
  }

  /** Adds a block. A second block of the same pair changes nothing. */
  block(by: number, on: number, at: number): void {
    if (!this.blocking(by, on)) this.blocks.push({ by, on, at })
  }

  unblock(by: number, on: number): void {
    this.blocks = this.blocks.filter((one) => one.by !== by || one.on !== on)
  }

  report(by: number, on: number, at: number): void {
    this.reports.push({ by, on, at })
  }

  blockedBy(by: number): ReadonlyArray<number> {
    return this.blocks.filter((one) => one.by === by).map(({ on }) => on)
  }

  private counted(complaints: ReadonlyArray<Complaint>, on: number, window: number, now: number): number {
    return complaints.filter((one) =>
      one.on === on && this.wroteFirst(on, one.by) && one.at > now - window && one.at > (this.restored.get(on) ?? -1)
    ).length
  }

  statusOf(agent: number, now: number): Status {
    if (this.suspended.has(agent)) return "suspended"
    return this.counted(this.blocks, agent, DAY, now) >= this.thresholds.restrictBlocks ? "restricted" : "active"
  }

  /**
   * Decides, after a block or a report was committed or undone, whether the agent is suspended and for which
   * complaints.
   */
  judge(agent: number, now: number): "blocks" | "reports" | undefined {
    if (this.suspended.has(agent)) return undefined
    const grounds = this.counted(this.blocks, agent, WEEK, now) >= this.thresholds.suspendBlocks
      ? "blocks"
      : this.counted(this.reports, agent, WEEK, now) >= this.thresholds.suspendReports
      ? "reports"
      : undefined
    if (grounds !== undefined) this.suspended.add(agent)
    return grounds
  }

  /** Suspends an agent. Returns false if it is suspended already. */
  suspend(agent: number): boolean {
    if (this.suspended.has(agent)) return false
    this.suspended.add(agent)
    return true
  }

  restore(agent: number, at: number): void {
    this.suspended.delete(agent)
    this.restored.set(agent, at)
  }

  /** The times at which something changes without a request. */
  edges(): ReadonlyArray<number> {
    return [
      ...this.blocks.flatMap(({ at }) => [at + DAY, at + WEEK]),
      ...this.reports.map(({ at }) => at + WEEK)
    ]
  }
}

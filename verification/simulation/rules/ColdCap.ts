const DAY = 86_400_000
const SOON = 3_600_000

/** The limit of unanswered conversations that an agent began within 24 hours (wire.md G.1). */
export class ColdCap {
  private readonly limit: number
  private readonly begun: Array<{ readonly by: number; readonly talk: string; readonly at: number; cold: boolean }> = []

  constructor(limit: number) {
    this.limit = limit
  }

  begin(by: number, talk: string, at: number): void {
    this.begun.push({ by, talk, at, cold: true })
  }

  reply(talk: string): void {
    for (const one of this.begun) if (one.talk === talk) one.cold = false
  }

  /** The details of the refusal of one more conversation; undefined if one more is allowed. */
  refusal(by: number, now: number): Readonly<Record<string, unknown>> | undefined {
    const counted = this.begun.filter((one) => one.by === by && one.cold && one.at > now - DAY)
    if (counted.length < this.limit) return undefined
    const resets = Math.min(...counted.map(({ at }) => at)) + DAY
    return {
      limit: this.limit,
      used: counted.length,
      window_seconds: DAY / 1_000,
      resets_at: new Date(resets).toISOString(),
      retry_after_ms: resets - now <= SOON ? resets - now : undefined
    }
  }

  /** The times at which something changes without a request. */
  edges(): ReadonlyArray<number> {
    return this.begun.flatMap(({ at, cold }) => cold ? [at + DAY - SOON, at + DAY] : [])
  }
}

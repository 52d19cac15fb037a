/**
 * The agents and conversations that each agent has muted, and until when (wire.md G.11). Agents are numbers,
 * conversations are names.
 */
export class Mutes {
  private until = new Map<string, number>()

  set(muter: number, target: number | string, until: number | null): void {
    this.until.set(`${muter} ${target}`, until ?? Number.POSITIVE_INFINITY)
  }

  /** Lifts a mute. Returns false if there is none. */
  lift(muter: number, target: number | string, now: number): boolean {
    const was = this.end(muter, target, now)
    this.until.delete(`${muter} ${target}`)
    return was !== undefined
  }

  /** When an active mute ends; null if it has no end, undefined if there is no active mute. */
  end(muter: number, target: number | string, now: number): number | null | undefined {
    const until = this.until.get(`${muter} ${target}`)
    return until === undefined || until <= now ? undefined : until === Number.POSITIVE_INFINITY ? null : until
  }

  covers(muter: number, sender: number, talk: string, now: number): boolean {
    return this.end(muter, sender, now) !== undefined || this.end(muter, talk, now) !== undefined
  }

  active(muter: number, now: number): ReadonlyArray<string> {
    return [...this.until].filter(([key, until]) => key.startsWith(`${muter} `) && until > now)
      .map(([key]) => key.slice(key.indexOf(" ") + 1))
  }

  remove(agent: number): void {
    this.until = new Map([...this.until].filter(([key]) => !key.startsWith(`${agent} `) && !key.endsWith(` ${agent}`)))
  }

  edges(): ReadonlyArray<number> {
    return [...this.until.values()].filter(Number.isFinite)
  }
}

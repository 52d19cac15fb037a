/** Whom or what each agent has muted, until when (wire.md G.11). Agents are numbers, conversations names. */
export class Mutes {
  private until = new Map<string, number>()

  set(muter: number, target: number | string, until: number | null): void {
    this.until.set(`${muter} ${target}`, until ?? Number.POSITIVE_INFINITY)
  }

  /** False: there is none. */
  lift(muter: number, target: number | string, now: number): boolean {
    const was = this.end(muter, target, now)
    this.until.delete(`${muter} ${target}`)
    return was !== undefined
  }

  /** When a mute ends that is not over yet; null: never. */
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

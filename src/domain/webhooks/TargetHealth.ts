/**
 * One agent's posts to one host. The posts of other agents to the host do not count for this target, so no agent can
 * spoil a host for others.
 */
export interface PostTarget {
  readonly agentId: string
  readonly host: string
}

/**
 * The standings of a target, from the worst to the best. The last post decides the standing; `Late` if the post was
 * answered late.
 */
export const standings = ["Silent", "Unknown", "Late", "Answers"] as const
export type Standing = typeof standings[number]

export interface StandingRules {
  /** How many targets are remembered. Above that, the server forgets the target whose last post is the oldest. */
  readonly remembered: number
  /** How long a standing lasts after the last post. */
  readonly lastsMs: number
  /** A post that takes longer is late, with an answer or without one. */
  readonly lateMs: number
}

/**
 * Remembers in bounded memory which targets answered lately. A restart forgets all of them. Times are in milliseconds.
 */
export class TargetHealth {
  private readonly rules: StandingRules
  /** The target with the oldest last post comes first. */
  private readonly known = new Map<string, { readonly standing: Standing; readonly at: number }>()

  constructor(rules: StandingRules) {
    this.rules = rules
  }

  of(target: PostTarget, now: number): Standing {
    const found = this.known.get(keyOf(target))
    return found === undefined || found.at <= now - this.rules.lastsMs ? "Unknown" : found.standing
  }

  /**
   * Counts a post that has ended. An early failure, such as a refused connection, changes nothing, because it did not
   * hold a place for long.
   */
  ended(target: PostTarget, answered: boolean, tookMs: number, now: number): void {
    const late = tookMs > this.rules.lateMs
    if (!answered && !late) return
    const key = keyOf(target)
    this.known.delete(key)
    this.known.set(key, { standing: !answered ? "Silent" : late ? "Late" : "Answers", at: now })
    if (this.known.size > this.rules.remembered) this.known.delete(this.known.keys().next().value!)
  }

  get size(): number {
    return this.known.size
  }
}

const keyOf = ({ agentId, host }: PostTarget): string => `${agentId} ${host}`

/**
 * A pair of an agent and a host to which the agent's webhooks post. Posts of other agents to the same host count for
 * other targets. So no agent can worsen the standing of a host for other agents.
 */
export interface PostTarget {
  readonly agentId: string
  readonly host: string
}

/**
 * The standings of a target, from the worst to the best. The last post decides: `Answers` if the host answered it in
 * time, `Late` if the host answered late, `Silent` if the host did not answer. `Unknown`: no recent post is known.
 */
export const standings = ["Silent", "Unknown", "Late", "Answers"] as const
export type Standing = typeof standings[number]

export interface StandingRules {
  /** How many targets are remembered. When there are more, the target whose last post is the oldest is forgotten. */
  readonly remembered: number
  /** How long a standing lasts after the last post, in milliseconds. */
  readonly lastsMs: number
  /** How long a post may take before it is late, in milliseconds, whether or not the host answers. */
  readonly lateMs: number
}

/**
 * Remembers in bounded memory how targets answered recently. A restart forgets all of them. Times are in milliseconds.
 */
export class TargetHealth {
  private readonly rules: StandingRules
  /** The known targets, ordered by the time of their last post, oldest first. */
  private readonly known = new Map<string, { readonly standing: Standing; readonly at: number }>()

  constructor(rules: StandingRules) {
    this.rules = rules
  }

  of(target: PostTarget, now: number): Standing {
    const found = this.known.get(keyOf(target))
    return found === undefined || found.at <= now - this.rules.lastsMs ? "Unknown" : found.standing
  }

  /**
   * Records the outcome of a post that has ended. An early failure, such as a refused connection, does not change the
   * standing, because the post did not occupy its place for long.
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

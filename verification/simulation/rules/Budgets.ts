const DAY = 86_400_000

/** How many messages an agent lets itself send within 24 hours. */
export interface Budget {
  readonly perConversation: number | null
  readonly inAll: number | null
}

export interface Left {
  readonly left: number
  readonly limit: number
  readonly scope: "conversation" | "agent"
}

interface Counted {
  readonly scope: Left["scope"]
  readonly limit: number
  readonly times: Array<number>
}

/** The budgets of agents, and what counts against them (wire.md G.19). */
export class Budgets {
  private readonly own = new Map<number, Budget>()
  private readonly counts = new Map<string, Array<number>>()

  set(agent: number, budget: Budget | null): void {
    if (budget === null) this.own.delete(agent)
    else this.own.set(agent, budget)
  }

  of(agent: number): Budget | null {
    return this.own.get(agent) ?? null
  }

  /** The windows in which a send counts. A send counts only against the budgets that the agent has at that time. */
  private windows(agent: number, talk: string): ReadonlyArray<Counted> {
    const { inAll, perConversation } = this.own.get(agent) ?? { inAll: null, perConversation: null }
    const windowOf = (scope: Left["scope"], limit: number | null, key: string): ReadonlyArray<Counted> => {
      if (limit === null) return []
      const times = this.counts.get(key) ?? []
      this.counts.set(key, times)
      return [{ scope, limit, times }]
    }
    return [
      ...windowOf("conversation", perConversation, `${agent} ${talk}`),
      ...windowOf("agent", inAll, `${agent}`)
    ]
  }

  /** The details of the refusal of one more send to the conversation; undefined if one more is allowed. */
  refusal(agent: number, talk: string, now: number): Readonly<Record<string, unknown>> | undefined {
    const waits = this.windows(agent, talk).map(({ limit, scope, times }) => {
      const within = times.filter((at) => at > now - DAY)
      return { scope, limit, wait: within.length < limit ? 0 : within[within.length - limit]! + DAY - now }
    })
    const longest = Math.max(0, ...waits.map(({ wait }) => wait))
    const full = waits.find(({ wait }) => wait === longest)
    if (full === undefined || longest === 0) return undefined
    return {
      scope: full.scope,
      limit: full.limit,
      window: "24h",
      resets_at: new Date(now + longest).toISOString(),
      retry_after_ms: longest
    }
  }

  /** Counts a send. Returns what is left of the budget with the fewest sends left, if that is less than 20 %. */
  count(agent: number, talk: string, now: number): Left | undefined {
    const left = this.windows(agent, talk).map(({ limit, scope, times }) => {
      times.push(now)
      return { left: limit - times.filter((at) => at > now - DAY).length, limit, scope }
    })
    return left.filter((one) => one.left * 5 < one.limit).toSorted((a, b) => a.left - b.left)[0]
  }

  /** The times at which a full window may have room again. */
  edges(): ReadonlyArray<number> {
    return [...this.counts.values()].flatMap((times) => times.slice(-1).map((at) => at + DAY))
  }
}

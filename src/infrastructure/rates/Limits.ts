import { Clock, Context, Effect, Layer } from "effect"
import type { LimitName, RateRule } from "./RateRule.ts"

/** A limit that an operator has changed (wire.md O). */
export interface LimitChange {
  readonly name: string
  /** The agent for which the limit is changed; null if it is changed for all agents. */
  readonly agentId: string | null
  readonly value: number
  /** When the change ends, in milliseconds, or null if it lasts until an operator removes it. */
  readonly until: number | null
}

/**
 * The changes that operators have made to limits, in the memory of this process. `LimitChanges` reads the rows on every
 * node and calls `set`. A look-up is on the send path, so it is synchronous, and costs one comparison while no limit is
 * changed.
 */
export interface LimitsShape {
  /** Returns the value in force: the change for this agent, else the change for all agents, else `configured`. */
  readonly of: (name: LimitName, configured: number, agentId?: string) => number
  /** Returns the rule with the limit that is in force for this key. */
  readonly rule: (rule: RateRule, key: string) => RateRule
  /** Whether any limit is changed. */
  readonly any: () => boolean
  /** Replaces all changes. */
  readonly set: (changes: ReadonlyArray<LimitChange>) => void
}

const make = (now: () => number): LimitsShape => {
  let changes: ReadonlyMap<string, LimitChange> = new Map()
  const keyOf = (name: string, agentId: string | null) => agentId === null ? name : `${name} ${agentId}`
  const found = (name: string, agentId: string | null): number | undefined => {
    const change = changes.get(keyOf(name, agentId))
    return change === undefined || (change.until !== null && change.until <= now()) ? undefined : change.value
  }
  const of = (name: string, configured: number, agentId?: string): number =>
    changes.size === 0
      ? configured
      : (agentId === undefined ? undefined : found(name, agentId)) ?? found(name, null) ?? configured
  return {
    of,
    rule: (rule, key) => {
      if (changes.size === 0) return rule
      const limit = rule.setting === undefined ? rule.limit : of(rule.setting, rule.limit, key)
      return limit === rule.limit ? rule : { ...rule, limit }
    },
    any: () => changes.size > 0,
    set: (all) => {
      changes = new Map(all.map((change) => [keyOf(change.name, change.agentId), change]))
    }
  }
}

/** The limits in force. Without `layer`, the configured limits are always in force. */
export class Limits extends Context.Reference<LimitsShape>("parley/rates/Limits", {
  defaultValue: () => ({ ...make(() => 0), set: () => undefined })
}) {
  /** A change ends according to the clock that all nodes share, not the clock of this machine. */
  static readonly layer = Layer.effect(
    Limits,
    Effect.map(Clock.Clock, (clock) => make(() => clock.currentTimeMillisUnsafe()))
  )
}

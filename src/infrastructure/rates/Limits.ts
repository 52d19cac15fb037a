import type { Settings } from "#infrastructure/platform/Config"
import { Clock, Context, Effect, Layer } from "effect"
import type { RateRule } from "./RateRule.ts"

/** The settings that are limits. */
export type LimitName = Extract<keyof Settings, `LIMITS_${string}`>

/** The setting behind each rate's rule, by the rule's name. */
export const RATES: Readonly<Record<string, LimitName>> = {
  requests: "LIMITS_REQUESTS_PER_MINUTE",
  anonymous_requests: "LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE",
  assets: "LIMITS_ASSETS_PER_MINUTE",
  send: "LIMITS_SENDS_PER_SECOND",
  cards: "LIMITS_CARDS_PER_MINUTE",
  conversation_list: "LIMITS_CONVERSATION_LISTS_PER_MINUTE",
  contact_list: "LIMITS_CONTACT_LISTS_PER_MINUTE",
  contact_check: "LIMITS_CONTACT_CHECKS_PER_MINUTE",
  directory: "LIMITS_DIRECTORY_PER_MINUTE",
  directory_day: "LIMITS_DIRECTORY_PER_DAY",
  anonymous_directory: "LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE",
  search: "LIMITS_SEARCHES_PER_MINUTE",
  mute_writes: "LIMITS_MUTE_WRITES_PER_SECOND",
  reply_calls: "LIMITS_REPLY_CALLS_PER_MINUTE",
  avatar_writes: "LIMITS_AVATAR_WRITES_PER_MINUTE",
  register: "LIMITS_REGISTER_PER_HOUR",
  register_verify: "LIMITS_REGISTER_VERIFY_PER_10_MINUTES",
  recover: "LIMITS_RECOVER_PER_HOUR",
  recover_verify: "LIMITS_RECOVER_VERIFY_PER_10_MINUTES",
  rotate: "LIMITS_ROTATE_PER_HOUR",
  rotate_verify: "LIMITS_ROTATE_VERIFY_PER_10_MINUTES",
  sign_in: "LIMITS_SIGN_IN_PER_HOUR",
  sign_in_verify: "LIMITS_SIGN_IN_VERIFY_PER_10_MINUTES",
  oauth_authorize: "LIMITS_OAUTH_AUTHORIZE_PER_10_MINUTES",
  oauth_keys: "LIMITS_OAUTH_KEYS_PER_10_MINUTES",
  oauth_registrations: "LIMITS_OAUTH_REGISTRATIONS_PER_HOUR",
  oauth_tokens: "LIMITS_OAUTH_TOKENS_PER_MINUTE",
  oauth_documents: "LIMITS_OAUTH_DOCUMENTS_PER_10_MINUTES"
}

/** A limit that an operator has changed (wire.md O). */
export interface LimitChange {
  readonly name: string
  /** Null if the change is for all agents. */
  readonly agentId: string | null
  readonly value: number
  /** When the change ends, in milliseconds, or null if it lasts until an operator removes it. */
  readonly until: number | null
}

/**
 * The changes that operators have made to limits, in this process's memory. A look-up is synchronous, because it is on
 * the send path, and costs one comparison while no limit is changed. `LimitChanges` reads the rows, on every node.
 */
export interface LimitsShape {
  /** The value in force: the change for this agent, else the change for all agents, else the configured value. */
  readonly of: (name: LimitName, configured: number, agentId?: string) => number
  /** The rule with the limit in force for this key. */
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
      const setting = RATES[rule.name]
      const limit = setting === undefined ? rule.limit : of(setting, rule.limit, key)
      return limit === rule.limit ? rule : { ...rule, limit }
    },
    any: () => changes.size > 0,
    set: (all) => {
      changes = new Map(all.map((change) => [keyOf(change.name, change.agentId), change]))
    }
  }
}

/** The limits in force. Without the layer no limit is ever changed. */
export class Limits extends Context.Reference<LimitsShape>("parley/rates/Limits", {
  defaultValue: () => ({ ...make(() => 0), set: () => undefined })
}) {
  /** Changes end by the clock that nodes share, not by that of the machine. */
  static readonly layer = Layer.effect(
    Limits,
    Effect.map(Clock.Clock, (clock) => make(() => clock.currentTimeMillisUnsafe()))
  )
}

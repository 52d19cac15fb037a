import type { SendBudget } from "#domain/agents/Agent"
import { BudgetExceeded } from "#domain/sending/SendErrors"
import { Config } from "#infrastructure/platform/Config"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Limits } from "#infrastructure/rates/Limits"
import type { Charge, LimitName, Rate, RateRefusal, RateState } from "#infrastructure/rates/RateRule"
import { iso } from "#infrastructure/wire/Text"
import { Clock, Context, Effect, Layer } from "effect"

/** Whether a model decides on the sends of this request: everything that comes in by `/mcp`. */
export const ByModel = Context.Reference("parley/conversations/ByModel", { defaultValue: () => false })

const WINDOW = { windowMs: 86_400_000, window: "24h" } as const

/** How many messages an agent may send within 24 hours: to one conversation, in all, and by `/mcp` to one conversation. */
const CONVERSATION: Rate = {
  name: "conversation_budget",
  setting: "LIMITS_SENDS_PER_CONVERSATION_PER_DAY",
  ...WINDOW
}
const AGENT: Rate = { name: "agent_budget", setting: "LIMITS_SENDS_PER_DAY", ...WINDOW }
const MODEL: Rate = { name: "mcp_budget", setting: "LIMITS_MCP_SENDS_PER_CONVERSATION_PER_DAY", ...WINDOW }
export const sendBudgets: ReadonlyArray<Rate> = [CONVERSATION, AGENT, MODEL]

/** An agent is near a budget if it has used at least four of five sends. */
const isNear = (left: number, limit: number): boolean => left * 5 <= limit
/** How many budgets this process remembers for operators. */
const MAX_REMEMBERED = 10_000

/** The agent whose sends are counted, as it was when the request was authenticated. */
interface Sender {
  readonly id: string
  readonly budget?: SendBudget | null
}

/** A charge against a budget. */
export interface BudgetCharge extends Charge {
  readonly rate: Rate
  readonly sender: Sender
  /** The limit that the agent has set itself, or null. */
  readonly own: number | null
  readonly scope: "conversation" | "agent"
}

/** How many messages the sender may still send, by the budget that has the fewest left. */
export interface BudgetLeft {
  readonly left: number
  readonly limit: number
  readonly scope: "conversation" | "agent"
}

/** An agent that has used at least 80 % of a budget, as it was at its last send. */
export interface NearBudget {
  /** The id of the agent. */
  readonly key: string
  /** The setting of the server, also if the agent has set the limit itself. */
  readonly limit: LimitName
  readonly value: number
  readonly count: number
  readonly windowMs: number
}

/**
 * The budgets of messages (wire.md G.19). Of the limits that an agent, the configuration and operators set, the smallest
 * counts. A send that no budget limits is not counted.
 */
export class SendBudgets extends Context.Service<SendBudgets, {
  /** Whether any budget counts the sends of this agent. */
  readonly apply: (sender: Sender, byModel: boolean) => boolean
  /** The charges of a send to this conversation. */
  readonly charges: (sender: Sender, byModel: boolean, conversationId: string) => ReadonlyArray<BudgetCharge>
  /** Returns what is left after a send, if that is less than 20 %, and remembers it for operators. */
  readonly left: (
    charges: ReadonlyArray<BudgetCharge>,
    states: ReadonlyArray<RateState>
  ) => BudgetLeft | undefined
  /** Makes the failure of a send that one of these budgets refuses, and remembers it for operators. */
  readonly exceeded: (charges: ReadonlyArray<BudgetCharge>, refusal: RateRefusal) => BudgetExceeded
  /** The agents that have used most of a budget, as far as this process knows. */
  readonly near: () => ReadonlyArray<NearBudget>
}>()("parley/conversations/SendBudgets") {
  static readonly layer = Layer.effect(
    SendBudgets,
    Effect.gen(function*() {
      const clock = yield* Clock.Clock
      const config = yield* Config
      const limits = yield* Limits
      const now = monotonicMillis(clock)
      const remembered = new Map<
        string,
        { readonly charge: BudgetCharge; readonly count: number; readonly until: number }
      >()

      /** The smallest limit for this agent, or undefined if nothing limits it. */
      const limitOf = ({ setting }: Rate, senderId: string, own: number | null): number | undefined => {
        const ofServer = limits.of(setting, config[setting], senderId)
        return ofServer === 0 ? own ?? undefined : Math.min(ofServer, own ?? ofServer)
      }
      const chargeOf = (
        rate: Rate,
        scope: BudgetCharge["scope"],
        sender: Sender,
        own: number | null,
        key: string
      ): ReadonlyArray<BudgetCharge> => {
        const limit = limitOf(rate, sender.id, own)
        if (limit === undefined) return []
        const { name, window, windowMs } = rate
        // Without the setting: the limit in force is known already, and may be the agent's own.
        return [{ rate, sender, own, scope, key, rule: { name, limit, window, windowMs, hidden: true } }]
      }
      const remember = (charge: BudgetCharge, left: number): void => {
        const { limit, name, windowMs } = charge.rule
        const id = `${name} ${charge.key}`
        remembered.delete(id)
        if (!isNear(left, limit)) return
        const [oldest] = remembered.keys()
        if (remembered.size >= MAX_REMEMBERED && oldest !== undefined) remembered.delete(oldest)
        remembered.set(id, { charge, count: limit - left, until: now() + windowMs })
      }

      return SendBudgets.of({
        apply: ({ budget, id }, byModel) =>
          (budget !== undefined && budget !== null) ||
          sendBudgets.some((rate) => (byModel || rate !== MODEL) && limitOf(rate, id, null) !== undefined),
        charges: (sender, byModel, conversationId) => {
          const key = `${sender.id} ${conversationId}`
          return [
            ...chargeOf(CONVERSATION, "conversation", sender, sender.budget?.perConversation ?? null, key),
            ...chargeOf(AGENT, "agent", sender, sender.budget?.inAll ?? null, sender.id),
            ...byModel ? chargeOf(MODEL, "conversation", sender, null, key) : []
          ]
        },
        left: (charges, states) => {
          let least: BudgetLeft | undefined
          for (const [i, charge] of charges.entries()) {
            const { limit, remaining: left } = states[i]!
            remember(charge, left)
            if (left * 5 < limit && left < (least?.left ?? Infinity)) least = { left, limit, scope: charge.scope }
          }
          return least
        },
        exceeded: (charges, { details, rule }) => {
          const charge = charges.find(({ rule: { name } }) => name === rule.name)!
          remember(charge, 0)
          const waitMs = details?.retry_after_ms ?? 0
          return BudgetExceeded.of(charge.scope, rule.limit, iso(clock.currentTimeMillisUnsafe() + waitMs), waitMs)
        },
        near: () => {
          for (const [id, { until }] of remembered) if (until <= now()) remembered.delete(id)
          return [...remembered.values()].flatMap(({ charge: { own, rate, sender }, count }) => {
            // Operators may have changed the limit since.
            const value = limitOf(rate, sender.id, own)
            if (value === undefined || !isNear(value - count, value)) return []
            return [{ key: sender.id, limit: rate.setting, value, count, windowMs: rate.windowMs }]
          })
        }
      })
    })
  )
}

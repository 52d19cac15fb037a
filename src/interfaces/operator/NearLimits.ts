import { SendBudgets } from "#domain/conversations/SendBudgets"
import { NodeRpc } from "#infrastructure/cluster/NodeRpc"
import { Database } from "#infrastructure/database/Sql"
import { Config } from "#infrastructure/platform/Config"
import { nextTick } from "#infrastructure/platform/EventLoop"
import { Limits } from "#infrastructure/rates/Limits"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { LimitName } from "#infrastructure/rates/RateRule"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer, Schema } from "effect"

/** From which share of a limit an agent is near it. */
const NEAR = 0.8
/** How many windows a node reports, how many agents with unanswered conversations are compared, and how many are shown. */
const MAX_REPORTED = 500
const MAX_COMPARED = 500
const MAX_SHOWN = 200
/** How old the list may be. The unanswered conversations are counted in a scan of their table. */
const LIST_AGE = "5 seconds"

/** The window of an agent's rate limit on one node. `limit` is the setting. */
const Window = Schema.Struct({
  key: Schema.String,
  limit: Schema.String,
  value: Schema.Finite,
  count: Schema.Finite,
  windowMs: Schema.Finite
})
type Window = typeof Window.Type

/** An agent that has used most of a limit. */
export interface NearLimit {
  readonly handle: string
  readonly limit: string
  readonly value: number
  readonly count: number
  readonly windowMs: number
}

const idOf = ({ key, limit }: Pick<Window, "key" | "limit">): string => `${limit} ${key}`
const shareOf = ({ count, value }: Window): number => count / Math.max(1, value)
const fullest = (windows: ReadonlyArray<Window>): ReadonlyArray<Window> =>
  windows.toSorted((a, b) => shareOf(b) - shareOf(a))

/** Joins the counts of the same window on several nodes: adds them, or takes the highest if each node limits by itself. */
export const joined = (windows: ReadonlyArray<Window>, adds: boolean): ReadonlyArray<Window> => {
  const all = new Map<string, Window>()
  for (const window of windows) {
    const before = all.get(idOf(window))?.count ?? 0
    const count = adds ? before + window.count : Math.max(before, window.count)
    all.set(idOf(window), { ...window, count })
  }
  return [...all.values()]
}

/**
 * The agents that have used at least 80 % of a rate limit, of their unanswered conversations, or of a budget of messages
 * (wire.md O.1). Each node reports the requests that it has accepted itself.
 */
export class NearLimits extends Context.Service<NearLimits, {
  /** Those that have used most of a limit come first. `silent` are the nodes that could not be asked. */
  readonly list: Effect.Effect<
    { readonly near: ReadonlyArray<NearLimit>; readonly silent: ReadonlyArray<string> },
    Unavailable
  >
}>()("parley/operator/NearLimits") {
  static readonly layer = Layer.effect(
    NearLimits,
    Effect.gen(function*() {
      const config = yield* Config
      const { query } = yield* Database
      const limits = yield* Limits
      const procedures = yield* NodeRpc
      const rates = yield* RateLimits
      const budgets = yield* SendBudgets
      // The nodes count together in Redis. Without Redis, an agent may use the whole limit on each of them.
      const countTogether = config.REDIS_URL !== undefined

      const valueOf = (limit: LimitName, agentId: string): number => limits.of(limit, config[limit], agentId)

      /** The agents' windows on this node that `isWanted` accepts. Rules without a setting do not concern operators. */
      const windowsHere = Effect.fnUntraced(function*(isWanted: (window: Window) => boolean) {
        const found: Array<Window> = []
        for (const window of rates.windows((key) => key.startsWith("agt_"))) {
          if (window === undefined) yield* nextTick
          else if (window.rule.setting !== undefined) {
            const { count, key, rule: { setting: limit, windowMs } } = window
            const shown = { key, limit, value: valueOf(limit, key), count, windowMs }
            if (isWanted(shown)) found.push(shown)
          }
        }
        return found
      })
      const nearHere = yield* procedures.make({
        name: "windows-near",
        payload: Schema.Finite,
        success: Schema.Array(Window),
        local: (share) =>
          Effect.map(
            windowsHere((window) => shareOf(window) >= share),
            (found) => fullest(found).slice(0, MAX_REPORTED)
          )
      })
      const theseHere = yield* procedures.make({
        name: "windows-of",
        payload: Schema.Array(Schema.String),
        success: Schema.Array(Window),
        local: (ids) => {
          const wanted = new Set(ids)
          return windowsHere((window) => wanted.has(idOf(window)))
        }
      })

      const budgetsHere = yield* procedures.make({
        name: "budgets-near",
        payload: Schema.Finite,
        success: Schema.Array(Window),
        local: (share) =>
          Effect.sync(() => fullest(budgets.near().filter((window) => shareOf(window) >= share)).slice(0, MAX_REPORTED))
      })

      /** The fullest budget of each kind of each agent. Each count is already that of all nodes that count together. */
      const ofBudgets = Effect.map(budgetsHere.everywhere(NEAR), (answers) => ({
        windows: joined(answers.flatMap(({ answer }) => answer ?? []), false),
        silent: answers.flatMap(({ answer, node }) => answer === undefined ? [node] : [])
      }))
      const ofRates = Effect.gen(function*() {
        const nodes = countTogether ? (yield* procedures.nodes).length : 1
        // An agent that has used this share on all nodes together has used its part on at least one of them.
        const first = yield* nearHere.everywhere(NEAR / nodes)
        const ids = [...new Set(first.flatMap(({ answer }) => answer?.map(idOf) ?? []))]
        const second = nodes === 1 || ids.length === 0 ? first : yield* theseHere.everywhere(ids)
        const silent = [...first, ...second].flatMap(({ answer, node }) => answer === undefined ? [node] : [])
        return {
          windows: joined(second.flatMap(({ answer }) => answer ?? []), countTogether),
          silent
        }
      })
      /** The agents with the most unanswered conversations. */
      const ofConversations = Effect.gen(function*() {
        const windowMs = config.LIMITS_COLD_WINDOW_SECONDS * 1_000
        const since = (yield* Clock.currentTimeMillis) - windowMs
        const rows = yield* query<{ readonly key: string; readonly count: number }>`
          SELECT agent_id AS key, count(*) AS count FROM cold_slots WHERE claimed_at > ${since}
          GROUP BY agent_id ORDER BY count(*) DESC LIMIT ${MAX_COMPARED}`
        const limit = "LIMITS_COLD_CONVERSATIONS"
        return rows.map(({ count, key }): Window => ({ key, limit, value: valueOf(limit, key), count, windowMs }))
      })

      return NearLimits.of({
        list: yield* Effect.cachedWithTTL(
          Effect.gen(function*() {
            const [ofRate, ofBudget] = yield* Effect.all([ofRates, ofBudgets], { concurrency: 2 })
            const windows = [...ofRate.windows, ...ofBudget.windows, ...yield* ofConversations]
            const near = fullest(windows.filter((window) => shareOf(window) >= NEAR)).slice(0, MAX_SHOWN)
            const agents = yield* query<{ readonly id: string; readonly handle: string }>`
              SELECT id, handle FROM agents WHERE id = ANY(${near.map(({ key }) => key)}::text[])`
            const handles = new Map(agents.map(({ handle, id }) => [id, handle]))
            return {
              near: near.flatMap(({ key, ...window }) => {
                const handle = handles.get(key)
                return handle === undefined ? [] : [{ handle, ...window }]
              }),
              silent: [...new Set([...ofRate.silent, ...ofBudget.silent])]
            }
          }),
          LIST_AGE
        )
      })
    })
  )
}

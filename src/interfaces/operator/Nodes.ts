import { LiveAgents } from "#domain/push/LiveAgents"
import { NodeDrain } from "#infrastructure/cluster/NodeDuty"
import { NodeRpc, type NodeSilent } from "#infrastructure/cluster/NodeRpc"
import { Shards } from "#infrastructure/cluster/Shards"
import { UpgradeHandler } from "#infrastructure/http/UpgradeHandler"
import { Config } from "#infrastructure/platform/Config"
import { diskFree } from "#infrastructure/platform/Metrics"
import { Readiness } from "#infrastructure/platform/Readiness"
import { LoggedProblems, LogVolume } from "#infrastructure/platform/Telemetry"
import { VERSION } from "#infrastructure/platform/Version"
import { RateLimits } from "#infrastructure/rates/RateLimits"
import { iso } from "#infrastructure/wire/Text"
import { NotFound, type Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Fiber, Layer, Schema, Semaphore } from "effect"
import { Sharding } from "effect/cluster"
import type { AgentAccount } from "./AgentAccount.ts"
import { notDeleted } from "./AgentAdmin.ts"
import { AuditLog, type Because } from "./AuditLog.ts"
import { Conflict } from "./Conflict.ts"
import { Dependencies } from "./Dependencies.ts"
import { durationOf, NodeSampler } from "./NodeSampler.ts"
import { LogLevelName, NodeReport, type NodeShown, nodeShown, type Overview, totalsOf } from "./Overview.ts"

const Order = Schema.Union([
  Schema.TaggedStruct("Drain", {}),
  Schema.TaggedStruct("Undrain", {}),
  Schema.TaggedStruct("LogLevel", { level: LogLevelName })
])
type Order = typeof Order.Type

/** The sockets and rates of an agent on one node. */
const AgentHere = Schema.Struct({
  sockets: Schema.Array(Schema.Struct({
    since: Schema.Finite,
    client: Schema.NullOr(Schema.String),
    acknowledges: Schema.Boolean,
    cursor: Schema.Finite,
    unsentBytes: Schema.Finite,
    unacknowledged: Schema.Int,
    isLive: Schema.Boolean
  })),
  rates: Schema.Array(
    Schema.Struct({ name: Schema.String, limit: Schema.Finite, count: Schema.Int, windowMs: Schema.Finite })
  )
})
export type AgentHere = typeof AgentHere.Type

export interface AgentEverywhere {
  readonly sockets: ReadonlyArray<AgentHere["sockets"][number] & { readonly node: string }>
  readonly rates: AgentHere["rates"]
  /** The nodes that did not respond. The agent may have sockets on these nodes too. */
  readonly silent: ReadonlyArray<string>
}

const HOUR_MS = 3_600_000

const round = (value: number | undefined): number | null => value === undefined ? null : Math.round(value * 10) / 10

const lowestOf = (values: ReadonlyArray<number | undefined>): number | null => {
  const known = values.filter((value) => value !== undefined)
  return known.length === 0 ? null : Math.min(...known)
}

/** The close reason when an operator closes a socket. The client may reconnect at once. */
const DISCONNECTED = { code: 1013, text: "disconnected by an operator: connect again" } as const

/**
 * All nodes of the cluster. The node that serves an operator's request queries the other nodes (wire.md O). A node that
 * does not respond within a second is shown as silent. Draining and the log level are lost when a node restarts. The
 * audit row of an order is written before a node gets the order.
 */
export class Nodes extends Context.Service<Nodes, {
  readonly self: () => string
  /** All nodes and their dependencies. */
  readonly overview: (history: boolean) => Effect.Effect<Overview>
  /** One node with its history. Fails if there is no such node. */
  readonly one: (address: string) => Effect.Effect<NodeShown, NotFound>
  /** Drains a node as SIGTERM does, but does not end its process. Refused for the last ready node of a cluster. */
  readonly drain: (address: string, operator: string) => Effect.Effect<NodeShown, NotFound | Conflict | Unavailable>
  readonly undrain: (address: string, operator: string) => Effect.Effect<NodeShown, NotFound | Conflict | Unavailable>
  readonly logLevel: (
    address: string,
    level: typeof LogLevelName.Type,
    operator: string
  ) => Effect.Effect<NodeShown, NotFound | Conflict | Unavailable>
  readonly agent: (agentId: string) => Effect.Effect<AgentEverywhere>
  /**
   * Closes the agent's sockets on all nodes that respond, and returns their number. The agent's clients may reconnect
   * at once.
   */
  readonly disconnect: (
    agent: AgentAccount,
    because: Because
  ) => Effect.Effect<{ readonly closed: number; readonly silent: ReadonlyArray<string> }, NotFound | Unavailable>
}>()("parley/operator/Nodes") {
  static readonly layer = Layer.effect(
    Nodes,
    Effect.gen(function*() {
      const audit = yield* AuditLog
      const config = yield* Config
      const drain = yield* NodeDrain
      const gateway = yield* UpgradeHandler
      const limits = yield* RateLimits
      const liveAgents = yield* LiveAgents
      const logged = yield* LoggedProblems
      const dependencies = yield* Dependencies
      const procedures = yield* NodeRpc
      const readiness = yield* Readiness
      const sampler = yield* NodeSampler
      const sharding = yield* Sharding.Sharding
      const shards = yield* Shards
      const volume = yield* LogVolume
      const fork = Effect.runForkWith(yield* Effect.context<never>())
      const since = iso((yield* Clock.currentTimeMillis) - Math.round(process.uptime() * 1_000))

      const report = Effect.fnUntraced(function*(history: boolean): Effect.fn.Return<NodeReport> {
        const database = yield* dependencies.database
        const last = sampler.last()
        const hourAgo = (yield* Clock.currentTimeMillis) - HOUR_MS
        const recent = (level: "warn" | "error") => logged[level].filter(({ at }) => at > hourAgo).length
        return {
          role: procedures.alone ? "standalone" : config.ROLE,
          version: VERSION,
          since,
          // The same reasons as in /v1/ready, which also checks the database.
          reasons: [...database.state === "down" ? [`The database: ${database.words}`] : [], ...readiness.reasons()],
          drained: drain.drained,
          shards: shards.filter((shard) => sharding.hasShardId(shard)).length,
          sockets: gateway.size(),
          sends_per_second: round(last?.sends),
          pushes_per_second: round(last?.pushes),
          requests_per_second: round(last?.requests),
          errors_per_second: round(last?.errors),
          send_p50_ms: last === undefined ? null : durationOf(last, 0.5),
          send_p99_ms: last === undefined ? null : durationOf(last, 0.99),
          cpu_percent: round(last?.cpuPercent),
          memory_bytes: process.memoryUsage.rss(),
          lag_ms: round(last?.lagMs),
          disk_free_bytes: lowestOf(diskFree.all().map(([, { current }]) => current)),
          logged_warnings: recent("warn"),
          logged_errors: recent("error"),
          log_level: volume.level,
          ...(history ? { history: sampler.history() } : {})
        }
      })

      let closing: Fiber.Fiber<void> | undefined
      const oneByOne = yield* Semaphore.make(1)
      // Run orders one after the other and to their end. If a drain and an undrain ran at once, each would take only
      // partial effect.
      const obey = (order: Order): Effect.Effect<void> =>
        Effect.uninterruptible(
          oneByOne.withPermits(1)(Effect.gen(function*() {
            if (order._tag === "LogLevel") {
              volume.level = order.level
              return
            }
            if ((order._tag === "Drain") === drain.drained) return
            drain.drained = order._tag === "Drain"
            readiness.set("drained", drain.drained ? "An operator has drained this node." : undefined)
            if (drain.drained) {
              gateway.turnAway()
              closing = fork(gateway.drain)
            } else {
              if (closing !== undefined) yield* Fiber.interrupt(closing)
              gateway.welcomeAgain()
            }
            yield* Effect.logInfo(
              drain.drained ? "This node is drained by an operator" : "This node is no longer drained"
            )
          }))
        )

      const asked = yield* procedures.make({
        name: "report",
        payload: Schema.Boolean,
        success: NodeReport,
        local: report
      })
      const ordered = yield* procedures.make({
        name: "order",
        payload: Order,
        success: NodeReport,
        local: (order) => Effect.andThen(obey(order), report(true))
      })
      const agentAt = yield* procedures.make({
        name: "agent",
        payload: Schema.String,
        success: AgentHere,
        local: (agentId) =>
          Effect.sync(() => ({
            sockets: [...liveAgents.live(agentId)?.sessions ?? []].flatMap((session) => session.state?.() ?? []),
            rates: limits.countsOf(agentId).map(({ count, rule }) => ({
              name: rule.name,
              limit: rule.limit,
              count,
              windowMs: rule.windowMs
            }))
          }))
      })
      const disconnected = yield* procedures.make({
        name: "disconnect",
        payload: Schema.String,
        success: Schema.Int,
        local: (agentId) =>
          Effect.sync(() => {
            const actor = liveAgents.live(agentId)
            const sockets = actor?.sessions.size ?? 0
            actor?.disconnect(DISCONNECTED)
            return sockets
          })
      })

      const isThis = (node: string): boolean => node === procedures.self()
      const all = (history: boolean) =>
        Effect.map(
          asked.everywhere(history),
          (answers) => answers.map(({ answer, node, silence }) => nodeShown(node, isThis(node), answer, silence))
        )
      const known = Effect.fnUntraced(function*(address: string) {
        if (!(yield* procedures.nodes).includes(address))
          return yield* new NotFound({ message: "This API has no such path." })
      })
      const noted = (operator: string, action: string, detail: string) =>
        audit.note({ operator, action, handle: null, detail })
      const order = Effect.fnUntraced(function*(address: string, given: Order) {
        yield* known(address)
        const done = yield* Effect.catchTag(
          ordered.at(address, given),
          "NodeSilent",
          ({ reason }: NodeSilent) =>
            Effect.fail(new Conflict({ message: `The node received the command, but sent no answer: ${reason}` }))
        )
        return nodeShown(address, isThis(address), done, "")
      })

      return Nodes.of({
        self: procedures.self,
        overview: Effect.fnUntraced(function*(history) {
          const [nodes, database, redis, files, mail] = yield* Effect.all(
            [all(history), dependencies.database, dependencies.redis, dependencies.files, dependencies.mail],
            { concurrency: "unbounded" }
          )
          const at = iso(yield* Clock.currentTimeMillis)
          return { at, node: procedures.self(), nodes, totals: totalsOf(nodes, at), database, redis, files, mail }
        }),
        one: Effect.fnUntraced(function*(address) {
          yield* known(address)
          return yield* Effect.match(asked.at(address, true), {
            onFailure: ({ reason }) => nodeShown(address, isThis(address), undefined, reason),
            onSuccess: (answer) => nodeShown(address, isThis(address), answer, "")
          })
        }),
        drain: Effect.fnUntraced(function*(address, operator) {
          yield* noted(operator, "drain", address)
          const nodes = yield* all(false)
          const others = nodes.filter((node) => node.address !== address && node.state === "ready")
          if (!procedures.alone && others.length === 0) {
            yield* known(address)
            return yield* new Conflict({ message: "No other node is ready, so this node must keep serving." })
          }
          return yield* order(address, { _tag: "Drain" })
        }),
        undrain: (address, operator) =>
          Effect.andThen(noted(operator, "undrain", address), order(address, { _tag: "Undrain" })),
        logLevel: (address, level, operator) =>
          Effect.andThen(
            noted(operator, "set log level", `${address} ${level}`),
            order(address, { _tag: "LogLevel", level })
          ),
        agent: (agentId) =>
          Effect.map(agentAt.everywhere(agentId), (answers) => {
            const rates = new Map<string, AgentHere["rates"][number]>()
            for (const rate of answers.flatMap(({ answer }) => answer?.rates ?? [])) {
              rates.set(rate.name, { ...rate, count: rate.count + (rates.get(rate.name)?.count ?? 0) })
            }
            return {
              sockets: answers.flatMap(({ answer, node }) =>
                (answer?.sockets ?? []).map((socket) => ({ ...socket, node }))
              ),
              rates: [...rates.values()],
              silent: answers.flatMap(({ answer, node }) => answer === undefined ? [node] : [])
            }
          }),
        disconnect: Effect.fnUntraced(function*(agent, { operator, reason }) {
          yield* notDeleted(agent)
          yield* audit.note({ operator, action: "disconnect", handle: agent.handle, detail: reason })
          const answers = yield* disconnected.everywhere(agent.id)
          return {
            closed: answers.reduce((sum, { answer }) => sum + (answer ?? 0), 0),
            silent: answers.flatMap(({ answer, node }) => answer === undefined ? [node] : [])
          }
        })
      })
    })
  ).pipe(Layer.provide([AuditLog.layer, Dependencies.layer]))
}

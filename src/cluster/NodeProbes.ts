import { Cause, Clock, Context, Effect, FiberMap, Latch, Layer, Option, Schedule, Schema } from "effect"
import { Runners, ShardingConfig } from "effect/cluster"
import { Rpc, RpcClient, RpcGroup } from "effect/rpc"
import { addressOf, nameOf } from "./NodeAddress.ts"
import { NodeDrain } from "./NodeDuty.ts"
import { NodeLinks } from "./NodeLinks.ts"
import { type Facts, type NodeRow, NodeTable } from "./NodeTable.ts"
import { greetingsFailed } from "../platform/Metrics.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { OncePerMinute } from "../platform/OncePerMinute.ts"

/** Version of the protocol between nodes: increased whenever an older node would misunderstand a newer one. */
export const WIRE = 3

/** A node refuses the one that greets it; the reason is written for operators. */
export class NodeRefused extends Schema.TaggedError<NodeRefused>()("NodeRefused", { reason: Schema.String }) {}

/** Tests whether two nodes can talk at all. Its shape never changes, so that nodes of different versions can use it. */
const Greet = Rpc.make("Greet", {
  payload: { from: Schema.String, to: Schema.String, wire: Schema.Int },
  error: NodeRefused
})
export const ProbeRpcs = RpcGroup.make(Greet)

export interface Greeting {
  /** RUNNER_HOST:RUNNER_PORT of the greeting node. */
  readonly from: string
  /** The name of the node that it means to reach. */
  readonly to: string
  readonly wire: number
}

/**
 * Which nodes answer this one. Greets every live node in `cluster_nodes`, listed or not, twice a second, and writes
 * there which ones answered; so each node knows which nodes can talk with each other. A greeting from a node that this
 * one does not reach yet is answered with a greeting at once, so that a newcomer is not delayed by the interval.
 */
export class NodeProbes extends Context.Service<NodeProbes, {
  /** Handles a greeting from another node. */
  readonly greeted: (greeting: Greeting) => Effect.Effect<void, NodeRefused>
  /** Whether every other listed node has either answered or failed for a known reason. */
  readonly isSettled: () => boolean
  /** Which nodes this node cannot talk with and why, written for operators. */
  readonly explain: () => string
}>()("parley/cluster/NodeProbes") {
  static readonly layer = (facts: Facts, url: () => string) =>
    Layer.effect(
      NodeProbes,
      Effect.gen(function*() {
        const table = yield* NodeTable
        const links = yield* NodeLinks
        const drain = yield* NodeDrain
        const protocol = yield* Runners.RpcClientProtocol
        const { runnerAddress } = yield* ShardingConfig.ShardingConfig
        const self = Option.match(runnerAddress, { onNone: () => "", onSome: nameOf })
        const now = monotonicMillis(yield* Clock.Clock)
        const lines = new OncePerMinute(now)
        const fork = Effect.runForkWith(yield* Effect.context<never>())
        const fibers = yield* FiberMap.make<string>()
        const targets = new Map<string, Target>()
        const reaches = new Set<string>()
        const changed = yield* Latch.make(true)
        let rows: ReadonlyArray<NodeRow> = []

        const warn = (node: string, text: string): void => {
          if (lines.allows(node)) fork(Effect.logWarning(text))
        }

        const answered = (target: Target): void => {
          target.failures = 0
          target.reason = undefined
          if (reaches.has(target.node)) return
          reaches.add(target.node)
          changed.openUnsafe()
        }
        const failed = (target: Target, cause: Cause.Cause<unknown>): void => {
          const failure = cause.reasons.find(Cause.isFailReason)?.error
          const isRefusal = failure instanceof NodeRefused
          const isSilence = Cause.isTimeoutError(failure)
          target.failures = Math.max(isRefusal ? FAILURES : 0, target.failures + 1)
          target.reason = isRefusal
            ? failure.reason
            : links.problem(target.node) ??
              (isSilence ? "it does not answer" : "it ends the connection: is RUNNER_SECRET the same there, and the version of Parley?")
          greetingsFailed.at(isRefusal ? "refused" : isSilence ? "silent" : "unreachable").add()
          if (target.failures >= FAILURES && reaches.delete(target.node)) changed.openUnsafe()
        }

        /** Greets on one connection until an answer fails to come, then connects again. */
        const converse = (target: Target) =>
          Effect.gen(function*() {
            const client = yield* Effect.provideService(
              RpcClient.make(ProbeRpcs, { disableTracing: true }),
              RpcClient.Protocol,
              yield* protocol.make(addressOf(target.node))
            )
            while (true) {
              target.wake.closeUnsafe()
              yield* Effect.timeout(client.Greet({ from: self, to: target.node, wire: WIRE }), ANSWER)
              answered(target)
              yield* Effect.timeoutOption(target.wake.await, AGAIN_MS)
            }
          }).pipe(
            Effect.scoped,
            Effect.catchCause((cause) => Effect.sync(() => failed(target, cause))),
            // Backs off, because TLS handshakes with a node that is always refused cost more than greetings.
            Effect.andThen(Effect.suspend(() =>
              Effect.timeoutOption(target.wake.await, Math.min(AGAIN_MS * 2 ** Math.max(0, target.failures - FAILURES), SELDOM_MS)))),
            Effect.forever
          )

        const targetOf = (node: string): Target | undefined => {
          const known = targets.get(node)
          if (known !== undefined || targets.size >= MAX_TARGETS || !ADDRESS.test(node) || node === self) return known
          const target: Target = {
            node,
            wake: Latch.makeUnsafe(false),
            failures: 0,
            reason: undefined,
            seenAt: now()
          }
          targets.set(node, target)
          fork(FiberMap.run(fibers, node, converse(target), { onlyIfMissing: true }))
          return target
        }

        const look = Effect.gen(function*() {
          rows = yield* table.look
          const at = now()
          for (const { address, isFresh, isLocked } of rows) {
            if (!isFresh && !isLocked) continue
            const target = targetOf(address)
            if (target === undefined) continue
            target.seenAt = at
            // A node that is gone is not logged here: `Peers` does that.
            if (isFresh && isLocked && !reaches.has(address) && target.reason !== undefined) {
              warn(address, `Node ${address} cannot be reached from this one: ${target.reason}`)
            }
          }
          for (const [node, { seenAt }] of targets) {
            // Keeps targets without a row for a while: cluster_nodes is unlogged, so it is empty after a crash of the
            // database.
            if (at - seenAt < UNSEEN_MS) continue
            targets.delete(node)
            reaches.delete(node)
            yield* FiberMap.remove(fibers, node)
          }
        })
        yield* Effect.suspend(() => {
          changed.closeUnsafe()
          return table.say(self, reaches, { ...facts, url: url() }, drain.joined && !drain.drained)
        }).pipe(
          Effect.timeout("3 seconds"),
          Effect.catchCause((cause) => Effect.logDebug("This node could not say whom it reaches", cause)),
          Effect.andThen(Effect.timeoutOption(changed.await, SAID_EVERY)),
          Effect.forever,
          Effect.forkScoped
        )
        yield* look.pipe(
          Effect.timeout("3 seconds"),
          Effect.catchCause((cause) => Effect.logDebug("What the other nodes say could not be read", cause)),
          Effect.repeat(Schedule.spaced(AGAIN_MS)),
          Effect.forkScoped
        )

        const others = () => rows.filter(({ address, isFresh, isLocked, listed }) =>
          address !== self && listed !== null && isLocked && isFresh)
        yield* Effect.suspend(() => others().length === 0 ? Effect.fail("nobody yet") : Effect.void).pipe(
          Effect.retry(Schedule.spaced(AGAIN_MS)),
          Effect.andThen(Effect.suspend(() =>
            Effect.forEach(disagreements(facts, others()), (line) => Effect.logWarning(line), { discard: true }))),
          Effect.forkScoped
        )

        return NodeProbes.of({
          greeted: ({ from, to, wire }) =>
            Effect.suspend(() => {
              const target = targetOf(from)
              if (to !== self) {
                return Effect.fail(new NodeRefused({ reason: `the node that answers there is ${self}` }))
              }
              if (wire !== WIRE) {
                const versions = `version ${wire} of what nodes say to each other`
                if (target !== undefined) {
                  warn(from, `Node ${from} is refused: it speaks ${versions}, and this node version ${WIRE}`)
                }
                const reason = `it speaks version ${WIRE}, not ${versions}: all nodes must run the same release of Parley`
                return Effect.fail(new NodeRefused({ reason }))
              }
              if (target !== undefined && !reaches.has(from)) target.wake.openUnsafe()
              return Effect.void
            }),
          isSettled: () => others().every(({ address }) => reaches.has(address) || targets.get(address)?.reason !== undefined),
          explain: () => {
            const known = others()
            const apart = known.flatMap(({ address, reaches: theirs }) => {
              if (!reaches.has(address)) return [`${address}: ${targets.get(address)?.reason ?? "it has not answered yet"}`]
              return theirs.has(self) ? [] : [`${address}: it cannot reach this node at ${self} (RUNNER_HOST, RUNNER_PORT, RUNNER_SECRET)`]
            })
            return `It can talk both ways with ${known.length - apart.length} of ${known.length} other nodes.${apart.map((one) => ` ${one}.`).join("")}`
          }
        })
      })
    )

  /** The handlers of calls from other nodes. */
  static readonly layerHandlers = ProbeRpcs.toLayer(Effect.map(NodeProbes, (probes) => ({ Greet: probes.greeted })))
}

interface Target {
  readonly node: string
  /** Opened to greet the node at once. */
  readonly wake: Latch.Latch
  failures: number
  reason: string | undefined
  /** When its row was last fresh or its lock held; at first, when it became a target. */
  seenAt: number
}

const AGAIN_MS = 500
const SELDOM_MS = 4_000
const SAID_EVERY = "500 millis"
/** With the pause between two greetings, a node may stand still for 3.5 s before it counts as unreachable. */
const ANSWER = "1500 millis"
/** Unanswered greetings in a row after which a node counts as unreachable; one may fail because either side was busy. */
const FAILURES = 2
const UNSEEN_MS = 15_000
const MAX_TARGETS = 1_000
const ADDRESS = /^.+:\d{1,5}$/

/** The differences between a starting node and the existing ones, one log line for each setting and value. */
export const disagreements = (own: Facts, others: ReadonlyArray<Pick<NodeRow, "address" | "facts">>): ReadonlyArray<string> => {
  const lines: Array<string> = []
  const compare = (what: string, ofNode: (facts: Facts) => string | number | null | undefined, why: string): void => {
    const here = ofNode(own)
    const elsewhere = new Map<string, Array<string>>()
    for (const { address, facts } of others) {
      if (facts === undefined || ofNode(facts) === here) continue
      const there = String(ofNode(facts) ?? "not set")
      elsewhere.set(there, [...elsewhere.get(there) ?? [], address])
    }
    for (const [there, nodes] of elsewhere) {
      lines.push(`${what} is ${here ?? "not set"} on this node and ${there} on ${nodes.join(", ")}: ${why}`)
    }
  }
  compare("The database schema", ({ schema }) => schema, "run the same release of Parley on all nodes")
  compare("PUBLIC_URL", ({ publicUrl }) => publicUrl, "the links that agents get depend on the node that they ask")
  for (const name of Object.keys(own.limits)) {
    compare(name, ({ limits }) => limits[name], "what is allowed depends on the node that is asked")
  }
  return lines
}

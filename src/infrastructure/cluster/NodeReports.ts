import { LogThrottle, MINUTE_MS } from "#infrastructure/platform/LogThrottle"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Clock, Context, Effect, Latch, Layer, Schedule } from "effect"
import { NodeDrain } from "./NodeDuty.ts"
import { NODE_PROTOCOL_VERSION } from "./NodeGreeting.ts"
import { type NodeInfo, type NodeRow, NodeTable } from "./NodeTable.ts"
import { SILENCE_TIMEOUT_MS } from "./PeerConnection.ts"
import { PeerConnections } from "./PeerConnections.ts"

/**
 * The reports that nodes write about themselves into the table `cluster_nodes`. This node opens a connection to every
 * live node in the table, listed or not, and writes which nodes it reaches. From these reports each node knows which
 * nodes can communicate with each other. A node is reached if it has acknowledged a frame on the peer connection. A
 * connection on which only greetings arrive does not count.
 */
export class NodeReports extends Context.Service<NodeReports, {
  /** Whether this node has a connection to every other listed node, or knows why there is none. */
  readonly isSettled: () => boolean
  /** Which nodes this node cannot communicate with and why, written for operators. */
  readonly explain: () => string
}>()("parley/cluster/NodeReports") {
  static readonly layer = (facts: NodeInfo, url: () => string) =>
    Layer.effect(
      NodeReports,
      Effect.gen(function*() {
        const table = yield* NodeTable
        const lines = yield* PeerConnections
        const drain = yield* NodeDrain
        const { self } = lines
        const now = monotonicMillis(yield* Clock.Clock)
        const warnings = new LogThrottle(MINUTE_MS)
        const changed = yield* Latch.make(true)
        const parted = yield* Latch.make(false)
        /** When the row of each node was last fresh, or the lock of its address was last held. */
        const seen = new Map<string, number>()
        let rows: ReadonlyArray<NodeRow> = []

        /**
         * Until when a node still counts as reached although its connection broke, by address. The two nodes usually
         * connect again at once. A node that was killed loses the lock of its address, and then no longer counts.
         */
        const torn = new Map<string, number>()
        lines.watch({
          confirmed: ({ node }) => {
            torn.delete(node)
            changed.openUnsafe()
          },
          ended: ({ isConfirmed, node }, end) => {
            if (end === "connection" && isConfirmed) torn.set(node, now() + SILENCE_TIMEOUT_MS)
            parted.openUnsafe()
            changed.openUnsafe()
          }
        })
        const reaches = () => {
          const locked = new Set(rows.flatMap(({ address, isLocked }) => isLocked ? [address] : []))
          for (const [node, until] of torn) if (now() >= until || !locked.has(node)) torn.delete(node)
          return new Set([
            ...[...lines.all()].flatMap(({ isConfirmed, node }) => isConfirmed ? [node] : []),
            ...torn.keys()
          ])
        }
        const hasLineWith = (node: string): boolean => lines.to(node)?.isConfirmed === true
        /** Why there is no connection to a node. */
        const reasonOf = ({ address, facts: theirs }: NodeRow): string | undefined =>
          theirs !== undefined && theirs.wire !== NODE_PROTOCOL_VERSION
            ? `it uses version ${theirs.wire} of the protocol between nodes, and this node version ${NODE_PROTOCOL_VERSION}: nodes of these versions cannot run together, so stop all nodes for this upgrade`
            : lines.problem(address)

        const take = Effect.fnUntraced(function*(read: ReadonlyArray<NodeRow>) {
          rows = read
          const at = now()
          for (const row of rows) {
            const { address, isFresh, isLocked } = row
            if (address === self || (!isFresh && !isLocked)) continue
            seen.set(address, at)
            // Nodes that have died are skipped, because `Members` logs them.
            if (
              !isFresh || !isLocked || torn.has(address) || lines.to(address) !== undefined ||
              lines.problem(address) === undefined
            ) continue
            yield* warnings.log(
              Effect.logWarning(`Node ${address} cannot be reached from this one: ${reasonOf(row)}`),
              address
            )
          }
          // Nodes without a row are kept for a while: cluster_nodes is unlogged, so it is empty after a crash of the
          // database.
          for (const [node, seenAt] of seen) if (at - seenAt >= UNSEEN_MS) seen.delete(node)
          yield* lines.want(seen.keys())
        })
        yield* Effect.suspend(() => {
          changed.closeUnsafe()
          return table.report(self, reaches(), { ...facts, url: url() }, drain.joined && !drain.drained)
        }).pipe(
          Effect.timeout("3 seconds"),
          Effect.catchCause((cause) => Effect.logDebug("This node could not write which nodes it reaches", cause)),
          // While a broken connection makes it uncertain whether a node is alive, the wait is shorter.
          Effect.andThen(
            Effect.suspend(() =>
              Effect.timeoutOption(changed.await, torn.size > 0 ? TORN_LINE_INTERVAL : WRITE_INTERVAL)
            )
          ),
          Effect.forever,
          Effect.forkScoped
        )
        /** Reads the rows at once when a connection ends, and otherwise takes those that `Members` reads. */
        const nextRows = Effect.suspend(() =>
          Effect.raceFirst(
            table.nextRows,
            Effect.andThen(
              torn.size > 0 ? Effect.timeoutOption(parted.await, TORN_LINE_INTERVAL) : parted.await,
              Effect.suspend(() => {
                parted.closeUnsafe()
                return table.rows
              })
            )
          )
        )
        yield* nextRows.pipe(
          Effect.flatMap(take),
          Effect.timeout("3 seconds"),
          Effect.catchCause((cause) => Effect.logDebug("The reports of the other nodes could not be read", cause)),
          Effect.forever,
          Effect.forkScoped
        )

        const others = () =>
          rows.filter(({ address, isFresh, isLocked, listed }) =>
            address !== self && listed !== null && isLocked && isFresh
          )
        yield* Effect.suspend(() => others().length === 0 ? Effect.fail("nobody yet") : Effect.void).pipe(
          Effect.retry(Schedule.spaced(READ_INTERVAL)),
          Effect.andThen(
            Effect.suspend(() =>
              Effect.forEach(disagreements(facts, others()), (line) => Effect.logWarning(line), { discard: true })
            )
          ),
          Effect.forkScoped
        )

        return NodeReports.of({
          isSettled: () =>
            others().every(({ address }) => hasLineWith(address) || lines.problem(address) !== undefined),
          explain: () => {
            const known = others()
            const apart = known.flatMap((row) =>
              !hasLineWith(row.address)
                ? [`${row.address}: ${reasonOf(row) ?? "it has not responded yet"}`]
                : row.reaches.has(self)
                ? []
                : [`${row.address}: it has not reported yet that it is connected to this node`]
            )
            return `It is connected in both directions to ${
              known.length - apart.length
            } of ${known.length} other nodes.${apart.map((one) => ` ${one}.`).join("")}`
          }
        })
      })
    )
}

const READ_INTERVAL = "500 millis"
const WRITE_INTERVAL = "500 millis"
const UNSEEN_MS = 15_000
const TORN_LINE_INTERVAL = "100 millis"

/**
 * The differences in settings between a starting node and the existing nodes, as one log line for each setting and
 * value.
 */
export const disagreements = (
  own: NodeInfo,
  others: ReadonlyArray<Pick<NodeRow, "address" | "facts">>
): ReadonlyArray<string> => {
  const lines: Array<string> = []
  const compare = (
    what: string,
    ofNode: (facts: NodeInfo) => string | number | null | undefined,
    why: string
  ): void => {
    const ours = ofNode(own)
    const nodesOf = new Map<string, Array<string>>()
    for (const { address, facts } of others) {
      if (facts === undefined || ofNode(facts) === ours) continue
      const theirs = String(ofNode(facts) ?? "not set")
      nodesOf.set(theirs, [...nodesOf.get(theirs) ?? [], address])
    }
    for (const [theirs, nodes] of nodesOf) {
      lines.push(`${what} is ${ours ?? "not set"} on this node and ${theirs} on ${nodes.join(", ")}: ${why}`)
    }
  }
  compare(
    "The version of Parley",
    ({ version }) => version ?? "before 0.2.0",
    "the nodes work together during an upgrade; run one version on all nodes when it is complete"
  )
  compare(
    "The last migration known",
    ({ schema }) => schema,
    "a running node works with the newer schema, but cannot start again with it"
  )
  compare(
    "PUBLIC_URL",
    ({ publicUrl }) => publicUrl,
    "the links that agents get depend on the node that serves the request"
  )
  for (const name of Object.keys(own.limits)) {
    compare(name, ({ limits }) => limits[name], "the limit depends on the node that serves the request")
  }
  return lines
}

import { NodeDrain } from "#infrastructure/cluster/NodeDuty"
import { NODE_PROTOCOL_VERSION } from "#infrastructure/cluster/NodeGreeting"
import { disagreements, NodeReports } from "#infrastructure/cluster/NodeReports"
import { type NodeInfo, type NodeRow, NodeTable } from "#infrastructure/cluster/NodeTable"
import { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger, References } from "effect"
import { TestClock } from "effect/testing"
import { eventually } from "../support/Eventually.ts"
import { connected, layerLines, wires as openWires } from "../support/Lines.ts"

const SELF = "10.0.0.1:7431"
const OTHER = "10.0.0.2:7431"
const THIRD = "10.0.0.3:7431"

const facts: NodeInfo = {
  version: "0.2.0",
  wire: NODE_PROTOCOL_VERSION,
  schema: "0016_a.sql",
  publicUrl: null,
  limits: { LIMITS_A: 1, LIMITS_B: 2 }
}

const row = (address: string, changes: Partial<NodeRow> = {}): NodeRow => ({
  address,
  reaches: new Set([SELF]),
  facts,
  listed: 1,
  runner: null,
  isLocked: true,
  isFresh: true,
  isSilent: false,
  owns: true,
  turnsInMs: -1,
  readAt: "",
  ...changes
})

const until = (what: string, check: () => boolean) => Effect.promise(() => eventually(what, () => check() || undefined))

/** The reports of a node, with what the other nodes have written and real lines to those that listen. */
const setUp = Effect.gen(function*() {
  const made = yield* openWires
  const rows: Array<NodeRow> = []
  const said: Array<ReadonlyArray<string>> = []
  const logged: Array<string> = []
  const counted = { readings: 0 }
  const context = yield* Layer.build(
    Layer.fresh(NodeReports.layer(facts, () => "http://127.0.0.1:3000")).pipe(
      Layer.provideMerge(layerLines(made, SELF)),
      Layer.provide([
        Layer.succeed(
          NodeTable,
          NodeTable.of({
            rows: Effect.sync(() => {
              counted.readings++
              return [row(SELF), ...rows]
            }),
            nextRows: Effect.delay(Effect.sync(() => [row(SELF), ...rows]), "500 millis"),
            urls: Effect.succeed([]),
            report: (_address, reaches) => Effect.sync(() => void said.push([...reaches])),
            takeShards: () => Effect.void,
            end: () => Effect.succeed(0),
            leave: () => Effect.void
          })
        ),
        NodeDrain.layer,
        Logger.layer([Logger.make(({ message }) => void logged.push(String(message)))]),
        Layer.succeed(References.MinimumLogLevel, "Warn")
      ])
    )
  )
  const lines = Context.get(context, PeerConnections)
  yield* lines.start
  /** A node that listens. */
  const other = Effect.fnUntraced(function*(name: string) {
    const there = Context.get(yield* Layer.build(layerLines(made, name)), PeerConnections)
    yield* there.start
    return there
  })
  return { made, rows, said, logged, counted, lines, other, reports: Context.get(context, NodeReports) }
})

describe("the report of a node about the others", () => {
  it.effect("names each listed node with which it cannot talk, and why", () =>
    Effect.gen(function*() {
      const { lines, logged, other, reports, rows } = yield* setUp
      assert.strictEqual(reports.explain(), "It is connected in both directions to 0 of 0 other nodes.")
      assert.isTrue(reports.isSettled())
      const there = yield* other(OTHER)
      rows.push(row(OTHER, { reaches: new Set() }), row(THIRD))
      yield* connected(lines, there)
      yield* TestClock.adjust("500 millis")
      yield* until("the attempt to connect", () => lines.problem(THIRD) !== undefined)
      assert.strictEqual(
        reports.explain(),
        `It is connected in both directions to 0 of 2 other nodes. ${OTHER}: it has not reported yet that it is connected to this node. ${THIRD}: nothing listens there.`
      )
      rows[0] = row(OTHER)
      yield* TestClock.adjust("500 millis")
      assert.strictEqual(
        reports.explain(),
        `It is connected in both directions to 1 of 2 other nodes. ${THIRD}: nothing listens there.`
      )
      assert.isTrue(reports.isSettled())
      assert.deepStrictEqual(logged, [`Node ${THIRD} cannot be reached from this one: nothing listens there`])
      // Nodes that are not listed, or are gone, are not mentioned.
      rows.push(
        row("10.0.0.4:7431", { listed: null }),
        row("10.0.0.5:7431", { isFresh: false }),
        row("10.0.0.6:7431", { isLocked: false })
      )
      yield* TestClock.adjust("500 millis")
      assert.include(reports.explain(), "It is connected in both directions to 1 of 2 other nodes.")
    }))

  it.effect("names the version of a node whose row has another one, whatever the connection shows", () =>
    Effect.gen(function*() {
      const { logged, reports, rows } = yield* setUp
      rows.push(row(OTHER, { facts: { ...facts, wire: NODE_PROTOCOL_VERSION - 1 } }))
      const version = `it uses version ${
        NODE_PROTOCOL_VERSION - 1
      } of the protocol between nodes, and this node version ${NODE_PROTOCOL_VERSION}: nodes of these versions cannot run together, so stop all nodes for this upgrade`
      yield* TestClock.adjust("500 millis")
      assert.strictEqual(
        reports.explain(),
        `It is connected in both directions to 0 of 1 other nodes. ${OTHER}: ${version}.`
      )
      yield* until("the attempt to connect", () => reports.isSettled())
      yield* TestClock.adjust("500 millis")
      assert.deepStrictEqual(logged, [`Node ${OTHER} cannot be reached from this one: ${version}`])
      assert.strictEqual(
        reports.explain(),
        `It is connected in both directions to 0 of 1 other nodes. ${OTHER}: ${version}.`
      )
      yield* TestClock.adjust("59 seconds")
      assert.lengthOf(logged, 1, "once a minute")
      yield* TestClock.adjust("2 seconds")
      assert.lengthOf(logged, 2)
    }))

  it.effect("is not settled while a node has neither a connection nor a reason why not", () =>
    Effect.gen(function*() {
      const { lines, logged, made, reports, rows } = yield* setUp
      // Takes connections and does not greet.
      yield* Effect.promise(() => made.listen(OTHER, () => {}))
      rows.push(row(OTHER))
      yield* TestClock.adjust("500 millis")
      assert.isFalse(reports.isSettled())
      assert.strictEqual(
        reports.explain(),
        `It is connected in both directions to 0 of 1 other nodes. ${OTHER}: it has not responded yet.`
      )
      yield* until("the connection", () => made.open > 1)
      yield* TestClock.adjust("2500 millis")
      yield* until("the reason", () => lines.problem(OTHER) !== undefined)
      assert.isTrue(reports.isSettled())
      assert.strictEqual(
        reports.explain(),
        `It is connected in both directions to 0 of 1 other nodes. ${OTHER}: it does not respond.`
      )
      yield* TestClock.adjust("500 millis")
      assert.deepStrictEqual(logged, [`Node ${OTHER} cannot be reached from this one: it does not respond`])
    }))

  it.effect("uses the rows that other parts of the node read, and reads them itself when a connection ends", () =>
    Effect.gen(function*() {
      const { counted, lines, made, other, rows } = yield* setUp
      const there = yield* other(OTHER)
      rows.push(row(OTHER))
      yield* connected(lines, there)
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(counted.readings, 0)
      made.isUp = false
      made.cut()
      yield* until("its end", () => lines.to(OTHER) === undefined)
      yield* until("a reading", () => counted.readings > 0)
    }))

  it.effect("is written at once when a connection begins or ends, and twice a second", () =>
    Effect.gen(function*() {
      const { lines, made, other, rows, said } = yield* setUp
      yield* until("the first report", () => said.length > 0)
      assert.deepStrictEqual(said, [[]])
      const there = yield* other(OTHER)
      rows.push(row(OTHER))
      yield* connected(lines, there)
      yield* until("the line to be reported", () => said.at(-1)?.join() === OTHER)
      made.isUp = false
      made.cut()
      rows[0] = row(OTHER, { isLocked: false })
      yield* until("its end", () => lines.to(OTHER) === undefined)
      yield* TestClock.adjust("100 millis")
      yield* until("its end to be reported", () => said.at(-1)?.length === 0)
      const before = said.length
      yield* TestClock.adjust("1 seconds")
      yield* TestClock.adjust("1 seconds")
      assert.strictEqual(said.length, before + 4)
    }))
})

describe("settings that all nodes should have in common", () => {
  const others = (...all: ReadonlyArray<Partial<NodeInfo>>) =>
    all.map((one, i) => ({ address: `10.0.0.${i + 2}:7431`, facts: { ...facts, ...one } }))

  it("are compared by a node that starts, which logs a line for each difference", () => {
    assert.deepStrictEqual(disagreements(facts, others({}, {})), [])
    const { version: _, ...older } = facts
    assert.deepStrictEqual(
      disagreements(
        facts,
        [
          ...others(
            { publicUrl: "https://parley.example", schema: "0015_b.sql", version: "0.3.0" },
            { limits: { LIMITS_A: 1, LIMITS_B: 3 } },
            { limits: { LIMITS_A: 1 }, publicUrl: "https://parley.example" }
          ),
          { address: "10.0.0.5:7431", facts: older }
        ]
      ),
      [
        "The version of Parley is 0.2.0 on this node and 0.3.0 on 10.0.0.2:7431: the nodes work together during an upgrade; run one version on all nodes when it is complete",
        "The version of Parley is 0.2.0 on this node and before 0.2.0 on 10.0.0.5:7431: the nodes work together during an upgrade; run one version on all nodes when it is complete",
        "The last migration known is 0016_a.sql on this node and 0015_b.sql on 10.0.0.2:7431: a running node works with the newer schema, but cannot start again with it",
        "PUBLIC_URL is not set on this node and https://parley.example on 10.0.0.2:7431, 10.0.0.4:7431: the links that agents get depend on the node that serves the request",
        "LIMITS_B is 2 on this node and 3 on 10.0.0.3:7431: the limit depends on the node that serves the request",
        "LIMITS_B is 2 on this node and not set on 10.0.0.4:7431: the limit depends on the node that serves the request"
      ]
    )
  })
})

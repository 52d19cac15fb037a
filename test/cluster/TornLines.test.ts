import { NodeDrain } from "#infrastructure/cluster/NodeDuty"
import { NODE_PROTOCOL_VERSION } from "#infrastructure/cluster/NodeGreeting"
import { NodeReports } from "#infrastructure/cluster/NodeReports"
import { type NodeInfo, type NodeRow, NodeTable } from "#infrastructure/cluster/NodeTable"
import { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { eventually } from "../support/Eventually.ts"
import { connected, layerLines, wires as openWires } from "../support/Lines.ts"

const FIRST = "10.0.0.1:7431"
const SECOND = "10.0.0.2:7431"
const facts: NodeInfo = { wire: NODE_PROTOCOL_VERSION, schema: "0016_a.sql", publicUrl: null, limits: {} }

/** What a node says about another node whose line with it breaks. */
const setUp = Effect.fnUntraced(function*(self: string, other: string) {
  const wires = yield* openWires
  const row = (address: string): NodeRow => ({
    address,
    reaches: new Set(),
    facts,
    listed: 1,
    runner: null,
    isLocked: true,
    isFresh: true,
    isSilent: false,
    owns: true,
    turnsInMs: -1,
    readAt: ""
  })
  const rows = [row(self), row(other)]
  const said: Array<ReadonlyArray<string>> = []
  const context = yield* Layer.build(
    Layer.fresh(NodeReports.layer(facts, () => "http://127.0.0.1:3000")).pipe(
      Layer.provideMerge(layerLines(wires, self)),
      Layer.provide([
        Layer.succeed(
          NodeTable,
          NodeTable.of({
            rows: Effect.sync(() => rows),
            nextRows: Effect.delay(Effect.sync(() => rows), "500 millis"),
            urls: Effect.succeed([]),
            report: (_, reaches) => Effect.sync(() => void said.push([...reaches])),
            takeShards: () => Effect.void,
            end: () => Effect.succeed(0),
            leave: () => Effect.void
          })
        ),
        NodeDrain.layer
      ])
    )
  )
  const lines = Context.get(context, PeerConnections)
  const there = Context.get(yield* Layer.build(layerLines(wires, other)), PeerConnections)
  yield* lines.start
  yield* there.start
  yield* connected(lines, there)
  const last = () => said.at(-1) ?? []
  yield* Effect.promise(() => eventually("the report", () => last().includes(other) || undefined))
  /** Breaks the connection; `isUp`: whether the nodes can connect again. */
  const tear = Effect.fnUntraced(function*(isUp: boolean) {
    const torn = lines.to(other)
    wires.isUp = isUp
    wires.cut()
    yield* Effect.promise(() => eventually("the end of the line", () => torn?.hasEnded === true || undefined))
  })
  const unlock = () => void (rows[1] = { ...rows[1]!, isLocked: false })
  return { wires, lines, said, last, tear, unlock, other }
})

describe("a line that is torn", () => {
  it.effect("is opened again at once, and the nodes never say that they do not reach each other", () =>
    Effect.gen(function*() {
      const { lines, other, said, tear } = yield* setUp(FIRST, SECOND)
      const before = said.length
      for (let times = 0; times < 3; times++) {
        yield* TestClock.adjust("300 millis")
        yield* tear(true)
        yield* Effect.promise(() => eventually("the next line", () => lines.to(other) !== undefined || undefined))
      }
      yield* TestClock.adjust("1 second")
      assert.isAbove(said.length, before)
      for (const reaches of said.slice(before)) assert.deepStrictEqual(reaches, [other])
    }))

  it.effect("leaves the other node unreached as soon as the lock of its address is free, and otherwise after three seconds", () =>
    Effect.gen(function*() {
      const one = yield* setUp(FIRST, SECOND)
      yield* one.tear(false)
      yield* TestClock.adjust("200 millis")
      assert.deepStrictEqual(one.last(), [SECOND])
      one.unlock()
      yield* TestClock.adjust("200 millis")
      assert.deepStrictEqual(one.last(), [])

      const two = yield* setUp(SECOND, FIRST)
      yield* two.tear(false)
      yield* TestClock.adjust("2500 millis")
      assert.deepStrictEqual(two.last(), [FIRST])
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(two.last(), [])
    }))
})

describe("a line on which greetings arrive and frames do not", () => {
  it.effect("leaves the other node unreached, though it begins again and again", () =>
    Effect.gen(function*() {
      const { last, lines, other, said, tear, wires } = yield* setUp(FIRST, SECOND)
      wires.isMute = true
      yield* TestClock.adjust("300 millis")
      yield* tear(true)
      for (let times = 0; times < 3; times++) {
        yield* Effect.promise(() => eventually("the next line", () => lines.to(other) !== undefined || undefined))
        assert.isFalse(lines.to(other)?.isConfirmed)
        yield* TestClock.adjust("3300 millis")
      }
      assert.deepStrictEqual(last(), [])
      const silent = said.length
      yield* TestClock.adjust("3300 millis")
      for (const reaches of said.slice(silent)) assert.deepStrictEqual(reaches, [])
      wires.isMute = false
      yield* Effect.promise(() => eventually("the next line", () => lines.to(other) !== undefined || undefined))
      wires.cut()
      yield* Effect.promise(() => eventually("the report", () => last().includes(other) || undefined))
    }))
})

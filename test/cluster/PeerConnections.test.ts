import { NODE_PROTOCOL_VERSION, readGreeting, writeGreeting } from "#infrastructure/cluster/NodeGreeting"
import type { PeerConnection } from "#infrastructure/cluster/PeerConnection"
import { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { once } from "node:events"
import { breath, chanceFor, eventually } from "../support/Eventually.ts"
import { connected, layerLines, type Wires, wires } from "../support/Lines.ts"

const start = Effect.fnUntraced(function*(made: Wires, name: string, incarnation = 1) {
  const lines = Context.get(yield* Layer.build(Layer.fresh(layerLines(made, name, incarnation))), PeerConnections)
  const heard: Array<unknown> = []
  const began: Array<PeerConnection> = []
  let ended = 0
  lines.handle("missed", (_, entry) => void heard.push(entry[1]))
  lines.watch({ began: (line) => void began.push(line), ended: () => ended++ })
  yield* lines.start
  return { lines, heard, began, ended: () => ended }
})

const until = (what: string, isSo: () => boolean): Effect.Effect<void> =>
  Effect.promise(async () => void await eventually(what, () => isSo() || undefined))
const meanwhile = (what: string, isSo: () => boolean): Effect.Effect<void> =>
  Effect.raceFirst(
    until(what, isSo),
    Effect.forever(Effect.andThen(TestClock.adjust("100 millis"), Effect.promise(breath)))
  )

it.effect("two nodes that connect to each other keep one connection, and one again after it broke", () =>
  Effect.gen(function*() {
    const made = yield* wires
    const [one, two] = [yield* start(made, "a:1"), yield* start(made, "b:1")]
    yield* connected(one.lines, two.lines)
    one.lines.to("b:1")?.send('["missed",1]')
    yield* until("it to be heard", () => two.heard.length === 1)
    made.cut()
    yield* meanwhile("a new line", () => one.began.length === 2 && two.began.length === 2)
    assert.deepStrictEqual([one.ended(), two.ended()], [1, 1])
    two.lines.to("a:1")?.send('["missed",2]')
    yield* until("it to be heard", () => one.heard.length === 1)
    yield* Effect.forEach(
      Array.from({ length: 30 }),
      () => Effect.andThen(TestClock.adjust("250 millis"), Effect.promise(breath))
    )
    assert.deepStrictEqual([one.began.length, two.began.length], [2, 2], "a quiet line lasts")
  }))

it.effect("the node with the greater name connects if the other one cannot", () =>
  Effect.gen(function*() {
    const made = yield* wires
    const dial = made.dial.bind(made)
    made.dial = (from, node) =>
      from === "a:1" ? Effect.fail("there is no way to it from here (EHOSTUNREACH)") : dial(from, node)
    const [one, two] = [yield* start(made, "a:1"), yield* start(made, "b:1")]
    for (const { lines } of [one, two]) yield* lines.want(["a:1", "b:1"])
    yield* until("the reason", () => one.lines.problem("b:1") !== undefined)
    assert.strictEqual(one.lines.problem("b:1"), "there is no way to it from here (EHOSTUNREACH)")
    assert.lengthOf(two.began, 0)
    yield* meanwhile("a line", () => one.began.length === 1 && two.began.length === 1)
    assert.isUndefined(one.lines.problem("b:1"))
  }))

it.effect("both nodes keep the connection that the node with the smaller name opened", () =>
  Effect.gen(function*() {
    const made = yield* wires
    made.isUp = false
    const [one, two] = [yield* start(made, "a:1"), yield* start(made, "b:1")]
    for (const { lines } of [one, two]) yield* lines.want(["a:1", "b:1"])
    yield* TestClock.adjust("2 seconds")
    made.isUp = true
    yield* meanwhile("a line", () => one.lines.to("b:1") !== undefined && two.lines.to("a:1") !== undefined)
    yield* Effect.promise(() => chanceFor("another line"))
    one.lines.to("b:1")?.send('["missed",1]')
    two.lines.to("a:1")?.send('["missed",2]')
    yield* until("both to be heard", () => one.heard.length === 1 && two.heard.length === 1)
    assert.strictEqual(one.began.length - one.ended(), 1)
    assert.strictEqual(two.began.length - two.ended(), 1)
  }))

it.effect("another version, another name and an earlier process are refused with a reason, and logged once a minute", () => {
  const log: Array<string> = []
  return Effect.gen(function*() {
    const made = yield* wires
    const { lines, began } = yield* start(made, "b:1")
    const greet = Effect.fnUntraced(
      function*(greeting: { readonly parley?: number; readonly to?: string; readonly incarnation?: number }) {
        const socket = yield* made.dial("a:1", "b:1")
        writeGreeting(socket, { parley: NODE_PROTOCOL_VERSION, from: "a:1", to: "b:1", incarnation: 5, ...greeting })
        return { socket, ...(yield* readGreeting(socket)) }
      },
      Effect.orDie
    )
    for (let i = 0; i < 2; i++) {
      const { greeting } = yield* greet({ parley: NODE_PROTOCOL_VERSION + 1 })
      assert.strictEqual(
        greeting.refused,
        `it uses version ${NODE_PROTOCOL_VERSION} of the protocol between nodes, not version ${
          NODE_PROTOCOL_VERSION + 1
        }: nodes of these versions cannot run together, so stop all nodes for this upgrade`
      )
      assert.strictEqual(greeting.parley, NODE_PROTOCOL_VERSION)
    }
    assert.deepStrictEqual(log, [
      `Node a:1 is refused: it uses version ${
        NODE_PROTOCOL_VERSION + 1
      } of the protocol between nodes, and this node version ${NODE_PROTOCOL_VERSION}`
    ])
    assert.strictEqual((yield* greet({ to: "c:1" })).greeting.refused, "the node at this address is b:1")
    assert.lengthOf(began, 0)
    assert.isUndefined((yield* greet({})).greeting.refused)
    yield* until("the line", () => lines.to("a:1") !== undefined)
    const { greeting, socket } = yield* greet({ incarnation: 4 })
    assert.strictEqual(greeting.refused, "a newer process uses its address")
    yield* Effect.promise(() => once(socket.resume(), "close"))
    assert.lengthOf(began, 1)
    // A later process takes the place of the one before.
    assert.isUndefined((yield* greet({ incarnation: 6 })).greeting.refused)
    yield* until("the newer line", () => lines.to("a:1")?.incarnation === 6)
  }).pipe(Effect.provide(Logger.layer([Logger.make(({ message }) => void log.push(String(message)))])))
})

it.effect("a connection without a greeting is refused", () =>
  Effect.gen(function*() {
    const made = yield* wires
    const results: Array<unknown> = []
    const { lines } = yield* start(made, "b:1")
    yield* Effect.promise(() =>
      made.listen("port", (socket) =>
        void Effect.runFork(Effect.flip(lines.accept(socket))).addObserver((exit) => results.push(exit)))
    )
    const socket = yield* made.dial("a:1", "port")
    socket.write("GET / HTTP/1.1\r\n\r\n")
    yield* until("the end", () =>
      results.length === 1)
    assert.deepInclude(results[0] as object, { value: "stranger" })
  }))

it.effect("no entry is delivered before there are handlers", () =>
  Effect.gen(function*() {
    const made = yield* wires
    const one = yield* start(made, "a:1")
    const lines = Context.get(yield* Layer.build(Layer.fresh(layerLines(made, "b:1"))), PeerConnections)
    yield* one.lines.want(["b:1"])
    yield* Effect.promise(() => chanceFor("another line"))
    assert.isUndefined(one.lines.to("b:1"))
    const heard: Array<unknown> = []
    lines.handle("missed", (_, entry) => void heard.push(entry))
    yield* lines.start
    yield* meanwhile("the line", () => one.lines.to("b:1") !== undefined)
    one.lines.to("b:1")?.send('["missed"]')
    yield* until("it to be heard", () => heard.length === 1)
  }))

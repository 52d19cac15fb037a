import { NODE_PROTOCOL_VERSION } from "#infrastructure/cluster/NodeGreeting"
import * as NodePort from "#infrastructure/cluster/NodePort"
import { clientTls } from "#infrastructure/cluster/NodeSecret"
import { make as makeLines, PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Logger, Redacted, References, Schedule, Scope } from "effect"
import { TestClock } from "effect/testing"
import { once } from "node:events"
import { connect, type Socket } from "node:net"
import { connect as connectTls } from "node:tls"
import { Crowd } from "../support/Crowd.ts"
import { breath, eventually, LONGEST_WAIT_MS, within } from "../support/Eventually.ts"
import { MEASURES } from "../support/Promptly.ts"

/** A port for nodes with this secret, what was logged of it, and what became of the connections that it took. */
const open = Effect.fnUntraced(
  function*(secret: string | undefined, silentMs = LONGEST_WAIT_MS, settings: Partial<Settings> = {}) {
    const lines: Array<string> = []
    const served: Array<"begun" | "ended"> = []
    const logger = Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
    const config = yield* Config.pipe(Effect.provide(Config.layerTest({
      RUNNER_HOST: "127.0.0.1",
      RUNNER_PORT: 0,
      RUNNER_SECRET: secret === undefined ? undefined : Redacted.make(secret),
      ...settings
    })))
    // Each connection is taken for one of a node.
    const nodes = Layer.effect(
      PeerConnections,
      Effect.map(makeLines(SELF, 1, () => Effect.fail("nobody is there")), (made) =>
        PeerConnections.of({
          ...made,
          accept: (connection) =>
            Effect.sync(() => {
              served.push("begun")
              connection.on("close", () => served.push("ended"))
              connection.resume()
            })
        }))
    )
    const context = yield* Layer.build(
      Layer.fresh(NodePort.layer(config, silentMs)).pipe(Layer.provide(nodes), Layer.provideMerge(logger))
    )
    return { port: Context.get(context, NodePort.NodePort), lines, served }
  }
)

/** A port for nodes with this secret, and what was logged of it at which level. */
const openReal = Effect.fnUntraced(function*(secret: string | undefined) {
  const logged: Array<readonly [level: string, message: string]> = []
  const logger = Logger.layer([Logger.make(({ logLevel, message }) => void logged.push([logLevel, String(message)]))])
  const config = yield* Config.pipe(Effect.provide(Config.layerTest({
    RUNNER_HOST: "127.0.0.1",
    RUNNER_PORT: 0,
    RUNNER_SECRET: secret === undefined ? undefined : Redacted.make(secret)
  })))
  const nodes = Layer.effect(
    PeerConnections,
    Effect.tap(makeLines(SELF, 1, () => Effect.fail("nobody is there")), (made) => made.start)
  )
  const context = yield* Layer.build(
    Layer.fresh(NodePort.layer(config, LONGEST_WAIT_MS)).pipe(
      Layer.provideMerge(nodes),
      Layer.provide([logger, Layer.succeed(References.MinimumLogLevel, "Debug")])
    )
  )
  return { port: Context.get(context, NodePort.NodePort), lines: Context.get(context, PeerConnections), logged }
})

const [SELF, OTHER] = ["10.0.0.1:7431", "10.0.0.2:7431"] as const

const closed = (socket: Socket): Promise<unknown> => {
  socket.on("error", () => {})
  return once(socket, "close")
}

/** Whether one of the ways in which a node with this secret tries to connect leads in. */
const knows = (port: number, secret: string): Effect.Effect<boolean> =>
  Effect.promise(async () => {
    for (const way of clientTls(Redacted.make(secret))) {
      const socket = connectTls({ ...way, port, host: "127.0.0.1" })
      const known = await new Promise<boolean>((resolve) => {
        socket.once("secureConnect", () => resolve(true))
        socket.once("error", () => resolve(false))
        socket.once("close", () => resolve(false))
      })
      socket.destroy()
      if (known) return true
    }
    return false
  })

describe("the port for other nodes", () => {
  it.live("accepts peers that know one of its secrets while a secret is being changed", () =>
    Effect.gen(function*() {
      const [old, both, fresh] = [yield* open("old"), yield* open("new, old"), yield* open("new")]
      const table: Array<readonly [string, boolean]> = []
      for (const [name, { port }] of [["old", old], ["new,old", both], ["new", fresh]] as const) {
        for (const secret of ["old", "new,old", "new", "other"])
          table.push([`${secret} to ${name}`, yield* knows(port, secret)])
      }
      assert.deepStrictEqual(
        table.filter(([, known]) => !known).map(([pair]) => pair),
        [
          "new to old",
          "other to old",
          "other to new,old",
          "old to new",
          "other to new"
        ]
      )
    }).pipe(Effect.scoped))

  it.effect("logs once which peer it refuses and why", () =>
    Effect.gen(function*() {
      const [secured, plain] = [yield* open("a secret"), yield* open(undefined)]
      for (let i = 0; i < 2; i++) {
        const silentTls = connect(secured.port, "127.0.0.1", () => silentTls.write("GET / HTTP/1.1\r\n\r\n"))
        yield* Effect.promise(() => closed(silentTls))
        assert.isFalse(yield* knows(plain.port, "a secret"))
        assert.isFalse(yield* knows(secured.port, "another"))
      }
      // A refused secret is logged later, unless a connection from there is accepted meanwhile.
      const told = Effect.fnUntraced(function*(lines: ReadonlyArray<string>, count: number) {
        while (lines.length < count) {
          yield* Effect.promise(breath)
          yield* TestClock.adjust("10 seconds")
        }
      })
      yield* told(secured.lines, 2)
      yield* told(plain.lines, 1)
      assert.deepStrictEqual(secured.lines.sort(), [
        "Refused a connection from 127.0.0.1 on RUNNER_PORT: it does not use TLS: it has no RUNNER_SECRET, or is not a node",
        "Refused a connection from 127.0.0.1 on RUNNER_PORT: it has a wrong RUNNER_SECRET"
      ])
      assert.deepStrictEqual(plain.lines, [
        "Refused a connection from 127.0.0.1 on RUNNER_PORT: it uses TLS, but this node has no RUNNER_SECRET"
      ])
      assert.deepStrictEqual([secured.served, plain.served], [[], []])
    }).pipe(Effect.scoped))

  it.live("ends a connection whose peer is no node, and logs it once", () =>
    Effect.gen(function*() {
      const [way] = clientTls(Redacted.make("a secret"))
      const [secured, plain] = [yield* openReal("a secret"), yield* openReal(undefined)]
      for (const { logged, port } of [secured, plain]) {
        const dial = () =>
          port === plain.port ? connect(port, "127.0.0.1") : connectTls({ ...way, port, host: "127.0.0.1" })
        // A peer that comes and goes without a word is no stranger: perhaps a check whether the port is open.
        const quiet = dial()
        quiet.on(port === plain.port ? "connect" : "secureConnect", () => quiet.end())
        yield* Effect.promise(() => closed(quiet))
        const node = dial()
        node.write(`${JSON.stringify({ parley: NODE_PROTOCOL_VERSION, from: OTHER, to: SELF, incarnation: 1 })}\n`)
        yield* Effect.promise(() => once(node, "data"))
        assert.deepStrictEqual(logged, [])
        for (
          const bytes of [
            "GET / HTTP/1.1\r\n\r\n",
            "x".repeat(5_000),
            '{"parley":4}\n',
            `${JSON.stringify({ parley: "4", from: OTHER, to: SELF, incarnation: 1 })}\n`
          ]
        ) {
          const stranger = dial()
          stranger.write(bytes)
          yield* Effect.promise(() => closed(stranger))
        }
        assert.deepStrictEqual(logged.filter(([level]) => level !== "Debug"), [
          ["Warn", "Refused a connection from 127.0.0.1 on RUNNER_PORT: it is not a node of this version of Parley"]
        ])
      }
    }).pipe(Effect.scoped))

  it.live("logs nothing when a connection breaks off, as all of a node that dies do", () =>
    Effect.gen(function*() {
      const { lines, logged, port } = yield* openReal(undefined)
      for (let i = 1; i <= 3; i++) {
        const other = connect(port, "127.0.0.1")
        other.write(`${JSON.stringify({ parley: NODE_PROTOCOL_VERSION, from: OTHER, to: SELF, incarnation: i })}\n`)
        yield* Effect.promise(() => once(other, "data"))
        const line = lines.to(OTHER) ?? assert.fail("no line")
        other.resetAndDestroy()
        yield* Effect.promise(() => eventually("the line to end", () => line.hasEnded || undefined))
        assert.isUndefined(lines.to(OTHER))
      }
      assert.lengthOf(logged, 3)
      for (const [level, message] of logged) {
        assert.strictEqual(level, "Debug")
        assert.match(message, /^The connection to node 10\.0\.0\.2:7431 broke: /)
      }
    }).pipe(Effect.scoped))

  it.live("ends connections on which nothing comes, before the handshake and after it, and no other", () =>
    Effect.gen(function*() {
      const [secured, plain] = [yield* open("a secret", 2_000), yield* open(undefined, 2_000)]
      const [way] = clientTls(Redacted.make("a secret"))
      const silent = [
        connect(secured.port, "127.0.0.1"),
        connectTls({ ...way, port: secured.port, host: "127.0.0.1" }),
        connect(plain.port, "127.0.0.1")
      ]
      const busy = connect(plain.port, "127.0.0.1")
      let isOver = false
      const busyEnd = closed(busy).then(() => {
        isOver = true
      })
      yield* Effect.sync(() => busy.write("x")).pipe(Effect.repeat(Schedule.spaced("50 millis")), Effect.forkScoped)
      yield* Effect.promise(() => Promise.all(silent.map(closed)))
      // A process that does nothing for two seconds ends this one too.
      if (MEASURES) assert.isFalse(isOver)
      busy.destroy()
      yield* Effect.promise(() => busyEnd)
    }).pipe(Effect.scoped))

  it.live("takes nodes while strangers hold connections on which they say nothing, and keeps the nodes it has", () =>
    Effect.gen(function*() {
      const crowds: Array<Crowd> = []
      yield* Effect.addFinalizer(() => Effect.sync(() => crowds.forEach((crowd) => crowd.leave())))
      const secured = yield* open("a secret", LONGEST_WAIT_MS, { RUNNER_CONNECTIONS: 4 })
      const plain = yield* open(undefined, LONGEST_WAIT_MS, { RUNNER_CONNECTIONS: 4 })
      const [way] = clientTls(Redacted.make("a secret"))
      for (const { port, served } of [secured, plain]) {
        const node = port === plain.port ? connect(port, "127.0.0.1") : connectTls({ ...way, port, host: "127.0.0.1" })
        const over = closed(node)
        node.write("x")
        yield* Effect.promise(() => eventually("the node to be served", () => served.length === 1 || undefined))
        const crowd = yield* Effect.promise(() => Crowd.gather(`http://127.0.0.1:${port}`, 12))
        crowds.push(crowd)
        // The port takes three besides the node.
        yield* Effect.promise(() => eventually("the others to be closed", () => crowd.open === 3 || undefined))
        if (port === secured.port) assert.isTrue(yield* knows(port, "a secret"))
        node.write("y")
        assert.isFalse(node.destroyed)
        assert.deepStrictEqual(served.slice(0, 1), ["begun"])
        node.destroy()
        yield* Effect.promise(() => over)
      }
    }).pipe(Effect.scoped))

  it.live.skipIf(process.platform !== "linux")(
    "closes at its end a connection from the address and port of one that broke off just before",
    () =>
      Effect.gen(function*() {
        const scope = yield* Scope.make()
        const { port, served } = yield* Scope.provide(open(undefined, 60_000), scope)
        // An address that no other test connects from: on a shared one, another connection may hold the same port.
        const from = { host: "127.0.0.1", port, localAddress: "127.0.0.77" }
        const first = connect(from)
        first.write("x")
        yield* Effect.promise(() => eventually("the first to be served", () => served.length === 1 || undefined))
        const { localPort } = first
        // In one turn, so that the port accepts the second before it knows that the first is closed.
        first.resetAndDestroy()
        const second = connect({ ...from, localPort: localPort! })
        const over = closed(second)
        yield* Effect.promise(() => once(second, "connect"))
        yield* Effect.promise(() => eventually("the first to end", () => served.length === 2 || undefined))
        assert.isFalse(second.destroyed)
        yield* Scope.close(scope, Exit.void)
        yield* Effect.promise(() => within("the end of the second", over))
      }).pipe(Effect.scoped)
  )

  it.live.skipIf(process.platform !== "linux")(
    "takes half of its connections from one address, unless the address is trusted",
    () =>
      Effect.gen(function*() {
        const { lines, port } = yield* open(undefined, undefined, {
          RUNNER_CONNECTIONS: 8,
          TRUST_PROXY_ADDRESSES: ["127.0.0.1"]
        })
        const gather = (count: number, from: string) =>
          Effect.acquireRelease(
            Effect.promise(() => Crowd.gather(`http://127.0.0.1:${port}`, count, from)),
            (crowd) => Effect.sync(() => crowd.leave())
          )
        const strangers = yield* gather(6, "127.0.0.2")
        yield* Effect.promise(() => eventually("the others to be closed", () => strangers.open === 4 || undefined))
        const nodes = yield* gather(4, "127.0.0.1")
        assert.deepStrictEqual([strangers.open, nodes.open], [4, 4])
        assert.deepStrictEqual(lines, [
          "Refused a connection from 127.0.0.2: this address has 4 connections open. The bound of an address is half of RUNNER_CONNECTIONS."
        ])
      }).pipe(Effect.scoped)
  )
})

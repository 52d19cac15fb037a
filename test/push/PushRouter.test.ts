import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import type { Push } from "../../src/push/LiveAgent.ts"
import type { Notice } from "../../src/push/Bundle.ts"
import { PushRouter } from "../../src/push/PushRouter.ts"
import type { SocketSlot } from "../../src/push/SocketPlaces.ts"
import { Config } from "../../src/platform/Config.ts"
import { PeerOrder } from "../../src/cluster/PeerOrder.ts"
import { Readiness } from "../../src/platform/Readiness.ts"
import { type Delivery, type PeerListener, Peers } from "../../src/cluster/Peers.ts"

/** Nodes that reach each other in one process, as long as nothing is broken. */
class Wires {
  readonly listeners = new Map<string, PeerListener>()
  /** Calls that arrived, by receiver. */
  readonly calls: Array<string> = []
  broken = false
  /** How long calls are under way. */
  delayMs = 0
  /** What of each text arrives. */
  garble = (body: string): string => body
  /** How many notices each text had. */
  readonly notices: Array<number> = []
  /** Takes calls and answers none; what it has can arrive later. */
  stalled: Array<Effect.Effect<Delivery>> | undefined
  private readonly lines = new Map<string, { readonly order: PeerOrder; readonly number: number }>()

  readonly peers = (self: string) =>
    Layer.succeed(
      Peers,
      Peers.of({
        listen: (listener) => {
          for (const [node, other] of this.listeners) {
            listener.joined(node)
            other.joined(self)
          }
          this.listeners.set(self, listener)
        },
        deliver: (node, body, first) =>
          Effect.suspend((): Effect.Effect<Delivery> => {
            const listener = this.listeners.get(node)
            if (this.broken || listener === undefined) return Effect.succeed("unreachable")
            const line = `${self} to ${node}`
            const { order } = this.lines.get(line) ?? { order: new PeerOrder() }
            const number = (this.lines.get(line)?.number ?? 0) + 1
            this.lines.set(line, { order, number })
            const arrive = Effect.suspend((): Effect.Effect<Delivery> => {
              this.calls.push(node)
              const judged = order.judge({ incarnation: 1, number, first })
              if (judged === "refuse") return Effect.succeed("forgot")
              if (judged === "again") return Effect.succeed("taken")
              this.notices.push((JSON.parse(body) as { readonly notices: ReadonlyArray<unknown> }).notices.length)
              return listener.receive(self, this.garble(body), first).pipe(
                Effect.as<Delivery>("taken"),
                Effect.catch(() => Effect.sync((): Delivery => (order.forget(), "forgot")))
              )
            })
            if (this.stalled === undefined) return this.delayMs === 0 ? arrive : Effect.delay(arrive, this.delayMs)
            this.stalled.push(arrive)
            return Effect.succeed("unreachable")
          }),
        received: () => Effect.void,
        list: () => undefined
      })
    )
}

const node = Effect.fnUntraced(function*(wires: Wires, name: string, limit = 20, listens = true) {
  const context = yield* Layer.build(
    Layer.fresh(PushRouter.layer).pipe(
      Layer.provide([
        wires.peers(name),
        Config.layerTest({ RUNNER_HOST: name, RUNNER_PORT: 1, LIMITS_SOCKETS_PER_AGENT: limit })
      ]),
      Layer.provideMerge(Layer.fresh(Readiness.layer))
    )
  )
  const remote = Context.get(context, PushRouter)
  const readiness = Context.get(context, Readiness)
  const heard: Array<readonly [string, Push]> = []
  const notices: Array<Notice> = []
  const state = { missed: 0 }
  const parted: Array<ReadonlyArray<string>> = []
  const listen = () =>
    remote.listen({
      push: (agentId, push) => heard.push([agentId, push]),
      notice: (notice) => Effect.sync(() => void notices.push(notice)),
      missed: () => state.missed++,
      parted: (agentIds) => parted.push(agentIds)
    })
  if (listens) listen()
  const places = new Map<string, Array<SocketSlot>>()
  /** Opens or closes sockets until the agent has so many here. */
  const announce = (agentId: string, sockets: number): void => {
    const had = places.get(agentId) ?? []
    places.set(agentId, had)
    for (const place of had.splice(sockets)) remote.leave(place)
    while (had.length < sockets) had.push(remote.enter(agentId, () => undefined) ?? assert.fail("no place"))
  }
  return { name, remote, heard, notices, parted, readiness, state, announce, listen }
})

const rendered = { conversationId: "conv_1", seq: 7, before: "{\"a\":", after: "}" }
const hint = (inboxNo: number): Push =>
  ({ _tag: "Hint", inboxNo, messageId: `msg_${inboxNo}`, senderId: "agt_s", rendered })

it.effect("pushes reach the node that has the agent's sockets, in order, and many of them in one call", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    one.announce("agt_a", 2)
    yield* one.remote.announced
    assert.strictEqual(two.remote.count("agt_a"), 2)
    wires.calls.length = 0
    const pushes: ReadonlyArray<Push> = [
      ...Array.from({ length: 50 }, (_, i) => hint(i + 1)),
      { _tag: "Echo", after: 2, before: null, messageId: "msg_x", rendered: { conversationId: "conv_2", seq: 8, before: "x", after: "y" } },
      { _tag: "Event", frame: "{}", about: { senderId: "agt_s", conversationId: "conv_1" }, after: 3 },
      { _tag: "Event", frame: "{}" }
    ]
    for (const push of pushes) two.remote.tell("agt_a", push)
    two.remote.tell("agt_nobody", hint(1))
    yield* two.remote.announced
    assert.deepStrictEqual(one.heard, pushes.map((push) => ["agt_a", push] as const))
    assert.deepStrictEqual(wires.calls, ["one"])
    one.announce("agt_a", 0)
    yield* one.remote.announced
    two.remote.tell("agt_a", hint(51))
    yield* two.remote.announced
    assert.strictEqual(one.heard.length, pushes.length)
  }))

it.effect("a node that was out of reach is told anew who is where, that it has missed something, and every notice", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    one.announce("agt_a", 1)
    two.announce("agt_b", 1)
    yield* Effect.andThen(one.remote.announced, two.remote.announced)
    const before = one.state.missed
    wires.broken = true
    two.remote.tell("agt_a", hint(1))
    two.announce("agt_b", 3)
    const notice: Notice = { _tag: "Disconnect", agentId: "agt_a", reason: { code: 1008, text: "key rotated" } }
    const told = yield* Effect.forkChild(two.remote.everywhere(notice), { startImmediately: true })
    // Nobody waits for longer than a second, and a socket that opens not at all.
    yield* TestClock.adjust("1 seconds")
    assert.isDefined(told.pollUnsafe())
    yield* two.remote.announced
    assert.deepStrictEqual(one.notices, [])
    wires.broken = false
    yield* TestClock.adjust("1 seconds")
    assert.deepStrictEqual(one.notices, [notice])
    assert.strictEqual(one.remote.count("agt_b"), 3)
    assert.deepStrictEqual(one.heard, [])
    assert.isAbove(one.state.missed, before)
    assert.deepStrictEqual(one.parted, [["agt_b"]])
  }))

it.effect("a text that is not understood is said again in full, and what it pushed is marked as missed", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    one.announce("agt_a", 1)
    yield* Effect.andThen(one.remote.announced, two.remote.announced)
    const missed = one.state.missed
    // As of a node whose release knows other kinds of pushes.
    wires.garble = (body) => body.replaceAll("\"_tag\":\"Hint\"", "\"_tag\":\"Hunt\"")
    two.remote.tell("agt_a", hint(1))
    two.announce("agt_b", 1)
    const notice: Notice = { _tag: "Changed", agentId: "agt_c" }
    const told = yield* Effect.forkChild(two.remote.everywhere(notice), { startImmediately: true })
    yield* TestClock.adjust("1 seconds")
    assert.isDefined(told.pollUnsafe())
    assert.deepStrictEqual(one.heard, [])
    assert.isAbove(one.state.missed, missed)
    assert.strictEqual(one.remote.count("agt_b"), 1)
    assert.deepStrictEqual(one.notices, [notice])
    // What comes after it is understood.
    two.remote.tell("agt_a", { _tag: "Event", frame: "{}" })
    yield* two.remote.announced
    assert.deepStrictEqual(one.heard, [["agt_a", { _tag: "Event", frame: "{}" }]])
  }))

it.effect("a node of which nothing is understood does not put the others out of service; storage is read instead", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    yield* TestClock.adjust("1 seconds")
    const [missed, parted] = [one.state.missed, one.parted.length]
    wires.garble = () => "nothing"
    two.remote.tell("agt_a", hint(1))
    two.announce("agt_b", 1)
    yield* TestClock.adjust("1 minutes")
    assert.deepStrictEqual([...one.readiness.reasons(), ...two.readiness.reasons()], [])
    assert.isAbove(one.state.missed, missed)
    assert.isAbove(one.parted.length, parted)
  }))

it.effect("a first text that is not understood is said again, and what it pushed is marked as missed", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const two = yield* node(wires, "two")
    two.announce("agt_b", 1)
    wires.garble = () => "nothing"
    const one = yield* node(wires, "one")
    yield* TestClock.adjust("1 seconds")
    assert.isAbove(one.state.missed, 0)
    wires.garble = (body) => body
    const missed = one.state.missed
    yield* TestClock.adjust("3 seconds")
    assert.strictEqual(one.remote.count("agt_b"), 1)
    assert.isAbove(one.state.missed, missed)
  }))

it.effect("what comes while a node does not listen yet is said again, and what was pushed is marked as missed", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const one = yield* node(wires, "one", 20, false)
    const two = yield* node(wires, "two")
    two.announce("agt_b", 1)
    one.announce("agt_a", 1)
    yield* TestClock.adjust("100 millis")
    assert.strictEqual(two.remote.count("agt_a"), 1)
    two.remote.tell("agt_a", hint(1))
    yield* TestClock.adjust("3 seconds")
    one.listen()
    yield* TestClock.adjust("3 seconds")
    assert.strictEqual(one.remote.count("agt_b"), 1)
    assert.deepStrictEqual(one.heard, [])
    assert.isAbove(one.state.missed, 0)
  }))

it.effect("a push whose message is not in its bundle is missed", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    one.announce("agt_a", 1)
    yield* Effect.andThen(one.remote.announced, two.remote.announced)
    const missed = one.state.missed
    wires.garble = (body) => JSON.stringify({ ...JSON.parse(body), rendered: [], frames: [] })
    two.remote.tell("agt_a", hint(1))
    yield* two.remote.announced
    assert.strictEqual(one.state.missed, missed + 1)
    two.remote.tell("agt_a", { _tag: "Event", frame: "{}" })
    yield* two.remote.announced
    assert.strictEqual(one.state.missed, missed + 2)
    assert.deepStrictEqual(one.heard, [])
  }))

it.effect("notices go to a node some thousands at once; of more than may wait it is told to read storage instead", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    two.announce("agt_b", 1)
    yield* TestClock.adjust("1 seconds")
    const flood = (notices: number) =>
      Effect.forEach(
        Array.from({ length: notices }, (_, i) => i),
        (i) => Effect.forkChild(two.remote.everywhere({ _tag: "Changed", agentId: `agt_${i}` }), { startImmediately: true })
      )
    // The node takes what it is told: nothing is lost.
    const few = yield* flood(3_000)
    yield* TestClock.adjust("1 seconds")
    assert.isTrue(few.every((fiber) => fiber.pollUnsafe() !== undefined))
    assert.deepStrictEqual(one.notices.map((notice) => notice._tag === "Changed" && notice.agentId), few.map((_, i) => `agt_${i}`))
    assert.isAtMost(Math.max(...wires.notices), 2_000)
    assert.deepStrictEqual(one.parted, [])
    // A call is under way for half a second, and taken in the end; meanwhile more comes than may wait.
    wires.delayMs = 500
    one.notices.length = 0
    two.remote.tell("agt_nobody", hint(1))
    two.announce("agt_c", 1)
    yield* TestClock.adjust("100 millis")
    const many = yield* flood(12_000)
    yield* TestClock.adjust("10 seconds")
    assert.isTrue(many.every((fiber) => fiber.pollUnsafe() !== undefined))
    assert.isAtMost(one.notices.length, 10_000)
    assert.deepStrictEqual(one.parted, [["agt_b", "agt_c"]])
    // It is over: later ones come, and nothing is told twice.
    wires.delayMs = 0
    one.notices.length = 0
    yield* two.remote.everywhere({ _tag: "Changed", agentId: "agt_z" })
    assert.deepStrictEqual(one.notices, [{ _tag: "Changed", agentId: "agt_z" }])
    assert.strictEqual(one.parted.length, 1)
    assert.deepStrictEqual([one.remote.count("agt_b"), one.remote.count("agt_c")], [1, 1])
  }))

it.effect("notices that a node could not be told before it was ever reached make it read storage as well", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    wires.broken = true
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    for (let i = 0; i < 12_000; i++) {
      yield* Effect.forkChild(two.remote.everywhere({ _tag: "Changed", agentId: `agt_${i}` }), { startImmediately: true })
    }
    yield* TestClock.adjust("2 seconds")
    wires.broken = false
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual(one.parted, [[]])
    assert.isAtMost(one.notices.length, 10_000)
  }))

it.effect("who comes back may have done what nobody told: the keys and mutes of the sockets here are read again", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const one = yield* node(wires, "one")
    const two = yield* node(wires, "two")
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual([one.parted, two.parted], [[], []], "who comes for the first time has done nothing")
    wires.listeners.get("one")?.left("two")
    wires.listeners.get("two")?.left("one")
    assert.lengthOf(one.parted, 1)
    // Nobody is there to be told.
    yield* two.remote.everywhere({ _tag: "Disconnect", agentId: "agt_a", reason: { code: 1008, text: "suspended" } })
    wires.listeners.get("one")?.joined("two")
    wires.listeners.get("two")?.joined("one")
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual(one.notices, [])
    assert.lengthOf(one.parted, 2)
    yield* TestClock.adjust("5 seconds")
    assert.lengthOf(one.parted, 2, "once")
  }))

it.effect("a node knows that notices may be missing, until each listed node has sent something lately", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const one = yield* node(wires, "one")
    assert.isTrue(one.remote.hearsAll(), "nobody else is listed")
    wires.broken = true
    yield* node(wires, "two")
    yield* TestClock.adjust("1 second")
    assert.isFalse(one.remote.hearsAll(), "who was just listed has not said anything")
    wires.broken = false
    yield* TestClock.adjust("1 second")
    assert.isTrue(one.remote.hearsAll())
    yield* TestClock.adjust("1 minute")
    assert.isTrue(one.remote.hearsAll(), "nodes without news send something as well")
    wires.broken = true
    yield* TestClock.adjust("5 seconds")
    assert.isFalse(one.remote.hearsAll())
  }))

it.effect("a node that has left has no sockets, and nobody waits for it", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    two.announce("agt_b", 1)
    yield* two.remote.announced
    assert.strictEqual(one.remote.count("agt_b"), 1)
    wires.listeners.get("one")?.left("two")
    assert.strictEqual(one.remote.count("agt_b"), 0)
    assert.deepStrictEqual(one.parted, [["agt_b"]])
    yield* one.remote.everywhere({ _tag: "MuteChanged", agentId: "agt_b", kind: "agent", targetId: "agt_a" })
    assert.deepStrictEqual(two.notices, [])
  }))

it.effect("what arrives late, after its sender gave it up and said everything again, brings no socket back", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    two.announce("agt_b", 1)
    yield* two.remote.announced
    wires.stalled = []
    two.announce("agt_b", 2)
    two.announce("agt_c", 1)
    yield* TestClock.adjust("1 seconds")
    const late = wires.stalled
    assert.isAbove(late.length, 0)
    wires.stalled = undefined
    two.announce("agt_b", 0)
    two.announce("agt_c", 0)
    yield* TestClock.adjust("1 seconds")
    yield* two.remote.announced
    const pushed = one.heard.length
    for (const arrive of [...late, ...late.toReversed()]) assert.strictEqual(yield* arrive, "forgot")
    assert.deepStrictEqual([one.remote.count("agt_b"), one.remote.count("agt_c")], [0, 0])
    assert.strictEqual(one.heard.length, pushed)
    two.announce("agt_b", 1)
    yield* two.remote.announced
    assert.strictEqual(one.remote.count("agt_b"), 1)
  }))

it.effect("a node that cannot reach another one that is listed is not ready until it can, or the other is gone", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    yield* TestClock.adjust("1 minutes")
    assert.deepStrictEqual(one.readiness.reasons(), [])
    wires.broken = true
    yield* TestClock.adjust("18 seconds")
    assert.deepStrictEqual(one.readiness.reasons(), [])
    yield* TestClock.adjust("5 seconds")
    assert.match(one.readiness.reasons().join(), /^This node cannot reach two, /)
    assert.match(two.readiness.reasons().join(), /^This node cannot reach one, /)
    wires.broken = false
    yield* TestClock.adjust("1 seconds")
    assert.deepStrictEqual(one.readiness.reasons(), [])
    wires.broken = true
    yield* TestClock.adjust("30 seconds")
    assert.strictEqual(one.readiness.reasons().length, 1)
    wires.listeners.get("one")?.left("two")
    assert.deepStrictEqual(one.readiness.reasons(), [])
  }))

it.effect("a node is introduced once the others have taken what it says, or do not for three seconds", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const one = yield* node(wires, "one")
    yield* one.remote.introduced
    wires.broken = true
    const two = yield* node(wires, "two")
    const introduced = yield* Effect.forkChild(two.remote.introduced, { startImmediately: true })
    yield* TestClock.adjust("1 seconds")
    assert.isUndefined(introduced.pollUnsafe())
    wires.broken = false
    yield* TestClock.adjust("500 millis")
    assert.isDefined(introduced.pollUnsafe())
    wires.broken = true
    const three = yield* node(wires, "three")
    const alone = yield* Effect.forkChild(three.remote.introduced, { startImmediately: true })
    yield* TestClock.adjust("3 seconds")
    assert.isDefined(alone.pollUnsafe())
  }))

type Node = Effect.Success<ReturnType<typeof node>>

/** Opens a socket of an agent, which may be refused at once or displaced later. */
const open = ({ remote }: Node, agentId = "agt_a") => {
  const socket: { place: SocketSlot | undefined; displaced: boolean } = { place: undefined, displaced: false }
  socket.place = remote.enter(agentId, () => socket.displaced = true)
  return socket
}

const staying = (sockets: ReadonlyArray<ReturnType<typeof open>>) =>
  sockets.filter(({ displaced, place }) => place !== undefined && !displaced)

it.effect("162. of sixty sockets at once over three nodes exactly as many stay as may, and those that were agreed on stay", () =>
  Effect.gen(function*() {
    for (const limit of [20, 7, 1]) {
      const wires = new Wires()
      const nodes = [yield* node(wires, "one", limit), yield* node(wires, "two", limit), yield* node(wires, "three", limit)]
      yield* TestClock.adjust("2 seconds")
      const sockets = Array.from({ length: 60 }, (_, i) => open(nodes[i % 3]!))
      // Nobody has heard of anybody yet, so each node has let in as many as may stay in all.
      assert.strictEqual(staying(sockets).length, Math.min(60, 3 * limit))
      yield* nodes[0]!.remote.agreed
      const first = staying(sockets.filter((_, i) => i % 3 === 0))
      yield* Effect.all(nodes.map(({ remote }) => remote.agreed), { concurrency: "unbounded" })
      assert.strictEqual(staying(sockets).length, limit)
      yield* TestClock.adjust("2 seconds")
      assert.strictEqual(staying(sockets).length, limit)
      assert.strictEqual(staying(sockets.filter((_, i) => i % 3 === 0)).length, first.length)
      for (const { remote } of nodes) assert.isUndefined(remote.enter("agt_a", () => undefined))
    }
  }))

it.effect("what a node lets in without asking stays, though another one asked earlier for more than it could let in so", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    yield* TestClock.adjust("2 seconds")
    wires.delayMs = 300
    const early = Array.from({ length: 30 }, () => open(one))
    yield* TestClock.adjust("200 millis")
    const late = Array.from({ length: 30 }, () => open(two))
    yield* TestClock.adjust("2 seconds")
    const stayed = staying([...early, ...late])
    assert.strictEqual(stayed.length, 20)
    for (const { place } of stayed) assert.isFalse(place?.contested)
  }))

it.effect("a socket says nothing more than that it is there while its agent has half of its places, and asks beyond", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    yield* TestClock.adjust("2 seconds")
    for (let i = 0; i < 5; i++) {
      for (const { remote } of [one, two]) {
        assert.strictEqual(remote.enter("agt_a", () => undefined)?.contested, false)
        yield* remote.announced
      }
    }
    assert.strictEqual(one.remote.enter("agt_a", () => undefined)?.contested, true)
    yield* one.remote.announced
    wires.calls.length = 0
    yield* one.remote.agreed
    assert.deepStrictEqual(wires.calls, ["two", "one"])
    // Alone there is nobody to ask.
    const alone = yield* node(new Wires(), "alone", 1)
    assert.strictEqual(alone.remote.enter("agt_a", () => undefined)?.contested, false)
    assert.isUndefined(alone.remote.enter("agt_a", () => undefined))
    yield* alone.remote.agreed
  }))

it.effect("a place that is given back is free at once where it was, elsewhere once that is told, and no place twice", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one", 2), yield* node(wires, "two", 2)]
    const [first, second] = [open(one), open(one)]
    yield* one.remote.announced
    for (const { remote } of [one, two]) assert.isUndefined(remote.enter("agt_a", () => undefined))
    if (first.place !== undefined) one.remote.leave(first.place)
    assert.isUndefined(two.remote.enter("agt_a", () => undefined))
    yield* one.remote.announced
    const third = open(two)
    yield* two.remote.announced
    if (first.place !== undefined) one.remote.leave(first.place)
    assert.isUndefined(one.remote.enter("agt_a", () => undefined))
    assert.deepStrictEqual(staying([second, third]), [second, third])
    assert.deepStrictEqual([one.remote.count("agt_a"), two.remote.count("agt_a")], [1, 1])
  }))

it.effect("the places of a node that has left are free", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one", 2), yield* node(wires, "two", 2)]
    const [first, second] = [open(two), open(two)]
    yield* two.remote.announced
    assert.isUndefined(one.remote.enter("agt_a", () => undefined))
    wires.listeners.get("one")?.left("two")
    const again = [open(one), open(one), open(one)]
    assert.strictEqual(staying(again).length, 2)
    assert.deepStrictEqual(staying([first, second]), [first, second])
  }))

it.effect("after nodes were cut off from each other, or joined unheard, the sockets that were there first stay", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const [one, two] = [yield* node(wires, "one", 3), yield* node(wires, "two", 3)]
    const early = [open(one), open(two)]
    yield* TestClock.adjust("2 seconds")
    wires.broken = true
    // Only one more may come; each side lets its own in.
    const middle = open(two)
    yield* TestClock.adjust("1 seconds")
    const late = open(one)
    const three = yield* node(wires, "three", 3)
    yield* TestClock.adjust("1 seconds")
    const last = [open(three), open(three), open(three)]
    assert.strictEqual(staying([...early, middle, late, ...last]).length, 7)
    // Out of reach, nobody waits for what they would say.
    for (const { remote } of [one, two, three]) yield* remote.agreed
    wires.broken = false
    yield* TestClock.adjust("2 seconds")
    assert.deepStrictEqual(staying([...early, middle, late, ...last]), [...early, middle])
  }))

it.effect("whoever waits for an answer of a node that hangs waits for a second", () =>
  Effect.gen(function*() {
    const wires = new Wires()
    const one = yield* node(wires, "one", 1)
    yield* node(wires, "two", 1)
    yield* TestClock.adjust("2 seconds")
    const listener = wires.listeners.get("two") ?? assert.fail()
    wires.listeners.set("two", { ...listener, receive: () => Effect.never })
    const socket = open(one)
    const agreed = yield* Effect.forkChild(one.remote.agreed, { startImmediately: true })
    yield* TestClock.adjust("900 millis")
    assert.isUndefined(agreed.pollUnsafe())
    yield* TestClock.adjust("100 millis")
    assert.isDefined(agreed.pollUnsafe())
    assert.deepStrictEqual(staying([socket]), [socket])
  }))

import type { AgentChanged } from "#domain/push/AgentChanged"
import type { Push } from "#domain/push/LiveAgent"
import { PushRouter } from "#domain/push/PushRouter"
import type { SocketSlot } from "#domain/push/SocketPlaces"
import { Members } from "#infrastructure/cluster/Members"
import { NodeCalls } from "#infrastructure/cluster/NodeCalls"
import { PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { Config } from "#infrastructure/platform/Config"
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Layer, Logger, References, Scope } from "effect"
import { TestClock } from "effect/testing"
import { eventually, whileTimePasses } from "../support/Eventually.ts"
import { connected, type HeardEntry, layerLines, type Wires, wires as openWires } from "../support/Lines.ts"

/** A node without lines; `connected` makes them. Nobody else is listed until the test says so. */
const node = Effect.fnUntraced(function*(wires: Wires, name: string, limit = 20) {
  const listed: Array<string> = []
  const context = yield* Layer.build(
    Layer.fresh(PushRouter.layer).pipe(
      Layer.provideMerge(Layer.fresh(NodeCalls.layer)),
      Layer.provideMerge(layerLines(wires, name)),
      Layer.provide([
        Layer.succeed(
          Members,
          Members.of({
            list: () => undefined,
            after: () => Effect.never,
            belongs: () => true,
            others: () => listed,
            ownersOf: () => [],
            refresh: Effect.void
          })
        ),
        Config.layerTest({ LIMITS_SOCKETS_PER_AGENT: limit }),
        // Lines that break are logged.
        Logger.layer([]),
        Layer.succeed(References.MinimumLogLevel, "None")
      ])
    )
  )
  const remote = Context.get(context, PushRouter)
  const lines = Context.get(context, PeerConnections)
  const heard: Array<readonly [string, Push]> = []
  const notices: Array<AgentChanged> = []
  const parted: Array<ReadonlyArray<string>> = []
  const state = {
    missed: 0,
    apply: (notice: AgentChanged): Effect.Effect<void> => Effect.sync(() => void notices.push(notice))
  }
  remote.listen({
    // As it was before it travelled: without the fields that are undefined.
    push: (agentId, push) => heard.push([agentId, JSON.parse(JSON.stringify(push)) as Push]),
    notice: (notice) => state.apply(notice),
    missed: () => state.missed++,
    parted: (agentIds) => parted.push(agentIds)
  })
  const places = new Map<string, Array<SocketSlot>>()
  /** Opens or closes sockets until the agent has so many here. */
  const announce = (agentId: string, sockets: number): void => {
    const had = places.get(agentId) ?? []
    places.set(agentId, had)
    for (const place of had.splice(sockets)) remote.leave(place)
    while (had.length < sockets) had.push(remote.enter(agentId, () => undefined) ?? assert.fail("no place"))
  }
  return { name, remote, lines, listed, heard, notices, parted, state, announce }
})
type Node = Effect.Success<ReturnType<typeof node>>

const join = (...nodes: ReadonlyArray<Node>) => connected(...nodes.map(({ lines }) => lines))

/** Nodes that have lines with each other. */
const nodes = Effect.fnUntraced(function*(wires: Wires, names: ReadonlyArray<string>, limit = 20) {
  const made = yield* Effect.forEach(names, (name) => node(wires, name, limit))
  yield* join(...made)
  return made
})

const pair = Effect.fnUntraced(function*(limit = 20) {
  const wires = yield* openWires
  const [one, two] = yield* nodes(wires, ["one", "two"], limit)
  return { wires, one: one!, two: two! }
})

const until = (what: string, check: () => boolean) => Effect.promise(() => eventually(what, () => check() || undefined))

/** Each node has taken what the others had announced and pushed. */
const exchange = (...all: ReadonlyArray<Node>) =>
  Effect.forEach(all, ({ remote }) => remote.reachable, { concurrency: "unbounded", discard: true })

const rendered = { conversationId: "conv_1", seq: 7, before: '{"a":', after: "}" }
const hint = (inboxNo: number, of = rendered): Push => ({
  _tag: "Hint",
  inboxNo,
  messageId: `msg_${inboxNo}`,
  senderId: "agt_s",
  rendered: of
})

/** The entries about pushes that a node has heard. */
const pushEntries = (entries: ReadonlyArray<HeardEntry>, name: string) =>
  entries.filter(({ entry: [topic], node }) =>
    node === name && (topic === "hint" || topic === "echo" || topic === "event")
  )

/** A test in which other nodes' answers have their time of the test's clock. */
const inOwnTime = <E>(name: string, test: () => Effect.Effect<void, E, Scope.Scope>) =>
  it.effect(name, () => whileTimePasses(test()))

inOwnTime("pushes reach the node that has the agent's sockets, in order", () =>
  Effect.gen(function*() {
    const { one, two } = yield* pair()
    one.announce("agt_a", 2)
    yield* exchange(one)
    assert.strictEqual(two.remote.count("agt_a"), 2)
    const pushes: ReadonlyArray<Push> = [
      ...Array.from({ length: 50 }, (_, i) => hint(i + 1, { ...rendered, seq: i })),
      {
        _tag: "Echo",
        after: 2,
        before: null,
        messageId: "msg_x",
        rendered: { conversationId: "conv_2", seq: 8, before: "x", after: "ý\u{1F600}" }
      },
      {
        _tag: "Echo",
        after: 2,
        before: 9,
        messageId: "msg_y",
        rendered: { conversationId: "conv_2", seq: 9, before: "x", after: "y" }
      },
      { _tag: "Event", frame: "{}", about: { senderId: "agt_s", conversationId: "conv_1" }, after: 3 },
      { _tag: "Event", frame: "{}" }
    ]
    for (const push of pushes) two.remote.push("agt_a", push)
    two.remote.push("agt_nobody", hint(1))
    yield* exchange(two)
    assert.deepStrictEqual(one.heard, pushes.map((push) => ["agt_a", push] as const))
    one.announce("agt_a", 0)
    yield* exchange(one)
    two.remote.push("agt_a", hint(51))
    yield* exchange(two)
    assert.strictEqual(one.heard.length, pushes.length)
  }))

inOwnTime(
  "a push to many agents of one node is one entry, in which each has a number of its own",
  () =>
    Effect.gen(function*() {
      const { one, two, wires } = yield* pair()
      const members = Array.from({ length: 100 }, (_, i) => `agt_${i}`)
      for (const member of members) one.announce(member, 1)
      yield* exchange(one)
      const entries = wires.record()
      const pushed = (make: (i: number) => Push) =>
        Effect.gen(function*() {
          entries.length = one.heard.length = 0
          const pushes = members.map((member, i) => [member, make(i)] as const)
          for (const [member, push] of pushes) two.remote.push(member, push)
          yield* exchange(two)
          assert.deepStrictEqual(one.heard, pushes)
          return pushEntries(entries, "one").length
        })
      assert.strictEqual(yield* pushed((i) => ({ ...hint(i, rendered), messageId: "msg_1" } as Push)), 1)
      assert.strictEqual(yield* pushed(() => ({ _tag: "Event", frame: '{"typing":1}' })), 1)
      const about = { senderId: "agt_s", conversationId: "conv_1" }
      assert.strictEqual(yield* pushed((i) => ({ _tag: "Event", frame: "{}", about, after: i })), 1)
      // Two messages are two entries, however they read.
      const other = { ...rendered }
      assert.strictEqual(
        yield* pushed((
          i
        ) => ({ ...hint(i, i < 50 ? rendered : other), messageId: i < 50 ? "msg_1" : "msg_2" } as Push)),
        2
      )
    })
)

inOwnTime(
  "when the line to a node breaks, its sockets are forgotten; when there is a line again, everything is announced again",
  () =>
    Effect.gen(function*() {
      const { one, two, wires } = yield* pair()
      one.announce("agt_a", 1)
      two.announce("agt_b", 1)
      yield* exchange(one, two)
      assert.deepStrictEqual([one.state.missed, one.parted], [1, [[]]], "a line that begins: storage may have more")
      wires.isUp = false
      wires.cut()
      yield* until("both to forget", () => one.remote.count("agt_b") === 0 && two.remote.count("agt_a") === 0)
      assert.deepStrictEqual([one.parted, two.parted], [[[], ["agt_b"]], [[], ["agt_a"]]])
      // Nobody waits for a node without a line.
      two.remote.push("agt_a", hint(1))
      two.announce("agt_b", 3)
      yield* two.remote.onOthers({ _tag: "Disconnect", agentId: "agt_a", reason: { code: 1008, text: "key rotated" } })
      yield* two.remote.reachable
      assert.strictEqual(one.state.missed, 1)
      wires.isUp = true
      yield* join(one, two)
      yield* exchange(one, two)
      assert.deepStrictEqual([one.remote.count("agt_b"), two.remote.count("agt_a")], [3, 1])
      // What was not told is in storage: messages (`missed`), keys and mutes (`parted`).
      assert.deepStrictEqual([one.heard, one.notices], [[], []])
      assert.deepStrictEqual([one.state.missed, one.parted], [2, [[], ["agt_b"], []]])
      two.remote.push("agt_a", hint(2))
      yield* exchange(two)
      assert.deepStrictEqual(one.heard, [["agt_a", hint(2)]])
    })
)

inOwnTime("notices are applied on the other nodes when the caller goes on, in order", () =>
  Effect.gen(function*() {
    const wires = yield* openWires
    const [one, two, three] = yield* nodes(wires, ["one", "two", "three"])
    const gate = yield* Deferred.make<void>()
    const { apply } = three!.state
    three!.state.apply = (notice) => Effect.andThen(Deferred.await(gate), apply(notice))
    const notices: ReadonlyArray<AgentChanged> = [
      { _tag: "Changed", agentId: "agt_a" },
      { _tag: "Disconnect", agentId: "agt_a", reason: { code: 1008, text: "key rotated" } },
      { _tag: "MuteChanged", agentId: "agt_a", kind: "conversation", targetId: "conv_1" },
      { _tag: "Unmuted", agentId: "agt_a" }
    ]
    const told = yield* Effect.forkChild(
      Effect.forEach(notices, (notice) => one!.remote.onOthers(notice), { concurrency: "unbounded", discard: true })
    )
    yield* until("the second node to apply them", () => two!.notices.length === notices.length)
    assert.isUndefined(told.pollUnsafe())
    yield* Deferred.succeed(gate, undefined)
    yield* until("the caller to go on", () => told.pollUnsafe() !== undefined)
    assert.deepStrictEqual([one!.notices, two!.notices, three!.notices], [[], notices, notices])
  }))

it.effect("no caller waits for longer than a second for a node that hangs, and the node applies everything once it goes on", () =>
  Effect.gen(function*() {
    const { one, two, wires } = yield* pair(1)
    wires.hold("two")
    const place = one.remote.enter("agt_a", () => assert.fail("displaced"))
    const notice: AgentChanged = { _tag: "Changed", agentId: "agt_a" }
    const waiting = yield* Effect.forEach(
      [one.remote.reachable, one.remote.onOthers(notice)],
      (wait) => Effect.forkChild(wait, { startImmediately: true })
    )
    yield* TestClock.adjust("900 millis")
    assert.deepStrictEqual(waiting.map((fiber) => fiber.pollUnsafe()), [undefined, undefined])
    yield* TestClock.adjust("350 millis")
    for (const fiber of waiting) assert.isTrue(fiber.pollUnsafe() !== undefined && Exit.isSuccess(fiber.pollUnsafe()!))
    assert.isDefined(place)
    wires.release()
    yield* until("the notice to be applied", () => two.notices.length === 1)
    assert.strictEqual(two.remote.count("agt_a"), 1)
  }))

inOwnTime(
  "a node that could not apply a notice learns by a new connection that storage has more",
  () =>
    Effect.gen(function*() {
      const { one, two } = yield* pair()
      two.announce("agt_b", 1)
      yield* exchange(two)
      one.state.apply = () => Effect.die("a notice of another release")
      const line = two.lines.to("one")
      yield* two.remote.onOthers({ _tag: "Changed", agentId: "agt_a" })
      assert.isTrue(line?.hasEnded)
      yield* until("the line to be noticed as broken", () => one.parted.length === 2)
      yield* join(one, two)
      yield* exchange(one, two)
      assert.deepStrictEqual([one.parted, one.state.missed, one.remote.count("agt_b")], [[[], ["agt_b"], []], 2, 1])
    })
)

it.effect("more pushes than may wait for a node that does not read are dropped, and it is told that it missed something", () =>
  Effect.gen(function*() {
    const { one, two, wires } = yield* pair()
    one.announce("agt_a", 1)
    yield* exchange(one)
    const flood = (pushes: number, chars: number) =>
      Effect.gen(function*() {
        for (let i = 0; i < pushes; i++)
          two.remote.push("agt_a", hint(i + 1, { ...rendered, seq: i, before: "x".repeat(chars) }))
        // What a turn of the event loop produces leaves at its end, as far as the node acknowledges.
        yield* Effect.promise(() => new Promise<void>((done) => void setImmediate(() => setImmediate(done))))
      })
    // By number, and by characters.
    for (const [pushes, chars] of [[25_000, 10], [60, 500_000]] as const) {
      wires.hold("one")
      one.heard.length = 0
      const { missed } = one.state
      // Fills what may be under way without an acknowledgement.
      yield* flood(9, 500_000)
      yield* flood(pushes, chars)
      two.remote.push("agt_a", { _tag: "Event", frame: "{}" })
      two.announce("agt_b", 1)
      wires.release()
      yield* until("what waited", () => one.remote.count("agt_b") === 1)
      assert.strictEqual(one.state.missed, missed + 1)
      assert.isBelow(one.heard.length, pushes)
      assert.deepStrictEqual(one.heard.at(-1), ["agt_a", { _tag: "Event", frame: "{}" }])
      assert.lengthOf(one.parted, 1, "the line lasts")
      two.announce("agt_b", 0)
      yield* exchange(two)
    }
  }))

inOwnTime(
  "an entry with another shape ends the line, and what it said is made good by the next one",
  () =>
    Effect.gen(function*() {
      const { one, two } = yield* pair()
      one.announce("agt_a", 1)
      two.announce("agt_b", 1)
      yield* exchange(one, two)
      // As of a node whose release has other pushes.
      for (
        const [i, entry] of [["hint", [["agt_a", 1]], "msg_1"], ["hint", "agt_a"], ["sockets", { agt_c: 1 }], [
          "echo",
          [["agt_a", null]],
          1,
          "msg_1",
          ["c", 1, "", ""],
          null
        ]].entries()
      ) {
        const line = two.lines.to("one") ?? assert.fail("no line")
        line.send(JSON.stringify(entry))
        two.remote.push("agt_a", hint(1))
        two.announce("agt_c", i + 1)
        yield* until(
          `the line to end after ${JSON.stringify(entry)}`,
          () => line.hasEnded && one.parted.length === 2 * i + 2
        )
        yield* join(one, two)
        yield* exchange(one, two)
        assert.deepStrictEqual([one.heard, one.state.missed, one.remote.count("agt_b"), one.remote.count("agt_c")], [
          [],
          i + 2,
          1,
          i + 1
        ])
      }
      two.remote.push("agt_a", { _tag: "Event", frame: "{}" })
      yield* exchange(two)
      assert.deepStrictEqual(one.heard, [["agt_a", { _tag: "Event", frame: "{}" }]])
    })
)

inOwnTime("an entry that was still under way on an old connection brings no socket back", () =>
  Effect.gen(function*() {
    const { one, two, wires } = yield* pair()
    one.announce("agt_a", 1)
    yield* exchange(one)
    wires.hold("two")
    const old = one.lines.to("two") ?? assert.fail("no line")
    one.announce("agt_a", 2)
    one.announce("agt_c", 1)
    yield* Effect.promise(() => new Promise<void>((done) => void setImmediate(() => setImmediate(done))))
    // The other node does not see that it is over: it reads nothing.
    old.end("connection", new Error("broken by the test"))
    one.announce("agt_a", 0)
    one.announce("agt_c", 0)
    one.announce("agt_d", 1)
    yield* until("a new line", () => one.lines.to("two") !== undefined && two.remote.count("agt_d") === 1)
    wires.release()
    yield* exchange(one, two)
    assert.deepStrictEqual(["agt_a", "agt_c", "agt_d"].map(two.remote.count), [0, 0, 1])
    assert.deepStrictEqual(two.parted, [[], ["agt_a"], []])
  }))

it.effect("a node knows that notices may be missing, until each listed node has sent something lately", () =>
  Effect.gen(function*() {
    const wires = yield* openWires
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    assert.isTrue(one.remote.hearsAll(), "nobody else is listed")
    one.listed.push("two")
    assert.isFalse(one.remote.hearsAll(), "a node that was just listed has not said anything")
    yield* join(one, two)
    assert.isTrue(one.remote.hearsAll())
    const line = one.lines.to("two") ?? assert.fail("no line")
    for (let i = 0; i < 8; i++) {
      const receivedAt = line.receivedAt
      yield* TestClock.adjust("500 millis")
      yield* until("a node without news to send something as well", () => line.receivedAt > receivedAt)
      assert.isTrue(one.remote.hearsAll())
    }
    wires.hold("one")
    yield* TestClock.adjust("1600 millis")
    assert.isFalse(one.remote.hearsAll())
    wires.release()
    yield* until("what was said meanwhile", () => one.remote.hearsAll())
    one.listed.push("three")
    assert.isFalse(one.remote.hearsAll())
  }))

it.effect("a node is introduced once it has a line with all listed nodes and they have taken what it says, or after three seconds", () =>
  Effect.gen(function*() {
    const wires = yield* openWires
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    yield* one.remote.introduced
    two.listed.push("one")
    const introduced = yield* Effect.forkChild(two.remote.introduced, { startImmediately: true })
    two.announce("agt_b", 1)
    yield* TestClock.adjust("1 seconds")
    assert.isUndefined(introduced.pollUnsafe())
    yield* join(one, two)
    yield* TestClock.adjust("20 millis")
    yield* until("the introduction", () => introduced.pollUnsafe() !== undefined)
    assert.strictEqual(one.remote.count("agt_b"), 1)
    one.listed.push("two", "three")
    const never = yield* Effect.forkChild(one.remote.introduced, { startImmediately: true })
    yield* TestClock.adjust("2900 millis")
    assert.isUndefined(never.pollUnsafe())
    yield* TestClock.adjust("100 millis")
    assert.isDefined(never.pollUnsafe())
  }))

inOwnTime("a node that has ended has no sockets, and no caller waits for it", () =>
  Effect.gen(function*() {
    const wires = yield* openWires
    const one = yield* node(wires, "one")
    const life = yield* Scope.make()
    const two = yield* Scope.provide(node(wires, "two"), life)
    yield* join(one, two)
    two.announce("agt_b", 1)
    yield* exchange(two)
    assert.strictEqual(one.remote.count("agt_b"), 1)
    wires.isUp = false
    yield* Scope.close(life, Exit.void)
    yield* until("its end to be noticed", () => one.remote.count("agt_b") === 0)
    assert.deepStrictEqual(one.parted, [[], ["agt_b"]])
    yield* one.remote.onOthers({ _tag: "MuteChanged", agentId: "agt_b", kind: "agent", targetId: "agt_a" })
    yield* one.remote.reachable
  }))

/** Opens a socket of an agent, which may be refused at once or displaced later. */
const open = ({ remote }: Node, agentId = "agt_a") => {
  const socket: { place: SocketSlot | undefined; displaced: boolean } = { place: undefined, displaced: false }
  socket.place = remote.enter(agentId, () => socket.displaced = true)
  return socket
}

const staying = (sockets: ReadonlyArray<ReturnType<typeof open>>) =>
  sockets.filter(({ displaced, place }) => place !== undefined && !displaced)

inOwnTime(
  "162. of sixty sockets at once over three nodes exactly as many stay as are allowed, and confirmed ones stay",
  () =>
    Effect.gen(function*() {
      for (const limit of [20, 7, 1]) {
        const wires = yield* openWires
        const all = yield* nodes(wires, ["one", "two", "three"], limit)
        const sockets = Array.from({ length: 60 }, (_, i) => open(all[i % 3]!))
        // Nobody has heard of anybody yet, so each node has let in as many as may stay in all.
        assert.strictEqual(staying(sockets).length, Math.min(60, 3 * limit))
        yield* exchange(all[0]!)
        const first = staying(sockets.filter((_, i) => i % 3 === 0))
        yield* exchange(...all)
        assert.strictEqual(staying(sockets).length, limit)
        yield* exchange(...all)
        assert.strictEqual(staying(sockets).length, limit)
        assert.deepStrictEqual(staying(sockets.filter((_, i) => i % 3 === 0)), first)
        for (const { remote } of all) {
          assert.isUndefined(remote.enter("agt_a", () => undefined))
          assert.strictEqual(
            remote.count("agt_a"),
            limit - staying(sockets.filter((_, i) => all[i % 3]!.remote === remote)).length
          )
        }
      }
    })
)

it.effect("a node that pauses between announcements answers nobody before it has announced what it let in", () =>
  Effect.gen(function*() {
    const wires = yield* openWires
    const names = ["one", "two", "three", "four", "five"]
    const all = yield* nodes(wires, names, 3)
    const [one, two] = [all[0]!, all[1]!]
    // The second node does not hear yet of the sockets of the first one.
    wires.hold("two")
    const here = Array.from({ length: 3 }, () => open(one))
    yield* TestClock.adjust("1 millis")
    yield* TestClock.adjust("2 millis")
    // With four other nodes it announces one socket at once, and the next ones a millisecond later.
    const there = Array.from({ length: 3 }, () => open(two))
    const entries = wires.record()
    wires.release()
    const agreed = yield* Effect.forkChild(one.remote.reachable, { startImmediately: true })
    yield* until(
      "the question",
      () =>
        names.slice(1).every((name) =>
          entries.some(({ entry: [topic, , procedure], node }) =>
            node === name && topic === "call" && procedure === "node/reach"
          )
        )
    )
    yield* until(
      "the answers of the nodes without news",
      () => entries.filter(({ entry: [topic], node }) => node === "one" && topic === "answer").length >= 3
    )
    assert.isUndefined(agreed.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    yield* until("the answer", () => agreed.pollUnsafe() !== undefined)
    const kept = staying(here)
    assert.lengthOf(kept, 2)
    yield* TestClock.adjust("100 millis")
    const last = yield* Effect.forkChild(exchange(one, two), { startImmediately: true })
    yield* until("everything", () => last.pollUnsafe() !== undefined)
    assert.deepStrictEqual(staying(here), kept)
    assert.lengthOf(staying([...here, ...there]), 3)
  }))

it.effect("a change takes a second if a listed node does not say that it knows of it, so that what it has cached has expired", () =>
  Effect.gen(function*() {
    const { one, two, wires } = yield* pair()
    const change = () =>
      Effect.forkChild(one.remote.onOthers({ _tag: "Changed", agentId: "agt_a" }), { startImmediately: true })
    one.listed.push("two")
    const told = yield* change()
    yield* until("the answer", () => told.pollUnsafe() !== undefined)
    assert.lengthOf(two.notices, 1)
    two.state.apply = () => Effect.never
    const lost = yield* change()
    wires.isUp = false
    wires.cut()
    yield* until("the line to be gone", () => one.lines.to("two") === undefined)
    const unsent = yield* change()
    yield* TestClock.adjust("900 millis")
    assert.deepStrictEqual([lost.pollUnsafe(), unsent.pollUnsafe()], [undefined, undefined])
    yield* TestClock.adjust("100 millis")
    yield* until("both to go on", () => lost.pollUnsafe() !== undefined && unsent.pollUnsafe() !== undefined)
    one.listed.pop()
    const alone = yield* change()
    yield* until("nobody to be waited for", () => alone.pollUnsafe() !== undefined)
  }))

it.effect("storage is read for a new line once the other node has taken the announcements: before that it pushes nothing here", () =>
  Effect.gen(function*() {
    const wires = yield* openWires
    const [one, two] = [yield* node(wires, "one"), yield* node(wires, "two")]
    one.announce("agt_a", 1)
    const known: Array<number> = []
    one.remote.listen({
      push: () => {},
      notice: () => Effect.void,
      missed: () => known.push(two.remote.count("agt_a")),
      parted: () => {}
    })
    yield* join(one, two)
    yield* until("it to be told", () => known.length === 1)
    assert.deepStrictEqual(known, [1])
  }))

it.effect("a socket that a node accepts without asking stays, although another node asked earlier for more than it could accept alone", () =>
  Effect.gen(function*() {
    const { one, two, wires } = yield* pair()
    for (const { name } of [one, two]) wires.hold(name)
    const early = Array.from({ length: 30 }, () => open(one))
    yield* TestClock.adjust("200 millis")
    const late = Array.from({ length: 30 }, () => open(two))
    assert.strictEqual(staying([...early, ...late]).length, 40)
    wires.release()
    yield* exchange(one, two)
    const stayed = staying([...early, ...late])
    assert.strictEqual(stayed.length, 20)
    for (const { place } of stayed) assert.isFalse(place?.contested)
  }))

inOwnTime(
  "a socket says nothing more than that it is there while its agent has half of its places, and asks beyond",
  () =>
    Effect.gen(function*() {
      const { one, two } = yield* pair()
      for (let i = 0; i < 5; i++) {
        for (const at of [one, two]) {
          assert.strictEqual(at.remote.enter("agt_a", () => undefined)?.contested, false)
          yield* exchange(at)
        }
      }
      assert.strictEqual(one.remote.enter("agt_a", () => undefined)?.contested, true)
      yield* exchange(one)
      assert.strictEqual(two.remote.count("agt_a"), 6)
      // Alone there is nobody to ask.
      const alone = yield* node(yield* openWires, "alone", 1)
      assert.strictEqual(alone.remote.enter("agt_a", () => undefined)?.contested, false)
      assert.isUndefined(alone.remote.enter("agt_a", () => undefined))
      yield* alone.remote.reachable
    })
)

inOwnTime(
  "a place that is given back is free at once where it was, elsewhere once that is announced, and no place twice",
  () =>
    Effect.gen(function*() {
      const { one, two } = yield* pair(2)
      const [first, second] = [open(one), open(one)]
      yield* exchange(one)
      for (const { remote } of [one, two]) assert.isUndefined(remote.enter("agt_a", () => undefined))
      if (first.place !== undefined) one.remote.leave(first.place)
      assert.isUndefined(two.remote.enter("agt_a", () => undefined))
      yield* exchange(one)
      const third = open(two)
      yield* exchange(two)
      if (first.place !== undefined) one.remote.leave(first.place)
      assert.isUndefined(one.remote.enter("agt_a", () => undefined))
      assert.deepStrictEqual(staying([second, third]), [second, third])
      assert.deepStrictEqual([one.remote.count("agt_a"), two.remote.count("agt_a")], [1, 1])
      if (third.place !== undefined) two.remote.leave(third.place)
      assert.isDefined(two.remote.enter("agt_a", () => undefined), "at once where it was")
    })
)

inOwnTime("the places of a node without a line are free, and its own sockets stay", () =>
  Effect.gen(function*() {
    const { one, two, wires } = yield* pair(2)
    const [first, second] = [open(two), open(two)]
    yield* exchange(two)
    assert.isUndefined(one.remote.enter("agt_a", () => undefined))
    wires.isUp = false
    wires.cut()
    yield* until("the line to be noticed as broken", () => one.remote.count("agt_a") === 0)
    const again = [open(one), open(one), open(one)]
    assert.strictEqual(staying(again).length, 2)
    assert.deepStrictEqual(staying([first, second]), [first, second])
  }))

it.effect("after nodes were cut off from each other, or joined unheard, the sockets that were there first stay", () =>
  Effect.gen(function*() {
    const { one, two, wires } = yield* pair(3)
    const early = [open(one), open(two)]
    yield* exchange(one, two)
    wires.isUp = false
    wires.cut()
    yield* until("both to forget", () => one.remote.count("agt_a") + two.remote.count("agt_a") === 0)
    // Only one more may come; each side lets its own in.
    yield* TestClock.adjust("10 millis")
    const middle = open(two)
    yield* TestClock.adjust("10 millis")
    const late = open(one)
    const three = yield* node(wires, "three", 3)
    yield* TestClock.adjust("10 millis")
    const last = [open(three), open(three), open(three)]
    assert.strictEqual(staying([...early, middle, late, ...last]).length, 7)
    // Out of reach, nobody waits for what they would say.
    yield* exchange(one, two, three)
    wires.isUp = true
    yield* TestClock.adjust("250 millis")
    yield* join(one, two, three)
    yield* exchange(one, two, three)
    assert.deepStrictEqual(staying([...early, middle, late, ...last]), [...early, middle])
  }))

import { followList } from "#infrastructure/cluster/EffectOverrides"
import { Members } from "#infrastructure/cluster/Members"
import { NodeDrain } from "#infrastructure/cluster/NodeDuty"
import { NodeReports } from "#infrastructure/cluster/NodeReports"
import type { LineEnd, PeerConnection } from "#infrastructure/cluster/PeerConnection"
import { type LineWatcher, PeerConnections } from "#infrastructure/cluster/PeerConnections"
import { DEFAULT_SHARDS, Shards } from "#infrastructure/cluster/Shards"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Context, Deferred, type Duration, Effect, Fiber, Layer, Logger } from "effect"
import { MachineId, Runner, RunnerAddress, RunnerStorage, ShardId } from "effect/cluster"
import { TestClock } from "effect/testing"

const [SELF, OTHER, THIRD] = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"] as const

const shards = Array.from({ length: DEFAULT_SHARDS }, (_, i) => ShardId.make("default", i + 1))

const runner = (port: number, groups: ReadonlyArray<string> = ["default"]) =>
  Runner.make({ address: RunnerAddress.make("10.0.0.1", port), groups, weight: 1 })
const gateway = (port: number) => runner(port, [])

/** The members as the node on port 1 sees them, with a list of nodes that the test makes. */
const setUp = Effect.fnUntraced(function*(...list: Array<readonly [Runner.Runner, boolean]>) {
  const logged: Array<string> = []
  /** The nodes whose lines were ended. */
  const ended: Array<string> = []
  const watchers: Array<LineWatcher> = []
  const state = { list, settled: true, read: Effect.void as Effect.Effect<void, never>, readings: 0 }
  const drain: { drained: boolean; joined: boolean; nodes: ReadonlySet<string> } = {
    drained: false,
    joined: true,
    nodes: new Set()
  }
  const storage = RunnerStorage.RunnerStorage.of({
    register: () => Effect.die("unused"),
    unregister: () => Effect.void,
    getRunners: Effect.suspend(() => {
      state.readings++
      return Effect.map(state.read, () => state.list.map(([one, healthy]): [Runner.Runner, boolean] => [one, healthy]))
    }),
    setRunnerHealth: () => Effect.void,
    acquire: () => Effect.succeed([]),
    refresh: () => Effect.succeed([]),
    release: () => Effect.void,
    releaseAll: () => Effect.void
  })
  const members = Context.get(
    yield* Layer.build(
      Layer.fresh(Members.layer).pipe(Layer.provide([
        Layer.succeed(RunnerStorage.RunnerStorage, storage),
        Layer.succeed(
          NodeReports,
          NodeReports.of({
            explain: () => "It is connected in both directions to 0 of 1 other nodes.",
            isSettled: () => state.settled
          })
        ),
        Layer.succeed(NodeDrain, drain),
        Shards.layer(),
        Layer.effect(
          PeerConnections,
          Effect.map(PeerConnections, (lines) =>
            PeerConnections.of({
              ...lines,
              self: SELF,
              watch: (watcher) => void watchers.push(watcher),
              to: (node) => ({ end: () => void ended.push(node) }) as unknown as PeerConnection
            }))
        ).pipe(Layer.provide(PeerConnections.layerAlone)),
        Logger.layer([Logger.make(({ logLevel, message }) => void logged.push(`${logLevel}: ${String(message)}`))])
      ]))
    ),
    Members
  )
  // The first reading.
  yield* TestClock.adjust("1 millis")
  /** What was logged since this was called last. */
  const told = () => logged.splice(0)
  /** Ends the connection to a node. */
  const breaks = (node: string, end: LineEnd) => {
    for (const watcher of watchers) watcher.ended({ node } as PeerConnection, end)
  }
  return { members, state, storage, drain, ended, told, breaks }
})

const NOT_TAKEN =
  `Warn: This node, ${SELF}, is not accepted into the cluster. It is connected in both directions to 0 of 1 other nodes.`

describe("the members of the cluster", () => {
  it.effect("are logged once when they come and when they go, in words that say how they went", () =>
    Effect.gen(function*() {
      const { members, state, told } = yield* setUp([runner(1), true], [runner(2), true])
      assert.deepStrictEqual(told(), [
        `Info: This node, ${SELF}, belongs to the cluster`,
        `Info: Node ${OTHER} belongs to the cluster`
      ])
      state.list.push([runner(3), false])
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(told(), [], "one that is listed and not taken in says so itself")
      assert.deepStrictEqual([...members.others()], [OTHER])
      state.list[2] = [runner(3), true]
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(told(), [`Info: Node ${THIRD} belongs to the cluster`])
      assert.deepStrictEqual([...members.others()], [OTHER, THIRD])
      state.list[1] = [runner(2), false]
      state.list.pop()
      yield* TestClock.adjust("1 minute")
      assert.deepStrictEqual(told(), [
        `Warn: Node ${OTHER} has died or hangs: other nodes take over its shards`,
        `Info: Node ${THIRD} has left the cluster`
      ])
      state.list = [[runner(1), true], [gateway(2), true]]
      yield* TestClock.adjust("1 second")
      state.list = [[runner(1), true], [gateway(2), false]]
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(told(), [
        `Info: Node ${OTHER} belongs to the cluster`,
        `Warn: Gateway ${OTHER} has died or hangs`
      ])
      assert.deepStrictEqual([...members.others()], [])
    }))

  it.effect("log once a minute why a node is not accepted, and at once that it was excluded", () =>
    Effect.gen(function*() {
      const { state, told } = yield* setUp([runner(2), true])
      assert.deepStrictEqual(told(), [`Info: Node ${OTHER} belongs to the cluster`])
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(told(), [], "a node that starts needs a moment")
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(told(), [NOT_TAKEN])
      yield* TestClock.adjust("58 seconds")
      assert.deepStrictEqual(told(), [])
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(told(), [NOT_TAKEN])
      state.list.push([runner(1), true])
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(told(), [`Info: This node, ${SELF}, belongs to the cluster`])
      state.list[1] = [runner(1), false]
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(told(), [
        `Warn: This node, ${SELF}, was excluded from the cluster. It is connected in both directions to 0 of 1 other nodes.`
      ])
      yield* TestClock.adjust("61 seconds")
      assert.deepStrictEqual(told(), [NOT_TAKEN])
      // A node that stops removes itself.
      state.list[1] = [runner(1), true]
      yield* TestClock.adjust("1 second")
      state.list.pop()
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(told(), [`Info: This node, ${SELF}, belongs to the cluster`])
    }))

  it.effect("wait with that warning for twenty seconds while the reason is not known yet", () =>
    Effect.gen(function*() {
      const { state, told } = yield* setUp([runner(1), false])
      state.settled = false
      yield* TestClock.adjust("21 seconds")
      assert.deepStrictEqual(told(), [])
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(told(), [NOT_TAKEN])
      yield* TestClock.adjust("62 seconds")
      assert.deepStrictEqual(told(), [])
      state.settled = true
      yield* TestClock.adjust("500 millis")
      assert.deepStrictEqual(told(), [NOT_TAKEN])
    }))

  it.effect("may own a shard by the list, or by the list before its last change if they still belong; gateways own none", () =>
    Effect.gen(function*() {
      const { drain, ended, members, state } = yield* setUp([runner(1), true], [gateway(3), true])
      for (const shard of shards) assert.deepStrictEqual(members.ownersOf(shard), [SELF])
      state.list.push([runner(2), true])
      yield* members.refresh
      const moved = shards.filter((shard) => members.ownersOf(shard)[0] === OTHER)
      assert.isAbove(moved.length, 0)
      for (const shard of shards)
        assert.deepStrictEqual(members.ownersOf(shard), [moved.includes(shard) ? OTHER : SELF])
      // Drained: it may still hold what it has to let go. Reading the same list again changes nothing.
      drain.nodes = new Set([OTHER])
      state.list[2] = [runner(2), false]
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(members.ownersOf(moved[0]!), [SELF, OTHER])
      assert.deepStrictEqual(ended, [])
      // Put out: it may hang, so nobody is to wait for it, and calls that wait for it are to be made again.
      drain.nodes = new Set()
      yield* members.refresh
      assert.deepStrictEqual(members.ownersOf(moved[0]!), [SELF])
      assert.deepStrictEqual(ended, [OTHER])
    }))

  it.effect("are still members when they are drained, and own nothing", () =>
    Effect.gen(function*() {
      const { drain, members, state, told } = yield* setUp([runner(1), true], [runner(2), true])
      told()
      drain.nodes = new Set([SELF, OTHER])
      state.list = [[runner(1), false], [runner(2), false], [runner(3), true]]
      yield* TestClock.adjust("2 minutes")
      assert.deepStrictEqual(told(), [`Info: Node ${THIRD} belongs to the cluster`])
      assert.deepStrictEqual([...members.others()], [OTHER, THIRD])
      for (const shard of shards) assert.strictEqual(members.ownersOf(shard)[0], THIRD)
    }))

  it.effect("are read at once when the connection to one breaks, and more often for some seconds", () =>
    Effect.gen(function*() {
      const { breaks, state } = yield* setUp([runner(1), true], [runner(2), true])
      const readings = Effect.fnUntraced(function*(time: Duration.Input) {
        const before = state.readings
        yield* TestClock.adjust(time)
        return state.readings - before
      })
      assert.strictEqual(yield* readings("1 second"), 2)
      breaks(OTHER, "closed")
      breaks(THIRD, "silence")
      assert.strictEqual(yield* readings("1 millis"), 0, "these connections ended on purpose, or led to no member")
      breaks(OTHER, "silence")
      assert.strictEqual(yield* readings("1 millis"), 1)
      assert.strictEqual(yield* readings("1 second"), 5)
      yield* TestClock.adjust("4 seconds")
      assert.strictEqual(yield* readings("1 second"), 2)
    }))

  it.effect("are given to Sharding each time they were read, and after a registration only if they were read later", () =>
    Effect.gen(function*() {
      const { members, state, storage } = yield* setUp([runner(2), true])
      const clock = yield* Clock.Clock
      const sharding = followList(
        { ...storage, register: () => Effect.sync(() => (state.list.push([runner(1), true]), MachineId.make(1))) },
        members,
        monotonicMillis(clock)
      )
      const before = state.readings
      assert.lengthOf(yield* sharding.getRunners, 1)
      const next = yield* Effect.forkChild(sharding.getRunners, { startImmediately: true })
      yield* TestClock.adjust("400 millis")
      assert.isUndefined(next.pollUnsafe())
      yield* TestClock.adjust("100 millis")
      yield* Fiber.join(next)
      assert.strictEqual(state.readings, before + 1, "Sharding reads nothing itself")
      // A reading that began before the registration.
      const gate = yield* Deferred.make<void>()
      const early = state.list
      state.list = [...early]
      state.read = Deferred.await(gate)
      yield* Effect.forkChild(members.refresh, { startImmediately: true })
      yield* TestClock.adjust("10 millis")
      yield* sharding.register(runner(1), true)
      const listed = yield* Effect.forkChild(sharding.getRunners, { startImmediately: true })
      const late = state.list
      state.list = early
      yield* Deferred.succeed(gate, undefined)
      yield* TestClock.adjust("1 millis")
      state.list = late
      assert.isUndefined(listed.pollUnsafe())
      yield* TestClock.adjust("500 millis")
      assert.lengthOf(yield* Fiber.join(listed), 2)
    }))

  it.effect("are read once for all who ask meanwhile, and a reading that fails leaves what was known", () =>
    Effect.gen(function*() {
      const { members, state } = yield* setUp([runner(1), true], [runner(2), true])
      const gate = yield* Deferred.make<void>()
      state.read = Deferred.await(gate)
      const before = state.readings
      const asking = yield* Effect.forEach(
        [1, 2, 3],
        () => Effect.forkChild(members.refresh, { startImmediately: true })
      )
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(state.readings, before + 1)
      assert.deepStrictEqual(asking.map((fiber) => fiber.pollUnsafe()), [undefined, undefined, undefined])
      yield* Deferred.succeed(gate, undefined)
      for (const fiber of asking) yield* Fiber.join(fiber)
      yield* members.refresh
      assert.strictEqual(state.readings, before + 2)
      state.read = Effect.die("no database")
      yield* members.refresh
      assert.deepStrictEqual([...members.others()], [OTHER])
      // One that hangs is given up, so that callers go on.
      state.read = Effect.never
      const hanging = yield* Effect.forkChild(members.refresh, { startImmediately: true })
      yield* TestClock.adjust("5 seconds")
      assert.isDefined(hanging.pollUnsafe())
      assert.deepStrictEqual([...members.others()], [OTHER])
    }))
})

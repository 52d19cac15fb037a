import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer, Option } from "effect"
import { Runner, RunnerAddress, Runners, RunnerStorage, ShardingConfig } from "effect/cluster"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { NodeProbes } from "../../src/cluster/NodeProbes.ts"
import { Peers } from "../../src/cluster/Peers.ts"

const OTHER = "127.0.0.1:2"

const runner = (port: number, groups: ReadonlyArray<string> = ["default"]) =>
  Runner.make({ address: RunnerAddress.make("127.0.0.1", port), groups, weight: 1 })

/** The peers of the node on port 1, with a list of nodes that the test makes; nobody can be called. */
const setUp = Effect.fnUntraced(function*(list: Array<readonly [Runner.Runner, boolean]>) {
  const storage = RunnerStorage.RunnerStorage.of({
    register: () => Effect.die("unused"),
    unregister: () => Effect.void,
    getRunners: Effect.sync(() => list.map(([one, healthy]): [Runner.Runner, boolean] => [one, healthy])),
    setRunnerHealth: () => Effect.void,
    acquire: () => Effect.succeed([]),
    refresh: () => Effect.succeed([]),
    release: () => Effect.void,
    releaseAll: () => Effect.void
  })
  const peers = Context.get(
    yield* Layer.build(Layer.fresh(Peers.layer).pipe(Layer.provide([
      Layer.succeed(RunnerStorage.RunnerStorage, storage),
      // Nobody is called, so neither is asked for more than this.
      Layer.succeed(Runners.RpcClientProtocol, { make: () => Effect.never } as never),
      Layer.mock(NodeProbes, { explain: () => "", isSettled: () => true }),
      Layer.succeed(SqlClient.SqlClient, (() => Effect.succeed([{ no: 5 }])) as never),
      ShardingConfig.layer({ runnerAddress: Option.some(RunnerAddress.make("127.0.0.1", 1)) })
    ]))),
    Peers
  )
  const heard: Array<string> = []
  const left: Array<string> = []
  const gates = new Map<string, Deferred.Deferred<void>>()
  peers.listen({
    joined: () => {},
    left: (node) => left.push(node),
    receive: (_node, body, first) =>
      Effect.gen(function*() {
        const gate = gates.get(body)
        if (gate !== undefined) yield* Deferred.await(gate)
        heard.push(first ? `${body}, first` : body)
      })
  })
  yield* TestClock.adjust("1 seconds")
  const say = (number: number, body: string, { first = false, incarnation = 9 } = {}) =>
    Effect.map(Effect.exit(peers.received(OTHER, { incarnation, number, first }, body)), Exit.isSuccess)
  return { peers, heard, left, gates, say, list }
})

describe("what other nodes say", () => {
  it.effect("comes in order and once: what is repeated does nothing, what is late or has overtaken is refused", () =>
    Effect.gen(function*() {
      const { heard, say } = yield* setUp([[runner(1), true], [runner(2), true]])
      assert.isFalse(yield* say(1, "without what came before"))
      assert.isTrue(yield* say(2, "a", { first: true }))
      assert.isTrue(yield* say(3, "b"))
      assert.isTrue(yield* say(3, "b"))
      assert.isFalse(yield* say(5, "d"))
      assert.isFalse(yield* say(2, "a", { first: true }))
      assert.isTrue(yield* say(6, "e", { first: true }))
      assert.isFalse(yield* say(4, "c"))
      assert.isTrue(yield* say(1, "f", { first: true, incarnation: 10 }))
      assert.isFalse(yield* say(7, "g", { incarnation: 9 }))
      assert.isFalse(yield* say(8, "h", { first: true, incarnation: 9 }))
      assert.deepStrictEqual(heard, ["a, first", "b", "e, first", "f, first"])
    }))

  it.effect("waits for what was said before, and is done to its end even if its sender has given up", () =>
    Effect.gen(function*() {
      const { gates, heard, say } = yield* setUp([[runner(1), true], [runner(2), true]])
      yield* say(1, "a", { first: true })
      const gate = yield* Deferred.make<void>()
      gates.set("slow", gate)
      const slow = yield* Effect.forkChild(say(2, "slow"), { startImmediately: true })
      const next = yield* Effect.forkChild(say(3, "everything", { first: true }), { startImmediately: true })
      const givenUp = yield* Effect.forkChild(Fiber.interrupt(slow), { startImmediately: true })
      assert.deepStrictEqual(heard, ["a, first"])
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(givenUp)
      assert.isTrue(yield* Fiber.join(next))
      assert.deepStrictEqual(heard, ["a, first", "slow", "everything, first"])
    }))

  it.effect("does not hold any more when the node has left, nor comes late when it is back", () =>
    Effect.gen(function*() {
      const { heard, left, list, say } = yield* setUp([[runner(1), true], [runner(2), true]])
      yield* say(1, "a", { first: true })
      list.pop()
      yield* TestClock.adjust("1 seconds")
      assert.deepStrictEqual(left, [OTHER])
      assert.isFalse(yield* say(2, "b"))
      list.push([runner(2), true])
      yield* TestClock.adjust("1 seconds")
      assert.isFalse(yield* say(1, "a", { first: true }))
      assert.isFalse(yield* say(3, "c"))
      assert.isTrue(yield* say(4, "d", { first: true }))
      assert.deepStrictEqual(heard, ["a, first", "d, first"])
    }))
})

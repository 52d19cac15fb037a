import { registerOnceServing } from "#infrastructure/cluster/EffectOverrides"
import { Complete, complete } from "#infrastructure/cluster/NodeDuty"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Latch } from "effect"
import { ClusterError, Runner, RunnerAddress, RunnerStorage, ShardId } from "effect/cluster"
import { TestClock } from "effect/testing"

const here = RunnerAddress.make("127.0.0.1", 34_431)
const runner = Runner.make({ address: here, groups: ["default"], weight: 1 })
const shards = [ShardId.make("default", 1)]

/**
 * A list of nodes whose database can be away, or hang for some releases of all locks, and how often it was told that
 * this node lives.
 */
const recorded = Effect.gen(function*() {
  const memory = yield* RunnerStorage.makeMemory
  const state = { away: false, hangs: 0, registered: 0, beats: 0 }
  const unlessAway = <A>(effect: Effect.Effect<A, ClusterError.PersistenceError>) =>
    Effect.suspend(() => state.away ? Effect.fail(new ClusterError.PersistenceError({ cause: "away" })) : effect)
  const storage = yield* registerOnceServing({
    ...memory,
    register: (node, healthy) =>
      unlessAway(Effect.tap(memory.register(node, healthy), () => Effect.sync(() => state.registered++))),
    refresh: (address, held) =>
      unlessAway(Effect.tap(memory.refresh(address, held), () => Effect.sync(() => state.beats++))),
    releaseAll: (address) =>
      Effect.suspend(() => state.hangs-- > 0 ? Effect.never : unlessAway(memory.releaseAll(address)))
  })
  return { storage, state }
})

describe("a node", () => {
  it.effect("is not listed before its whole process is built", () =>
    Effect.gen(function*() {
      const { state, storage } = yield* recorded
      const registering = yield* Effect.forkChild(storage.register(runner, true), { startImmediately: true })
      yield* Effect.yieldNow
      assert.strictEqual(state.registered, 0)
      yield* complete
      yield* Fiber.join(registering)
      assert.strictEqual(state.registered, 1)
    }).pipe(Effect.provideServiceEffect(Complete, Latch.make(false))))

  it.effect("is not listed again after the loss of its locks until they are released", () =>
    Effect.gen(function*() {
      const { state, storage } = yield* recorded
      yield* storage.refresh(here, shards)
      yield* storage.refresh(here, [])
      assert.strictEqual(state.beats, 2)
      state.away = true
      yield* Effect.flip(storage.refresh(here, shards))
      state.away = false
      // The database is back, and what was done under the locks may still hang.
      assert.deepStrictEqual(yield* storage.refresh(here, []), [])
      assert.strictEqual(state.beats, 2)
      const registering = yield* Effect.forkChild(storage.register(runner, true), { startImmediately: true })
      yield* Effect.yieldNow
      assert.strictEqual(state.registered, 0)
      yield* storage.releaseAll(here)
      yield* Fiber.join(registering)
      assert.strictEqual(state.registered, 1)
      yield* storage.refresh(here, [])
      assert.strictEqual(state.beats, 3)
    }))

  it.effect("is listed again soon although the first release of its locks hangs", () =>
    Effect.gen(function*() {
      const { state, storage } = yield* recorded
      state.away = true
      yield* Effect.flip(storage.refresh(here, shards))
      state.away = false
      state.hangs = 1
      const releasing = yield* Effect.forkChild(storage.releaseAll(here), { startImmediately: true })
      yield* TestClock.adjust(500)
      yield* Fiber.join(releasing)
      yield* storage.register(runner, true)
      assert.strictEqual(state.registered, 1)
    }))

  it.effect("stays listed if the database was away for a moment only", () =>
    Effect.gen(function*() {
      const { state, storage } = yield* recorded
      state.away = true
      yield* Effect.flip(storage.refresh(here, shards))
      state.away = false
      yield* storage.refresh(here, shards)
      yield* storage.register(runner, true)
      assert.strictEqual(state.registered, 1)
    }))
})

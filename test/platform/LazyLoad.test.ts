import { keepSuccess, loadOnce } from "#infrastructure/platform/LazyLoad"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Latch, Logger } from "effect"
import { TestClock } from "effect/testing"

/** A load that fails `failures` times with a rejected promise, and then succeeds with the number of its runs. */
const failing = (failures: number) => {
  let runs = 0
  return {
    load: Effect.promise(() => ++runs <= failures ? Promise.reject(new Error("EMFILE")) : Promise.resolve(runs)),
    runs: () => runs
  }
}

describe("a part of the program that is loaded when it is needed", () => {
  it.effect("is loaded again after a failure, which is a typed error and one line in the log", () =>
    Effect.gen(function*() {
      const lines: Array<string> = []
      const logged = Logger.layer([Logger.make(({ message }) => void lines.push(String(message)))])
      const { load, runs } = failing(1)
      const part = Effect.provide(yield* loadOnce("The library", load, () => "unavailable"), logged)
      assert.strictEqual(yield* Effect.flip(part), "unavailable")
      assert.strictEqual(yield* Effect.flip(part), "unavailable")
      assert.deepStrictEqual(lines.map((line) => line.split(",")[0]), [
        "The library could not be loaded. The next use tries again"
      ])
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual([yield* part, yield* part], [2, 2])
      yield* TestClock.adjust("1000 days")
      assert.strictEqual(yield* part, 2)
      assert.strictEqual(runs(), 2)
      assert.lengthOf(lines, 1)
    }))

  it.effect("is loaded once for all that need it at the same time, and also if the first of them leaves", () =>
    Effect.gen(function*() {
      const begun = yield* Latch.make()
      const mayEnd = yield* Latch.make()
      let runs = 0
      const load = Effect.andThen(
        Effect.andThen(Effect.sync(() => runs++), begun.open),
        Effect.as(mayEnd.await, "loaded")
      )
      const part = yield* keepSuccess(load)
      const first = yield* Effect.forkChild(part)
      yield* begun.await
      const others = yield* Effect.forkChild(Effect.all([part, part], { concurrency: 2 }))
      yield* Effect.yieldNow
      yield* Fiber.interrupt(first)
      yield* mayEnd.open
      assert.deepStrictEqual(yield* Fiber.join(others), ["loaded", "loaded"])
      assert.strictEqual(runs, 1)
    }))

  it.effect("is kept also if all that wait for it leave", () =>
    Effect.gen(function*() {
      const mayEnd = yield* Latch.make()
      let runs = 0
      const part = yield* keepSuccess(Effect.andThen(Effect.sync(() => runs++), Effect.as(mayEnd.await, "loaded")))
      for (let i = 0; i < 2; i++) yield* Fiber.interrupt(yield* Effect.forkChild(part, { startImmediately: true }))
      yield* mayEnd.open
      assert.strictEqual(yield* part, "loaded")
      assert.strictEqual(runs, 1)
    }))
})

import { makePostQueue } from "#domain/webhooks/PostQueue"
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Option } from "effect"

const LIMITS = { inAll: 8, perAgent: 2, perHost: 4, waiting: { inAll: 12, perAgent: 5 } }
const target = (agentId: string) => ({ agentId, host: `${agentId}.example` })
const turns = Effect.repeat(Effect.yieldNow, { times: 20 })

it.effect("posts wait in bounded numbers, and a post that is refused runs nothing", () =>
  Effect.gen(function*() {
    const queue = makePostQueue(LIMITS, () => "Answers")
    const gate = yield* Deferred.make<void>()
    const begun: Record<string, number> = {}
    const post = (agentId: string, times: number, work: Effect.Effect<void>) =>
      Effect.forEach(
        Array.from({ length: times }),
        () =>
          Effect.forkChild(
            queue.run(target(agentId))(() =>
              Effect.andThen(Effect.sync(() => begun[agentId] = (begun[agentId] ?? 0) + 1), work)
            )
          )
      )
    const slow = yield* post("slow", 100, Deferred.await(gate))
    yield* turns
    assert.deepStrictEqual([begun, queue.underWay(), queue.waiting()], [{ slow: 2 }, 2, 5])
    const [quick] = yield* post("quick", 1, Effect.void)
    assert.deepStrictEqual(yield* Fiber.join(quick!), Option.some(undefined))
    yield* Deferred.succeed(gate, undefined)
    const outcomes = yield* Effect.forEach(slow, Fiber.join)
    assert.deepStrictEqual([outcomes.filter(Option.isSome).length, begun], [7, { slow: 7, quick: 1 }])
    assert.deepStrictEqual([queue.underWay(), queue.waiting()], [0, 0])
  }))

it.effect("a post that is interrupted gives its place back, whether it waits, is about to begin, or is under way", () =>
  Effect.gen(function*() {
    const queue = makePostQueue({ ...LIMITS, inAll: 1 }, () => "Answers")
    for (let yields = 0; yields < 12; yields++) {
      const fibers = yield* Effect.forEach(
        ["a", "b", "c"],
        (agentId) => Effect.forkChild(queue.run(target(agentId))(() => Effect.never))
      )
      yield* turns
      assert.deepStrictEqual([queue.underWay(), queue.waiting()], [1, 2])
      yield* Fiber.interrupt(fibers[1]!)
      assert.strictEqual(queue.waiting(), 1)
      const ending = yield* Effect.forkChild(Fiber.interrupt(fibers[0]!))
      for (let i = 0; i < yields; i++) yield* Effect.yieldNow
      yield* Fiber.interrupt(fibers[2]!)
      yield* Fiber.join(ending)
      assert.deepStrictEqual([queue.underWay(), queue.waiting()], [0, 0])
    }
  }))

it.effect("many posts that end at once follow each other without a deep stack", () =>
  Effect.gen(function*() {
    const many = 10_000
    const queue = makePostQueue({ inAll: 1, perAgent: 1, perHost: 1, waiting: { inAll: many, perAgent: many } }, () =>
      "Answers")
    const outcomes = yield* Effect.forEach(Array.from({ length: many }), () =>
      queue.run(target("agent"))(() =>
        Effect.void
      ), { concurrency: "unbounded" })
    assert.isTrue(outcomes.every(Option.isSome))
  }))

it.effect("a post is told whether it had to wait for its place", () =>
  Effect.gen(function*() {
    const queue = makePostQueue({ ...LIMITS, inAll: 1 }, () => "Answers")
    const gate = yield* Deferred.make<void>()
    const told: Array<boolean> = []
    const post = (waited: boolean) => Effect.andThen(Effect.sync(() => told.push(waited)), Deferred.await(gate))
    const fibers = yield* Effect.forEach(["a", "b"], (agentId) => Effect.forkChild(queue.run(target(agentId))(post)))
    yield* turns
    yield* Deferred.succeed(gate, undefined)
    yield* Effect.forEach(fibers, Fiber.join)
    yield* queue.run(target("c"))(post)
    assert.deepStrictEqual(told, [false, true, false])
  }))

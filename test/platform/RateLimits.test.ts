import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import { TestClock } from "effect/testing"
import { RateLimits } from "../../src/platform/RateLimits.ts"
import type { RateRule } from "../../src/platform/RateRule.ts"
import { toResponse } from "../../src/platform/WireErrors.ts"
import { WindowModel } from "../support/WindowModel.ts"

const rule = (limit: number, windowMs: number): RateRule => ({ name: "test", limit, windowMs, window: "test window" })

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

describe("RateLimits in memory", () => {
  it.effect.prop(
    "answers as the definition does, for several keys, whatever the pauses",
    {
      limit: between(1, 7),
      windowMs: between(1, 50),
      steps: Schema.Array(Schema.Struct({ pause: between(0, 30), key: Schema.Literals(["a", "b", "c"]), giveBack: Schema.Boolean })).check(
        Schema.isMaxLength(200)
      )
    },
    ({ limit, steps, windowMs }) =>
      Effect.gen(function*() {
        const limits = yield* RateLimits
        const theRule = rule(limit, windowMs)
        const models = new Map(["a", "b", "c"].map((key) => [key, new WindowModel(theRule)]))
        let now = 0
        for (const { giveBack, key, pause } of steps) {
          yield* TestClock.adjust(pause)
          now += pause
          const model = models.get(key)!
          const waitMs = model.wait(now)
          const actual = yield* Effect.result(limits.take(theRule, key))
          if (waitMs > 0) {
            assert.isTrue(Result.isFailure(actual))
            if (Result.isFailure(actual)) {
              assert.deepStrictEqual(actual.failure.details, { retry_after_ms: waitMs, limit, window: "test window" })
            }
          } else {
            const state = Result.getOrThrow(actual)
            assert.deepStrictEqual(state, { ...model.add(now), at: now, sharedAt: null })
            if (giveBack) {
              limits.giveBack(theRule, key, state)
              model.remove(now)
            }
          }
        }
        for (const model of models.values()) assert.isAtMost(model.busiest(), limit)
      }).pipe(Effect.provide(RateLimits.layerMemory, { local: true })),
    { arbitrary: { runs: 300, size: 100 } }
  )

  it.effect("a refusal counts nothing, and waiting as long as it says is enough and no less", () =>
    Effect.gen(function*() {
      const limits = yield* RateLimits
      const perSecond = rule(2, 1000)
      yield* limits.take(perSecond, "k")
      yield* TestClock.adjust(400)
      yield* limits.take(perSecond, "k")
      for (let i = 0; i < 50; i++) {
        const refused = yield* Effect.flip(limits.take(perSecond, "k"))
        assert.strictEqual(refused.retryAfterMs, 600)
      }
      yield* TestClock.adjust(599)
      const stillRefused = yield* Effect.flip(limits.take(perSecond, "k"))
      assert.strictEqual(stillRefused.retryAfterMs, 1)
      yield* TestClock.adjust(1)
      assert.strictEqual((yield* limits.take(perSecond, "k")).remaining, 0)
      assert.strictEqual((yield* Effect.flip(limits.take(perSecond, "k"))).retryAfterMs, 400)
    }).pipe(Effect.provide(RateLimits.layerMemory)))

  it.effect("Retry-After is at least a second and never earlier than the slot", () =>
    Effect.gen(function*() {
      const limits = yield* RateLimits
      for (const [windowMs, seconds] of [[1, "1"], [999, "1"], [1000, "1"], [1001, "2"], [3_600_000, "3600"]] as const) {
        const one = { ...rule(1, windowMs), name: `window ${windowMs}` }
        yield* limits.take(one, "k")
        const refused = yield* Effect.flip(limits.take(one, "k"))
        assert.strictEqual(toResponse(refused).headers["retry-after"], seconds)
        assert.strictEqual(refused.code, "RATE_LIMITED")
      }
    }).pipe(Effect.provide(RateLimits.layerMemory)))

  it.effect("several windows at once: all or nothing, and the longest wait refuses", () =>
    Effect.gen(function*() {
      const limits = yield* RateLimits
      const minute = { ...rule(2, 60_000), name: "minute" }
      const day = { ...rule(3, 86_400_000), name: "day" }
      const both = limits.takeAll([{ rule: minute, key: "k" }, { rule: day, key: "k" }])
      yield* both
      yield* both
      assert.deepStrictEqual((yield* Effect.flip(both)).details, {
        retry_after_ms: 60_000,
        limit: 2,
        window: "test window"
      })
      yield* TestClock.adjust(60_000)
      const states = yield* both
      // The refusal took nothing of the day.
      assert.deepStrictEqual(states.map(({ remaining }) => remaining), [1, 0])
      yield* limits.take(minute, "k")
      assert.strictEqual((yield* Effect.flip(both)).details?.retry_after_ms, 86_340_000)
    }).pipe(Effect.provide(RateLimits.layerMemory)))

  it.effect("keys and rules do not touch one another", () =>
    Effect.gen(function*() {
      const limits = yield* RateLimits
      const one = rule(1, 1000)
      yield* limits.take(one, "a")
      yield* limits.take(one, "b")
      yield* limits.take({ ...one, name: "other" }, "a")
      yield* Effect.flip(limits.take(one, "a"))
    }).pipe(Effect.provide(RateLimits.layerMemory)))

  it.effect("a step of the wall clock neither frees nor freezes anybody", () =>
    Effect.gen(function*() {
      const limits = yield* RateLimits
      const one = rule(1, 1000)
      yield* TestClock.setTime(10 * 3_600_000)
      yield* limits.take(one, "k")
      yield* TestClock.setTime(9 * 3_600_000)
      yield* TestClock.adjust(999)
      yield* Effect.flip(limits.take(one, "k"))
      yield* TestClock.adjust(1)
      yield* limits.take(one, "k")
    }).pipe(Effect.provide(RateLimits.layerMemory)))

  it.effect("a large limit used up at once, and again a window later", () =>
    Effect.gen(function*() {
      const limits = yield* RateLimits
      const many = rule(12_000, 60_000)
      for (let round = 0; round < 3; round++) {
        for (let i = 0; i < many.limit; i++) yield* limits.take(many, "k")
        yield* Effect.flip(limits.take(many, "k"))
        yield* TestClock.adjust(60_000)
      }
    }).pipe(Effect.provide(RateLimits.layerMemory)))
})

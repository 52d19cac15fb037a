import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import { TestClock } from "effect/testing"
import { RateLimits, type RateRule } from "../../src/platform/RateLimits.ts"
import { toResponse } from "../../src/platform/WireErrors.ts"

const rule = (limit: number, windowMs: number): RateRule => ({ name: "test", limit, windowMs, window: "test window" })

/** The definition, as slowly as it can be said. */
class Model {
  private accepted: Array<{ readonly key: string; readonly at: number }> = []
  private readonly rule: RateRule

  constructor(rule: RateRule) {
    this.rule = rule
  }

  /** The milliseconds to wait, 0 when accepted. */
  take(key: string, now: number): { readonly waitMs: number; readonly remaining: number; readonly resetMs: number } {
    const within = this.accepted.filter((entry) => entry.key === key && entry.at > now - this.rule.windowMs)
    if (within.length >= this.rule.limit) {
      return { waitMs: within[0]!.at + this.rule.windowMs - now, remaining: 0, resetMs: 0 }
    }
    this.accepted.push({ key, at: now })
    return {
      waitMs: 0,
      remaining: this.rule.limit - within.length - 1,
      resetMs: (within[0]?.at ?? now) + this.rule.windowMs - now
    }
  }

  /** The most that was accepted for one key in any window. */
  busiest(): number {
    return Math.max(
      0,
      ...this.accepted.map(({ at, key }) =>
        this.accepted.filter((other) => other.key === key && other.at >= at && other.at < at + this.rule.windowMs).length
      )
    )
  }
}

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

describe("RateLimits in memory", () => {
  it.effect.prop(
    "answers as the definition does, for several keys, whatever the pauses",
    {
      limit: between(1, 7),
      windowMs: between(1, 50),
      steps: Schema.Array(Schema.Struct({ pause: between(0, 30), key: Schema.Literals(["a", "b", "c"]) })).check(
        Schema.isMaxLength(200)
      )
    },
    ({ limit, steps, windowMs }) =>
      Effect.gen(function*() {
        const limits = yield* RateLimits
        const theRule = rule(limit, windowMs)
        const model = new Model(theRule)
        let now = 0
        for (const { key, pause } of steps) {
          yield* TestClock.adjust(pause)
          now += pause
          const expected = model.take(key, now)
          const actual = yield* Effect.result(limits.take(theRule, key))
          if (expected.waitMs > 0) {
            assert.isTrue(Result.isFailure(actual))
            if (Result.isFailure(actual)) {
              assert.deepStrictEqual(actual.failure.details, {
                retry_after_ms: expected.waitMs,
                limit,
                window: "test window"
              })
            }
          } else {
            assert.deepStrictEqual(Result.getOrThrow(actual), {
              limit,
              remaining: expected.remaining,
              resetMs: expected.resetMs
            })
          }
        }
        assert.isAtMost(model.busiest(), limit)
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

import { RateLimits } from "#infrastructure/rates/RateLimits"
import type { RateRule } from "#infrastructure/rates/RateRule"
import { type HeldPlace, SlidingWindows } from "#infrastructure/rates/SlidingWindows"
import { RateLimited } from "#infrastructure/wire/WireError"
import { toResponse } from "#infrastructure/wire/WireErrors"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, Schema } from "effect"
import { TestClock } from "effect/testing"
import { WindowModel } from "../support/WindowModel.ts"

const rule = (limit: number, windowMs: number): RateRule => ({ name: "test", limit, windowMs, window: "test window" })

const between = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

describe("RateLimits in memory", () => {
  it.effect.prop(
    "answers as the definition does, for several keys, whatever the pauses",
    {
      limit: between(1, 7),
      windowMs: between(1, 50),
      steps: Schema.Array(
        Schema.Struct({ pause: between(0, 30), key: Schema.Literals(["a", "b", "c"]), refund: Schema.Boolean })
      ).check(
        Schema.isMaxLength(200)
      )
    },
    ({ limit, steps, windowMs }) =>
      Effect.gen(function*() {
        const limits = yield* RateLimits
        const theRule = rule(limit, windowMs)
        const models = new Map(["a", "b", "c"].map((key) => [key, new WindowModel(theRule)]))
        let now = 0
        for (const { key, pause, refund } of steps) {
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
            if (refund) {
              limits.refund(theRule, key, state)
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
      for (
        const [windowMs, seconds] of [[1, "1"], [999, "1"], [1000, "1"], [1001, "2"], [3_600_000, "3600"]] as const
      ) {
        const one = { ...rule(1, windowMs), name: `window ${windowMs}` }
        yield* limits.take(one, "k")
        const refused = yield* Effect.flip(limits.take(one, "k"))
        assert.strictEqual(toResponse(refused).headers["retry-after"], seconds)
        assert.strictEqual(refused.code, "RATE_LIMITED")
      }
    }).pipe(Effect.provide(RateLimits.layerMemory)))

  it.effect("takes from several windows all or nothing, and the longest wait refuses", () =>
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

  it.effect("a step of the wall clock neither frees nor blocks any key", () =>
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

  it.effect("accepts a large limit at once, and again a window later", () =>
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

describe("SlidingWindows", () => {
  it("a reserved slot is taken, counts from its own time once it is settled, and is free once it is released", () => {
    let now = 1_000
    const windows = new SlidingWindows(() => now)
    const three = rule(3, 1_000)
    const charges = [{ rule: three, key: "k" }]
    const hold = () => windows.hold(charges)
    const waitOf = (refused: unknown) =>
      refused instanceof RateLimited ? refused.details?.retry_after_ms : assert.fail("not refused")
    const [first, second, third] = [hold(), hold(), hold()].map((held) =>
      held instanceof RateLimited ? undefined : held[0]
    )
    // As if all three were accepted now: that is the longest it may take.
    assert.strictEqual(waitOf(windows.take(three, "k")), 1_000)
    now = 1_200
    third?.release()
    assert.deepInclude(windows.take(three, "k"), { remaining: 0, at: 1_200 })
    assert.strictEqual(waitOf(hold()), 1_000)
    now = 1_300
    // Decided later than the one above, and taken before it.
    assert.deepInclude(second?.settle(1_100, now), { remaining: 0 })
    assert.strictEqual(waitOf(hold()), 800)
    first?.settle(1_050, now)
    assert.strictEqual(waitOf(hold()), 750)
    now = 2_051
    assert.deepInclude(windows.take(three, "k"), { remaining: 0 })
    now = 2_150
    assert.deepInclude(windows.take(three, "k"), { remaining: 0, resetMs: 50 })
  })

  it.prop(
    "never has more than the limit in a window, in whatever order requests are decided",
    {
      limit: between(1, 6),
      steps: Schema.Array(
        Schema.Struct({
          pause: between(0, 20),
          act: Schema.Literals(["hold", "settle", "release", "take"]),
          which: between(0, 5)
        })
      ).check(
        Schema.isMaxLength(120)
      )
    },
    ({ limit, steps }) => {
      let now = 0
      const windows = new SlidingWindows(() => now)
      const model = new WindowModel(rule(limit, 50))
      const charges = [{ rule: rule(limit, 50), key: "k" }]
      const held: Array<HeldPlace> = []
      for (const { act, pause, which } of steps) {
        now += pause
        if (act === "hold") {
          const places = windows.hold(charges)
          if (!(places instanceof RateLimited)) held.push(...places)
        } else if (act === "take") {
          // Refused only by what counts and what is held.
          const accepted = !(windows.take(charges[0]!.rule, "k") instanceof RateLimited)
          if (held.length === 0) assert.strictEqual(accepted, model.wait(now) === 0)
          if (accepted) model.add(now)
        } else {
          const [place] = held.splice(which % Math.max(1, held.length), 1)
          if (act === "release") place?.release()
          else if (place !== undefined) {
            place.settle(now, now)
            model.add(now)
          }
        }
      }
      assert.isAtMost(model.busiest(), limit)
    },
    { arbitrary: { runs: 300, size: 100 } }
  )
})

import { AddressAttemptsRepo } from "#domain/registration/AddressAttemptsRepo"
import { OtpCooldown, OtpHourlyCap } from "#domain/registration/Code"
import { Registration } from "#domain/registration/Registration"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerPgliteTest } from "../support/Databases.ts"
import { layerLeapingClock, leap, setBack } from "../support/Leap.ts"
import { fresh, layerRoom, mailsTo } from "./Module.ts"

const module = Layer.merge(
  layerRoom(layerPgliteTest, { LIMITS_OTP_PER_HOUR: 2 }),
  AddressAttemptsRepo.layer.pipe(Layer.provide(layerPgliteTest))
)

describe("after the wall clock is set back by an hour", () => {
  layer(Layer.provideMerge(module, layerLeapingClock))((it) => {
    it.effect("the cooldown of an address lasts no longer than a minute", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const applicant = fresh("back")
        yield* leap("2 hours")
        yield* registration.register(applicant)
        assert.instanceOf(yield* Effect.flip(registration.register(applicant)), OtpCooldown)
        yield* setBack("1 hour")
        yield* leap("1 minute")
        yield* registration.register(applicant)
        assert.strictEqual((yield* mailsTo(applicant.email)).length, 2)
        const refused = yield* Effect.flip(registration.register(applicant))
        assert.strictEqual(refused instanceof OtpCooldown ? refused.details?.retry_after_ms : undefined, 60_000)
      }))

    it.effect("the cooldown is at most a minute too if the clock of the node that mailed the code is ahead", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const applicant = fresh("ahead")
        yield* leap("2 hours")
        yield* registration.register(applicant)
        yield* setBack("20 millis")
        const refused = yield* Effect.flip(registration.register(applicant))
        assert.strictEqual(refused instanceof OtpCooldown ? refused.details?.retry_after_ms : undefined, 60_000)
      }))

    it.effect("the hourly cap of an address does not wait until the clock has caught up", () =>
      Effect.gen(function*() {
        const registration = yield* Registration
        const applicant = fresh("back")
        yield* leap("2 hours")
        for (let i = 0; i < 2; i++) {
          yield* registration.register(applicant)
          yield* leap("1 minute")
        }
        assert.instanceOf(yield* Effect.flip(registration.register(applicant)), OtpHourlyCap)
        yield* setBack("1 hour")
        yield* registration.register(applicant)
      }))

    it.effect("the limit of an IP address lasts no longer than its window, and holds for new attempts", () =>
      Effect.gen(function*() {
        const repo = yield* AddressAttemptsRepo
        const rule = { name: "recover", limit: 2, windowMs: 3_600_000, window: "hour" }
        const attempt = (now: number) => Effect.map(repo.attempt(rule, "192.0.2.9", now), ({ waitMs }) => waitMs)
        const before = 1_700_003_600_000
        assert.deepStrictEqual([yield* attempt(before), yield* attempt(before), yield* attempt(before)], [
          0,
          0,
          3_600_000
        ])
        const after = before - 3_600_000
        assert.deepStrictEqual([yield* attempt(after + 1_000), yield* attempt(after + 1_000)], [0, 0])
        assert.strictEqual(yield* attempt(after + 2_000), 3_599_000)
      }))
  })
})

import { LogThrottle, MINUTE_MS } from "#infrastructure/platform/LogThrottle"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"

/** The keys whose lines are written. */
const writtenOf = (throttle: LogThrottle, keys: ReadonlyArray<string>) =>
  Effect.gen(function*() {
    const written: Array<string> = []
    for (const key of keys) yield* throttle.log(Effect.sync(() => void written.push(key)), key)
    return written
  })

it.effect("one line is written for each key and minute, whatever other keys do", () =>
  Effect.gen(function*() {
    const throttle = new LogThrottle(MINUTE_MS)
    assert.deepStrictEqual(yield* writtenOf(throttle, ["a", "a", "b"]), ["a", "b"])
    yield* TestClock.adjust(59_999)
    assert.deepStrictEqual(yield* writtenOf(throttle, ["a"]), [])
    yield* TestClock.adjust(1)
    assert.deepStrictEqual(yield* writtenOf(throttle, ["a", "a"]), ["a"])
  }))

it.effect("the keys that were written longest ago are forgotten first", () =>
  Effect.gen(function*() {
    const throttle = new LogThrottle(MINUTE_MS)
    yield* writtenOf(throttle, Array.from({ length: 1_000 }, (_, i) => `${i}`))
    yield* TestClock.adjust(MINUTE_MS)
    assert.deepStrictEqual(yield* writtenOf(throttle, ["0", "another", "0", "another"]), ["0", "another"])
  }))

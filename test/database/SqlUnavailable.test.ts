import { assert, it } from "@effect/vitest"
import { Cause, Effect, Exit, Logger } from "effect"
import { TestClock } from "effect/testing"
import { LogThrottle } from "#ground/platform/LogThrottle"
import { DatabaseFault, sqlError } from "#ground/database/SqlValues"
import { SqlErrorLines, unavailable } from "#ground/database/SqlUnavailable"
import { Unavailable } from "#ground/wire/WireError"

const away = sqlError(new DatabaseFault({ code: "57P01", message: "the database is shutting down" }), "execute")

/** Runs an effect with a fresh budget of log lines, and gives these with it. */
const logged = Effect.fnUntraced(function*<A, E>(effect: Effect.Effect<A, E>) {
  const lines: Array<string> = []
  const value = yield* effect.pipe(
    Effect.provideService(SqlErrorLines, new LogThrottle()),
    Effect.provide(Logger.layer([Logger.make(({ cause, message }) => void lines.push(`${String(message)} ${Cause.pretty(cause)}`))]))
  )
  return { value, lines }
})

it.effect("a statement that fails, or takes too long, is 503 to the caller, and one line a second in the log", () =>
  Effect.gen(function*() {
    const late = new Cause.TimeoutError("too long")
    const { lines, value } = yield* logged(Effect.gen(function*() {
      const errors = [yield* Effect.flip(unavailable(away)), yield* Effect.flip(unavailable(late))]
      yield* TestClock.adjust("1 seconds")
      return [...errors, yield* Effect.flip(unavailable(away))]
    }))
    assert.isTrue(value.every((error) => error instanceof Unavailable))
    assert.deepStrictEqual(value.map(({ cause }) => cause), [away, late, away])
    assert.strictEqual(lines.length, 2)
    assert.match(lines[0] ?? "", /fails with UNAVAILABLE.*shutting down/s)
  }))

it.effect("a statement that the database does not understand, or may not carry out, is a defect", () =>
  Effect.gen(function*() {
    for (const code of ["42P01", "42703", "42601", "42501"]) {
      const error = sqlError(new DatabaseFault({ code, message: "a bug" }), "execute")
      const { lines, value } = yield* logged(Effect.exit(unavailable(error)))
      assert.deepStrictEqual(value, Exit.die(error), code)
      assert.deepStrictEqual(lines, [], "it is logged where the request ends")
    }
  }))

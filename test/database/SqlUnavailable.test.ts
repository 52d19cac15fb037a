import { SqlErrorLines, unavailable } from "#infrastructure/database/SqlUnavailable"
import { DatabaseFault, sqlError } from "#infrastructure/database/SqlValues"
import { FullDisk, FullDisks } from "#infrastructure/platform/disk/DiskSpace"
import { LogThrottle } from "#infrastructure/platform/LogThrottle"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Unavailable } from "#infrastructure/wire/WireError"
import { assert, it } from "@effect/vitest"
import { Cause, Clock, Effect, Exit, Logger } from "effect"
import { TestClock } from "effect/testing"

const away = sqlError(new DatabaseFault({ code: "57P01", message: "the database is shutting down" }), "execute")

/** Runs an effect with a fresh budget of log lines, and gives these with it. */
const logged = Effect.fnUntraced(function*<A, E>(effect: Effect.Effect<A, E>) {
  const lines: Array<string> = []
  const value = yield* effect.pipe(
    Effect.provideService(SqlErrorLines, new LogThrottle()),
    Effect.provide(
      Logger.layer([Logger.make(({ cause, message }) => void lines.push(`${String(message)} ${Cause.pretty(cause)}`))])
    )
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

it.effect("a full disk is 503 too, and one line a minute that says so without a stack, whichever database it is", () =>
  Effect.gen(function*() {
    const words = 'could not extend file "base/5/16384": No space left on device'
    const disks = new FullDisks()
    const faults = [
      new DatabaseFault({ code: "53100", message: words }),
      new DatabaseFault({ code: "53100", message: "kann Datei nicht erweitern" }),
      // A used up quota has no SQLSTATE of its own. The C library of Alpine Linux leaves out "Disk".
      new DatabaseFault({ code: "XX000", message: 'could not extend file "base/5/16384": Disk quota exceeded' }),
      new DatabaseFault({ code: "XX000", message: 'could not extend file "base/5/16384": Quota exceeded' }),
      new DatabaseFault({ code: "57P02", message: `PGlite crashed: ${words}` }),
      new DatabaseFault(new Error(`no space left on /data (0.1 MB free): ${words}`))
    ]
    const { lines, value } = yield* logged(
      Effect.gen(function*() {
        const errors = yield* Effect.forEach(faults, (fault) => Effect.flip(unavailable(sqlError(fault, "execute"))))
        yield* TestClock.adjust("9 seconds")
        const now = monotonicMillis(yield* Clock.Clock)
        assert.include(disks.recent(now()), "no space left on /data (0.1 MB free)")
        yield* TestClock.adjust("50 seconds")
        assert.isUndefined(disks.recent(now()), "ten seconds after the last failure")
        yield* Effect.flip(unavailable(sqlError(faults[0], "execute")))
        yield* TestClock.adjust("1 second")
        return [...errors, yield* Effect.flip(unavailable(sqlError(faults[1], "execute")))]
      }).pipe(Effect.provideService(FullDisk, disks))
    )
    assert.isTrue(value.every((error) => error instanceof Unavailable))
    assert.deepStrictEqual(lines.map((line) => line.trim()), [
      `The database cannot write, and requests that change something get 503: ${words}`,
      "The database cannot write, and requests that change something get 503: no space left on the database's disk (kann Datei nicht erweitern)"
    ])
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

import {
  formatJson,
  formatText,
  keepProblem,
  type LoggedProblem,
  MAX_PROBLEMS,
  redact
} from "#infrastructure/platform/Telemetry"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger } from "effect"
import { HttpServerRequest } from "effect/http"

const KEY = `ac_${"Ab-_9".repeat(8)}xyz`

/** What the format makes of every line that the effect logs. */
const linesOf = <E>(
  effect: Effect.Effect<unknown, E>,
  format: typeof formatJson
): Effect.Effect<ReadonlyArray<string>, E> => {
  const lines: Array<string> = []
  return effect.pipe(
    Effect.provide(Logger.layer([Logger.make((options) => void lines.push(format(options)))])),
    Effect.map(() => lines)
  )
}

describe("the log", () => {
  it.effect("is one line of JSON with time, level, message, annotations and cause", () =>
    Effect.gen(function*() {
      const [line = ""] = yield* linesOf(
        Effect.logWarning("It\nbroke", new Error("because")).pipe(
          Effect.annotateLogs({ attempt: 3, shard: "default:7" })
        ),
        formatJson
      )
      assert.notInclude(line, "\n")
      const parsed = JSON.parse(line) as Record<string, unknown>
      assert.strictEqual(parsed["level"], "warn")
      assert.strictEqual(parsed["message"], "It\nbroke because")
      assert.strictEqual(parsed["attempt"], 3)
      assert.strictEqual(parsed["shard"], "default:7")
      assert.strictEqual(parsed["time"], "1970-01-01T00:00:00.000Z")
    }))

  it.effect("has a line for values that JSON cannot hold", () =>
    Effect.gen(function*() {
      const round: { self?: unknown } = {}
      round.self = round
      const lines = yield* linesOf(Effect.all([Effect.logInfo(round), Effect.logInfo(5n)]), formatJson)
      assert.deepStrictEqual(lines.map((line) => (JSON.parse(line) as { message: string }).message), [
        "[object Object]",
        "5"
      ])
    }))

  it.effect("keeps the newest warnings and errors apart, short and without keys", () =>
    Effect.gen(function*() {
      const problems: Record<"warn" | "error", Array<LoggedProblem>> = { warn: [], error: [] }
      yield* Effect.gen(function*() {
        yield* Effect.logInfo("Nothing to worry about")
        yield* Effect.logError(`The key ${KEY} is wrong`, new Error(`Because of ${KEY} ${"x".repeat(5_000)}`)).pipe(
          Effect.annotateLogs({ key: KEY })
        )
        for (let i = 0; i <= MAX_PROBLEMS; i++) yield* Effect.logWarning(`Warning ${i}`)
      }).pipe(Effect.provide(Logger.layer([Logger.make((options) => keepProblem(problems, options))])))
      assert.lengthOf(problems.warn, MAX_PROBLEMS)
      assert.deepStrictEqual([problems.warn[0]?.message, problems.warn.at(-1)?.message], [
        "Warning 1",
        `Warning ${MAX_PROBLEMS}`
      ])
      const [error] = problems.error
      assert.lengthOf(problems.error, 1)
      assert.deepInclude(error, { level: "error", at: 0 })
      assert.notInclude(JSON.stringify(error), KEY)
      assert.include(error?.message, "The key ac_[redacted] is wrong")
      assert.include(error?.detail, "key=ac_[redacted]")
      assert.isAtMost(error!.message.length, 500)
      assert.isAtMost(error!.detail.length, 2_000)
    }))

  it.effect("says which request a line belongs to", () =>
    Effect.gen(function*() {
      const request = HttpServerRequest.fromWeb(new Request("http://x/", { headers: { "x-request-id": "mine-1" } }))
      const [line = ""] = yield* linesOf(
        Effect.logError("A request failed").pipe(
          Effect.andThen(Effect.void),
          Effect.provideService(HttpServerRequest.HttpServerRequest, request)
        ),
        formatJson
      )
      assert.strictEqual((JSON.parse(line) as Record<string, unknown>)["request_id"], "mine-1")
    }))

  it.effect("never holds a key, wherever it comes from", () =>
    Effect.gen(function*() {
      const lines = (format: typeof formatJson) =>
        linesOf(
          Effect.all([
            Effect.logInfo(`Authorization: Bearer ${KEY}`),
            Effect.logInfo("annotated").pipe(Effect.annotateLogs({ header: `Bearer ${KEY}` })),
            Effect.logInfo({ nested: { key: KEY } }),
            Effect.catchCause(Effect.die(new Error(`refused ${KEY}`)), (cause) => Effect.logError("died", cause))
          ]),
          format
        )
      for (const line of [...yield* lines(formatJson), ...yield* lines(formatText)]) {
        assert.notInclude(line, KEY.slice(0, 20))
        assert.include(line, "ac_[redacted]")
      }
      assert.strictEqual(redact("mac_os and ac_short"), "mac_os and ac_short")
    }))
})

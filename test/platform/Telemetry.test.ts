import { assert, describe, it } from "@effect/vitest"
import { Effect, Logger, Metric } from "effect"
import { HttpServerRequest } from "effect/http"
import { PrometheusMetrics } from "effect/observability"
import { countRequest, countStored, formatJson, formatText, ProcessMetrics, redact } from "../../src/platform/Telemetry.ts"

const KEY = `ac_${"Ab-_9".repeat(8)}xyz`

/** What the format makes of every line that the effect logs. */
const linesOf = <E>(effect: Effect.Effect<unknown, E>, format: typeof formatJson): Effect.Effect<ReadonlyArray<string>, E> => {
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
        Effect.logWarning("It\nbroke", new Error("because")).pipe(Effect.annotateLogs({ attempt: 3, shard: "default:7" })),
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

  it.effect("survives what JSON cannot hold", () =>
    Effect.gen(function*() {
      const round: { self?: unknown } = {}
      round.self = round
      const lines = yield* linesOf(Effect.all([Effect.logInfo(round), Effect.logInfo(5n)]), formatJson)
      assert.deepStrictEqual(lines.map((line) => (JSON.parse(line) as { message: string }).message), ["[object Object]", "5"])
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

describe("metrics", () => {
  it.effect("count answers by method and class of status, with labels that callers cannot multiply", () =>
    Effect.gen(function*() {
      const before = yield* Metric.snapshot
      countRequest("GET", 200)
      countRequest("GET", 204)
      countRequest("BREW", 405)
      countRequest("MKCOL", 404)
      countRequest(undefined, 400)
      const count = (all: ReadonlyArray<Metric.Metric.Snapshot>, method: string, status: string) => {
        const found = all.find((metric) =>
          metric.id === "http_requests_total" && metric.attributes?.["method"] === method &&
          metric.attributes["status"] === status
        )
        return found?.type === "Counter" ? Number(found.state.count) : 0
      }
      const after = yield* Metric.snapshot
      assert.strictEqual(count(after, "GET", "2xx") - count(before, "GET", "2xx"), 2)
      assert.strictEqual(count(after, "other", "4xx") - count(before, "other", "4xx"), 3)
      const methods = new Set(after.filter((metric) => metric.id === "http_requests_total").map((m) => m.attributes?.["method"]))
      assert.isFalse(methods.has("BREW"))
    }))

  it.effect("count what became a message, not what was repeated or refused", () =>
    Effect.gen(function*() {
      const count = Effect.map(PrometheusMetrics.format(), (text) =>
        ["direct", "group"].map((kind) => Number(new RegExp(`^messages_stored_total\\{kind="${kind}"\\} (\\d+)$`, "m").exec(text)?.[1] ?? 0)))
      const [direct = 0, group = 0] = yield* count
      countStored("direct", [{ _tag: "Stored" }, { _tag: "Replayed" }, { _tag: "Stored" }])
      countStored("group", [{ _tag: "Fenced" }, { _tag: "Stored" }])
      assert.deepStrictEqual(yield* count, [direct + 2, group + 1])
    }))

  it.effect("show the process as it is at the scrape", () =>
    Effect.gen(function*() {
      const metrics = yield* ProcessMetrics
      metrics.refresh()
      const text = yield* PrometheusMetrics.format()
      const rss = /^process_resident_memory_bytes (\d+)$/m.exec(text)
      assert.isAbove(Number(rss?.[1]), 10_000_000)
      assert.match(text, /^event_loop_lag_p99_seconds /m)
    }).pipe(Effect.provide(ProcessMetrics.layer)))
})

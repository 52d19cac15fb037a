import { exportOf, headersOf } from "#infrastructure/platform/TraceExport"
import {
  forTrace,
  joinOrigin,
  recordSpan,
  type Sampler,
  type Span,
  splitOrigin,
  startTracing,
  trace,
  traceRequest,
  withTrace
} from "#infrastructure/platform/Tracing"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
const SPAN = "00f067aa0ba902b7"
const parent = (flags: string) => `00-${TRACE}-${SPAN}-${flags}`

/** Runs the effect while spans are recorded, and gives them. */
const recorded = (sampler: Sampler, effect: Effect.Effect<unknown, unknown>): Effect.Effect<ReadonlyArray<Span>> =>
  Effect.suspend(() => {
    const spans: Array<Span> = []
    const end = startTracing({ sampler, record: (span) => void spans.push(span) })
    return Effect.as(Effect.ensuring(Effect.exit(effect), Effect.sync(end)), spans)
  })

const always: Sampler = { followsParent: true, ratio: 1 }

describe("a trace", () => {
  it.effect("costs nothing while tracing is off", () =>
    Effect.gen(function*() {
      const effect = Effect.succeed(1)
      assert.strictEqual(withTrace("a", "internal", effect), effect)
      assert.strictEqual(forTrace(parent("01"), effect), effect)
      assert.isUndefined(traceRequest(parent("01")))
      assert.isUndefined(recordSpan(parent("01"), "a", 0))
      assert.isUndefined(yield* forTrace(parent("01"), trace))
    }))

  it.effect("has each span under the one that it runs in, and says a failure by its code only", () =>
    Effect.gen(function*() {
      const failing = Effect.fail({ _tag: "Secretive", code: "NOT_FOUND", message: "about somebody" })
      const spans = yield* recorded(
        always,
        Effect.suspend(() =>
          forTrace(parent("01"), withTrace("outer", "server", withTrace("inner", "client", failing)))
        )
      )
      assert.deepStrictEqual(spans.map(({ failure, name }) => [name, failure]), [["inner", "NOT_FOUND"], [
        "outer",
        "NOT_FOUND"
      ]])
      const [inner, outer] = spans as [Span, Span]
      assert.deepStrictEqual([outer.parentId, inner.parentId], [SPAN, outer.spanId])
      assert.isTrue(spans.every(({ traceId }) => traceId === TRACE))
      assert.notInclude(exportOf("s", "v", "n", spans), "somebody")
    }))

  it.effect("follows its caller's decision, or decides by the share", () =>
    Effect.gen(function*() {
      const outcome = (sampler: Sampler, header: string | undefined) =>
        Effect.gen(function*() {
          let context: string | undefined
          const spans = yield* recorded(
            sampler,
            Effect.sync(() => {
              const request = traceRequest(header)
              request?.end("r", {})
              request?.end("r", {})
              context = request?.context
            })
          )
          return [spans.length, context?.slice(-2), context?.includes(TRACE) ?? false]
        })
      assert.deepStrictEqual(yield* outcome(always, undefined), [1, "01", false])
      assert.deepStrictEqual(yield* outcome(always, parent("00")), [0, "00", true])
      assert.deepStrictEqual(yield* outcome({ followsParent: true, ratio: 0 }, parent("01")), [1, "01", true])
      assert.deepStrictEqual(yield* outcome({ followsParent: true, ratio: 0 }, undefined), [0, undefined, false])
      assert.deepStrictEqual(yield* outcome({ followsParent: false, ratio: 0 }, parent("01")), [0, "00", true])
      assert.deepStrictEqual(yield* outcome({ followsParent: false, ratio: 1 }, parent("00")), [1, "01", true])
      for (
        const broken of [
          "",
          "00",
          parent("1"),
          parent("01").toUpperCase(),
          `00-${"0".repeat(32)}-${SPAN}-01`,
          `01-${TRACE}-${SPAN}-01`
        ]
      ) {
        assert.deepStrictEqual(yield* outcome({ followsParent: true, ratio: 0 }, broken), [0, undefined, false])
      }
    }))

  it("goes with the request id into the outbox, and apart again", () => {
    for (
      const [id, context] of [["req_1", parent("01")], [null, parent("00")], ["req_2", undefined], [
        null,
        undefined
      ]] as const
    ) {
      assert.deepStrictEqual(splitOrigin(joinOrigin(id, context)), { requestId: id, trace: context })
    }
    assert.deepStrictEqual(splitOrigin("req_3 nonsense"), { requestId: "req_3", trace: undefined })
  })

  it.effect("is exported as OTLP has it", () =>
    Effect.gen(function*() {
      const [span] = yield* recorded(
        always,
        Effect.sync(() => {
          recordSpan(parent("01"), "a", 1_000.5, {
            kind: "client",
            attributes: { n: 2, text: "t" },
            links: [parent("01")]
          }, 1_001)
        })
      )
      const body = JSON.parse(exportOf("service", "1", "node", [span!])) as {
        readonly resourceSpans: ReadonlyArray<
          { readonly scopeSpans: ReadonlyArray<{ readonly spans: ReadonlyArray<unknown> }> }
        >
      }
      assert.deepStrictEqual(body.resourceSpans[0]!.scopeSpans[0]!.spans, [{
        traceId: TRACE,
        spanId: span!.spanId,
        parentSpanId: SPAN,
        name: "a",
        kind: 3,
        startTimeUnixNano: "1000500000",
        endTimeUnixNano: "1001000000",
        attributes: [{ key: "n", value: { intValue: "2" } }, { key: "text", value: { stringValue: "t" } }],
        links: [{ traceId: TRACE, spanId: SPAN }],
        status: { code: 0 }
      }])
      assert.deepStrictEqual(headersOf("a=b, c=d%20e"), { a: "b", c: "d e" })
    }))
})

import { Effect, Layer, Redacted } from "effect"
import { Config, type Settings } from "./Config.ts"
import { LogThrottle } from "./LogThrottle.ts"
import { spansTotal } from "./Metrics.ts"
import { type Sampler, type Span, startTracing } from "./Tracing.ts"

/** How many spans may wait to be sent to the collector. Further spans are dropped. */
const MAX_WAITING = 10_000
const MAX_BATCH_SPANS = 1_000
const EXPORT_INTERVAL = "2 seconds"
const TIMEOUT_MS = 10_000
/** How long a server that stops waits until its last spans are sent. */
const LAST_EXPORT_TIMEOUT = "2 seconds"

/** Encodes an attribute as OTLP's JSON. */
const attribute = ([key, value]: [string, string | number | boolean]) => ({
  key,
  value: typeof value === "string"
    ? { stringValue: value }
    : typeof value === "boolean"
    ? { boolValue: value }
    : Number.isInteger(value)
    ? { intValue: String(value) }
    : { doubleValue: value }
})

const nanos = (millis: number): string => String(BigInt(Math.round(millis * 1_000)) * 1_000n)

const encoded = (span: Span) => ({
  traceId: span.traceId,
  spanId: span.spanId,
  ...(span.parentId === undefined ? {} : { parentSpanId: span.parentId }),
  name: span.name,
  kind: span.kind,
  startTimeUnixNano: nanos(span.start),
  endTimeUnixNano: nanos(Math.max(span.start, span.end)),
  attributes: Object.entries(span.attributes).map(attribute),
  links: span.links,
  status: span.failure === undefined ? { code: 0 } : { code: 2, message: span.failure }
})

/** Makes the body of an export (OTLP 1, JSON). */
export const exportOf = (service: string, version: string, node: string, spans: ReadonlyArray<Span>): string =>
  JSON.stringify({
    resourceSpans: [{
      resource: {
        attributes: Object.entries({ "service.name": service, "service.version": version, "service.instance.id": node })
          .map(attribute)
      },
      scopeSpans: [{ scope: { name: "parley", version }, spans: spans.map(encoded) }]
    }]
  })

export const samplerOf = ({ OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: ratio }: Settings): Sampler => ({
  followsParent: name.startsWith("parentbased_"),
  ratio: name.endsWith("always_on") ? 1 : name.endsWith("always_off") ? 0 : ratio
})

/** Parses OTEL_EXPORTER_OTLP_HEADERS: `name=value`, separated by commas, with percent-encoded values. */
export const headersOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    text.split(",").map((pair) => {
      const at = pair.indexOf("=")
      return [pair.slice(0, at).trim(), decodeURIComponent(pair.slice(at + 1).trim())]
    })
  )

/**
 * Sends spans to OTEL_EXPORTER_OTLP_ENDPOINT in the background, in batches. Tracing is off unless this setting is set.
 * Spans that the collector does not accept are dropped and counted, because no request may wait for the collector.
 */
export const layer = (version: string) =>
  Layer.effectDiscard(Effect.gen(function*() {
    const config = yield* Config
    const endpoint = config.OTEL_EXPORTER_OTLP_ENDPOINT
    if (endpoint === undefined) return
    const url = `${endpoint}/v1/traces`
    const headers = {
      "content-type": "application/json",
      ...(config.OTEL_EXPORTER_OTLP_HEADERS === undefined
        ? {}
        : headersOf(Redacted.value(config.OTEL_EXPORTER_OTLP_HEADERS)))
    }
    const node = `${config.RUNNER_HOST}:${config.RUNNER_PORT}`
    const sent = spansTotal.at("sent")
    const dropped = spansTotal.at("dropped")
    const lines = new LogThrottle()
    const waiting: Array<Span> = []

    const send = Effect.suspend(() => {
      const spans = waiting.splice(0, MAX_BATCH_SPANS)
      if (spans.length === 0) return Effect.succeed(false)
      return Effect.tryPromise({
        try: async () => {
          const body = exportOf(config.OTEL_SERVICE_NAME, version, node, spans)
          const answer = await fetch(url, {
            method: "POST",
            headers,
            body,
            redirect: "error",
            signal: AbortSignal.timeout(TIMEOUT_MS)
          })
          await answer.arrayBuffer()
          if (!answer.ok) throw new Error(`it answered ${answer.status}`)
        },
        catch: (error) => error instanceof Error ? error.message : String(error)
      }).pipe(
        Effect.matchEffect({
          onSuccess: () =>
            Effect.sync(() => {
              sent.add(spans.length)
              return waiting.length > 0
            }),
          onFailure: (reason) =>
            Effect.suspend(() => {
              dropped.add(spans.length)
              return Effect.as(
                lines.log(
                  Effect.logWarning(
                    `Traces could not be sent to OTEL_EXPORTER_OTLP_ENDPOINT and were dropped: ${reason}`
                  )
                ),
                false
              )
            })
        })
      )
    })
    const sendAll: Effect.Effect<void> = Effect.flatMap(send, (more) => more ? sendAll : Effect.void)

    yield* Effect.acquireRelease(
      Effect.sync(() =>
        startTracing({
          sampler: samplerOf(config),
          record: (span) => {
            if (waiting.length >= MAX_WAITING) return dropped.add()
            waiting.push(span)
          }
        })
      ),
      (end) => Effect.andThen(Effect.sync(end), Effect.timeoutOption(sendAll, LAST_EXPORT_TIMEOUT))
    )
    yield* Effect.forkScoped(Effect.forever(Effect.andThen(Effect.sleep(EXPORT_INTERVAL), sendAll)))
  }))

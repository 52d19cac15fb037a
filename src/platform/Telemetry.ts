import { Cause, Context, Effect, Layer, Logger, Metric, References } from "effect"
import { monitorEventLoopDelay } from "node:perf_hooks"
import { Config } from "./Config.ts"
import { requestIdOf } from "./RequestId.ts"

/** Matches an API key anywhere in a text. */
const KEY = /ac_[A-Za-z0-9_-]{8,}/g

/** Removes API keys from a text. Applied to every log line. */
export const redact = (text: string): string => text.includes("ac_") ? text.replace(KEY, "ac_[redacted]") : text

const levels = { debug: "Debug", info: "Info", warn: "Warn", error: "Error" } as const

const plain = (value: unknown): string => {
  if (typeof value === "string") return value
  if (value instanceof Error) return value.message
  try {
    return JSON.stringify(value) ?? String(value)
  } catch {
    // A value that cannot be written as JSON must not lose the log line.
    return String(value)
  }
}

/** The fields of a log line. */
const lineOf = (options: Logger.Options<unknown>): Record<string, unknown> => {
  const parts: ReadonlyArray<unknown> = Array.isArray(options.message) ? options.message : [options.message]
  const line: Record<string, unknown> = {
    time: options.date.toISOString(),
    level: options.logLevel.toLowerCase(),
    message: parts.map(plain).join(" ")
  }
  const requestId = requestIdOf(options.fiber)
  if (requestId !== undefined) line["request_id"] = requestId
  for (const [name, value] of Object.entries(options.fiber.getRef(References.CurrentLogAnnotations))) {
    line[name] = typeof value === "number" || typeof value === "boolean" ? value : plain(value)
  }
  if (options.cause.reasons.length > 0) line["cause"] = Cause.pretty(options.cause)
  return line
}

/** A log line as JSON, for machines. */
export const formatJson = (options: Logger.Options<unknown>): string => redact(JSON.stringify(lineOf(options)))

/** A log line as text, for a person at a terminal. */
export const formatText = (options: Logger.Options<unknown>): string => {
  const { time, level, message, cause, ...rest } = lineOf(options)
  const notes = Object.entries(rest).map(([name, value]) => ` ${name}=${plain(value)}`).join("")
  const more = cause === undefined ? "" : `\n${String(cause).replace(/^/gm, "    ")}`
  return redact(`${String(time).slice(11, 19)} ${String(level).padEnd(5)} ${String(message)}${notes}${more}`)
}

/**
 * Writes log lines at LOG_LEVEL and above to standard error; standard output is for messages to the person who started
 * the server.
 */
export const layerLogger = Layer.unwrap(Effect.map(Config, (config) => {
  const format = process.stderr.isTTY ? formatText : formatJson
  return Layer.mergeAll(
    Logger.layer([Logger.make((options) => void process.stderr.write(`${format(options)}\n`))]),
    Layer.succeed(References.MinimumLogLevel, levels[config.LOG_LEVEL])
  )
}))

const none = Context.empty()
const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"]
const requests: Record<string, ReadonlyArray<Metric.Metric<number, Metric.CounterState<number>>>> = Object.fromEntries(
  methods.map((method) => [
    method,
    ["1xx", "2xx", "3xx", "4xx", "5xx"].map((status) =>
      Metric.counter("http_requests_total", {
        description: "Answered HTTP requests",
        incremental: true,
        attributes: { method, status }
      })
    )
  ])
)

/** Counts an answered request. An unknown method is counted as `other`, so that clients cannot add label values. */
export const countRequest = (method: string | undefined, status: number): void => {
  const byStatus = requests[method ?? "other"] ?? requests["other"]
  byStatus?.[Math.floor(status / 100) - 1]?.updateUnsafe(1, none)
}

const stored = (kind: string) =>
  Metric.counter("messages_stored_total", {
    description: "Messages committed by this node, which has their conversation",
    incremental: true,
    attributes: { kind }
  })
const storedMessages = { direct: stored("direct"), group: stored("group") }

/** Counts stored messages; repeated and refused sends do not count. */
export const countStored = (kind: keyof typeof storedMessages, outcomes: ReadonlyArray<{ readonly _tag: string }>): void =>
  storedMessages[kind].updateUnsafe(outcomes.filter(({ _tag }) => _tag === "Stored").length, none)

const residentBytes = Metric.gauge("process_resident_memory_bytes", { description: "Resident set size" })
const heapBytes = Metric.gauge("process_heap_used_bytes", { description: "JavaScript heap in use" })
const cpuSeconds = Metric.gauge("process_cpu_seconds", { description: "CPU time used, user and system" })
const uptimeSeconds = Metric.gauge("process_uptime_seconds", { description: "Time since the process started" })
const lagSeconds = Metric.gauge("event_loop_lag_p99_seconds", {
  description: "99th percentile of the event loop's delay since the last scrape"
})

/** Metrics that are read at the moment of a scrape. */
export class ProcessMetrics extends Context.Service<ProcessMetrics, {
  readonly refresh: () => void
}>()("parley/platform/Telemetry/ProcessMetrics") {
  static readonly layer = Layer.effect(
    ProcessMetrics,
    Effect.acquireRelease(
      Effect.sync(() => {
        const delay = monitorEventLoopDelay({ resolution: 20 })
        delay.enable()
        return delay
      }),
      (delay) => Effect.sync(() => delay.disable())
    ).pipe(Effect.map((delay) =>
      ProcessMetrics.of({
        refresh: () => {
          const memory = process.memoryUsage()
          const cpu = process.cpuUsage()
          residentBytes.updateUnsafe(memory.rss, none)
          heapBytes.updateUnsafe(memory.heapUsed, none)
          cpuSeconds.updateUnsafe((cpu.user + cpu.system) / 1e6, none)
          uptimeSeconds.updateUnsafe(process.uptime(), none)
          lagSeconds.updateUnsafe(Number.isNaN(delay.percentile(99)) ? 0 : delay.percentile(99) / 1e9, none)
          delay.reset()
        }
      })
    ))
  )
}

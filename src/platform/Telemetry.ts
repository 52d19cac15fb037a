import { Cause, Effect, Layer, Logger, References } from "effect"
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

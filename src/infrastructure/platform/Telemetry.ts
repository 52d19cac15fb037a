import { Cause, Context, Effect, Layer, Logger, LogLevel, References } from "effect"
import { Config } from "./Config.ts"
import { noSpaceIn } from "./disk/DiskSpace.ts"
import { requestIdOf } from "./RequestId.ts"

/** Matches an API key, or an operator's link, session or token, anywhere in a text. */
const KEY = /(ac)_[A-Za-z0-9_-]{8,}|(op[lst])_[A-Za-z0-9_-]{40,}/g

/** Replaces API keys and the credentials of operators in a text. It is applied to every log line. */
export const redact = (text: string): string =>
  text.includes("ac_") || text.includes("op")
    ? text.replace(KEY, (_, agents: string | undefined, operators: string) => `${agents ?? operators}_[redacted]`)
    : text

const levels = { debug: "Debug", info: "Info", warn: "Warn", error: "Error" } as const

const plain = (value: unknown): string => {
  if (typeof value === "string") return value
  if (value instanceof Error) return value.message
  try {
    return JSON.stringify(value) ?? String(value)
  } catch {
    // The log line must be written even if a value cannot be encoded as JSON.
    return String(value)
  }
}

/** Returns the fields of a log line. */
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
  if (options.cause.reasons.length > 0) {
    const cause = Cause.pretty(options.cause)
    // If the disk is full, all writes fail. The stack traces of all these failures would hide the reason.
    line["cause"] = noSpaceIn(cause) ?? cause
  }
  return line
}

/** Formats a log line as JSON, for machines. */
export const formatJson = (options: Logger.Options<unknown>): string => redact(JSON.stringify(lineOf(options)))

/** Formats a log line as text, for a person at a terminal. */
export const formatText = (options: Logger.Options<unknown>): string => {
  const { time, level, message, cause, ...rest } = lineOf(options)
  const notes = Object.entries(rest).map(([name, value]) => ` ${name}=${plain(value)}`).join("")
  const more = cause === undefined ? "" : `\n${String(cause).replace(/^/gm, "    ")}`
  return redact(`${String(time).slice(11, 19)} ${String(level).padEnd(5)} ${String(message)}${notes}${more}`)
}

export type LogVolumeLevel = keyof typeof levels

/** The lowest level of log lines that this process writes. It is LOG_LEVEL until an operator sets another level. */
export class LogVolume extends Context.Reference<{ level: LogVolumeLevel }>("parley/platform/Telemetry/LogVolume", {
  defaultValue: () => ({ level: "info" as LogVolumeLevel })
}) {}

/** A warning or an error that this process logged. */
export interface LoggedProblem {
  /** In milliseconds. */
  readonly at: number
  readonly level: "warn" | "error"
  readonly message: string
  /** The annotations and the cause of the line; empty if there are none. */
  readonly detail: string
}

/** How many problems of each level a process remembers, and how many UTF-16 units of a message and of a detail. */
export const MAX_PROBLEMS = 100
const MESSAGE_LENGTH = 500
const DETAIL_LENGTH = 2_000

/**
 * The newest warnings and errors that this process logged, whatever the level of its log is. They are kept apart, so
 * that many warnings do not hide an error.
 */
export class LoggedProblems extends Context.Reference<{
  /** Oldest first. */
  readonly warn: ReadonlyArray<LoggedProblem>
  readonly error: ReadonlyArray<LoggedProblem>
}>(
  "parley/platform/Telemetry/LoggedProblems",
  { defaultValue: () => ({ warn: [], error: [] }) }
) {}

/** Shortens a text. The result is a copy, because a part of a string keeps the whole string in memory. */
const shortened = (text: string, length: number): string => Buffer.from(text.slice(0, length)).toString()

const problemOf = (options: Logger.Options<unknown>): LoggedProblem => {
  const { cause, level: _level, message, time: _time, ...rest } = lineOf(options)
  const notes = Object.entries(rest).map(([name, value]) => `${name}=${plain(value)}`).join(" ")
  const detail = redact([notes, String(cause ?? "")].filter((text) => text !== "").join("\n"))
  return {
    at: options.date.getTime(),
    level: LogLevel.isGreaterThanOrEqualTo(options.logLevel, "Error") ? "error" : "warn",
    message: shortened(redact(String(message)), MESSAGE_LENGTH),
    detail: shortened(detail, DETAIL_LENGTH)
  }
}

/** Keeps the problem of a log line, and drops the oldest one above the limit. */
export const keepProblem = (
  problems: Readonly<Record<"warn" | "error", Array<LoggedProblem>>>,
  options: Logger.Options<unknown>
): void => {
  if (!LogLevel.isGreaterThanOrEqualTo(options.logLevel, "Warn")) return
  const problem = problemOf(options)
  const kept = problems[problem.level]
  kept.push(problem)
  if (kept.length > MAX_PROBLEMS) kept.shift()
}

/**
 * Writes log lines at LOG_LEVEL and above to standard error. Standard output is for messages to the person who started
 * the server. All lines are made, and those below the level are dropped here, because the minimum level of a running
 * fiber cannot be changed.
 */
export const layerLogger = Layer.unwrap(Effect.map(Config, (config) => {
  const format = process.stderr.isTTY ? formatText : formatJson
  const volume: { level: LogVolumeLevel } = { level: config.LOG_LEVEL }
  const problems = { warn: [], error: [] }
  return Layer.mergeAll(
    Logger.layer([Logger.make((options) => {
      if (LogLevel.isGreaterThanOrEqualTo(options.logLevel, levels[volume.level]))
        process.stderr.write(`${format(options)}\n`)
      keepProblem(problems, options)
    })]),
    Layer.succeed(References.MinimumLogLevel, "Debug"),
    Layer.succeed(LogVolume, volume),
    Layer.succeed(LoggedProblems, problems)
  )
}))

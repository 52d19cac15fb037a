import { closeSync, fstatSync, openSync, readFileSync } from "node:fs"
import { resolve } from "node:path"

/** An assignment in a settings file. */
export interface Assignment {
  readonly name: string
  readonly value: string
  /** The number of its first line, from 1. */
  readonly line: number
}

/** A line that is no assignment and no comment. Its text is left out because it may contain a secret. */
export interface Malformed {
  readonly line: number
  readonly problem: string
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/

/** The value in quotes that begins at `at`, without the quotes, and where it ends. */
const quoted = (text: string, at: number): { readonly value: string; readonly end: number } | undefined => {
  const quote = text[at]
  let value = ""
  for (let i = at + 1; i < text.length; i++) {
    const char = text[i]
    if (char === quote) return { value, end: i + 1 }
    if (char !== "\\" || quote === "'") {
      value += char
      continue
    }
    const next = text[++i] ?? ""
    if (next !== "\n") value += '"\\`$'.includes(next) ? next : `\\${next}`
  }
  return undefined
}

/** The value without quotes that begins at `at`, without spaces at its end, and where it ends. */
const unquoted = (text: string, at: number): { readonly value: string; readonly end: number } => {
  let value = ""
  let length = 0
  let i = at
  for (; i < text.length && text[i] !== "\n"; i++) {
    const isEscaped = text[i] === "\\"
    const char = text[isEscaped ? ++i : i] ?? ""
    if (!isEscaped || char !== "\n") value += char
    if (isEscaped || !" \t".includes(char)) length = value.length
  }
  return { value: value.slice(0, length), end: i }
}

/**
 * Parses a file in the format of systemd's `EnvironmentFile=`: `NAME=value` in each line, with comments after `#` or
 * `;` in lines of their own, values in single or double quotes, and lines that a backslash continues.
 */
export const parse = (
  given: string
): { readonly assignments: ReadonlyArray<Assignment>; readonly malformed: ReadonlyArray<Malformed> } => {
  const text = given.replace(/^\uFEFF/, "").replaceAll(/\r\n?/g, "\n")
  const assignments: Array<Assignment> = []
  const malformed: Array<Malformed> = []
  let at = 0
  let line = 1
  const moveTo = (end: number): void => {
    for (; at < end; at++) if (text[at] === "\n") line++
  }
  const valueAt = (start: number): { readonly value: string; readonly end: number } | undefined => {
    let value = ""
    let end = start
    while (end < text.length && text[end] !== "\n") {
      if (" \t".includes(text[end] ?? "")) {
        end++
        continue
      }
      const part = "\"'".includes(text[end] ?? "") ? quoted(text, end) : unquoted(text, end)
      if (part === undefined) return undefined
      value += part.value
      end = part.end
    }
    return { value, end }
  }
  while (at < text.length) {
    const newline = text.indexOf("\n", at)
    const end = newline === -1 ? text.length : newline
    const whole = text.slice(at, end)
    if (/^[ \t]*([#;]|$)/.test(whole)) {
      moveTo(end + 1)
      continue
    }
    const equals = whole.indexOf("=")
    const name = whole.slice(0, equals).trim()
    if (equals === -1 || !NAME.test(name)) {
      malformed.push({ line, problem: "expected NAME=value, or a comment that begins with #" })
      moveTo(end + 1)
      continue
    }
    const found = valueAt(at + equals + 1)
    if (found === undefined) {
      malformed.push({ line, problem: `the value of ${name} has no closing quote` })
      break
    }
    assignments.push({ name, value: found.value, line })
    moveTo(found.end + 1)
  }
  return { assignments, malformed }
}

/** A settings file, or none. */
export interface SettingsFile {
  /** The last assignment of each name. */
  readonly assigned: ReadonlyMap<string, Assignment>
  /** Where a line of the file is, as problems show it. */
  readonly at: (line: number) => string
  readonly problems: ReadonlyArray<string>
  /** The path, if all users of the machine can read the file. */
  readonly openTo: string | undefined
}

const NO_FILE: SettingsFile = { assigned: new Map(), at: () => "", problems: [], openTo: undefined }

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: "there is no such file",
  ENOTDIR: "there is no such file",
  EACCES: "permission denied",
  EISDIR: "it is a folder"
}

const OTHERS_READ = 0o004
const ORDINARY = ".env"

/**
 * Reads the file that `PARLEY_CONFIG` names. If `PARLEY_CONFIG` is not set, reads `.env` in the current folder, if it
 * exists.
 */
export const readSettingsFile = (environment: Readonly<Record<string, string | undefined>>): SettingsFile => {
  const named = environment["PARLEY_CONFIG"]?.trim() ?? ""
  const path = resolve(named === "" ? ORDINARY : named)
  try {
    const descriptor = openSync(path, "r")
    try {
      const { assignments, malformed } = parse(readFileSync(descriptor, "utf8"))
      const { mode } = fstatSync(descriptor)
      const at = (line: number): string => `${path}:${line}`
      return {
        assigned: new Map(assignments.map((one) => [one.name, one])),
        at,
        problems: malformed.map(({ line, problem }) => `${at(line)}: ${problem}`),
        openTo: (mode & OTHERS_READ) === 0 ? undefined : path
      }
    } finally {
      closeSync(descriptor)
    }
  } catch (error) {
    const code = String(Reflect.get(Object(error), "code"))
    if (named === "" && (code === "ENOENT" || code === "EISDIR")) return NO_FILE
    const reason = REASONS[code] ?? (error instanceof Error ? error.message : code)
    return { ...NO_FILE, problems: [`${named === "" ? path : `PARLEY_CONFIG: ${path}`} cannot be read: ${reason}`] }
  }
}

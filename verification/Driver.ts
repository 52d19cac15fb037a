import { spawn } from "node:child_process"
import { once } from "node:events"
import { closeSync, fstatSync, mkdirSync, openSync, readSync } from "node:fs"
import { join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"

const ROOT = resolve(import.meta.dirname, "..")

/** How a programme is started: node or another program, its arguments, and variables added to those of this process. */
export interface Command {
  readonly program?: string
  readonly args: ReadonlyArray<string>
  readonly env?: Readonly<Record<string, string>>
}

export type Figures = Readonly<Record<string, number | string>>

/** A programme that runs in a process of its own, passes by ending with 0, and fails by ending otherwise. */
export interface Programme {
  readonly name: string
  /** The npm script that runs it alone. */
  readonly script: string
  /** Seconds that its shortest run takes on two cores. */
  readonly least: number
  /** Its share of the time that the shortest runs leave; 0, the default, if its duration is fixed. */
  readonly weight?: number
  /** Seconds beyond which a longer run shows nothing more. */
  readonly most?: number
  /** What this machine lacks and how to get it; undefined if it lacks nothing. */
  readonly missing?: () => string | undefined
  /** A run of about so many seconds. */
  readonly command: (seconds: number) => Command
  /** Reads the figures of a run from the end of its output. */
  readonly figures?: (output: string) => Figures
  /** Whether the figures of a run that ended with 0 show that it tested nothing. */
  readonly triedNothing?: (figures: Figures) => boolean
}

export type Verdict = "passed" | "failed" | "skipped" | "not run"

/** The outcome of one programme. */
export interface Row {
  readonly programme: string
  readonly verdict: Verdict
  readonly seconds: number
  readonly figures: Figures
  /** Why it did not pass; empty if it did. */
  readonly why: string
  /** The file with its whole output, if it ran. */
  readonly log?: string
}

/** The part of the whole time that is kept in reserve for programmes that take longer than planned. */
const RESERVE = 0.1
/** A programme is stopped after this many times the time that it was given. */
const MAX_SHARES = 3
/** Bytes at the end of a programme's output in which its figures are looked for. */
const TAIL_BYTES = 1_048_576

/**
 * Seconds for each programme, in their order; undefined for a programme that does not fit. Each programme first gets
 * the time of its shortest run, earlier ones before later ones. The rest is divided by weight.
 */
export const shareOut = (
  programmes: ReadonlyArray<Programme>,
  seconds: number,
  reserve = 0
): ReadonlyArray<number | undefined> => {
  let left = seconds
  const shares = programmes.map(({ least }) => {
    if (least > left) return undefined
    left -= least
    return least
  })
  left = Math.max(0, left - reserve)
  for (;;) {
    const growing = programmes.flatMap(({ most = Infinity, weight = 0 }, at) => {
      const share = shares[at]
      return share !== undefined && weight > 0 && share < most ? [{ at, most, share, weight }] : []
    })
    const weights = growing.reduce((sum, { weight }) => sum + weight, 0)
    if (weights === 0 || left < 1) return shares
    const each = left / weights
    for (const { at, most, share, weight } of growing) {
      const more = Math.min(each * weight, most - share)
      shares[at] = share + more
      left -= more
    }
  }
}

export const lasting = (seconds: number): string => {
  const whole = Math.round(seconds)
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`
}

const tailOf = (file: number): string => {
  const { size } = fstatSync(file)
  const bytes = Buffer.alloc(Math.min(size, TAIL_BYTES))
  const read = readSync(file, bytes, 0, bytes.length, size - bytes.length)
  // Figures are read from text without colours.
  // oxlint-disable-next-line no-control-regex
  return bytes.toString("utf8", 0, read).replaceAll(/\x1b\[[0-9;]*m/g, "")
}

const lastLineOf = (file: number): string =>
  tailOf(file).split("\n").findLast((line) => line.trim() !== "")?.trim().slice(0, 100) ?? ""

const killGroup = (pid: number): void => {
  try {
    process.kill(-pid, "SIGKILL")
  } catch {
    // No process of the group is left.
  }
}

export interface VerifyOptions {
  readonly programmes: ReadonlyArray<Programme>
  /** The time for all programmes together. */
  readonly seconds: number
  /** Where the output of each programme is kept. */
  readonly folder: string
  /** Ends the run: the present programme is stopped, no other is started. */
  readonly signal?: AbortSignal
  readonly say: (line: string) => void
  /** The interval at which the last line of the running programme is reported. */
  readonly tellEverySeconds?: number
  /** How long a programme that is asked to stop may take before it is killed. */
  readonly graceSeconds?: number
}

/** Runs a programme until it ends, `limit` seconds are over, or the run is interrupted. */
const runOne = async (programme: Programme, seconds: number, limit: number, options: VerifyOptions): Promise<Row> => {
  const { folder, graceSeconds = 20, say, signal, tellEverySeconds = 30 } = options
  const { args, env, program = process.execPath } = programme.command(seconds)
  const log = join(folder, `${programme.name}.log`)
  const file = openSync(log, "w+")
  const began = performance.now()
  const elapsed = () => (performance.now() - began) / 1_000
  // The programme gets a process group of its own. Ctrl-C in the terminal then reaches only the driver, which can end
  // the whole group.
  const child = spawn(program, args, {
    cwd: ROOT,
    env: { ...process.env, NO_COLOR: "1", ...env },
    detached: true,
    stdio: ["ignore", file, file]
  })
  const { pid } = child
  const orphaned = () => pid !== undefined && killGroup(pid)
  process.once("exit", orphaned)
  const over = new AbortController()
  const ended = once(child, "exit").then(
    ([code, by]: Array<unknown>) => by === null ? `it ended with ${code}` : `it ended by ${by}`,
    String
  )
  /** Waits this many seconds. Fails once the programme has ended. */
  const until = (seconds: number) => pause(seconds * 1_000, undefined, { signal: over.signal })
  let stopped: { readonly verdict: Verdict; readonly why: string } | undefined
  const stop = (verdict: Verdict, why: string): void => {
    if (stopped !== undefined) return
    stopped = { verdict, why: `${why} after ${lasting(elapsed())}` }
    child.kill("SIGTERM")
    void until(graceSeconds).then(orphaned, () => undefined)
  }
  const interrupt = () => stop("not run", "interrupted")
  signal?.addEventListener("abort", interrupt, { once: true })
  void until(limit).then(() => stop("failed", `given ${lasting(seconds)}, stopped`), () => undefined)
  const telling = setInterval(
    () => say(`      ${lasting(elapsed())} of about ${lasting(seconds)}: ${lastLineOf(file)}`),
    tellEverySeconds * 1_000
  )
  const end = await ended
  const took = elapsed()
  clearInterval(telling)
  over.abort()
  signal?.removeEventListener("abort", interrupt)
  process.off("exit", orphaned)
  orphaned()
  const output = tailOf(file)
  closeSync(file)
  const figures = programme.figures?.(output) ?? {}
  const row = { programme: programme.name, seconds: Math.round(took * 10) / 10, figures, log }
  if (stopped !== undefined) return { ...row, ...stopped }
  if (end !== "it ended with 0") return { ...row, verdict: "failed", why: end }
  return programme.triedNothing?.(figures) === true
    ? { ...row, verdict: "skipped", why: "everything in it was skipped; its output says why" }
    : { ...row, verdict: "passed", why: "" }
}

/**
 * Runs programmes one after the other within the given time and continues after a failure. Returns a row for each
 * programme, in their order. A programme that cannot run on this machine is skipped, and one that does not fit into the
 * time is not run.
 */
export const verify = async (options: VerifyOptions): Promise<ReadonlyArray<Row>> => {
  const { programmes, say, seconds, signal } = options
  mkdirSync(options.folder, { recursive: true })
  const began = performance.now()
  const left = () => seconds - (performance.now() - began) / 1_000
  const skipped = new Map(programmes.flatMap((programme) => {
    const why = programme.missing?.()
    return why === undefined ? [] : [[programme, why] as const]
  }))
  const rows: Array<Row> = []
  for (const [at, programme] of programmes.entries()) {
    const place = `[${at + 1}/${programmes.length}] ${programme.name}`
    const without = (verdict: Verdict, why: string): void => {
      rows.push({ programme: programme.name, verdict, seconds: 0, figures: {}, why })
      say(`${place}: ${verdict}: ${why}`)
    }
    const why = skipped.get(programme)
    if (why !== undefined) {
      without("skipped", why)
      continue
    }
    if (signal?.aborted === true) {
      without("not run", "interrupted before it began")
      continue
    }
    const waiting = programmes.slice(at).filter((one) => !skipped.has(one))
    const [share] = shareOut(waiting, left(), RESERVE * seconds)
    if (share === undefined) {
      without("not run", `it takes ${lasting(programme.least)} at least, and ${lasting(Math.max(0, left()))} were left`)
      continue
    }
    say(`${place}: about ${lasting(share)}`)
    const row = await runOne(programme, share, Math.min(MAX_SHARES * share, left()), options)
    rows.push(row)
    say(`${place}: ${row.verdict}, ${row.why === "" ? `in ${lasting(row.seconds)}` : row.why}`)
  }
  return rows
}

const shown = (figures: Figures): string =>
  Object.entries(figures).map(([name, value]) => `${name} ${value}`).join(", ")

/** The table that a run ends with. */
export const table = (rows: ReadonlyArray<Row>): string => {
  const cells = [
    ["programme", "verdict", "duration", "figures, or why it did not pass"],
    ...rows.map(({ figures, log, programme, seconds, verdict, why }) => [
      programme,
      verdict,
      log === undefined ? "" : lasting(seconds),
      [why, shown(figures)].filter((text) => text !== "").join("; ")
    ])
  ]
  const widths = [0, 1, 2].map((column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)))
  return cells.map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ").trimEnd()).join("\n")
}

/** 1 if a programme failed, 130 if the run was interrupted, 2 if none passed, 0 otherwise. */
export const exitCode = (rows: ReadonlyArray<Row>, interrupted: boolean): number =>
  rows.some(({ verdict }) => verdict === "failed")
    ? 1
    : interrupted
    ? 130
    : rows.some(({ verdict }) => verdict === "passed")
    ? 0
    : 2

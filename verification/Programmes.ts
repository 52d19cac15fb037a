import { spawnSync } from "node:child_process"
import { readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { missingRedis } from "../runners/local/Redis.ts"
import { missingForDisks } from "../test/support/SmallDisk.ts"
import { missingWebProxies } from "../test/support/WebProxy.ts"
import type { RunResult } from "./bench/Load.ts"
import type { Command, Figures, Programme } from "./Driver.ts"
import { faults } from "./faults/Faults.ts"
import type { RoundResult } from "./faults/Round.ts"
import { lastVersion } from "./long/OldVersion.ts"

const ROOT = resolve(import.meta.dirname, "..")

const manifest = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
  readonly scripts: Readonly<Record<string, string>>
}

/**
 * The last command of an npm script, to run it without npm and without the checks of types and lint before it. The
 * command consists of arguments for node and variables that stand before it. Scripts have plain words and words in
 * single quotes.
 */
export const commandOf = (script: string): Command => {
  const last = manifest.scripts[script]?.split(" && ").at(-1) ?? ""
  const words = Array.from(last.matchAll(/'([^']*)'|\S+/g), ([word, quoted]) => quoted ?? word)
  const first = words.findIndex((word) => !/^[A-Z_]+=/.test(word))
  const env = Object.fromEntries(words.slice(0, first).map((word) => word.split("=", 2)))
  const [program, ...rest] = words.slice(first)
  if (program === "node") return { args: rest, env }
  if (program !== "vitest") throw new Error(`the script ${script} runs neither node nor vitest: ${last}`)
  return { args: ["--import", "./runners/require-node.js", "node_modules/vitest/vitest.mjs", ...rest], env }
}

/** The script's command with more arguments and other variables. */
const varied = (script: string, env: Readonly<Record<string, number>>, args: ReadonlyArray<string> = []): Command => {
  const command = commandOf(script)
  const numbers = Object.entries(env).map(([name, value]) => [name, String(Math.floor(value))])
  return { args: [...command.args, ...args], env: { ...command.env, ...Object.fromEntries(numbers) } }
}

/** The objects that were printed as lines of JSON. */
const linesOfJson = (output: string): ReadonlyArray<Readonly<Record<string, unknown>>> =>
  output.split("\n").filter((line) => line.startsWith("{")).flatMap((line) => {
    try {
      return [JSON.parse(line) as Record<string, unknown>]
    } catch {
      return []
    }
  })

/**
 * The last object with this key that was printed as a line of JSON. Its writer is in this folder and defines its other
 * fields.
 */
const lineWith = (output: string, key: string): object | undefined =>
  linesOfJson(output).findLast((line) => key in line)

/** Tests that passed, failed and were skipped, from vitest's summary. */
export const tests = (output: string): Figures => {
  const summary = /^ +Tests +(.*)\(\d+\)$/m.exec(output)?.[1] ?? ""
  return Object.fromEntries(
    Array.from(summary.matchAll(/(\d+) (passed|failed|skipped)/g), ([, count, what]) => [what ?? "", Number(count)])
  )
}

/** A programme that vitest runs. Vitest also passes if all tests are skipped. */
const vitest = (
  name: string,
  script: string,
  least: number,
  rest: Partial<Programme> & { readonly extra?: (output: string) => Figures } = {}
): Programme => {
  const { extra, ...others } = rest
  return {
    name,
    script,
    least,
    command: () => commandOf(script),
    figures: (output) => ({ ...tests(output), ...extra?.(output) }),
    triedNothing: ({ passed }) => passed === undefined,
    ...others
  }
}

interface BenchLine {
  readonly subject: string
  readonly runs: ReadonlyArray<Pick<RunResult, "perSecond" | "toSocket"> & { readonly label: string }>
}

const firstOf = (output: string, pattern: RegExp, name: string): Figures => {
  const value = pattern.exec(output)?.[1]
  return value === undefined ? {} : { [name]: value }
}

const needsRedis = () => missingRedis === "" ? undefined : "needs redis-server: apt-get install redis-server"
const needsPrometheus = () =>
  spawnSync("promtool", ["--version"]).status === 0 ? needsRedis() : "needs Prometheus: apt-get install prometheus"
const needsHaproxy = () =>
  spawnSync("haproxy", ["-v"]).status === 0 ? needsRedis() : "needs HAProxy: apt-get install haproxy"

const hasNpm = spawnSync("npm", ["--version"]).status === 0
/** The answer is computed at the first use and then kept. */
let packages: { readonly missing: string | undefined } | undefined
const needsPackages = (): string | undefined => (packages ??= { missing: missingPackages() }).missing
const missingPackages = (): string | undefined =>
  !hasNpm
    ? "needs npm, which comes with Node"
    : spawnSync("npm", ["view", "node@24", "version", "--fetch-retries=0", "--fetch-timeout=10000"], {
        timeout: 30_000
      }).status === 0
    ? undefined
    : "needs a registry of packages that npm can reach: npm config get registry says which it asks"

const atLeast = (least: number, value: number): number => Math.max(least, Math.floor(value))

/** Seconds that vitest, the servers and the fixed part of a search take, besides the search itself. */
const AROUND_A_SEARCH = 60
/** Seconds that a fault takes besides its own duration: warming up, healing, cooling down and the check. */
const AROUND_A_FAULT = 20
const AROUND_ALL_FAULTS = 60

/**
 * The programmes of `npm run verify`, in this order. If the time is too short for all, the last ones are left out.
 * `least` is the time that a shortest run takes on two otherwise idle cores, or a little more.
 */
export const programmes: ReadonlyArray<Programme> = [
  {
    name: "check",
    script: "check",
    least: 20,
    missing: () => hasNpm ? undefined : "needs npm, which comes with Node",
    command: () => ({ program: "npm", args: ["run", "check"] })
  },
  vitest("tests", "test:databases", 330),
  vitest("nodes", "test:nodes", 330, { missing: needsRedis }),
  vitest("races", "test:races", 45, { missing: needsRedis }),
  vitest("cluster", "test:cluster", 150, { missing: needsRedis }),
  {
    name: "kill",
    script: "test:kill",
    least: 60,
    weight: 1,
    most: 600,
    command: (seconds) => varied("test:kill", { KILLS: atLeast(5, seconds / 10) }),
    figures: (output) =>
      Object.fromEntries(
        Array.from(
          output.matchAll(/^ *(kills|acknowledged|sentAgain): (\d+)/gm),
          ([, name, count]) => [name ?? "", Number(count)]
        )
      )
  },
  vitest("checker", "test:checker", 60, {
    weight: 1,
    most: 420,
    command: (seconds) => varied("test:checker", { CHECKER_WORLDS: Math.min(200, atLeast(20, seconds / 2 - 10)) })
  }),
  vitest("generated", "test:generated", 90, {
    weight: 1,
    most: 900,
    command: (seconds) => varied("test:generated", { GENERATED_RUNS: atLeast(15, seconds / 5) })
  }),
  vitest("simulation", "test:simulation", 240, {
    weight: 3,
    command: (seconds) => varied("test:simulation", { SEARCH_SECONDS: seconds - AROUND_A_SEARCH }),
    extra: (output) => firstOf(output, /^(\d+) runs agreed/m, "runs")
  }),
  vitest("rules", "test:rules", 400, {
    weight: 3,
    command: (seconds) => varied("test:rules", { SEARCH_SECONDS: seconds - AROUND_A_SEARCH }),
    extra: (output) => {
      const histories = Array.from(output.matchAll(/^(\d+) histories, seed/gm), ([, runs]) => Number(runs))
      return histories.length === 0 ? {} : { histories: histories.reduce((sum, runs) => sum + runs) }
    }
  }),
  vitest("restore", "test:restore", 60),
  vitest("upgrade", "test:upgrade", 120, {
    missing: () =>
      lastVersion() === undefined ? "needs the commits of the last version: git fetch --unshallow" : needsRedis(),
    extra: (output) => firstOf(output, /(\d+) sends, 0 failed, 0 lost/, "sends")
  }),
  vitest("doors", "test:doors", 660, {
    missing: () => missingWebProxies === "" ? undefined : `needs${missingWebProxies}`
  }),
  vitest("disks", "test:disks", 90, {
    missing: () => missingForDisks === "" ? undefined : "needs Linux, root, and the right to mount a tmpfs"
  }),
  vitest("balancer", "test:balancer", 60, {
    missing: needsHaproxy,
    extra: (output) => firstOf(output, /(\d+) sends over three restarts/, "sends")
  }),
  vitest("metrics", "test:metrics", 60, { missing: needsPrometheus }),
  vitest("crowd", "test:crowd", 60, { extra: (output) => firstOf(output, /sends at \d+\/s: ([\d.]+ ms)/, "p99") }),
  vitest("timing", "test:timing", 60),
  vitest("floods", "test:floods", 300),
  vitest("connect", "test:connect", 120, {
    extra: (output) => firstOf(output, /messages, (\d+ replies)/, "1,000 messages")
  }),
  vitest("migration", "test:migration", 60, {
    extra: (output) => firstOf(output, /messages migrated in ([\d.]+ s)/, "100,000 messages")
  }),
  {
    name: "reconnects",
    script: "test:reconnects",
    least: 150,
    command: () => commandOf("test:reconnects"),
    figures: (output) => {
      const result = lineWith(output, "drainedMs") as {
        readonly clients: number
        readonly drainedMs: ReadonlyArray<number>
        readonly lost: number
        readonly twice: number
      } | undefined
      if (result === undefined) return {}
      const { clients, drainedMs, lost, twice } = result
      return { clients, lost, twice, "all drained after": `${((drainedMs.at(-1) ?? NaN) / 1_000).toFixed(1)} s` }
    }
  },
  vitest("package", "test:package", 120),
  { name: "image", script: "test:image", least: 90, missing: needsPackages, command: () => commandOf("test:image") },
  { name: "mcp", script: "test:mcp", least: 240, missing: needsPackages, command: () => commandOf("test:mcp") },
  {
    name: "openapi",
    script: "test:openapi",
    least: 60,
    missing: needsPackages,
    command: () => commandOf("test:openapi")
  },
  {
    name: "hosts",
    script: "test:hosts",
    least: 180,
    missing: needsPackages,
    command: () => commandOf("test:hosts"),
    figures: (output) => (lineWith(output, "hosts") as { readonly hosts: Figures } | undefined)?.hosts ?? {},
    triedNothing: ({ passed }) => passed === 0
  },
  {
    name: "manifests",
    script: "test:manifests",
    least: 45,
    missing: needsPackages,
    command: () => commandOf("test:manifests")
  },
  {
    name: "bench",
    script: "bench",
    least: 90,
    weight: 1,
    most: 540,
    command: (seconds) => varied("bench", {}, seconds < 540 ? ["--short"] : []),
    figures: (output) =>
      Object.fromEntries(
        linesOfJson(output).flatMap((line) => {
          if (line["bench"] !== "messages") return []
          const { runs, subject } = line as unknown as BenchLine
          return runs.map((
            { label, perSecond, toSocket }
          ) => [`${subject}, ${label}`, `${perSecond.toFixed(0)}/s, p99 ${toSocket.p99} ms`])
        })
      )
  },
  {
    name: "faults",
    script: "test:faults",
    least: AROUND_ALL_FAULTS + faults.length * (AROUND_A_FAULT + 5),
    weight: 8,
    missing: needsRedis,
    command: (seconds) =>
      varied("test:faults", {}, [
        "--sends",
        "0",
        "--seconds",
        String(atLeast(5, (seconds - AROUND_ALL_FAULTS) / faults.length - AROUND_A_FAULT))
      ]),
    figures: (output) => {
      const result = lineWith(output, "rows") as
        | { readonly rows: ReadonlyArray<RoundResult>; readonly sends: number }
        | undefined
      if (result === undefined) return {}
      const { rows, sends } = result
      const all = (column: "lost" | "duplicated" | "reordered" | "other") =>
        rows.reduce((sum, row) => sum + row[column], 0)
      return {
        faults: rows.length,
        sends,
        lost: all("lost"),
        duplicated: all("duplicated"),
        "out of order": all("reordered"),
        other: all("other")
      }
    }
  }
]

import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { join, resolve } from "node:path"
import { cpuOf, cpuOfEnded } from "./CpuTime.ts"
import { median } from "./Statistics.ts"

const HELP = `npm run bench:start

Measures the processor time of starts, as ratios, so that the speed of the machine does not matter much. Takes about a
minute. ROUNDS (5) is the number of rounds; each round runs everything once.

  bare PGlite    opens the database of a standalone server with PGlite alone, and closes it
  second start   parley start on that folder, until it listens, and its stop by SIGTERM
  first start    the same in an empty folder
  node -e 0      a process that does nothing

A run before the first round makes the bundle, the prepared database and V8's compile cache, which stay in
node_modules/.cache.
`

const ROOT = resolve(import.meta.dirname, "../..")
const NODE = join(ROOT, "node_modules/.bin/node")
const PROGRAM = join(ROOT, "runners/parley.js")

/** The options of Node in `npm start`. */
const options = /^exec node (--.+) runners\/parley\.js start$/.exec(
  (JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { readonly scripts: { readonly start: string } })
    .scripts.start
)?.[1]?.split(" ") ?? []

/** Opens a database with PGlite, and closes it on SIGTERM. */
const BARE = `
  import { PGlite } from "@electric-sql/pglite"
  const database = await PGlite.create(process.env.DATA_DIR + "/database")
  await database.query("SELECT 1")
  const beat = setInterval(() => {}, 1_000_000)
  process.once("SIGTERM", () => database.close().then(() => clearInterval(beat)))
  console.log("open")
`

interface Run {
  /** Milliseconds of processor time, from the start of the process to its end. */
  readonly whole: number
  /** Milliseconds until the process was ready, and its resident memory in MB then. Undefined if it only ends. */
  readonly ready?: number
  readonly memory?: number
}

/** Runs a process to its end. A process that prints `ready` is stopped then. */
const run = async (args: ReadonlyArray<string>, dataDir = "", ready?: RegExp): Promise<Run> => {
  const before = cpuOfEnded()
  const { PATH, HOME } = process.env
  const child = spawn(NODE, args, {
    cwd: ROOT,
    env: { PATH, HOME, PORT: "0", DATA_DIR: dataDir },
    stdio: ["ignore", "pipe", "inherit"]
  })
  const ended = once(child, "exit")
  let printed = ""
  let found: Pick<Run, "memory" | "ready"> = {}
  for await (const text of child.stdout.setEncoding("utf8")) {
    printed += text
    if (ready === undefined || found.ready !== undefined || !ready.test(printed)) continue
    const pages = Number(readFileSync(`/proc/${child.pid}/statm`, "utf8").split(" ")[1])
    found = { ready: cpuOf(child.pid!) / 1_000, memory: Math.round((pages * 4_096) / 1e6) }
    child.kill("SIGTERM")
  }
  const [code] = await ended
  if (code !== 0) throw new Error(`${args.join(" ")} ended with ${code}: ${printed}`)
  return { whole: (cpuOfEnded() - before) / 1_000, ...found }
}

/** The mean of several runs of a short process, because /proc counts in steps of 10 ms. */
const several = async (args: ReadonlyArray<string>): Promise<Run> => {
  const RUNS = 5
  let whole = 0
  for (let i = 0; i < RUNS; i++) whole += (await run(args)).whole
  return { whole: whole / RUNS }
}

const measure = async (): Promise<void> => {
  const cache = join(ROOT, "node_modules/.cache")
  mkdirSync(cache, { recursive: true })
  const folder = mkdtempSync(join(cache, "parley-start-"))
  const dataDir = join(folder, "data")
  const start = () => run([...options, PROGRAM, "start"], dataDir, /listens on/)
  const kinds: Readonly<Record<string, () => Promise<Run>>> = {
    "first start": () => {
      rmSync(dataDir, { recursive: true, force: true })
      return start()
    },
    "second start": start,
    "bare PGlite": () => run(["--input-type=module", "-e", BARE], dataDir, /open/),
    "--help": () => several([PROGRAM, "--help"]),
    "admin --help": () => several([PROGRAM, "admin", "--help"]),
    "node -e 0": () => several(["-e", "0"])
  }
  const runs = new Map<string, Array<Run>>(Object.keys(kinds).map((name) => [name, []]))
  try {
    await start()
    for (let round = 0; round < Number(process.env["ROUNDS"] ?? 5); round++) {
      for (const [name, once] of Object.entries(kinds)) runs.get(name)!.push(await once())
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
  const of = (name: string, field: keyof Run): ReadonlyArray<number> =>
    runs.get(name)!.flatMap((run) => run[field] ?? [])
  console.log(`${"".padEnd(14)}${["whole ms", "ready ms", "memory MB"].map((title) => title.padStart(11)).join("")}`)
  for (const name of runs.keys()) {
    const figures = (["whole", "ready", "memory"] as const).map((field) => of(name, field))
    console.log(
      name.padEnd(14) + figures.map((all) => (all.length === 0 ? "–" : median(all).toFixed(0)).padStart(11)).join("")
    )
  }
  console.log()
  const ratio = (over: string, under: string, field: keyof Run, goal: string) => {
    const ratios = of(over, field).map((value, i) => value / of(under, field)[i]!)
    console.log(
      `${over} / ${under}, ${field}: ${median(ratios).toFixed(2)} `
        + `(${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)})${goal}`
    )
  }
  ratio("second start", "bare PGlite", "whole", ", goal 1.6")
  ratio("second start", "bare PGlite", "ready", "")
  ratio("first start", "second start", "whole", ", goal 1.3")
  ratio("first start", "second start", "ready", "")
  ratio("--help", "node -e 0", "whole", ", goal 8")
  ratio("admin --help", "node -e 0", "whole", ", goal 8")
}

if (process.argv.includes("--help")) console.log(HELP)
else await measure()

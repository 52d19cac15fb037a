import { join, relative, resolve } from "node:path"
import { parseArgs } from "node:util"
import { exitCode, lasting, table, verify } from "./Driver.ts"
import { programmes } from "./Programmes.ts"

const HELP = `npm run verify -- [options]

Runs everything that verifies Parley and that this machine can run, one programme after
the other, within the given time, and goes on after a failure. Ends with a table and with
a line of JSON. Exits with 1 if a programme failed, with 2 if none passed.

  --hours N       for all of it, default 1; a part of an hour will do
  --only NAME     this programme alone; several times for several
  --logs FOLDER   where the whole output of each goes, default verification/runs/(now)
  --list          the programmes, how long each takes at least, and what is missing
  --help

Ctrl-C stops the present programme and prints the table of what was done so far; a second
one ends at once.
`

const { values: flags } = parseArgs({
  options: {
    hours: { type: "string", default: "1" },
    only: { type: "string", multiple: true },
    logs: { type: "string" },
    list: { type: "boolean", default: false },
    help: { type: "boolean", default: false }
  }
})

const end = (text: string, code: number): never => {
  console.log(text)
  process.exit(code)
}

if (flags.help) end(HELP, 0)
const hours = Number(flags.hours)
if (!(hours > 0)) end(`--hours takes a number above 0\n\n${HELP}`, 2)
const unknown = (flags.only ?? []).filter((name) => !programmes.some((programme) => programme.name === name))
if (unknown.length > 0) end(`there is no programme ${unknown.join(", ")}: --list shows all`, 2)
const chosen = programmes.filter(({ name }) => flags.only?.includes(name) ?? true)
if (flags.list) {
  const lines = chosen.map(({ least, missing, name }) =>
    `${name.padEnd(12)} ${lasting(least).padStart(12)}  ${missing?.() ?? ""}`.trimEnd()
  )
  end(
    [...lines, `${"all".padEnd(12)} ${lasting(chosen.reduce((sum, { least }) => sum + least, 0)).padStart(12)}`].join(
      "\n"
    ),
    0
  )
}

const began = new Date()
const folder = resolve(
  flags.logs ?? join(import.meta.dirname, "runs", began.toISOString().slice(0, 19).replaceAll(":", "-"))
)
const stop = new AbortController()
let stoppedAt = 0
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // npm forwards a Ctrl-C that has already reached this process. So a second signal within a second is ignored.
    if (stoppedAt > 0 && Date.now() - stoppedAt > 1_000) process.exit(130)
    if (stoppedAt === 0) {
      stoppedAt = Date.now()
      console.log("stopping; once more ends it at once")
    }
    stop.abort()
  })
}

console.log(
  `${lasting(hours * 3_600)} for ${chosen.length} programmes; their output: ${relative(process.cwd(), folder) || "."}`
)
const rows = await verify({
  programmes: chosen,
  seconds: hours * 3_600,
  folder,
  signal: stop.signal,
  say: (line) => console.log(`${new Date().toISOString().slice(11, 19)}  ${line}`)
})
const code = exitCode(rows, stop.signal.aborted)
const seconds = Math.round((Date.now() - began.getTime()) / 1_000)
const count = (verdict: string) => rows.filter((row) => row.verdict === verdict).length
const counts = { passed: count("passed"), failed: count("failed"), skipped: count("skipped"), notRun: count("not run") }
console.log(`\n${table(rows)}\n`)
console.log(
  `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped, ${counts.notRun} not run, in ${
    lasting(seconds)
  }; ` +
    `their output: ${relative(process.cwd(), folder) || "."}`
)
console.log(
  JSON.stringify({
    verify: { began: began.toISOString(), hours, seconds, ...counts, interrupted: stop.signal.aborted, folder, rows }
  })
)
process.exit(code)

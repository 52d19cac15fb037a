import { availableParallelism } from "node:os"
import { parseArgs } from "node:util"
import { missingRedis } from "../../runners/local/Redis.ts"
import { randomOf } from "../../test/support/Random.ts"
import { Disk } from "./Disk.ts"
import type { Fault } from "./Fault.ts"
import { faults } from "./Faults.ts"
import { shown } from "./Latency.ts"
import { Network } from "./Network.ts"
import { AGENTS, playRound, type RoundResult } from "./Round.ts"
import { Site } from "./Site.ts"

const HELP = `npm run test:faults -- [options]

Three nodes with PostgreSQL, Redis, S3 and a mail server under a load of sends, groups,
reads, blocks and membership changes; one fault after another. Once one is healed, all
that was asked, answered and shown is held against all that is stored.

  --seconds N            how long each fault lasts at least, default 30
  --sends N              sends accepted in the whole run, default 1000000
  --rate N               sends per second to aim at, default 800
  --only NAME            this fault alone; several times for several
  --without-namespaces   the suite's own proxies between nodes, although each could have
                         a network namespace (which takes Linux and root)
  --seed N               the same random choices again
  --logs FOLDER          keeps what the nodes log, in detail
  --list                 the faults and what they do
  --help
`

const { values: flags } = parseArgs({
  options: {
    seconds: { type: "string", default: process.env["FAULT_SECONDS"] ?? "30" },
    sends: { type: "string", default: "1000000" },
    rate: { type: "string", default: "800" },
    only: { type: "string", multiple: true },
    "without-namespaces": { type: "boolean", default: false },
    seed: { type: "string", default: process.env["SEED"] ?? String(Math.floor(Math.random() * 2 ** 31)) },
    logs: { type: "string" },
    list: { type: "boolean", default: false },
    help: { type: "boolean", default: false }
  }
})

const end = (text: string, code: number): never => {
  console.log(text)
  process.exit(code)
}

const wholeNumber = (name: string, text: string): number => {
  const value = Number(text)
  return Number.isInteger(value) && value >= 0 ? value : end(`--${name} takes a whole number\n\n${HELP}`, 2)
}

if (flags.help) end(HELP, 0)
if (flags.list) end(faults.map(({ about, name }) => `${name.padEnd(18)} ${about}`).join("\n"), 0)
const unknown = (flags.only ?? []).filter((name) => !faults.some((fault) => fault.name === name))
if (unknown.length > 0) end(`there is no fault ${unknown.join(", ")}: --list shows all`, 2)
if (missingRedis !== "") end(`the nodes need a Redis${missingRedis}`, 2)

const options = {
  seconds: wholeNumber("seconds", flags.seconds),
  sends: wholeNumber("sends", flags.sends),
  rate: wholeNumber("rate", flags.rate),
  seed: wholeNumber("seed", flags.seed),
  faults: flags.only === undefined ? faults : faults.filter(({ name }) => flags.only?.includes(name))
}

const COLUMNS: ReadonlyArray<readonly [string, (row: RoundResult) => string]> = [
  ["fault", ({ fault }) => fault],
  ["accepted", ({ accepted }) => String(accepted)],
  ["/s", ({ accepted, seconds }) => (accepted / seconds).toFixed(0)],
  ["lost", ({ lost }) => String(lost)],
  ["duplicated", ({ duplicated }) => String(duplicated)],
  ["out of order", ({ reordered }) => String(reordered)],
  ["other", ({ other }) => String(other)],
  ["failed", ({ failed }) => String(failed)],
  ["ms before", ({ before }) => shown(before)],
  ["ms during", ({ during }) => shown(during)],
  ["taken again after s", ({ outageSeconds }) => outageSeconds.toFixed(2)],
  ["conversations", ({ affected }) => String(affected)],
  ["ready after s", ({ readySeconds }) => readySeconds.toFixed(1)],
  ["", ({ problems }) => (problems.length === 0 ? "" : `${problems.length} problems`)]
]

const table = (rows: ReadonlyArray<RoundResult>): string => {
  const cells = [COLUMNS.map(([name]) => name), ...rows.map((row) => COLUMNS.map(([, cell]) => cell(row)))]
  const widths = COLUMNS.map((_, at) => Math.max(...cells.map((row) => row[at]?.length ?? 0)))
  return cells
    .map((row) =>
      row.map((cell, at) => (at === 0 ? cell.padEnd(widths[at] ?? 0) : cell.padStart(widths[at] ?? 0))).join("  ")
        .trimEnd()
    )
    .join("\n")
}

const began = performance.now()
const say = (text: string) => console.log(`${((performance.now() - began) / 1_000).toFixed(1).padStart(7)} s  ${text}`)

console.log(`seed ${options.seed}`)
const disk = options.faults.some(({ needsDisk }) => needsDisk === true) ? Disk.open() : undefined
const hasNetwork = !flags["without-namespaces"] && Network.isAllowed()
const missing = ({ needsDisk, needsNetwork }: Fault): string | undefined =>
  needsDisk === true && disk === undefined
    ? "a disk that can be full takes Linux, root and a loop device (mkfs.ext4, mount)"
    : needsNetwork === true && !hasNetwork
    ? "a network of one's own takes Linux and root"
    : undefined
const played = options.faults.filter((fault) => missing(fault) === undefined)
const skipped = options.faults.flatMap((fault) =>
  missing(fault) === undefined ? [] : [`${fault.name} is left out: ${missing(fault)}`]
)
for (const line of skipped) console.log(line)
if (played.length === 0) process.exit(2)
const site = await Site.start({
  nodes: 3,
  withoutNamespaces: flags["without-namespaces"],
  ...(disk === undefined ? {} : { disk }),
  ...(flags.logs === undefined ? {} : { env: { LOG_LEVEL: "debug" } })
})
let stopping = false
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    stopping = true
    void site.stop().then(() => process.exit(130))
  })
}
say(
  `three nodes ${
    site.network === undefined ? "behind the suite's own proxies" : "in network namespaces of their own"
  }, ` +
    `${availableParallelism()} processors`
)

const random = randomOf(options.seed)
const rows: Array<RoundResult> = []
const problems: Array<string> = []
try {
  const agents = await site.agents(AGENTS * played.length)
  for (const [turn, fault] of played.entries()) {
    say(`${fault.name}: ${fault.about}`)
    const accepted = rows.reduce((sum, row) => sum + row.accepted, 0)
    const row = await playRound({
      site,
      fault,
      agents: agents.slice(turn * AGENTS, (turn + 1) * AGENTS),
      seed: options.seed + turn,
      random,
      seconds: options.seconds,
      rate: options.rate,
      sends: Math.ceil((options.sends - accepted) / (played.length - turn)),
      say
    })
    rows.push(row)
    say(
      `  ${row.accepted} accepted, ${
        (row.accepted / row.seconds).toFixed(0)
      } per second; ${row.problems.length} problems`
    )
  }
  await Promise.all(site.nodes.map(async (node) => {
    const code = await node.stop()
    if (code !== 0) problems.push(`in the end ${node.name} ended with ${code} after SIGTERM`)
  }))
  const logs = site.logs()
  if (/ac_[\w-]{43}/.test(logs)) problems.push("a key is in a log")
  if (logs.includes("The quick brown fox")) problems.push("the body of a message is in a log")
} catch (error) {
  if (!stopping) problems.push(error instanceof Error ? error.stack ?? error.message : String(error))
}
if (flags.logs !== undefined) await site.keepLogs(flags.logs)
await site.stop()

const sends = rows.reduce((sum, row) => sum + row.accepted, 0)
const seconds = rows.reduce((sum, row) => sum + row.seconds, 0)
console.log(`\n${table(rows)}\n`)
console.log(
  `${sends} sends accepted, ${(sends / seconds).toFixed(0)} per second, in ${
    ((performance.now() - began) / 1_000).toFixed(0)
  } s`
)
console.log(JSON.stringify({ seed: options.seed, sends, perSecond: Math.round(sends / seconds), rows }))
for (const row of rows) for (const problem of row.problems) console.log(`${row.fault}: ${problem}`)
for (const problem of problems) console.log(problem)
for (const line of skipped) console.log(line)
const failed = problems.length > 0 || rows.some((row) => row.problems.length > 0)
console.log(
  failed
    ? `\nFAILED with --seed ${options.seed}`
    : "\nNothing lost, nothing twice, nothing out of order, and every other rule held."
)
process.exit(failed ? 1 : 0)

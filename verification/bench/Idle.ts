import { setTimeout as sleep } from "node:timers/promises"
import { parseArgs } from "node:util"
import { type Checkout, checkOut, here } from "./Checkout.ts"
import { cleanUp } from "./CleanUps.ts"
import { cpuOf, cpuOfTree } from "./CpuTime.ts"
import { type Rig, startRig } from "./Rig.ts"
import { median } from "./Statistics.ts"

const HELP = `npm run bench:idle -- [options]

Measures what nodes use that serve nobody: milliseconds of processor time in each
second, of all nodes, of their PostgreSQL and of their Redis. With --against, the
nodes of the other commit run at the same time, so that the ratios are of the same
seconds. It needs redis-server.

  --nodes N          how many nodes of each commit, default 2
  --against COMMIT   the same at another commit too
  --seconds N        a window, default 40
  --repeat N         so many windows, default 3
  --help
`

/** How long nodes run before the first window. Their first statements, checks and collections are no idle time. */
const SETTLE_MS = 20_000

/** Milliseconds of processor time that was used. */
interface Used {
  readonly nodes: number
  readonly PostgreSQL: number
  readonly Redis: number
}

const used = ({ pids }: Rig): Used => ({
  nodes: pids.servers.reduce((sum, pid) => sum + cpuOf(pid), 0) / 1_000,
  PostgreSQL: pids.database === undefined ? NaN : cpuOfTree(pids.database) / 1_000,
  Redis: pids.redis === undefined ? NaN : cpuOf(pids.redis) / 1_000
})

const nameOf = ({ commit }: Checkout): string => commit ?? "here"

const shown = (values: ReadonlyArray<number>, digits: number): string =>
  `${median(values).toFixed(digits)} (${Math.min(...values).toFixed(digits)} to ${Math.max(...values).toFixed(digits)})`

const { against, help, nodes, repeat, seconds } = parseArgs({
  options: {
    against: { type: "string" },
    help: { type: "boolean", default: false },
    nodes: { type: "string", default: "2" },
    repeat: { type: "string", default: "3" },
    seconds: { type: "string", default: "40" }
  }
}).values

const measure = async (): Promise<void> => {
  const checkouts = against === undefined ? [here] : [here, await checkOut(against)]
  const rigs: Array<Rig> = []
  for (const checkout of checkouts) {
    const subject = { database: "postgres", nodes: Number(nodes), balancer: undefined, stored: 0, checkout } as const
    rigs.push(await startRig(subject, {}, (text) => console.error(`${nameOf(checkout)}: ${text}`)))
  }
  await sleep(SETTLE_MS)
  const windows: Array<ReadonlyArray<Used>> = []
  for (let round = 0; round < Number(repeat); round++) {
    const began = performance.now()
    const before = rigs.map(used)
    await sleep(Number(seconds) * 1_000)
    const lasted = (performance.now() - began) / 1_000
    windows.push(rigs.map((rig, i) => {
      const { PostgreSQL, Redis, nodes } = used(rig)
      const from = before[i]!
      return {
        nodes: (nodes - from.nodes) / lasted,
        PostgreSQL: (PostgreSQL - from.PostgreSQL) / lasted,
        Redis: (Redis - from.Redis) / lasted
      }
    }))
    console.error(`window ${round + 1} of ${repeat}: ${JSON.stringify(windows.at(-1))}`)
  }
  console.log(`${nodes} idle nodes, ms of processor time in a second: median (least to most) of ${repeat} windows`)
  for (const part of ["nodes", "PostgreSQL", "Redis"] as const) {
    const of = (rig: number) => windows.map((window) => window[rig]![part])
    console.log(part.padEnd(12) + checkouts.map((one, i) => `${nameOf(one)} ${shown(of(i), 1)}`.padEnd(32)).join(""))
    if (checkouts.length > 1)
      console.log("  ratio".padEnd(12) + shown(of(0).map((value, window) => value / of(1)[window]!), 2))
  }
}

if (help) {
  console.log(HELP)
} else {
  try {
    await measure()
  } catch (error) {
    console.error(error)
    process.exitCode = 1
  } finally {
    await cleanUp()
  }
}

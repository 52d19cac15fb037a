import { Config } from "#infrastructure/platform/Config"
import { Effect } from "effect"
import { join, relative, resolve } from "node:path"
import { lineOf, tableOf } from "./local/ClusterTable.ts"
import { CannotStart, LocalCluster } from "./local/LocalCluster.ts"

/**
 * Runs three nodes on this machine behind a small load balancer, with their own PostgreSQL and Redis. Prints a table
 * with the state of the nodes every second until Ctrl-C.
 */

const NODES = 3
const BEAT_MS = 1_000

const env = Effect.runSync(Config.environment)
const port = Number(env["PORT"] ?? 3000)
const folder = resolve(env["DATA_DIR"] ?? "./data", "cluster")
const live = process.stdout.isTTY === true
const say = (text: string) => void process.stdout.write(`${text}\n`)

let running: LocalCluster | undefined
let stopping: number | undefined
const stops = (): boolean => stopping !== undefined
let painted = 0

/** Prints lines in place of the lines that were printed before. */
const paint = (lines: ReadonlyArray<string>) => {
  if (painted > 0) process.stdout.write(`\u001b[${painted}A\u001b[J`)
  say(lines.join("\n"))
  painted = lines.length
}

const stop = () => {
  // Under npm, one Ctrl-C causes two signals at once: one from the terminal and one from npm.
  if (stopping !== undefined && performance.now() - stopping < 500) return
  // The guard (LocalCluster.ts) kills the remaining processes.
  if (stopping !== undefined || running === undefined) process.exit(130)
  stopping = performance.now()
  say("The nodes hand over their shards and stop. A second Ctrl-C ends everything at once.")
  running.stop().then(() => process.exit(0), (error: unknown) => {
    console.error(error)
    process.exit(1)
  })
}

const another = () => {
  if (!stops()) void running?.add()
}

const main = async () => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, stop)
  const started = await LocalCluster.start({
    nodes: NODES,
    port,
    folder,
    env,
    tell: (line) => say(`${line} …`)
  })
  running = started
  process.on("SIGUSR2", another)
  const show = (path: string) => relative(process.cwd(), path)
  const rows = [
    ["clients", started.balancer.url, "a balancer in this process, before all nodes"],
    ...started.servers.map((
      { pid, url, what }
    ) => [what, url, pid === undefined ? "not of this cluster" : `pid ${pid}`]),
    ["mail", show(join(folder, "outbox")), "the codes"],
    ["logs", show(join(folder, "node-*.log")), ""],
    ["", "", ""],
    ["kill -9 PID", "a node dies: watch its shards move", ""],
    ["kill -STOP PID", "it hangs; kill -CONT PID wakes it up", ""],
    ["kill PID", "it hands over its shards and leaves", ""],
    [`kill -USR2 ${process.pid}`, live ? "another node starts, as with Enter here" : "another node starts", ""],
    ["Ctrl-C", "stops everything and keeps no data", ""]
  ]
  say(
    `\n${
      rows.map(([what = "", where = "", about = ""]) => `  ${what.padEnd(18)}${where.padEnd(46)}  ${about}`.trimEnd())
        .join("\n")
    }\n`
  )
  if (process.stdin.isTTY) {
    process.stdin.on("data", () => {
      painted += painted > 0 ? 1 : 0
      another()
    })
  }
  while (!stops()) {
    const views = await started.look()
    if (stops()) break
    if (live) paint(tableOf(views))
    else say(lineOf(views))
    await new Promise((resolve) => setTimeout(resolve, BEAT_MS))
  }
}

/** `parley cluster`: runs the cluster until a signal ends it. */
export const cluster = (): void => {
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    console.error(`parley: PORT: expected a whole number from 0 to 65535, got ${JSON.stringify(env["PORT"])}`)
    process.exit(1)
  }
  main().catch((error: unknown) => {
    console.error(error instanceof CannotStart ? `parley: ${error.message}` : error)
    process.exit(1)
  })
}

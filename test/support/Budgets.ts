import { availableParallelism, loadavg } from "node:os"
import * as path from "node:path"
import type { Reporter, TestModule } from "vitest/node"

/** How many seconds the default suite may take on two cores, and its parts' budgets: seconds of one worker. */
const WHOLE_SECONDS = 240
const WORKERS = 4
const BUDGETS: Readonly<Record<string, number>> = {
  a2a: 8,
  accounts: 3,
  agents: 4,
  archives: 14,
  attachments: 3,
  auth: 1,
  avatars: 8,
  cluster: 153,
  console: 10,
  contacts: 10,
  contract: 183,
  conversations: 20,
  database: 40,
  deliveries: 7,
  directory: 4,
  documents: 12,
  enforcement: 8,
  faults: 4,
  files: 2,
  groups: 14,
  http: 2,
  idempotency: 3,
  mcp: 20,
  messages: 1,
  mutes: 4,
  operator: 17,
  pages: 12,
  platform: 20,
  presence: 2,
  push: 3,
  rates: 18,
  realtime: 1,
  registration: 6,
  replies: 2,
  service: 48,
  simulation: 24,
  support: 8,
  verification: 7,
  webhooks: 13,
  wire: 1
}

const root = path.resolve(import.meta.dirname, "..")

/**
 * Prints after a whole run how much of its budget each part took. A run that takes too long is reported
 * together with the machine's load. It fails only with `BUDGETS=strict`, because a machine with other
 * users may be slow for reasons that are not in the tests.
 */
export default class Budgets implements Reporter {
  #began = 0

  onTestRunStart(): void {
    const shared = Object.values(BUDGETS).reduce((sum, seconds) => sum + seconds, 0) / WORKERS
    if (shared > WHOLE_SECONDS) throw new Error(`the parts' budgets make ${shared.toFixed(0)} s of ${WHOLE_SECONDS}`)
    this.#began = performance.now()
  }

  onTestRunEnd(modules: ReadonlyArray<TestModule>): void {
    if (modules.length < 20) return
    const parts = new Map<string, number>()
    for (const module of modules) {
      const part = path.relative(root, module.moduleId).split(path.sep)[0] ?? ""
      const { collectDuration, duration, environmentSetupDuration, prepareDuration, setupDuration } = module.diagnostic()
      const all = collectDuration + duration + environmentSetupDuration + prepareDuration + setupDuration
      parts.set(part, (parts.get(part) ?? 0) + all / 1_000)
    }
    const wall = (performance.now() - this.#began) / 1_000
    const line = (part: string, seconds: number, budget: number | undefined): string =>
      `  ${part.padEnd(16)}${seconds.toFixed(1).padStart(7)} s${
        budget === undefined ? "     no budget" : `  of ${String(budget).padStart(4)}${seconds > budget ? "  over" : ""}`
      }`
    const lines = [...parts].sort(([, a], [, b]) => b - a).map(([part, seconds]) => line(part, seconds, BUDGETS[part]))
    console.log(`\nTime by part, on ${WORKERS} workers:\n${lines.join("\n")}\n${line("from start to end", wall, WHOLE_SECONDS)}\n`)
    if (wall <= WHOLE_SECONDS) return
    const load = `${loadavg()[1]?.toFixed(1)} processes wanted the ${availableParallelism()} cores over the last 5 minutes`
    console.error(`TOO SLOW: the suite took ${wall.toFixed(0)} s, and may take ${WHOLE_SECONDS} s on two cores of its own; ${load}.\n`)
    if (process.env["BUDGETS"] === "strict") process.exitCode = 1
  }
}

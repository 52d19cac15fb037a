import { availableParallelism, loadavg } from "node:os"
import * as path from "node:path"
import type { Reporter, TestModule, Vitest } from "vitest/node"

/** How many seconds the default suite may take on two cores, and its parts' budgets: seconds of one worker. */
const WHOLE_SECONDS = 240
const WORKERS = 4
const BUDGETS: Readonly<Record<string, number>> = {
  a2a: 9,
  accounts: 9,
  agents: 5,
  archives: 24,
  attachments: 1,
  auth: 1,
  avatars: 7,
  cluster: 205,
  console: 20,
  contacts: 8,
  contract: 280,
  conversations: 27,
  database: 50,
  deliveries: 4,
  directory: 3,
  documents: 8,
  enforcement: 13,
  faults: 4,
  files: 2,
  groups: 12,
  http: 3,
  idempotency: 3,
  mcp: 36,
  messages: 1,
  mutes: 2,
  operator: 12,
  pages: 12,
  platform: 15,
  presence: 1,
  push: 3,
  rates: 21,
  realtime: 4,
  registration: 16,
  replies: 2,
  service: 60,
  simulation: 37,
  support: 10,
  verification: 8,
  webhooks: 10,
  wire: 1
}

const root = path.resolve(import.meta.dirname, "..")

/**
 * Prints after a run of the whole suite how much of its budget each part took, and nothing after a run of some files or
 * of the tests with some names. A run that takes too long is reported
 * together with the machine's load. It fails only with `BUDGETS=strict`, because a machine with other
 * users may be slow for reasons that are not in the tests.
 */
export default class Budgets implements Reporter {
  #began = 0
  #vitest: Pick<Vitest, "getGlobalTestNamePattern" | "globTestSpecifications"> | undefined

  onInit(vitest: Pick<Vitest, "getGlobalTestNamePattern" | "globTestSpecifications">): void {
    this.#vitest = vitest
  }

  onTestRunStart(): void {
    const shared = Object.values(BUDGETS).reduce((sum, seconds) => sum + seconds, 0) / WORKERS
    if (shared > WHOLE_SECONDS) throw new Error(`the parts' budgets make ${shared.toFixed(0)} s of ${WHOLE_SECONDS}`)
    this.#began = performance.now()
  }

  async onTestRunEnd(modules: ReadonlyArray<TestModule>): Promise<void> {
    if (this.#vitest === undefined || this.#vitest.getGlobalTestNamePattern() !== undefined) return
    if (modules.length < (await this.#vitest.globTestSpecifications()).length) return
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

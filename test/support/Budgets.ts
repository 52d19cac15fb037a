import * as path from "node:path"
import type { Reporter, TestModule } from "vitest/node"

/** What the default suite may take on two cores, and how it is shared out: seconds of one worker, by part. */
const WHOLE_SECONDS = 240
const WORKERS = 3
const BUDGETS: Readonly<Record<string, number>> = {
  agents: 25,
  attachments: 15,
  auth: 5,
  cluster: 45,
  contacts: 15,
  contract: 230,
  conversations: 30,
  deliveries: 15,
  directory: 10,
  enforcement: 12,
  groups: 35,
  mutes: 10,
  operator: 30,
  platform: 70,
  presence: 10,
  realtime: 5,
  registration: 20,
  service: 40,
  simulation: 110,
  support: 5,
  webhooks: 30
}

const root = path.resolve(import.meta.dirname, "..")

/**
 * Says after a whole run what each part took of its budget. It fails nothing: a
 * machine that others use too is slow for reasons of its own.
 */
export default class Budgets implements Reporter {
  #began = 0

  onTestRunStart(): void {
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
  }
}

import { relative } from "node:path"
import type { TestModule, Vitest } from "vitest/node"
import { cpuOfTree } from "../../verification/bench/CpuTime.ts"

const seconds = (micros: number): string => (micros / 1_000_000).toFixed(1).padStart(7)

/** Prints the processor time of each test file in seconds, the most expensive first, and of what they share. */
export default class CostsReporter {
  onInit(_vitest: Vitest): void {}

  onTestRunEnd(modules: ReadonlyArray<TestModule>): void {
    const rows = modules.map((module) => ({
      name: relative(process.cwd(), module.moduleId),
      ...(module.meta().costs ?? { load: 0, run: 0 })
    })).sort((a, b) => b.load + b.run - a.load - a.run)
    const files = rows.reduce((sum, { load, run }) => sum + load + run, 0)
    const all = cpuOfTree(process.pid)
    console.log("  whole    load     run  seconds of processor time")
    for (const { load, name, run } of rows)
      console.log(`${seconds(load + run)} ${seconds(load)} ${seconds(run)}  ${name}`)
    console.log(`${seconds(files)}                  all files`)
    console.log(
      `${seconds(all - files)}                  shared: Vitest, the PostgreSQL servers of all files, the bundle`
    )
    console.log(`${seconds(all)}                  the whole run`)
  }
}

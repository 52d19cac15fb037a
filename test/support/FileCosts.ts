/** Loaded before each test file by `npm run test:costs`: measures the processor time that the file uses. */
import { aroundAll } from "vitest"
import { cpuOfTree } from "../../verification/bench/CpuTime.ts"

declare module "vitest" {
  interface TaskMeta {
    /** Microseconds of processor time of the worker and its descendants: to load the file, and to run its tests. */
    costs?: { readonly load: number; readonly run: number }
  }
}

const worker = globalThis as { measuredUntil?: number }

// Vitest parses the text of this function, in which the empty pattern requests no fixtures.
// oxlint-disable-next-line no-empty-pattern
aroundAll(async (runFile, {}, file) => {
  const begun = cpuOfTree(process.pid)
  await runFile()
  const ended = cpuOfTree(process.pid)
  file.meta.costs = { load: begun - (worker.measuredUntil ?? 0), run: ended - begun }
  worker.measuredUntil = ended
})

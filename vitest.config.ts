import { accessSync, constants, statfsSync } from "node:fs"
import { availableParallelism } from "node:os"
import { defineConfig } from "vitest/config"

/** Databases and folders of tests lie in memory where there is enough of it, unless TMPDIR says otherwise. */
const inMemory = (folder: string): boolean => {
  try {
    accessSync(folder, constants.W_OK)
    const { bavail, bsize } = statfsSync(folder)
    return bavail * bsize > 6 * 2 ** 30
  } catch {
    return false
  }
}
if (process.env["TMPDIR"] === undefined && inMemory("/dev/shm")) process.env["TMPDIR"] = "/dev/shm"

const costs = process.env["COSTS"] !== undefined

export default defineConfig({
  test: {
    // Tests in verification/ take long: each is asked for by name, through a script of its own.
    include: process.env["LONG"] === undefined ? ["test/**/*.test.ts"] : ["{test,verification}/**/*.test.ts"],
    globalSetup: ["test/support/GlobalSetup.ts"],
    setupFiles: ["test/support/PrintLogs.ts", ...(costs ? ["test/support/FileCosts.ts"] : [])],
    ...(costs ? { reporters: ["default", "./test/support/CostsReporter.ts"] } : {}),
    pool: "forks",
    // A large young generation: a tenth less processor time.
    execArgv: ["--min-semi-space-size=32"],
    // A worker keeps its modules from file to file: loading them costs a second each time.
    isolate: false,
    // Two for each core, because many tests wait for real timers and servers. `availableParallelism` respects taskset.
    maxWorkers: Math.max(2, Math.min(4, 2 * availableParallelism())),
    // For what hangs: how long a test takes is nobody's failure on a machine that is busy.
    testTimeout: 600_000,
    hookTimeout: 600_000
  }
})

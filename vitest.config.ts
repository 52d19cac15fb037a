import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    // What takes long is asked for by name, through a script of its own.
    include: process.env["LONG"] === undefined ? ["test/**/*.test.ts"] : ["test/long/**/*.test.ts"],
    exclude: process.env["LONG"] === undefined ? ["test/long/**", "test/bench/**"] : [],
    globalSetup: ["test/support/GlobalSetup.ts"],
    reporters: ["default", "./test/support/Budgets.ts"],
    pool: "forks",
    // A worker keeps its modules from file to file: loading them costs a second each time.
    isolate: false,
    // More than two cores: many tests wait for real timers and servers.
    maxWorkers: 3,
    testTimeout: 20_000,
    hookTimeout: 60_000
  }
})

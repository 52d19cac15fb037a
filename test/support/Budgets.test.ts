import { assert, it, vi } from "@effect/vitest"
import { join } from "node:path"
import type { TestModule, TestSpecification } from "vitest/node"
import Budgets from "./Budgets.ts"

const FILES = 300

/** The output of the reporter after a run of this many files. */
const printed = async (files: number, names?: RegExp): Promise<string> => {
  const root = join(import.meta.dirname, "..")
  const time = { collectDuration: 1, duration: 1, environmentSetupDuration: 0, prepareDuration: 0, setupDuration: 0 }
  const modules = Array.from({ length: files }, (_, i) =>
    // A module with only the members that the reporter uses.
    ({ moduleId: join(root, i % 2 === 0 ? "groups" : "contract", `${i}.test.ts`), diagnostic: () => time }) as unknown as TestModule)
  const reporter = new Budgets()
  reporter.onInit({
    getGlobalTestNamePattern: () => names,
    globTestSpecifications: async () => Array.from({ length: FILES }, () => ({}) as TestSpecification)
  })
  reporter.onTestRunStart()
  const log = vi.spyOn(console, "log").mockImplementation(() => {})
  try {
    await reporter.onTestRunEnd(modules)
    return log.mock.calls.flat().join("\n")
  } finally {
    log.mockRestore()
  }
}

it("a run of the whole suite prints what each part took, and its budget", async () => {
  const text = await printed(FILES)
  for (const part of ["groups", "contract", "from start to end"]) assert.match(text, new RegExp(`^  ${part} +\\d+\\.\\d s  of +\\d+`, "m"))
})

it("a run of some files, or of the tests with some names, prints no budgets", async () => {
  for (const files of [1, 25, FILES - 1]) assert.strictEqual(await printed(files), "")
  assert.strictEqual(await printed(FILES, /a name/), "")
})

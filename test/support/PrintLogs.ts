/** Loaded before each test file: when a test fails, the output of its servers is printed. */
import { afterEach, aroundAll, type RunnerTask } from "vitest"
import { elapse } from "./Eventually.ts"
import { forgetEnded, takeLogs } from "./ServerLogs.ts"

const print = async (): Promise<void> => {
  // What was written before the failure may still be on its way.
  await elapse("the way of the output", 100)
  const said = takeLogs()
  if (said !== "") console.error(said)
}

/** Whether a hook failed, here or in a nested suite. Failed tests have printed their own logs. */
const hookFailed = (task: RunnerTask): boolean =>
  task.type === "suite" && ((task.result?.errors?.length ?? 0) > 0 || task.tasks.some(hookFailed))

afterEach(async ({ task }) => {
  if (task.result?.state === "fail") await print()
  forgetEnded()
})

// Vitest parses the text of this function, in which the empty pattern requests no fixtures.
// oxlint-disable-next-line no-empty-pattern
aroundAll(async (runFile, {}, file) => {
  await runFile()
  if (hookFailed(file)) await print()
  forgetEnded()
})

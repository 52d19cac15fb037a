import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["test/support/failing/Failing.ts"],
    setupFiles: ["test/support/PrintLogs.ts"],
    reporters: ["default"]
  }
})

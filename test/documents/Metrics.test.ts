import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { metricsPage } from "../../docs/metrics.ts"

it("docs/metrics.md has every metric of the catalogue, with its unit and what to do", () => {
  const page = readFileSync(new URL("../../docs/metrics.md", import.meta.url), "utf8")
  assert.strictEqual(page, metricsPage(), "docs/metrics.md is out of date: npm run docs")
})

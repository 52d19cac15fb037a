import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { operationsPage } from "../../docs/metrics.ts"

it("docs/operations.md has every metric of the catalogue, with its unit and what to do", () => {
  const page = readFileSync(new URL("../../docs/operations.md", import.meta.url), "utf8")
  assert.strictEqual(page, operationsPage(page), "docs/operations.md is out of date: npm run docs")
})

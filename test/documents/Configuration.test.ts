import { settings } from "#infrastructure/platform/Config"
import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { configurationPage } from "../../docs/configuration.ts"

it("docs/configuration.md is generated from the settings in the code", () => {
  const page = readFileSync(new URL("../../docs/configuration.md", import.meta.url), "utf8")
  assert.strictEqual(page, configurationPage(), "docs/configuration.md is out of date: npm run docs")
})

it("docs/configuration.md has each setting once, with its default and its meaning", () => {
  const rows = configurationPage().split("\n").filter((line) => line.startsWith("| `"))
  assert.sameMembers(rows.map((row) => /^\| `(\w+)`/.exec(row)?.[1] ?? row), Object.keys(settings))
  for (const row of rows) assert.strictEqual(row.replaceAll("\\|", "").split("|").length, 6, row)
  assert.include(rows.join("\n"), "| `LIMITS_SENDS_PER_SECOND` | `60` | from 1 |")
  assert.include(rows.join("\n"), "| `WEBHOOK_ALLOW_PRIVATE` | `none` | none, loopback, all |")
})

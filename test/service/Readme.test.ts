import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { settings } from "../../src/platform/Config.ts"

it("the README's table of settings is the one in the code", () => {
  const readme = readFileSync(new URL("../../README.md", import.meta.url), "utf8")
  const rows = Object.entries(settings).map(([name, { about, shown }]) => `| \`${name}\` | ${shown} | ${about} |`)
  assert.deepStrictEqual(readme.split("\n").filter((line) => /^\| `[A-Z0-9_]+` \|/.test(line)), rows)
})

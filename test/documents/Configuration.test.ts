import { Config, settings } from "#infrastructure/platform/Config"
import { parse } from "#infrastructure/platform/SettingsFile"
import { Environment } from "#infrastructure/platform/UnknownSettings"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { configurationPage, sampleFile } from "../../docs/configuration.ts"

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

it("deploy/parley.env.sample is generated from the settings in the code", () => {
  const sample = readFileSync(new URL("../../deploy/parley.env.sample", import.meta.url), "utf8")
  assert.strictEqual(sample, sampleFile(), "deploy/parley.env.sample is out of date: npm run docs")
})

it.effect("deploy/parley.env.sample changes nothing as it is, and sets each setting to its default without the #", () =>
  Effect.gen(function*() {
    assert.deepStrictEqual(parse(sampleFile()), { assignments: [], malformed: [] })
    const { assignments, malformed } = parse(sampleFile().replaceAll(/^#(?=[A-Z0-9_]+=)/gm, ""))
    assert.deepStrictEqual(malformed, [])
    assert.sameMembers(assignments.map(({ name }) => name), Object.keys(settings))
    const environment = {
      PARLEY_CONFIG: "/dev/null",
      ...Object.fromEntries(assignments.map((one) => [one.name, one.value]))
    }
    const config = yield* Effect.provideService(Config.load, Environment, environment)
    assert.deepStrictEqual(config, yield* Effect.provide(Config, Config.layerTest()))
  }))

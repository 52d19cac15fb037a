import { NODE_PROTOCOL_VERSION } from "#infrastructure/cluster/NodeGreeting"
import { VERSION } from "#infrastructure/platform/Version"
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { resolve } from "node:path"

const ROOT = resolve(import.meta.dirname, "../..")
const read = (file: string): string => readFileSync(resolve(ROOT, file), "utf8")

describe("the version of this checkout", () => {
  it("is the last row of the table of versions in operations.md, with its schema and protocol", () => {
    const section = read("docs/operations.md").split("\n## ").find((part) => part.startsWith("Upgrade and go back\n"))
    const rows = section?.split("\n").filter((line) => /^\| \d+\.\d+\.\d+ /.test(line)) ?? []
    const [version, schema, protocol] = (rows.at(-1) ?? "").slice(2).split(" | ")
    assert.include(section, `Parley ${version} migrates the database from schema 38 to ${schema};`)
    assert.deepStrictEqual([version, schema, protocol], [
      VERSION,
      String(readdirSync(resolve(ROOT, "schema")).length),
      String(NODE_PROTOCOL_VERSION)
    ])
  })

  it("is the first one in the changelog, and in package-lock.json", () => {
    assert.strictEqual(/^## (\S+)$/m.exec(read("CHANGELOG.md"))?.[1], VERSION)
    const lock = JSON.parse(read("package-lock.json")) as {
      readonly version: string
      readonly packages: Readonly<Record<string, { readonly version: string }>>
    }
    assert.deepStrictEqual([lock.version, lock.packages[""]?.version], [VERSION, VERSION])
  })
})

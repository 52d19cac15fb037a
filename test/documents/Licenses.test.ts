import { assert, describe, it } from "@effect/vitest"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { collect } from "../../licenses/Collect.ts"
import { makeIgnored, parseDockerfile } from "../../verification/deployment/Dockerfile.ts"

const ROOT = resolve(import.meta.dirname, "../..")
const read = (path: string) => readFileSync(join(ROOT, path), "utf8")

describe("the licences of others", () => {
  it("have a text for each installed package that a server needs", () => {
    const text = collect()
    const parts = text.split(/^={80}\n/m).slice(1)
    const { dependencies } = JSON.parse(read("package.json")) as {
      readonly dependencies: Readonly<Record<string, string>>
    }
    for (const [name, version] of Object.entries(dependencies)) {
      const part = parts.find((part) => part.startsWith(`${name} ${version}: `))
      assert.isAbove(part?.length ?? 0, 300, name)
    }
    const libvips = parts.find((part) => part.startsWith("@img/sharp-libvips-") && part.includes("fribidi"))
    assert.match(libvips ?? "", /: LGPL-3\.0-or-later\n\n.*LGPL-3\.0\.txt/)
    for (const library of ["glib", "librsvg", "libvips", "mozjpeg"]) assert.include(libvips, library)
    assert.notInclude(text, "\ns3rver ")
  })

  it("cannot be collected without the text of a licence of the GPL family", () => {
    const folder = mkdtempSync(join(tmpdir(), "parley-licences-"))
    const lock = join(folder, "package-lock.json")
    try {
      for (const license of ["AGPL-3.0-only", "LGPL-2.1-only", "GPL-2.0-or-later"]) {
        writeFileSync(lock, JSON.stringify({ packages: { "node_modules/other": { version: "1.0.0", license } } }))
        assert.throws(() => collect(folder, lock), `other is under ${license}: put its text into licenses/`)
      }
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it("include the GNU licences in full", () => {
    assert.match(
      read("licenses/LGPL-3.0.txt"),
      /GNU LESSER GENERAL PUBLIC LICENSE\s+Version 3[^]+Library as you received it[^]+permanent authorization for you to choose that version for the\s+Library\.\s*$/
    )
    assert.match(read("licenses/GPL-3.0.txt"), /GNU GENERAL PUBLIC LICENSE\s+Version 3[^]+END OF TERMS AND CONDITIONS/)
  })

  it("go into the npm package and into the image", () => {
    const { files, scripts } = JSON.parse(read("package.json")) as {
      readonly files: ReadonlyArray<string>
      readonly scripts: Readonly<Record<string, string>>
    }
    assert.include(files, "licenses/*.txt")
    assert.include(scripts["prepack"], "licenses/Collect.ts")
    assert.isFalse(makeIgnored(read(".dockerignore"))("licenses/LGPL-3.0.txt"))
    const steps = parseDockerfile(read("Dockerfile")).map(({ name, text }) => `${name} ${text}`)
    const collected = steps.findIndex((step) => step.startsWith("RUN") && step.includes("licenses/Collect.ts"))
    assert.isAtLeast(collected, 0)
    assert.include(steps.slice(collected), "COPY /app/licenses licenses")
  })
})

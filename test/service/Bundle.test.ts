import { assert, it } from "@effect/vitest"
import { mkdirSync, mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { keyOfSources } from "../../runners/bundle.js"

it("a change of a source, of the manifest or of the installed packages needs another bundle", () => {
  const root = mkdtempSync(join(tmpdir(), "parley-bundle-"))
  try {
    for (const folder of ["runners", "src/domain", "node_modules"]) mkdirSync(join(root, folder), { recursive: true })
    const write = (name: string, text: string) => writeFileSync(join(root, name), text)
    const keys = [keyOfSources(root)]
    const changes = [
      () => write("src/domain/Agent.ts", "1"),
      () => write("src/domain/Agent.ts", "12"),
      () => utimesSync(join(root, "src/domain/Agent.ts"), 0, 1),
      () => write("runners/Start.ts", "1"),
      () => write("package.json", "{}"),
      () => write("node_modules/.package-lock.json", "{}"),
      () => rmSync(join(root, "src/domain/Agent.ts"))
    ]
    for (const change of changes) {
      change()
      keys.push(keyOfSources(root))
    }
    assert.lengthOf([...new Set(keys)], changes.length + 1)
    write("src/domain/notes.txt", "is no source")
    assert.strictEqual(keyOfSources(root), keys.at(-1))
  } finally {
    rmSync(root, { recursive: true, force: true })
  }
})

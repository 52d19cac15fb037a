import { assert, it } from "@effect/vitest"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join, relative } from "node:path"
import { bundleFolder, keyOfSources } from "../../runners/bundle.js"

const ROOT = join(import.meta.dirname, "../..")

it("a change of a source, of the manifest or of the installed packages needs another bundle", () => {
  const root = mkdtempSync(join(tmpdir(), "parley-bundle-"))
  try {
    for (const folder of ["build", "runners", "src/domain", "node_modules"])
      mkdirSync(join(root, folder), { recursive: true })
    const write = (name: string, text: string) => writeFileSync(join(root, name), text)
    const keys = [keyOfSources(root)]
    const changes = [
      () => write("src/domain/Agent.ts", "1"),
      () => write("src/domain/Agent.ts", "12"),
      () => utimesSync(join(root, "src/domain/Agent.ts"), 0, 1),
      () => write("runners/Start.ts", "1"),
      () => write("build/Bundler.ts", "1"),
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

it("in the bundle, each source still finds the files beside it", async () => {
  const folder = realpathSync(await bundleFolder() ?? assert.fail("there is no bundle"))
  const found: Array<string> = []
  for (const name of readdirSync(folder).filter((file) => file.endsWith(".js"))) {
    const code = readFileSync(join(folder, name), "utf8")
    const joined = [...code.matchAll(/\("node:path"\)\.join\(import\.meta\.dirname, ("[^"]+")\)/g)]
    assert.lengthOf(code.match(/import\.meta\.(?:filename|dirname)/g) ?? [], joined.length, name)
    const places = [...joined, ...code.matchAll(/new URL\(("[^"]+"), import\.meta\.url\)\.href/g)]
    for (const [, path = ""] of places) found.push(relative(ROOT, join(folder, JSON.parse(path) as string)))
  }
  for (const place of found) assert.isTrue(existsSync(join(ROOT, place)), place)
  // Those that start the program again.
  assert.includeMembers(found, ["runners", "runners/local"])
})

import { assert, it } from "@effect/vitest"
import { existsSync, readdirSync } from "node:fs"
import { basename, join, relative } from "node:path"
import packageJson from "../../package.json" with { type: "json" }
import { anchors, DOCUMENTS, parse, read, ROOT } from "./Markdown.ts"

it("every link within the repository leads to a file and a heading that are there", () => {
  const broken: Array<string> = []
  let tried = 0
  for (const document of DOCUMENTS) {
    for (const [link, target = ""] of parse(document).prose.matchAll(/\[[^\]]*\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue
      tried++
      const [path = "", anchor] = target.split("#")
      const file = path === "" ? document : relative(ROOT, join(ROOT, document, "..", path))
      const isThere = existsSync(join(ROOT, file)) && (anchor === undefined || (file.endsWith(".md") && anchors(file).has(anchor)))
      if (!isThere) broken.push(`${document}: ${link}`)
    }
  }
  assert.deepStrictEqual(broken, [])
  assert.isAbove(tried, 20)
})

it("every npm script that a document names is one", () => {
  const scripts: Readonly<Record<string, string>> = packageJson.scripts
  const unknown: Array<string> = []
  for (const document of DOCUMENTS) {
    for (const [command, run, short] of read(document).matchAll(/\bnpm (?:run (?:-s )?([\w:-]+)|(start|test)\b)/g)) {
      if (scripts[run ?? short ?? ""] === undefined) unknown.push(`${document}: ${command}`)
    }
  }
  assert.deepStrictEqual(unknown, [])
})

/** The contract names files that are not built yet, decisions and changes tell of those that were. */
const OF_TODAY = DOCUMENTS.filter((document) => !["docs/wire.md", "docs/decisions.md", "CHANGELOG.md"].includes(document))

const filesBelow = (folder: string): ReadonlyArray<string> =>
  readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    if (entry.name === "node_modules" || entry.name === ".git" || entry.name === "data") return []
    const path = join(folder, entry.name)
    return entry.isDirectory() ? filesBelow(path) : [path]
  })

it("every file that a document names is there", () => {
  const files = filesBelow(".")
  const names = new Set(files.map((file) => basename(file)))
  const paths = new Set(files)
  const missing: Array<string> = []
  for (const document of OF_TODAY) {
    for (const [, name = ""] of parse(document).prose.matchAll(/`([\w.][\w./-]*\.(?:ts|js|json|sql|yml|yaml|cfg))`/g)) {
      if (!name.includes("NNNN") && !(name.includes("/") ? paths : names).has(name)) missing.push(`${document}: ${name}`)
    }
  }
  assert.deepStrictEqual(missing, [])
})

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
      const isThere = existsSync(join(ROOT, file)) &&
        (anchor === undefined || (file.endsWith(".md") && anchors(file).has(anchor)))
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

/** The changelog names files of earlier versions. */
const OF_TODAY = DOCUMENTS.filter((document) => document !== "CHANGELOG.md")

/** Back-ticked names that are no files of the repository, each with the reason. */
const ELSEWHERE = new Set([
  "FORMAT.md", // a file of an export
  "schema/NNNN_verb_object.sql", // the form of a migration's name
  "verification/runs/" // written by a run
])

const ROOTS = ["src", "test", "docs", "verification", "deploy", "schema", "runners", "licenses"]
const PATH = new RegExp(`^(?:${ROOTS.join("|")})/`)
const FILE = /\.(?:ts|js|json|sql|yml|yaml|cfg|md|svg|css)$/

/** All files and folders below a folder, by their path from the root. */
const pathsBelow = (folder: string): ReadonlyArray<string> =>
  readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    if (entry.name === "node_modules" || entry.name === ".git" || entry.name === "data") return []
    const path = join(folder, entry.name)
    return entry.isDirectory() ? [path, ...pathsBelow(path)] : [path]
  })

/** Paths from the root (of a folder too), and names of files without a folder, that a text has in back-ticks. */
const namesIn = (text: string): ReadonlyArray<string> =>
  Array.from(text.matchAll(/`([\w.][\w./-]*)`/g), ([, name = ""]) => name).filter((name) =>
    PATH.test(name) || FILE.test(name)
  )

it("every file and folder of the repository that a document names is there", () => {
  const paths = new Set(pathsBelow("."))
  const files = new Set([...paths].map((path) => basename(path)))
  const missing: Array<string> = []
  let tried = 0
  for (const document of OF_TODAY) {
    for (const name of namesIn(parse(document).prose)) {
      if (ELSEWHERE.has(name)) continue
      tried++
      const isThere = name.includes("/") ? paths.has(name.replace(/\/$/, "")) : files.has(name)
      if (!isThere) missing.push(`${document}: ${name}`)
    }
  }
  assert.deepStrictEqual(missing, [])
  assert.isAbove(tried, 250)
})

it("names of paths in a text are found, and a path of another machine is not one", () => {
  const text =
    "`src/infrastructure/http/FastPath.ts`, `deploy/`, `Session.ts`, `/var/lib/parley`, `npm test`, `src`, `echo.mjs`, `data/outbox`"
  assert.deepStrictEqual(namesIn(text), ["src/infrastructure/http/FastPath.ts", "deploy/", "Session.ts"])
})

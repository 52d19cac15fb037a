import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, extname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { type StaticBody, staticBody } from "./StaticBody.ts"

/**
 * All files that the pages load. `version` is a hash of all files and is part of their paths, so the bytes at a path
 * never change.
 */
export interface Assets {
  readonly version: string
  /** The files, by their path under `/assets/<version>/`. */
  readonly files: ReadonlyMap<string, StaticBody>
  /** The import map: the path of the file for each imported package. */
  readonly packages: Readonly<Record<string, string>>
}

const types: Readonly<Record<string, string>> = {
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml"
}

const here = import.meta.dirname

/**
 * The imported packages, by import name. `path` is the file to import instead of the package's main file, relative to
 * the package's folder.
 */
const modules: ReadonlyArray<readonly [name: string, path?: string]> = [
  ["preact"],
  ["preact/hooks"],
  ["htm"],
  ["@preact/signals"],
  ["@preact/signals-core"],
  ["marked"],
  ["@speed-highlight/core/tokenize"],
  ["uplot", "dist/uPlot.esm.js"],
  ["uplot/style.css", "dist/uPlot.min.css"]
]

const fileOf = ([name, path]: (typeof modules)[number]): string =>
  path === undefined
    ? fileURLToPath(import.meta.resolve(name))
    : join(dirname(createRequire(import.meta.url).resolve(`${name.split("/")[0]}/package.json`)), path)

/** The folder of the languages that the pages import by name, each only when a message has code in it. */
const LANGUAGES = "@speed-highlight/core/languages/"

const languages = (): ReadonlyArray<string> =>
  readdirSync(dirname(fileURLToPath(import.meta.resolve(`${LANGUAGES}js.js`)))).filter((name) =>
    extname(name) === ".js" && name !== "index.js"
  )

/** The paths of the pages' own files: the style sheet, the icon and the JavaScript in their folders. */
const own = (): ReadonlyArray<string> =>
  ["account", "app", "client", "console", "content", "join", "oauth", "shared", "tab"].flatMap((folder) =>
    readdirSync(join(here, folder)).filter((name) => extname(name) in types).map((name) => `${folder}/${name}`)
  )

const withoutMap = (text: string): string => text.replace(/\n\/\/# sourceMappingURL=.*\s*$/, "\n")

const toAsset = (name: string, bytes: Buffer): StaticBody =>
  staticBody(bytes, types[extname(name)] ?? "application/octet-stream")

/** Reads all files, about 800 kB. Runs once, at the first request for a page. */
export const loadAssets = (): Assets => {
  const packages: Record<string, string> = { [LANGUAGES]: `packages/${LANGUAGES}` }
  const files = new Map<string, StaticBody>()
  for (const name of languages()) {
    const path = `packages/${LANGUAGES}${name}`
    files.set(path, toAsset(path, readFileSync(fileURLToPath(import.meta.resolve(`${LANGUAGES}${name}`)))))
  }
  for (const module of modules) {
    const [name] = module
    const file = fileOf(module)
    const path = `packages/${name}${extname(name) === "" ? extname(file) : ""}`
    if (path.endsWith("js")) packages[name] = path
    files.set(path, toAsset(path, Buffer.from(withoutMap(readFileSync(file, "utf8")))))
  }
  for (const path of own()) files.set(path, toAsset(path, readFileSync(join(here, path))))
  const hash = createHash("sha256")
  for (const [path, { etag }] of files) hash.update(path).update(etag)
  return { version: hash.digest("base64url").slice(0, 12), files, packages }
}

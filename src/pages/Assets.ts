import { createHash } from "node:crypto"
import { type StaticBody, staticBody } from "./StaticBody.ts"
import { readdirSync, readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, extname, join } from "node:path"
import { fileURLToPath } from "node:url"

/** All files that the pages load. `version` is a hash of all of them and part of their paths, so a path's bytes never change. */
export interface Assets {
  readonly version: string
  /** By their path under `/assets/<version>/`. */
  readonly files: ReadonlyMap<string, StaticBody>
  /** Which of them a module of a package is: the import map. */
  readonly packages: Readonly<Record<string, string>>
}

const types: Readonly<Record<string, string>> = {
  ".js": "text/javascript; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml"
}

const here = import.meta.dirname

/** Files of packages, by what they are imported as. The second is a path from the package's folder, where its main file will not do. */
const modules: ReadonlyArray<readonly [name: string, path?: string]> = [
  ["preact"],
  ["preact/hooks"],
  ["htm"],
  ["@preact/signals"],
  ["@preact/signals-core"],
  ["uplot", "dist/uPlot.esm.js"],
  ["uplot/style.css", "dist/uPlot.min.css"]
]

const fileOf = ([name, path]: (typeof modules)[number]): string =>
  path === undefined
    ? fileURLToPath(import.meta.resolve(name))
    : join(dirname(createRequire(import.meta.url).resolve(`${name.split("/")[0]}/package.json`)), path)

/** Own files: the style sheet, and the JavaScript in the folders of this room. */
const own = (): ReadonlyArray<string> =>
  ["app", "client", "console", "shared"].flatMap((folder) =>
    readdirSync(join(here, folder)).filter((name) => extname(name) in types).map((name) => `${folder}/${name}`))

const withoutMap = (text: string): string => text.replace(/\n\/\/# sourceMappingURL=.*\s*$/, "\n")

const toAsset = (name: string, bytes: Buffer): Promise<StaticBody> => staticBody(bytes, types[extname(name)] ?? "application/octet-stream")

/** Reads and compresses all files, some 100 kB: at the first request for a page, and never again. */
export const loadAssets = async (): Promise<Assets> => {
  const packages: Record<string, string> = {}
  const files = new Map<string, StaticBody>()
  for (const module of modules) {
    const [name] = module
    const file = fileOf(module)
    const path = `packages/${name}${extname(name) === "" ? extname(file) : ""}`
    if (path.endsWith("js")) packages[name] = path
    files.set(path, await toAsset(path, Buffer.from(withoutMap(readFileSync(file, "utf8")))))
  }
  for (const path of own()) files.set(path, await toAsset(path, readFileSync(join(here, path))))
  const hash = createHash("sha256")
  for (const [path, { etag }] of files) hash.update(path).update(etag)
  return { version: hash.digest("base64url").slice(0, 12), files, packages }
}

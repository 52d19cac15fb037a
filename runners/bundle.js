import { hash } from "node:crypto"
import { existsSync, readdirSync, statSync } from "node:fs"
import { join, resolve } from "node:path"

const ROOT = resolve(import.meta.dirname, "..")

/** Changes when a file of the program in `root` changes, or when `npm ci` installs other packages. */
export const keyOfSources = (root) => {
  let text = ""
  const add = (path) => {
    const { mtimeMs, size } = statSync(path, { throwIfNoEntry: false }) ?? {}
    text += `${path} ${mtimeMs} ${size}\n`
  }
  const addFolder = (folder) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = `${folder}/${entry.name}`
      if (entry.isDirectory()) addFolder(path)
      else if (entry.name.endsWith(".ts")) add(path)
    }
  }
  add(`${root}/package.json`)
  add(`${root}/node_modules/.package-lock.json`)
  addFolder(`${root}/build`)
  addFolder(`${root}/runners`)
  addFolder(`${root}/src`)
  return hash("sha256", text).slice(0, 16)
}

/**
 * The folder of the program's bundle, which is a few files instead of a thousand modules. The package has one. In a
 * checkout, the first start after a change makes one in `node_modules/.cache`. Returns undefined if no bundle can be made
 * there; then the program is loaded from its sources, which also report mistakes in a source.
 */
export const bundleFolder = async () => {
  const packed = join(ROOT, "bundle")
  if (existsSync(packed)) return packed
  const folder = join(ROOT, "node_modules/.cache/parley", `bundle-${keyOfSources(ROOT)}`)
  if (existsSync(folder)) return folder
  try {
    const { cacheBundle } = await import("../build/Bundler.ts")
    await cacheBundle(folder)
    return folder
  } catch {
    return undefined
  }
}

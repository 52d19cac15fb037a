import { hash } from "node:crypto"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { dirname, join, resolve } from "node:path"
import { pathToFileURL } from "node:url"

const ROOT = resolve(import.meta.dirname, "..")
const CACHE = join(ROOT, "node_modules/.cache/parley")

/** The bundle of the package. */
const PACKED = join(ROOT, "bundle")

/** The name of a bundle's list of its files, with the size of each. */
const LIST = "files.json"

/**
 * The 20 bundles that were used last stay in the cache, and so does every bundle that was used within 3 days, because a
 * running server still loads parts of its own bundle. `bundleFolder` records each use as the time of the folder.
 */
const KEPT = 20
const KEPT_MS = 3 * 86_400_000

/** Making a bundle takes less than a minute, so an unfinished one of this age belongs to a process that was killed. */
const UNFINISHED_MS = 3_600_000

/** After this time, the program prints that it is making a bundle. */
const NOTICE_MS = 2_000

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
 * Whether a bundle has all of its files, in full. A power failure may have emptied files. Throws if this cannot be found
 * out, for example because too many files are open: a running server may use the bundle, so it must not be replaced then.
 */
const isComplete = (folder) => {
  try {
    const sizes = Object.entries(JSON.parse(readFileSync(join(folder, LIST), "utf8")))
    return sizes.length > 0 && sizes.every(([name, size]) => statSync(join(folder, name)).size === size)
  } catch (error) {
    if (error instanceof SyntaxError || ["ENOENT", "ENOTDIR"].includes(error?.code)) return false
    throw error
  }
}

/** Records that a bundle is used. */
const touch = (folder) => {
  const now = Date.now() / 1_000
  try {
    utimesSync(folder, now, now)
  } catch {
    // The folder belongs to another user.
  }
}

const remove = (folder) => {
  try {
    rmSync(folder, { recursive: true, force: true })
  } catch {
    // The folder belongs to another user.
  }
}

/**
 * Removes old bundles, and old folders of processes that were killed while they made a bundle. Another process may remove
 * the same folders at the same time.
 */
const prune = () => {
  const now = Date.now()
  const names = readdirSync(CACHE)
  const entries = (prefix) =>
    names.filter((name) => name.startsWith(prefix)).map((name) => {
      const path = join(CACHE, name)
      return { path, age: now - (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? now) }
    })
  const bundles = entries("bundle-").sort((a, b) => a.age - b.age).slice(KEPT).filter(({ age }) => age > KEPT_MS)
  const unfinished = entries("making-").filter(({ age }) => age > UNFINISHED_MS)
  for (const { path } of [...bundles, ...unfinished]) remove(path)
}

/**
 * Makes a bundle that all users of the checkout may use. The folder appears when it is complete, because several
 * processes may make it at the same time.
 */
const make = async (folder) => {
  // Fails early if nothing can be written here, because loading the bundler takes a second.
  for (const parent of [dirname(CACHE), CACHE]) {
    if (existsSync(parent)) continue
    mkdirSync(parent, { recursive: true })
    chmodSync(parent, 0o755)
  }
  const making = mkdtempSync(join(CACHE, "making-"))
  const notice = setTimeout(
    () => console.error(`Preparing the program in ${CACHE}, once after each change of its sources.`),
    NOTICE_MS
  )
  try {
    const { checkoutBundle } = await import("../build/Bundler.ts")
    await checkoutBundle(making)
    const sizes = readdirSync(making).map((name) => [name, statSync(join(making, name)).size])
    writeFileSync(join(making, LIST), JSON.stringify(Object.fromEntries(sizes)), { flush: true })
    for (const name of readdirSync(making)) chmodSync(join(making, name), 0o644)
    chmodSync(making, 0o755)
    // Another process may have made the bundle in the meantime, and use it.
    if (existsSync(folder) && !isComplete(folder)) rmSync(folder, { recursive: true, force: true })
    renameSync(making, folder)
  } catch (error) {
    remove(making)
    if (!isComplete(folder)) throw error
  } finally {
    clearTimeout(notice)
  }
}

/**
 * The folder of the program's bundle, which is a few files instead of a thousand modules. The package has one. In a
 * checkout, the first start after a change makes one in `node_modules/.cache`. Returns undefined if no bundle can be made
 * there; then the program is loaded from its sources, which also report mistakes in a source.
 */
export const bundleFolder = async () => {
  if (existsSync(PACKED)) return PACKED
  try {
    const folder = join(CACHE, `bundle-${keyOfSources(ROOT)}`)
    if (isComplete(folder)) {
      touch(folder)
    } else {
      await make(folder)
      try {
        prune()
      } catch {
        // The next process that makes a bundle removes what is old.
      }
    }
    return folder
  } catch {
    return undefined
  }
}

/**
 * Returns a function that loads the export `name` of a file of the program: from the bundle, or from the sources if the
 * bundle cannot be loaded. A bundle with wrong code is removed, so that the next start makes it again. After other errors,
 * such as EMFILE, it stays, because a running server may use it.
 */
export const programLoader = async () => {
  let folder = await bundleFolder()
  return async (file, name) => {
    if (folder !== undefined) {
      try {
        const found = (await import(pathToFileURL(join(folder, `${file}.js`)).href))[name]
        if (found === undefined) throw new SyntaxError(`${file}.js has no ${name}`)
        return found
      } catch (error) {
        if (folder === PACKED) throw error
        console.error(`parley: ${folder} cannot be loaded, so Parley loads its sources: ${error?.message ?? error}`)
        if (error instanceof SyntaxError) remove(folder)
        folder = undefined
      }
    }
    return (await import(new URL(`./${file}.ts`, import.meta.url).href))[name]
  }
}

import { createHash } from "node:crypto"
import { existsSync } from "node:fs"
import { mkdir, mkdtemp, readdir, rename, rm, stat, utimes, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { fileURLToPath, pathToFileURL } from "node:url"
import { rolldown } from "rolldown"

const ROOT = fileURLToPath(new URL("../..", import.meta.url))
const BUNDLES = join(ROOT, "node_modules/.cache/parley-tests")
const MILLIS_PER_DAY = 86_400_000

/**
 * Bundles `runners/parley.js`, its sources and effect into a few files, and returns the path of the first. A server
 * starts from them in half of the processor time that 700 files cost, and tests start more than a hundred. Each source
 * file keeps its own path as `import.meta.dirname` and `import.meta.url`; packages other than effect's are loaded from
 * `node_modules` as ever.
 */
export const bundleProgram = async (): Promise<string> => {
  const bundle = await rolldown({
    input: join(ROOT, "runners/parley.js"),
    platform: "node",
    logLevel: "warn",
    // No code is left out, here and by `minify` below, because code that seems to have no effect may throw.
    treeshake: false,
    external: (id, importer) => {
      if (/^[./#]/.test(id) || importer === undefined) return false
      return !/^(effect|@effect\/[\w-]+)(\/|$)/.test(id)
    },
    plugins: [{
      name: "own-paths",
      transform: (code, id) =>
        id.includes("/node_modules/") ? undefined : code
          .replaceAll("import.meta.dirname", JSON.stringify(dirname(id)))
          .replaceAll("import.meta.url", JSON.stringify(pathToFileURL(id).href))
    }]
  })
  const { output } = await bundle.generate({ format: "esm", minify: false })
  await bundle.close()
  const files = output.map((file) => [file.fileName, file.type === "chunk" ? file.code : file.source] as const)
  const hash = createHash("sha256")
  for (const [name, content] of files) hash.update(name).update(content)
  const folder = join(BUNDLES, hash.digest("base64url"))
  if (!existsSync(folder)) {
    await mkdir(BUNDLES, { recursive: true })
    await removeOld()
    // Another run may make the same bundle at the same time. A folder appears only once it is complete.
    const making = await mkdtemp(join(BUNDLES, "making-"))
    for (const [name, content] of files) await writeFile(join(making, name), content)
    await rename(making, folder).catch(() => rm(making, { recursive: true }))
  }
  const now = new Date()
  await utimes(folder, now, now)
  return join(folder, "parley.js")
}

/** Removes bundles that no run has used for a day. */
const removeOld = async (): Promise<void> => {
  for (const name of await readdir(BUNDLES)) {
    const path = join(BUNDLES, name)
    const used = await stat(path).then((found) => found.mtimeMs, () => Infinity)
    if (used < Date.now() - MILLIS_PER_DAY) await rm(path, { recursive: true, force: true })
  }
}

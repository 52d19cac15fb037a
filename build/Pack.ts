import { createDatabaseFile } from "#infrastructure/database/PreparedDatabase"
import { checkedOut } from "#infrastructure/platform/Version"
import { Effect } from "effect"
import { readFileSync, writeFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { packBundle } from "./Bundler.ts"

/**
 * Adds the bundle, the prepared database and the commit to the compiled files of the package: `npm run build`. Where the
 * history is not at hand, as in the build of the image, the variable COMMIT gives the commit.
 */
const headOf = (folder: string): string => {
  try {
    return checkedOut(folder)
  } catch {
    return ""
  }
}
const root = resolve(import.meta.dirname, "..")
const dist = join(root, "dist")
await packBundle(join(dist, "bundle"))
await Effect.runPromise(createDatabaseFile(dist))

const about = join(dist, "package.json")
const gitHead = process.env["COMMIT"] ?? headOf(root)
if (!/^[0-9a-f]{40}$/.test(gitHead))
  console.warn("The commit is unknown, so /v1/health will not show it. Set COMMIT to the full hash.")
const manifest = JSON.parse(readFileSync(about, "utf8")) as object
writeFileSync(about, `${JSON.stringify({ ...manifest, gitHead }, undefined, 2)}\n`)

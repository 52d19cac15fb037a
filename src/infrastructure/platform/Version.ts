import { existsSync, readFileSync, statSync } from "node:fs"
import { join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import manifest from "../../../package.json" with { type: "json" }

/** The version of the server. The contract has its own version, in the OpenAPI document. */
export const VERSION: string = manifest.version

/** The folder of the checkout, or of the compiled files in the package. */
const ROOT = fileURLToPath(new URL("../../../", import.meta.url))

const textOf = (path: string): string => readFileSync(path, "utf8").trim()

/** The commit that is checked out in a folder. Reads the files of git, because git may not be installed. */
export const checkedOut = (root: string): string => {
  const place = join(root, ".git")
  // In a worktree, `.git` is a file that names the folder, and this folder names the one that all worktrees share.
  const folder = statSync(place).isDirectory() ? place : resolve(root, textOf(place).replace(/^gitdir: /, ""))
  const head = textOf(join(folder, "HEAD"))
  const branch = /^ref: (.+)$/.exec(head)?.[1]
  if (branch === undefined) return head
  const common = join(folder, "commondir")
  const shared = existsSync(common) ? resolve(folder, textOf(common)) : folder
  const loose = join(shared, branch)
  if (existsSync(loose)) return textOf(loose)
  const packed = textOf(join(shared, "packed-refs")).split("\n").find((line) => line.endsWith(` ${branch}`))
  return packed?.split(" ", 1)[0] ?? ""
}

/** The commit of a server that was neither built from a checkout nor runs in one. */
const UNKNOWN = "unknown"

const FORM = /^[0-9a-f]{40}$/

const findCommit = (): string => {
  try {
    // `npm run build` writes the commit into the package.json of the compiled files.
    const { gitHead } = JSON.parse(textOf(join(ROOT, "package.json"))) as { readonly gitHead?: string }
    const found = gitHead ?? checkedOut(ROOT)
    return FORM.test(found) ? found : UNKNOWN
  } catch {
    return UNKNOWN
  }
}

let found: string | undefined

/** The full hash of the commit that this server was built from, or that was checked out when it was first asked for. */
export const commit = (): string => found ??= findCommit()

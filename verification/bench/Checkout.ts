import { execFileSync } from "node:child_process"
import { readFileSync, symlinkSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { whenOver } from "./CleanUps.ts"

/** Sources that can be run. */
export interface Checkout {
  readonly root: string
  /** The short hash of the commit; undefined for the sources that are here. */
  readonly commit: string | undefined
}

export const here: Checkout = { root: resolve(import.meta.dirname, "../.."), commit: undefined }

const git = (...args: ReadonlyArray<string>): string =>
  execFileSync("git", args, { cwd: here.root, encoding: "utf8" }).trim()

const dependenciesOf = (root: string): Readonly<Record<string, string>> =>
  (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    readonly dependencies: Readonly<Record<string, string>>
  }).dependencies

/**
 * Checks out another commit into a folder of its own. It uses the installed packages, which must include those that it
 * imports.
 */
export const checkOut = async (revision: string): Promise<Checkout> => {
  const commit = git("rev-parse", "--short", `${revision}^{commit}`)
  const folder = await mkdtemp(join(tmpdir(), "parley-bench-commit-"))
  const root = join(folder, commit)
  git("worktree", "add", "--quiet", "--detach", root, commit)
  whenOver(async () => {
    git("worktree", "remove", "--force", root)
    await rm(folder, { recursive: true, force: true })
  })
  const installed = dependenciesOf(here.root)
  const others = Object.entries(dependenciesOf(root)).filter(([name, version]) => installed[name] !== version)
  if (others.length > 0) {
    throw new Error(
      `${commit} depends on ${
        others.map((one) => one.join(" ")).join(", ")
      }, which is not installed here: the two cannot be compared in one run`
    )
  }
  symlinkSync(join(here.root, "node_modules"), join(root, "node_modules"))
  return { root, commit }
}

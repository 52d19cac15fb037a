import { execFileSync } from "node:child_process"
import { readFileSync, symlinkSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { whenOver } from "./CleanUps.ts"

/** Sources that can be run. */
export interface Checkout {
  readonly root: string
  /** Of another commit than the one that is here. */
  readonly commit: string | undefined
}

export const here: Checkout = { root: resolve(import.meta.dirname, "../.."), commit: undefined }

const git = (...args: ReadonlyArray<string>): string => execFileSync("git", args, { cwd: here.root, encoding: "utf8" }).trim()

const dependenciesOf = (root: string): string => {
  const { dependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { readonly dependencies: unknown }
  return JSON.stringify(dependencies)
}

/** Another commit in a folder of its own, with the packages that are here; they must be those that it asks for. */
export const checkOut = async (revision: string): Promise<Checkout> => {
  const commit = git("rev-parse", "--short", `${revision}^{commit}`)
  const folder = await mkdtemp(join(tmpdir(), "parley-bench-commit-"))
  const root = join(folder, commit)
  git("worktree", "add", "--quiet", "--detach", root, commit)
  whenOver(async () => {
    git("worktree", "remove", "--force", root)
    await rm(folder, { recursive: true, force: true })
  })
  if (dependenciesOf(root) !== dependenciesOf(here.root)) {
    throw new Error(`${commit} depends on other packages than are installed here: the two cannot be compared in one run`)
  }
  symlinkSync(join(here.root, "node_modules"), join(root, "node_modules"))
  return { root, commit }
}

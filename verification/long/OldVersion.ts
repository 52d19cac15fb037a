import { execFileSync } from "node:child_process"
import { existsSync, readFileSync, symlinkSync } from "node:fs"
import { mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"

const ROOT = resolve(import.meta.dirname, "../..")

const git = (...args: ReadonlyArray<string>): string | undefined => {
  try {
    return execFileSync("git", args, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim()
  } catch {
    return undefined
  }
}

/** The commit of a revision, or undefined if the history does not have it. */
export const commitOf = (revision: string): string | undefined => git("rev-parse", "--verify", `${revision}^{commit}`)

/**
 * The newest commit of the last version: the one before the commit that changed `version` in package.json. Undefined
 * without the history, as in a shallow clone.
 */
export const lastVersion = (): string | undefined => {
  const changed = git("log", "--first-parent", "-1", "--format=%H", '-G^  "version":', "--", "package.json")
  return changed === undefined || changed === "" ? undefined : commitOf(`${changed}^`)
}

/** The oldest commit of the history that is here. */
export const oldest = (): string | undefined => git("rev-list", "HEAD")?.split("\n").at(-1)

/** The sources of an earlier commit, in a folder of their own, with the packages that are installed here. */
export class OldVersion {
  readonly commit: string
  readonly root: string

  private constructor(commit: string, root: string) {
    this.commit = commit
    this.root = root
  }

  static async checkOut(commit: string): Promise<OldVersion> {
    const root = await mkdtemp(join(tmpdir(), `parley-${commit.slice(0, 8)}-`))
    const archive = execFileSync("git", ["archive", commit], { cwd: ROOT, maxBuffer: 2 ** 28 })
    execFileSync("tar", ["-x", "-C", root], { input: archive })
    symlinkSync(join(ROOT, "node_modules"), join(root, "node_modules"))
    return new OldVersion(commit, root)
  }

  program(...args: ReadonlyArray<string>): ReadonlyArray<string> {
    return [join(this.root, "runners/parley.js"), ...args]
  }

  get version(): string {
    return (JSON.parse(readFileSync(join(this.root, "package.json"), "utf8")) as { readonly version: string }).version
  }

  /** The number of its schema. */
  async schema(): Promise<number> {
    return (await readdir(join(this.root, "schema"))).length
  }

  /** The version of its protocol between nodes, or undefined if it is not where it is now. */
  get protocol(): string | undefined {
    const file = join(this.root, "src/infrastructure/cluster/NodeGreeting.ts")
    return existsSync(file) ? /NODE_PROTOCOL_VERSION = (\d+)/.exec(readFileSync(file, "utf8"))?.[1] : undefined
  }

  /** Unsets the settings that it does not have, because an unknown limit stops the start. */
  settings(wanted: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    const known = readFileSync(join(this.root, "docs/configuration.md"), "utf8")
    return Object.fromEntries(
      Object.entries(wanted).map(([name, value]) => [name, known.includes(`\`${name}\``) ? value : ""])
    )
  }

  async remove(): Promise<void> {
    await rm(this.root, { recursive: true, force: true })
  }
}

import { checkedOut, commit } from "#infrastructure/platform/Version"
import { assert, describe, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { existsSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** Git without the settings and the repository of whoever runs the tests. */
const env = {
  PATH: process.env["PATH"],
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_COUNT: "3",
  GIT_CONFIG_KEY_0: "safe.directory",
  GIT_CONFIG_VALUE_0: "*",
  GIT_CONFIG_KEY_1: "user.name",
  GIT_CONFIG_VALUE_1: "ada",
  GIT_CONFIG_KEY_2: "user.email",
  GIT_CONFIG_VALUE_2: "ada@example.com"
}
const inFolder = (folder: string) => (...args: ReadonlyArray<string>): string =>
  execFileSync("git", args, { cwd: folder, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], env }).trim()

const answers = (...args: ReadonlyArray<string>): boolean => {
  try {
    return inFolder(".")(...args) !== ""
  } catch {
    return false
  }
}
const hasGit = answers("--version")

describe.skipIf(!hasGit)(`the commit of a checkout${hasGit ? "" : " (git is not installed)"}`, () => {
  it("is read from branches, packed branches, worktrees and a detached head", async () => {
    const folder = await mkdtemp(join(tmpdir(), "parley-git-"))
    try {
      const git = inFolder(folder)
      git("init", "--quiet", "--initial-branch=main")
      git("commit", "--quiet", "--allow-empty", "--message=one")
      const one = git("rev-parse", "HEAD")
      assert.strictEqual(checkedOut(folder), one)
      git("pack-refs", "--all")
      assert.isFalse(existsSync(join(folder, ".git/refs/heads/main")))
      assert.strictEqual(checkedOut(folder), one)
      const other = join(folder, "other")
      git("worktree", "add", "--quiet", "-b", "other", other)
      inFolder(other)("commit", "--quiet", "--allow-empty", "--message=two")
      const two = inFolder(other)("rev-parse", "HEAD")
      assert.notStrictEqual(two, one)
      assert.strictEqual(checkedOut(other), two)
      inFolder(other)("checkout", "--quiet", "--detach", "main")
      assert.strictEqual(checkedOut(other), one)
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  })

  it.skipIf(!answers("rev-parse", "HEAD"))(
    "is the commit of a server that runs in it",
    () => assert.strictEqual(commit(), inFolder(".")("rev-parse", "HEAD"))
  )
})

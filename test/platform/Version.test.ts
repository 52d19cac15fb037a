import { checkedOut, commit } from "#infrastructure/platform/Version"
import { assert, describe, it } from "@effect/vitest"
import { execFileSync } from "node:child_process"
import { existsSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"

const inFolder = (folder: string) => (...args: ReadonlyArray<string>): string =>
  execFileSync("git", ["-c", "user.name=ada", "-c", "user.email=ada@example.com", ...args], {
    cwd: folder,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"]
  }).trim()

const hasGit = (() => {
  try {
    return inFolder(".")("--version") !== ""
  } catch {
    return false
  }
})()

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

  it.skipIf(!existsSync(".git"))(
    "is the commit of a server that runs in it",
    () => assert.strictEqual(commit(), inFolder(".")("rev-parse", "HEAD"))
  )
})

import { assert, describe, it } from "@effect/vitest"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import { ServerLog } from "./ServerLogs.ts"

const ROOT = fileURLToPath(new URL("../..", import.meta.url))

describe("the logs of servers", () => {
  it("are printed by a test that fails, or a hook, and by no other", async () => {
    const run = spawn(process.execPath, [
      "node_modules/vitest/vitest.mjs",
      "run",
      "--config",
      "test/support/failing/vitest.config.ts"
    ], {
      cwd: ROOT,
      env: { PATH: process.env["PATH"], HOME: process.env["HOME"], TMPDIR: process.env["TMPDIR"], NO_COLOR: "1" },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let printed = ""
    run.stdout.setEncoding("utf8").on("data", (text: string) => printed += text)
    run.stderr.setEncoding("utf8").on("data", (text: string) => printed += text)
    const [code] = await once(run, "close")
    assert.strictEqual(code, 1, printed)
    const logs = printed.split(/^stderr \| /m).slice(1).map((text) => text.slice(0, text.search(/^ [✓❯×] /m)))
    assert.lengthOf(logs, 3, printed)
    const [shared = "", own = "", hook = ""] = logs
    assert.match(
      shared,
      /^.* > a server of several tests > fails\n--- log of \S+Listener.ts \(process \d+\)\n(.*\n)*asked for \/before\nasked for \/of-the-test-that-fails\n/
    )
    assert.notInclude(shared, "after")
    assert.match(
      own,
      /^.* > fails when it has ended\n(.*\n)*--- log of \S+Listener.ts \(process \d+\), which ended with 0\n(.*\n)*asked for \/of-its-own\n/
    )
    assert.match(
      hook,
      /--- log of \S+Listener.ts \(process \d+\), which ended with 7\n(.*\n)*asked for \/with-a-bad-end\n/
    )
  })

  it("are their last 200 lines, and nothing that was printed before", () => {
    const log = new ServerLog("a server")
    for (let i = 0; i < 300; i++) log.add(`line ${i}\n`)
    const lines = log.take().split("\n")
    assert.deepStrictEqual([lines.length, lines[0], lines.at(-1)], [200, "line 100", "line 299"])
    log.add("more")
    assert.strictEqual(log.take(), "more")
    assert.strictEqual(log.take(), "")
  })
})

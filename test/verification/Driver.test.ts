import { afterAll, assert, describe, it } from "@effect/vitest"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import {
  type Command,
  exitCode,
  type Programme,
  shareOut,
  table,
  verify,
  type VerifyOptions
} from "../../verification/Driver.ts"
import { commandOf, programmes, tests } from "../../verification/Programmes.ts"
import { eventually } from "../support/Eventually.ts"

const folder = mkdtempSync(join(tmpdir(), "parley-verify-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** A programme of one line of JavaScript. */
const tiny = (name: string, code: string, rest: Partial<Programme> = {}): Programme => ({
  name,
  script: name,
  least: 100,
  command: () => ({ args: ["-e", code] }),
  ...rest
})

const HANGS = "setInterval(() => {}, 1000)"
const passes = tiny("passes", `console.log("12 sends")`, {
  figures: (output) => ({ sends: Number(/(\d+) sends/.exec(output)?.[1]) })
})
const fails = tiny("fails", `console.log("half of it"); console.error("and why it failed"); process.exit(3)`)

const running = async (list: ReadonlyArray<Programme>, options: Partial<VerifyOptions> = {}) => {
  const said: Array<string> = []
  const rows = await verify({
    programmes: list,
    seconds: 3_600,
    folder,
    graceSeconds: 1,
    say: (line) => said.push(line),
    ...options
  })
  return { rows, said, verdicts: Object.fromEntries(rows.map(({ programme, verdict }) => [programme, verdict])) }
}

describe("npm run verify", () => {
  it("goes on after a failure, and tells what passed, what failed and what this machine cannot run", async () => {
    let began = false
    const skipped = tiny("lacks", "0", {
      missing: () => "needs a moon: wait for the night",
      command: (): Command => {
        began = true
        return { args: [] }
      }
    })
    const nothing = tiny("tries-nothing", `console.log("all of 4 tests skipped")`, { triedNothing: () => true })
    const { rows, said, verdicts } = await running([fails, skipped, passes, nothing])
    assert.deepStrictEqual(verdicts, {
      fails: "failed",
      lacks: "skipped",
      passes: "passed",
      "tries-nothing": "skipped"
    })
    assert.isFalse(began)
    const [failed, lacking, passed] = rows
    assert.strictEqual(failed?.why, "it ended with 3")
    assert.strictEqual(readFileSync(failed?.log ?? "", "utf8"), "half of it\nand why it failed\n")
    assert.strictEqual(lacking?.why, "needs a moon: wait for the night")
    assert.deepStrictEqual(passed?.figures, { sends: 12 })
    assert.strictEqual(exitCode(rows, false), 1)
    assert.include(said.join("\n"), "[1/4] fails: failed, it ended with 3")
    const lines = table(rows).split("\n")
    assert.lengthOf(lines, 5)
    assert.match(lines[1] ?? "", /^fails +failed +[\d min]+s +it ended with 3$/)
    assert.match(lines[2] ?? "", /^lacks +skipped +needs a moon: wait for the night$/)
    // What ended at once took no time, and has run all the same.
    assert.match(table([{ ...rows[0]!, seconds: 0 }]), /\nfails +failed +0 s +it ended with 3$/)
    assert.match(lines[3] ?? "", /^passes +passed +[\d min]+s +sends 12$/)
  })

  it("stops a programme that hangs, and what it started, and fails it", async () => {
    const pidFile = join(folder, "child.pid")
    const child = `require("node:fs").writeFileSync(${JSON.stringify(pidFile)}, String(process.pid)); ${HANGS}`
    const hangs = tiny(
      "hangs",
      `process.on("SIGTERM", () => {}); require("node:child_process").spawn(process.execPath, ["-e", ${
        JSON.stringify(child)
      }]); ${HANGS}`,
      {
        least: 1
      }
    )
    const { rows, verdicts } = await running([hangs, passes])
    assert.deepStrictEqual(verdicts, { hangs: "failed", passes: "passed" })
    assert.match(rows[0]?.why ?? "", /^given 1 s, stopped after \d/)
    assert.strictEqual(exitCode(rows, false), 1)
    if (existsSync(pidFile)) {
      const pid = Number(readFileSync(pidFile, "utf8"))
      await eventually("the end of what it started", () => alive(pid) ? undefined : true)
    }
  })

  it("does not run what does not fit, and never says that it passed", async () => {
    const long = tiny("long", "0", { least: 1_000 })
    const { rows, verdicts } = await running([long, passes], { seconds: 200 })
    assert.deepStrictEqual(verdicts, { long: "not run", passes: "passed" })
    assert.match(rows[0]?.why ?? "", /^it takes 16 min 40 s at least, and 3 min \d\d s were left$/)
    assert.strictEqual(exitCode(rows, false), 0)
    const none = await running([long], { seconds: 200 })
    assert.strictEqual(exitCode(none.rows, false), 2)
  })

  it("stops when it is interrupted, and has a row for each programme", async () => {
    const stop = new AbortController()
    const hangs = tiny("hangs", `console.log("still at it"); ${HANGS}`)
    const { rows, verdicts } = await running([passes, hangs, fails], {
      signal: stop.signal,
      tellEverySeconds: 0.05,
      // What a running programme has written last is told meanwhile.
      say: (line) => line.endsWith("still at it") ? stop.abort() : undefined
    })
    assert.deepStrictEqual(verdicts, { passes: "passed", hangs: "not run", fails: "not run" })
    assert.match(rows[1]?.why ?? "", /^interrupted after \d/)
    assert.strictEqual(exitCode(rows, true), 130)
  })

  it("gives each its shortest run, and divides what is left by weight up to what is useful", () => {
    const fixed = tiny("fixed", "", { least: 100 })
    const grows = tiny("grows", "", { least: 100, weight: 1 })
    const most = tiny("most", "", { least: 50, weight: 1, most: 80 })
    const heavy = tiny("heavy", "", { least: 100, weight: 3 })
    assert.deepStrictEqual(shareOut([fixed, grows, most, heavy], 780), [100, 200, 80, 400])
    assert.deepStrictEqual(shareOut([fixed, grows, most, heavy], 780, 100), [100, 175, 80, 325])
    assert.deepStrictEqual(shareOut([fixed, grows, most, heavy], 260), [100, 105, 55, undefined])
    assert.deepStrictEqual(shareOut([heavy, fixed], 100), [100, undefined])
  })

  it("gives the command of each programme the time that is its share", async () => {
    let given = 0
    const grows = tiny("grows", "0", {
      weight: 1,
      command: (seconds) => {
        given = seconds
        return { args: ["-e", "0"] }
      }
    })
    await running([grows, tiny("other", "0", { least: 100 })], { seconds: 1_000 })
    // 900 less the shortest run of the other; a tenth of the whole time is in reserve.
    assert.approximately(given, 800, 5)
  })
})

describe("the programmes", () => {
  const page = readFileSync(new URL("../../verification/README.md", import.meta.url), "utf8")

  it("are in the page of verification/, each with its script", () => {
    for (const { name, script } of programmes) {
      assert.match(page, new RegExp(`^\\| \`${name}\` \\|.*\`npm run ${script}\``, "m"), name)
    }
    assert.strictEqual(new Set(programmes.map(({ name }) => name)).size, programmes.length)
  })

  it("run what their scripts run, longer where there is time", () => {
    for (const { command, least, most = 36_000, script } of programmes) {
      if (script === "check") continue
      const { args, env } = commandOf(script)
      for (const seconds of [least, most]) {
        const run = command(seconds)
        assert.deepStrictEqual(run.args.slice(0, args.length), args, script)
        assert.containsAllKeys({ ...run.env, "": "" }, [...Object.keys(env ?? {}), ""], script)
        assert.notInclude(JSON.stringify(run), "NaN")
      }
      assert.isTrue(args.some((arg) => existsSync(new URL(`../../${arg}`, import.meta.url))), script)
    }
  })

  it("find their figures in what is printed", () => {
    assert.deepStrictEqual(
      tests("\n Test Files  14 passed (14)\n      Tests  2 failed | 118 passed | 3 skipped (123)\n"),
      {
        failed: 2,
        passed: 118,
        skipped: 3
      }
    )
    const figuresOf = (name: string, output: string) =>
      programmes.find((programme) => programme.name === name)?.figures?.(output)
    const row = { lost: 0, duplicated: 1, reordered: 0, other: 2 }
    assert.deepStrictEqual(
      figuresOf(
        "faults",
        `kill-node\n${JSON.stringify({ seed: 1, sends: 9_000, perSecond: 3, rows: [row, row] })}\nFAILED`
      ),
      {
        faults: 2,
        sends: 9_000,
        lost: 0,
        duplicated: 2,
        "out of order": 0,
        other: 4
      }
    )
    assert.deepStrictEqual(
      figuresOf("kill", "SEED=1\n{\n  kills: 20,\n  killsAtStart: 3,\n  acknowledged: 5120,\n  sentAgain: 44,\n}"),
      {
        kills: 20,
        acknowledged: 5_120,
        sentAgain: 44
      }
    )
    for (const { name } of programmes) assert.deepStrictEqual(figuresOf(name, "the nodes need a Redis") ?? {}, {}, name)
  })
})

const alive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

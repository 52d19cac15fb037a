import { Config, effective } from "#infrastructure/platform/Config"
import { parse } from "#infrastructure/platform/SettingsFile"
import { Environment } from "#infrastructure/platform/UnknownSettings"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { parleyHere } from "../support/Admin.ts"
import { runParley } from "../support/RunParley.ts"

const home = mkdtempSync(join(tmpdir(), "parley-settings-"))
afterAll(() => rmSync(home, { recursive: true, force: true }))

let files = 0
const fileOf = (text: string, mode = 0o600): string => {
  const file = join(home, `parley-${files++}.env`)
  writeFileSync(file, text)
  chmodSync(file, mode)
  return file
}

const within = (env: Readonly<Record<string, string>>) => Effect.provideService(Environment, env)

describe("the format of a settings file", () => {
  const values = (text: string) => {
    const { assignments, malformed } = parse(text)
    assert.deepStrictEqual(malformed, [], text)
    return assignments.map(({ name, value }) => `${name}=${value}`)
  }

  it("has values without quotes, in quotes, and on several lines, as systemd reads them", () => {
    for (
      const [text, ...expected] of [
        ["A=1", "A=1"],
        ["A=1\nB=2\r\nC=3\r", "A=1", "B=2", "C=3"],
        ["\uFEFF  A =  one two \t \nB=", "A=one two", "B="],
        ["# A=1\n ; B=2\n\n#C=3 \\\nD=4", "D=4"],
        ["A=a#b # c;d", "A=a#b # c;d"],
        ["A=b=c", "A=b=c"],
        ["A='one \\n \" # two'", 'A=one \\n " # two'],
        ['A="a \\" \\\\ \\$ \\` \\n $B"', 'A=a " \\ $ ` \\n $B'],
        ['A="one\ntwo" \nB=1', "A=one\ntwo", "B=1"],
        ['A="one\\\ntwo"', "A=onetwo"],
        ["A='one' \"two\" three", "A=onetwothree"],
        ['A=say "x"', 'A=say "x"'],
        ["A=one\\\n  two \\\n\nB=1", "A=one  two ", "B=1"],
        ["A=a\\ \\bc\\\\d\\ ", "A=a bc\\d "],
        ["A=1\nA=2", "A=1", "A=2"]
      ] as const
    ) assert.deepStrictEqual(values(text), expected, text)
  })

  it("has the number of the line in which each assignment begins", () => {
    const { assignments } = parse('# one\nA="2\n3"\n\nB=5\\\n6\nC=7')
    assert.deepStrictEqual(assignments.map(({ line, name }) => [name, line]), [["A", 2], ["B", 5], ["C", 7]])
  })

  it("has no other lines, and a problem does not show a value", () => {
    const { assignments, malformed } = parse("export A=s3cret\nB\n3C=s3cret\nD=4\nE='s3cret\nF=6\n")
    assert.deepStrictEqual(assignments.map(({ name }) => name), ["D"])
    assert.deepStrictEqual(malformed.map(({ line }) => line), [1, 2, 3, 5])
    assert.notInclude(JSON.stringify(malformed), "s3cret")
  })
})

describe("the settings file", () => {
  it.effect("sets what the environment does not set", () =>
    Effect.gen(function*() {
      const file = fileOf("PORT=8080\nHOST=0.0.0.0\nMAIL_FROM=\nMETRICS_TOKEN=s3cret\n")
      const env = { PARLEY_CONFIG: file, HOST: "10.0.0.1", PORT: " ", LOG_LEVEL: "warn" }
      const config = yield* within(env)(Config.load)
      assert.deepInclude(config, { PORT: 8080, HOST: "10.0.0.1", MAIL_FROM: "Parley <parley@localhost>" })
      const shown = effective(config, yield* within(env)(Config.origins))
      const of = (name: string) => shown.find((one) => one.name === name)
      assert.strictEqual(of("PORT")?.origin, `${file}:1`)
      assert.strictEqual(of("HOST")?.origin, "environment")
      assert.strictEqual(of("LOG_LEVEL")?.origin, "environment")
      assert.strictEqual(of("MAIL_FROM")?.origin, "default")
      assert.deepInclude(of("METRICS_TOKEN"), { origin: `${file}:4`, value: "(set, not shown)" })
      assert.notInclude(JSON.stringify(shown), "s3cret")
      assert.deepStrictEqual(yield* within(env)(Config.warnings), [])
      assert.deepStrictEqual(yield* within(env)(Config.environment), {
        PARLEY_CONFIG: file,
        PORT: "8080",
        HOST: "10.0.0.1",
        LOG_LEVEL: "warn",
        MAIL_FROM: "",
        METRICS_TOKEN: "s3cret"
      })
    }))

  it.effect("has all of its problems reported at once, each with its file and line", () =>
    Effect.gen(function*() {
      const file = fileOf([
        "PORT=70000",
        "export A=1",
        "LIMITS_SENDS_PER_SEC=1",
        "METRICS_TOKEN=a s3cret",
        "HTTP_HEADERS_SECONDS=200",
        "S3_ACCESS_KEY_ID=alone"
      ].join("\n"))
      const { problems } = yield* Effect.flip(within({ PARLEY_CONFIG: file, LOG_LEVEL: "loud" })(Config.load))
      const beginnings = [
        `${file}:1: PORT: `,
        `${file}:2: expected NAME=value`,
        `${file}:3: LIMITS_SENDS_PER_SEC: `,
        `${file}:4: METRICS_TOKEN: `,
        `${file}:5: HTTP_HEADERS_SECONDS: `,
        `${file}:6: S3_ACCESS_KEY_ID: `,
        "LOG_LEVEL: "
      ]
      for (const beginning of beginnings)
        assert.lengthOf(problems.filter((problem) => problem.startsWith(beginning)), 1, beginning)
      assert.lengthOf(problems, 7)
      assert.notInclude(problems.join(), "s3cret")
    }))

  it.effect("has a warning for a misspelled name, with the file and the line", () =>
    Effect.gen(function*() {
      const file = fileOf("# nodes\nRUNNER_SECRT=s3cret\nAWS_PROFILE=x\n")
      assert.deepStrictEqual(yield* within({ PARLEY_CONFIG: file })(Config.warnings), [
        `${file}:2: RUNNER_SECRT is set, but Parley has no such setting; the most similar name is RUNNER_SECRET`
      ])
    }))

  it.effect("has one warning if it sets secrets and every user can read it", () =>
    Effect.gen(function*() {
      const text = "METRICS_TOKEN=s3cret\nRUNNER_SECRET=s3cret\n"
      const warnings = (file: string) => within({ PARLEY_CONFIG: file })(Config.warnings)
      const open = fileOf(text, 0o644)
      const found = yield* warnings(open)
      assert.lengthOf(found, 1)
      for (const said of [open, "METRICS_TOKEN", "RUNNER_SECRET", "chmod o-r"]) assert.include(found[0], said)
      assert.notInclude(found[0], "s3cret")
      for (const file of [fileOf(text, 0o640), fileOf("PORT=1\n", 0o644)])
        assert.deepStrictEqual(yield* warnings(file), [])
    }))

  it.effect("must exist if PARLEY_CONFIG names it", () =>
    Effect.gen(function*() {
      for (const [path, why] of [[join(home, "none"), "there is no such file"], [home, "it is a folder"]] as const) {
        const { problems } = yield* Effect.flip(within({ PARLEY_CONFIG: path })(Config.load))
        assert.deepStrictEqual(problems, [`PARLEY_CONFIG: ${path} cannot be read: ${why}`])
      }
    }))
})

describe("parley config", () => {
  it("check exits with 1 and prints every problem, also those of a node, and with 0 if there is none", async () => {
    const bad = fileOf("PORT=x\nSOCKET_PING_SECONDS=5\n")
    const failed = await parleyHere({ PARLEY_CONFIG: bad, LOG_LEVEL: "loud" }, ["config", "check", "--node"])
    assert.strictEqual(failed.code, 1)
    assert.strictEqual(failed.stdout, "")
    const lines = failed.stderr.trimEnd().split("\n")
    const beginnings = [
      `${bad}:2: SOCKET_PING_SECONDS is set`,
      `${bad}:1: PORT: `,
      "LOG_LEVEL: ",
      "DATABASE_URL: ",
      "REDIS_URL: ",
      "S3_BUCKET: "
    ]
    assert.lengthOf(lines, beginnings.length)
    for (const [i, beginning] of beginnings.entries())
      assert.isTrue(lines[i]?.startsWith(`parley: ${beginning}`), lines[i])
    const good = fileOf("PORT=8080\nLOG_LEVEL=warn\n")
    const checked = await parleyHere({ PARLEY_CONFIG: good, HOST: "::1" }, ["config", "check"])
    assert.deepStrictEqual(checked, {
      code: 0,
      stderr: "",
      stdout: `The settings are valid: 2 from ${good}, 1 from the environment.\n`
    })
    assert.strictEqual(
      (await parleyHere({}, ["config", "check"])).stdout,
      "The settings are valid: all have their defaults.\n"
    )
    assert.strictEqual((await parleyHere({ ROLE: "gateway" }, ["config", "check"])).code, 1)
  })

  it("show prints every setting with its origin, and no secret", async () => {
    const file = fileOf("DATABASE_URL=postgres://parley:s3cret@db/parley\n")
    const { code, stdout } = await parleyHere({ PARLEY_CONFIG: file, PORT: "1" }, ["config", "show"])
    assert.strictEqual(code, 0)
    assert.match(stdout, /^PORT +1 +environment$/m)
    assert.match(stdout, /^HOST +127\.0\.0\.1 +default$/m)
    assert.include(stdout, `(set, not shown)`)
    assert.include(stdout, `${file}:1`)
    assert.notInclude(stdout, "s3cret")
  })

  it("reads .env in the current folder, unless PARLEY_CONFIG names another file", async () => {
    const folder = mkdtempSync(join(home, "current-"))
    writeFileSync(join(folder, ".env"), "PORT=8080\n", { mode: 0o600 })
    const shown = await runParley(["config", "show"], { PARLEY_CONFIG: "" }, { cwd: folder })
    assert.include(shown.stdout, `${join(folder, ".env")}:1`)
    const none = await runParley(["config", "show"], { PARLEY_CONFIG: "/dev/null" }, { cwd: folder })
    assert.notInclude(none.stdout, ".env")
  })
})

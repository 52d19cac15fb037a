import { assert, it } from "@effect/vitest"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { commands } from "../../runners/Commands.ts"
import { typedAt } from "../../runners/Typed.ts"
import { VERSION } from "#doors/service/Version"
import { parleyHere } from "../support/Admin.ts"

/** The parts of a help text by their headings. */
const parts = (help: string): ReadonlyMap<string, ReadonlyArray<string>> =>
  new Map(help.split(/^(?=[A-Z]+\b)/m).map((part) => {
    const [heading = "", ...lines] = part.trimEnd().split("\n")
    return [/^(GLOBAL )?[A-Z]+/.exec(heading)?.[0] ?? heading, lines.map((line) => line.trim())]
  }))

const ORDER = ["DESCRIPTION", "USAGE", "ARGUMENTS", "FLAGS", "GLOBAL FLAGS", "SUBCOMMANDS", "SETTINGS", "EXAMPLES"]

it("the help of every command has the same parts in the same order, one sentence, and an example that can be typed", async () => {
  const seen: Array<string> = []
  const look = async (...path: ReadonlyArray<string>): Promise<void> => {
    const name = ["parley", ...path].join(" ")
    const { code, stderr, stdout } = await parleyHere({}, [...path, "--help"])
    assert.deepStrictEqual([code, stderr], [0, ""], name)
    const found = parts(stdout)
    assert.deepStrictEqual([...found.keys()], ORDER.filter((heading) => found.has(heading)), name)
    assert.lengthOf(found.get("DESCRIPTION") ?? [], 1, name)
    assert.match(found.get("USAGE")?.[0] ?? "", new RegExp(`^${name}( |$)`), name)
    const examples = found.get("EXAMPLES")?.filter((line) => !line.startsWith("#")) ?? []
    assert.isNotEmpty(examples, name)
    for (const example of examples) {
      assert.match(example, new RegExp(`^([A-Z0-9_]+=\\S+ )*${name}( |$)`), name)
      // The parser takes it: with --help nothing is done.
      const typed = example.replaceAll(/[A-Z0-9_]+=\S+ /g, "").split(" ").slice(1)
      const tried = await parleyHere({}, [...typed.filter((word) => word !== "--help"), "--help"])
      assert.strictEqual(tried.code, 0, example)
    }
    seen.push(path.join(" "))
    for (const line of found.get("SUBCOMMANDS") ?? []) await look(...path, line.split(" ")[0] ?? "")
  }
  await look()
  assert.includeMembers(seen, [...Object.keys(commands), "admin", "admin agents create", "admin config"])
})

it("shows commands as they are typed where it was started", async () => {
  const folder = await mkdtemp(join(tmpdir(), "parley-typed-"))
  try {
    const checkout = { folder: "/srv/checkout", program: "/srv/checkout/runners/parley.js", script: undefined }
    const byNpm = typedAt({ ...checkout, script: "exec node --max-semi-space-size=16 runners/parley.js start" })
    assert.strictEqual(byNpm("parley start"), "npm start")
    assert.strictEqual(byNpm("PORT=8080 DATA_DIR=/var/lib/parley parley start --help"), "PORT=8080 DATA_DIR=/var/lib/parley npm start -- --help")
    assert.strictEqual(byNpm("parley admin agents create <handle...> [flags]"), "npm run admin -- agents create <handle...> [flags]")
    assert.strictEqual(byNpm("parley admin backup /backups/parley-$(date +%F).tar"), "npm run admin -- backup /backups/parley-$(date +%F).tar")
    const byNode = typedAt(checkout)
    assert.strictEqual(byNode("parley <subcommand> [flags]"), "node runners/parley.js <subcommand> [flags]")
    assert.strictEqual(byNode("parley admin config"), "node runners/parley.js admin config")
    const program = join(folder, "node_modules/.bin/parley")
    assert.strictEqual(typedAt({ folder, program, script: "parley" })("parley admin config"), "parley admin config")
    await mkdir(join(folder, "node_modules/.bin"), { recursive: true })
    await writeFile(program, "")
    assert.strictEqual(typedAt({ folder, program, script: "parley" })("parley admin config"), "npx parley admin config")

    const help = await parleyHere({}, ["admin", "agents", "create", "--help"], byNpm)
    assert.include(help.stdout, "\n  npm run admin -- agents create scout planner\n")
    assert.notMatch(help.stdout, /(^|\s)parley /m)
    const wrong = await parleyHere({}, ["admin", "agents", "create"], byNpm)
    assert.strictEqual(wrong.stderr, "parley: Missing required argument: handle. See npm run admin -- agents create --help\n")
  } finally {
    await rm(folder, { recursive: true })
  }
})

it("what is typed wrongly is one line on standard error that names the help", async () => {
  for (const [args, said] of [
    [["strat"], 'parley: Unknown subcommand "strat" for "parley"'],
    [["admin", "agents", "create"], "parley: Missing required argument: handle. See parley admin agents create --help\n"],
    [["runner", "--port", "5"], "parley: Unrecognized flag: --port in command parley runner"]
  ] as const) {
    const { code, stderr, stdout } = await parleyHere({}, args)
    assert.deepStrictEqual([code, stdout], [1, ""], stderr)
    assert.isTrue(stderr.startsWith(said), stderr)
    assert.match(stderr, /^[^\n]+ See parley[a-z ]* --help\n$/)
  }
  assert.strictEqual((await parleyHere({}, ["--version"])).stdout, `parley ${VERSION}\n`)
})

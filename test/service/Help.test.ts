import { assert, it } from "@effect/vitest"
import { commands } from "../../runners/Commands.ts"
import { VERSION } from "../../src/service/Version.ts"
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
    const { code, stderr, stdout } = await parleyHere({}, ...path, "--help")
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
      const tried = await parleyHere({}, ...typed.filter((word) => word !== "--help"), "--help")
      assert.strictEqual(tried.code, 0, example)
    }
    seen.push(path.join(" "))
    for (const line of found.get("SUBCOMMANDS") ?? []) await look(...path, line.split(" ")[0] ?? "")
  }
  await look()
  assert.includeMembers(seen, [...Object.keys(commands), "admin", "admin agents create", "admin config"])
})

it("what is typed wrongly is one line on standard error that names the help", async () => {
  for (const [args, said] of [
    [["strat"], 'parley: Unknown subcommand "strat" for "parley"'],
    [["admin", "agents", "create"], "parley: Missing required argument: handle. See parley admin agents create --help\n"],
    [["runner", "--port", "5"], "parley: Unrecognized flag: --port in command parley runner"]
  ] as const) {
    const { code, stderr, stdout } = await parleyHere({}, ...args)
    assert.deepStrictEqual([code, stdout], [1, ""], stderr)
    assert.isTrue(stderr.startsWith(said), stderr)
    assert.match(stderr, /^[^\n]+ See parley[a-z ]* --help\n$/)
  }
  assert.strictEqual((await parleyHere({}, "--version")).stdout, `parley ${VERSION}\n`)
})

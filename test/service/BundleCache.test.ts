import { afterAll, assert, describe, it } from "@effect/vitest"
import { execFile } from "node:child_process"
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"

const ROOT = join(import.meta.dirname, "../..")

/** Without the rights of root, which may read and write everything. */
const OTHER_USER = process.getuid?.() === 0 ? { uid: 1, gid: 1 } : {}

/** A program that prints from where it was loaded. */
const COMMANDS = `
const from = new Error().stack.includes("/bundle-") ? "bundle" : "sources"
export const commands = { start: async () => console.log(from), later: async () => (await import("./Later.ts")).later() }
`

const homes: Array<string> = []
afterAll(() => {
  for (const home of homes) rmSync(home, { recursive: true, force: true })
})

/** A checkout with a small program, which Parley's own files load and bundle. */
class Checkout {
  readonly root = mkdtempSync(join(tmpdir(), "parley-checkout-"))
  readonly cache = join(this.root, "node_modules/.cache/parley")

  constructor() {
    homes.push(this.root)
    chmodSync(this.root, 0o755)
    for (const folder of ["build", "runners", "src"]) mkdirSync(join(this.root, folder))
    mkdirSync(this.cache, { recursive: true })
    for (const name of readdirSync(join(ROOT, "runners")).filter((file) => file.endsWith(".js")))
      cpSync(join(ROOT, "runners", name), join(this.root, "runners", name))
    cpSync(join(ROOT, "build/Bundler.ts"), join(this.root, "build/Bundler.ts"))
    symlinkSync(join(ROOT, "node_modules/rolldown"), join(this.root, "node_modules/rolldown"))
    this.write("package.json", `{ "type": "module" }`)
    this.write("runners/Commands.ts", COMMANDS)
    this.write("runners/CommandLine.ts", "export const parley = async () => 0")
    this.write("runners/Later.ts", 'export const later = () => console.log("later")')
  }

  write(name: string, text: string): void {
    writeFileSync(join(this.root, name), text)
  }

  /** Runs a command, which must succeed. Returns what it prints, without the notice that a slow machine gets. */
  async start(options: { readonly uid?: number; readonly gid?: number } = {}, umask = "022", command = "start") {
    const { stderr, stdout } = await promisify(execFile)(
      "/bin/sh",
      ["-c", `umask ${umask}; exec "$@"`, "sh", process.execPath, "runners/parley.js", command],
      { cwd: this.root, env: { NODE_DISABLE_COMPILE_CACHE: "1" }, ...options }
    )
    return { from: stdout.trim(), stderr: stderr.replace(/^Preparing the program in .*\n/m, "") }
  }

  names(prefix: string): ReadonlyArray<string> {
    return readdirSync(this.cache).filter((name) => name.startsWith(prefix))
  }

  /** The only bundle in the cache. */
  get bundle(): string {
    const names = this.names("bundle-")
    assert.lengthOf(names, 1)
    return join(this.cache, names[0]!)
  }
}

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8)

describe("the bundle of a checkout", () => {
  it("is used by all users, whatever the umask was when it was made", async () => {
    const checkout = new Checkout()
    rmSync(join(checkout.root, "node_modules/.cache"), { recursive: true })
    assert.deepStrictEqual(await checkout.start({}, "077"), { from: "bundle", stderr: "" })
    assert.strictEqual(modeOf(checkout.bundle), "755")
    for (const name of readdirSync(checkout.bundle))
      assert.strictEqual(modeOf(join(checkout.bundle, name)), "644", name)
    assert.strictEqual((await checkout.start(OTHER_USER)).from, "bundle")
  })

  it("is not needed: without rights on it, the sources run", async () => {
    const checkout = new Checkout()
    await checkout.start()
    chmodSync(checkout.bundle, 0)
    for (const mode of [0o777, 0o555]) {
      chmodSync(checkout.cache, mode)
      assert.deepStrictEqual(await checkout.start(OTHER_USER), { from: "sources", stderr: "" })
      assert.lengthOf(readdirSync(checkout.cache), 1)
    }
    chmodSync(checkout.bundle, 0o755)
    for (const name of readdirSync(checkout.bundle)) {
      if (name !== "files.json") chmodSync(join(checkout.bundle, name), 0)
    }
    const { from, stderr } = await checkout.start(OTHER_USER)
    assert.strictEqual(from, "sources")
    assert.include(stderr, `parley: ${checkout.bundle} cannot be loaded, so Parley loads its sources: `)
    chmodSync(checkout.cache, 0o755)
  })

  it("is made again if a file of it is empty or missing", async () => {
    const checkout = new Checkout()
    await checkout.start()
    const chunk = readdirSync(checkout.bundle).find((name) => name.startsWith("Later-")) ?? assert.fail("no chunk")
    for (
      const damage of [
        () => truncateSync(join(checkout.bundle, chunk)),
        () => rmSync(join(checkout.bundle, chunk)),
        () => truncateSync(join(checkout.bundle, "files.json"))
      ]
    ) {
      damage()
      assert.deepStrictEqual(await checkout.start({}, "022", "later"), { from: "later", stderr: "" })
      assert.isAbove(statSync(join(checkout.bundle, chunk)).size, 0)
    }
  })

  it("is removed if it is damaged, and made again by the next start", async () => {
    const checkout = new Checkout()
    await checkout.start()
    const file = join(checkout.bundle, "Commands.js")
    const { size } = statSync(file)
    writeFileSync(file, Buffer.alloc(size))
    const { from, stderr } = await checkout.start()
    assert.strictEqual(from, "sources")
    assert.match(
      stderr,
      /^parley: .*\/bundle-[0-9a-f]{16} cannot be loaded, so Parley loads its sources: Invalid .+\n$/
    )
    assert.deepStrictEqual(checkout.names("bundle-"), [])
    assert.deepStrictEqual(await checkout.start(), { from: "bundle", stderr: "" })
    writeFileSync(file, "//".padEnd(size))
    assert.include((await checkout.start()).stderr, "Commands.js has no commands")
    assert.deepStrictEqual(checkout.names("bundle-"), [])
  })

  it("is not tried to be made where nothing can be written", async () => {
    const checkout = new Checkout()
    checkout.write("build/Bundler.ts", 'console.log("the bundler is loaded")')
    assert.strictEqual((await checkout.start()).from, "the bundler is loaded\nsources")
    assert.deepStrictEqual(readdirSync(checkout.cache), [])
    chmodSync(checkout.cache, 0o555)
    assert.deepStrictEqual(await checkout.start(OTHER_USER), { from: "sources", stderr: "" })
    chmodSync(checkout.cache, 0o755)
  })

  it("is made by several starts at once, beside the bundles that were used in the last days", async () => {
    const checkout = new Checkout()
    const made = (name: string, hours: number) => {
      const folder = join(checkout.cache, name)
      mkdirSync(folder)
      const seconds = statSync(folder).mtimeMs / 1_000 - hours * 3_600
      utimesSync(folder, seconds, seconds)
    }
    for (let i = 10; i < 40; i++) made(`bundle-recent${i}`, 24)
    for (let i = 10; i < 40; i++) made(`bundle-old${i}`, 240)
    made("making-old", 24)
    made("making-recent", 0)
    const started = await Promise.all([checkout.start(), checkout.start(), checkout.start()])
    assert.deepStrictEqual(started, Array.from({ length: 3 }, () => ({ from: "bundle", stderr: "" })))
    assert.lengthOf(checkout.names("bundle-recent"), 30)
    assert.lengthOf(checkout.names("bundle-old"), 0)
    assert.lengthOf(checkout.names("bundle-"), 31)
    assert.deepStrictEqual(checkout.names("making-"), ["making-recent"])
  })

  it("stays in the cache while it is used", async () => {
    const checkout = new Checkout()
    await checkout.start()
    const list = readFileSync(join(checkout.bundle, "files.json"), "utf8")
    utimesSync(checkout.bundle, 0, 1)
    await checkout.start()
    assert.isAbove(statSync(checkout.bundle).mtimeMs, 1_000)
    assert.strictEqual(readFileSync(join(checkout.bundle, "files.json"), "utf8"), list)
  })
})

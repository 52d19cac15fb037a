import { settings } from "#infrastructure/platform/Config"
import { VERSION } from "#infrastructure/platform/Version"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { chanceFor, eventually, within } from "../support/Eventually.ts"
import { MEASURES } from "../support/Promptly.ts"
import { SHORT_LIVED } from "../support/Server.ts"
import { keepLog } from "../support/ServerLogs.ts"

const ROOT = resolve(import.meta.dirname, "../..")
const OLD_NODE = "/usr/local/bin:/usr/bin:/bin"

interface Run {
  readonly child: ChildProcess
  readonly stdout: () => string
  readonly stderr: () => string
  readonly ended: Promise<number | null>
}

const running = new Set<ChildProcess>()

/** Runs a command in a process group of its own, of which nothing is left when the tests have ended. */
const launch = (command: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>>): Run => {
  const child = spawn(command, args, {
    cwd: ROOT,
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true
  })
  running.add(child)
  let stdout = ""
  let stderr = ""
  const log = keepLog([command, ...args].join(" "))
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text
    log.add(text)
  })
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text
    log.add(text)
  })
  const ended = new Promise<number | null>((done) =>
    child.on("close", (code, signal) => {
      log.end(code ?? signal ?? -1)
      done(code)
    })
  )
  return { child, stdout: () => stdout, stderr: () => stderr, ended }
}

const run = (env: Readonly<Record<string, string>>, args: ReadonlyArray<string> = []): Run =>
  launch(process.execPath, [...SHORT_LIVED, "./runners/parley.js", "start", ...args], env)

/** The address that a server says it listens on. */
const listening = (server: Run): Promise<string> =>
  new Promise((resolve, reject) => {
    const look = () => {
      const url = /listens on (\S+)/.exec(server.stdout())?.[1]
      if (url !== undefined) resolve(url)
    }
    server.child.stdout?.on("data", look)
    server.child.on("close", (code) => reject(new Error(`ended with ${code}: ${server.stderr()}`)))
    look()
  })

/** What a start that is refused writes: that many lines on standard error, nothing else, and a code that is not 0. */
const refusal = async (refused: Run, lines: number): Promise<string> => {
  const code = await refused.ended
  assert.isAbove(code ?? 0, 0)
  assert.strictEqual(refused.stderr().trimEnd().split("\n").length, lines, refused.stderr())
  assert.notInclude(refused.stdout(), "listens")
  return refused.stderr()
}

const scripts = (): Readonly<Record<string, string>> =>
  (JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { readonly scripts: Record<string, string> }).scripts

let folder = ""
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "parley-standalone-"))
})
afterAll(() => {
  for (const { pid } of running) {
    try {
      if (pid !== undefined) process.kill(-pid, "SIGKILL")
    } catch {
      // Nothing of the group is left.
    }
  }
  rmSync(folder, { recursive: true, force: true })
})

describe("npm start", () => {
  it("names every setting that is wrong, a line each, before it touches anything", async () => {
    const dataDir = join(folder, "untouched")
    const wrong = { PORT: "99999", LOG_LEVEL: "loud", DATABASE_URL: "mysql://u:hidden@h/d", LIMITS_SENDS_PER_SEC: "5" }
    const said = await refusal(run({ DATA_DIR: dataDir, ...wrong }), 4)
    assert.include(said, "LIMITS_SENDS_PER_SECOND")
    for (const name of ["PORT", "LOG_LEVEL", "DATABASE_URL"])
      assert.match(said, new RegExp(`^parley: ${name}: expected`, "m"))
    assert.notInclude(said, "hidden")
    assert.notInclude(readdirSync(folder), "untouched")
  })

  it("says that the folder cannot be used", async () => {
    const file = join(folder, "a-file")
    writeFileSync(file, "")
    assert.include(await refusal(run({ DATA_DIR: join(file, "data"), PORT: "0" }), 1), `DATA_DIR ${join(file, "data")}`)
  })

  it("says that a folder is not there: the one for temporary files of the demo, and the current one", async () => {
    const demo = launch(process.execPath, [...SHORT_LIVED, "./runners/parley.js", "demo"], {
      TMPDIR: join(folder, "none")
    })
    assert.include(
      await refusal(demo, 1),
      `parley: The folder for temporary files, ${join(folder, "none")}, cannot be used.`
    )
    const gone = mkdtempSync(join(folder, "gone-"))
    const line = 'cd "$1" && rmdir "$1" && exec "$2" "$3" start'
    const lost = launch("sh", ["-c", line, "sh", gone, process.execPath, join(ROOT, "runners/parley.js")], {})
    assert.strictEqual(
      await refusal(lost, 1),
      "parley: The current folder does not exist any more. Change to another folder.\n"
    )
  })

  it("says that the database cannot be reached, without its password", async () => {
    const port = await freePort()
    const env = {
      DATA_DIR: join(folder, "pg"),
      PORT: "0",
      DATABASE_URL: `postgres://u:hidden@127.0.0.1:${port}/parley`
    }
    const said = await refusal(run(env), 1)
    assert.include(said, "database")
    assert.notInclude(said, "hidden")
  })

  it("shows every setting with --help, and refuses what it does not know", async () => {
    const help = run({}, ["--help"])
    assert.strictEqual(await help.ended, 0)
    const words = help.stdout().replaceAll(/\s+/g, " ")
    for (const [name, { about, shown }] of Object.entries(settings))
      assert.include(words, ` ${name} (${shown}) ${about} `)
    assert.strictEqual(
      await refusal(run({}, ["--port=5"]), 1),
      "parley: Unrecognized flag: --port in command parley start. PORT is an environment variable: PORT=… node runners/parley.js start. " +
        "See node runners/parley.js start --help\n"
    )
  })

  it("makes the database, tells a person what to do, keeps others away, drains, and starts again after a SIGKILL", async () => {
    const dataDir = join(folder, "data")
    // As systemd makes it (StateDirectory).
    mkdirSync(dataDir)
    chmodSync(dataDir, 0o755)
    const port = String(await freePort())
    const first = run({ DATA_DIR: dataDir, PORT: port, MAIL_FORM: "Parley <hidden@example.com>" })
    const url = await listening(first)
    assert.match(first.stdout(), new RegExp(`^Making the database in ${dataDir}, once\\.`))
    assert.notInclude(first.stdout(), "\u001b")
    assert.include(first.stdout(), `\n  DATA_DIR=${dataDir} node runners/parley.js admin agents create ada bob\n`)
    assert.include(first.stdout(), `${url}/docs`)
    assert.match(first.stdout(), new RegExp(`^  curl .*${url}/v1/register`, "m"))
    assert.include(first.stdout(), join(dataDir, "outbox"))
    for (const path of ["/v1/health", "/v1/ready"]) assert.strictEqual((await fetch(`${url}${path}`)).status, 200)
    const command = /curl -s (\S+) -d '(.+)'/.exec(first.stdout())
    const begun = await fetch(command?.[1] ?? "", { method: "POST", body: command?.[2] ?? "" })
    const { pending_id } = await begun.json() as { readonly pending_id: string }
    const mail = await eventually(
      "the mail",
      () => readdirSync(join(dataDir, "outbox")).find((name) => name.endsWith(".eml"))
    )
    const open = readdirSync(dataDir, { recursive: true, encoding: "utf8" }).filter((name) =>
      (statSync(join(dataDir, name)).mode & 0o077) !== 0
    )
    assert.deepStrictEqual(open, [], "other users of the machine can read it")
    const code = /^\d{6}$/m.exec(readFileSync(join(dataDir, "outbox", mail), "utf8"))?.[0] ?? "none"
    await eventually("its code on the screen", () => first.stdout().includes(code) || undefined)
    assert.notInclude(first.stderr(), code)
    assert.match(
      first.stderr(),
      /^\{.*"level":"warn","message":"MAIL_FORM is set, but Parley has no such setting; the most similar name is MAIL_FROM"\}$/m
    )
    assert.notInclude(first.stderr(), "hidden")
    const verified = await fetch(`${url}/v1/register/verify`, {
      method: "POST",
      body: JSON.stringify({ pending_id, code })
    })
    assert.isTrue(verified.ok, await verified.text())

    assert.include(await refusal(run({ DATA_DIR: dataDir, PORT: "0" }), 1), `DATA_DIR ${dataDir} is in use`)
    const busy = run({ DATA_DIR: join(folder, "other"), PORT: port })
    assert.include(await refusal(busy, 1), `Port ${port} on 127.0.0.1 is in use`)
    assert.notInclude(busy.stdout(), "Making the database")

    first.child.kill("SIGKILL")
    await first.ended
    const second = run({ DATA_DIR: dataDir, PORT: port })
    assert.strictEqual(await listening(second), url)
    assert.notInclude(second.stdout(), "Making the database")
    // An agent exists now.
    assert.notMatch(second.stdout(), /curl|agents create|no agent/)
    assert.include(second.stdout(), join(dataDir, "outbox"))
    second.child.kill("SIGTERM")
    assert.strictEqual(await second.ended, 0)
    assert.strictEqual(second.stderr(), "")

    const third = run({ DATA_DIR: dataDir, PORT: port })
    await listening(third)
    const slow = connect(Number(port), "127.0.0.1")
    slow.on("error", () => {})
    slow.write("POST /v1/register HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n")
    await fetch(`${url}/`)
    third.child.kill("SIGINT")
    await new Promise<void>((resolve) => third.child.stdout?.on("data", () => resolve()))
    // npm passes on a Ctrl-C that has reached the server already, at once.
    if (MEASURES) third.child.kill("SIGINT")
    const still = await Promise.race([third.ended, chanceFor("its end", 700).then(() => "waiting")])
    if (MEASURES) assert.strictEqual(still, "waiting")
    third.child.kill("SIGINT")
    const how = await third.ended
    // It may have finished meanwhile.
    if (MEASURES || (how !== 0 && how !== 1)) assert.strictEqual(how, 130)
    slow.destroy()
  })

  it("stops, and frees its folder, when a person kills npm: npm start & kill $!", async ({ skip }) => {
    const version = spawnSync("npm", ["--version"], { encoding: "utf8" }).stdout?.trim() ?? ""
    const [major = 0, minor = 0] = version.split(".").map(Number)
    if (major < 10 || (major === 10 && minor < 3))
      skip(`needs an npm that passes signals on, 10.3 or newer: this is ${version}`)
    for (const name of ["start", "runner", "cluster"]) assert.match(scripts()[name] ?? "", /^exec node /, name)
    const dataDir = join(folder, "data")
    const npm = launch("npm", ["start"], {
      DATA_DIR: dataDir,
      PORT: "0",
      HOME: folder,
      npm_config_cache: join(folder, "npm-cache"),
      npm_config_update_notifier: "false"
    })
    await listening(npm)
    npm.child.kill("SIGTERM")
    await within("the end of npm and of its server", npm.ended)
    assert.include(npm.stdout(), "Finishing what is under way")
    const next = run({ DATA_DIR: dataDir, PORT: "0" })
    await listening(next)
    next.child.kill("SIGTERM")
    assert.strictEqual(await next.ended, 0)
  })

  it("stops when the shell in which npx started it has gone, and says how to stop it under an npm that keeps signals", async () => {
    const server = launch("sh", ["-c", `"${process.execPath}" runners/parley.js start; exit`], {
      DATA_DIR: join(folder, "data"),
      PORT: "0",
      npm_lifecycle_script: "parley start",
      npm_config_user_agent: "npm/9.9.4 node/v20.19.0 linux x64 workspaces/false"
    })
    await listening(server)
    const pid = await eventually(
      "what npm 9.9.4 keeps",
      () => /^npm 9\.9\.4 does not pass SIGTERM on.*kill (\d+)$/m.exec(server.stdout())?.[1]
    )
    assert.notStrictEqual(Number(pid), server.child.pid)
    server.child.kill("SIGTERM")
    await within("the end of the server", server.ended)
    assert.include(server.stdout(), "Finishing what is under way")
  })

  it("says in one line that Node is too old, and prints help and the version all the same", ({ skip }) => {
    const env = { PATH: OLD_NODE }
    const version = spawnSync("node", ["--version"], { env }).stdout?.toString().trim() ?? ""
    if (!/^v2[0-3]\./.test(version)) skip("needs a Node of 20 to 23 outside node_modules: Debian's or the image's")
    // Those of the package are npm's own, and run the Node beside them.
    for (
      const [name, script] of Object.entries(scripts()).filter(([name]) =>
        !["build", "format", "prepack", "postpack"].includes(name)
      )
    ) {
      assert.match(
        script,
        /^(npm run check && |node --import \.\/runners\/require-node\.js |exec node (--[\w-]+(=\d+)? )*runners\/parley\.js )/,
        name
      )
    }
    const old = spawnSync("node", ["runners/parley.js", "start"], { cwd: ROOT, env })
    assert.strictEqual(old.status, 1)
    assert.strictEqual(old.stderr.toString().trimEnd().split("\n").length, 1)
    assert.include(old.stderr.toString(), "needs Node 24")
    assert.include(old.stderr.toString(), version.slice(1))
    const help = readFileSync(join(ROOT, "runners/help.txt"), "utf8")
    for (
      const [args, printed] of [
        [["--version"], `parley ${VERSION}\n`],
        [["--help"], help.slice(help.indexOf("\n") + 1, help.indexOf("### parley start"))],
        [["admin", "agents", "create", "scout", "-h"], /^### parley admin agents create\n([^]*?)^### /m.exec(help)?.[1]]
      ] as const
    ) {
      const { status, stderr, stdout } = spawnSync("node", ["runners/parley.js", ...args], {
        cwd: ROOT,
        env,
        encoding: "utf8"
      })
      assert.deepStrictEqual([status, stderr, stdout], [0, "", printed ?? "no such help"], args.join(" "))
    }
  })
})

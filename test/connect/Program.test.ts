import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import { once } from "node:events"
import { chmodSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { get, type IncomingMessage } from "node:http"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { parleyHere } from "../support/Admin.ts"
import { eventually, within } from "../support/Eventually.ts"
import { PROGRAM, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { acknowledged, acquainted, answeredBy, Machine, replies, send, stored } from "./Connectors.ts"
import { configure as configureAt, connect, fileOf, placesOf } from "./Processes.ts"

let server: Server
beforeAll(async () => {
  server = await sharedServer()
})
afterAll(() => server?.stop())

const pair = () => acquainted(server)

const configure = (machine: Machine, agent: TestAgent, more?: object): void => configureAt(server, machine, agent, more)

/** A subcommand in this process. */
const here = async (machine: Machine, ...args: ReadonlyArray<string>) => {
  const before = { ...process.env }
  Object.assign(process.env, placesOf(machine))
  try {
    return await parleyHere({}, ["connect", ...args])
  } finally {
    for (const name of Object.keys(placesOf(machine))) {
      if (before[name] === undefined) delete process.env[name]
      else process.env[name] = before[name]
    }
  }
}

describe("parley connect", () => {
  it("keeps what the first start is told, answers with a session that it resumes, and shows its status", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine('echo "{\\"text\\": \\"Hello\\", \\"session\\": \\"s1\\"}"')
    const undecided = connect(machine, ["--as", ada.handle, "--agent", "command", "--server", server.url], {
      PARLEY_KEY: ada.key
    })
    assert.deepStrictEqual(await within("the end", undecided.ended), [78, null], undecided.output())
    assert.include(undecided.output(), "--allow contacts")

    const statusPort = await freePort()
    configure(machine, ada, { allow: undefined, statusPort })
    const args = ["--as", `@${ada.handle}`, "--allow", "all"]
    const first = connect(machine, args)
    const one = await send(bob, ada.handle, "One")
    await replies(bob, ada, [one])
    await acknowledged(ada)
    assert.include(readFileSync(fileOf(machine), "utf8"), '"allow": "all"')
    assert.strictEqual(statSync(fileOf(machine)).mode & 0o777, 0o600)

    const second = connect(machine, args)
    assert.strictEqual((await within("the end", second.ended))[0], 78, second.output())
    assert.include(second.output(), "runs already on this machine")

    const page = (host: string) =>
      within("the page", once(get({ port: statusPort, host: "127.0.0.1", headers: { host } }), "response")) as Promise<
        [IncomingMessage]
      >
    assert.deepStrictEqual(
      (await Promise.all([page(`127.0.0.1:${statusPort}`), page(`evil.example:${statusPort}`)])).map((
        [{ statusCode }]
      ) => statusCode),
      [200, 403]
    )

    await here(machine, "pause")
    const two = await send(bob, ada.handle, "Two")
    await eventually(
      "the message in the status",
      async () => / 1 waiting {2}paused/.test((await here(machine, "status")).stdout) || undefined
    )
    assert.strictEqual(machine.runs, 1)
    await here(machine, "resume")
    assert.deepStrictEqual([...answeredBy(await replies(bob, ada, [one, two]))].sort(), [one, two].sort())
    assert.strictEqual(machine.text, "run new\nrun s1\n")
    await acknowledged(ada)

    const status = JSON.parse((await here(machine, "status", "--json")).stdout) as {
      readonly runs_today: number
      readonly process: string
    }
    assert.deepInclude(status, { runs_today: 2, process: String(first.child.pid) })
    first.child.kill("SIGTERM")
    assert.deepStrictEqual(await within("the end", first.ended), [0, null], first.output())
    assert.include((await here(machine, "status")).stdout, "does not run")

    const logs = join(machine.root, "state", "parley", "connect", ada.handle, "logs")
    const written = readdirSync(logs).map((name) => readFileSync(join(logs, name), "utf8")).join("")
    for (const secret of [ada.key, "Hello", "One"]) assert.notInclude(written + first.output(), secret)
    assert.include(written, '"event":"replied"')
  })

  it("ends what is left of a run during which it was killed, and answers once", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine(
      `if ! [ -e ${"$0"}.killed ]; then touch $0.killed; kill -9 $PPID; echo "{\\"text\\": \\"From the dead\\"}"; sleep 300; fi; echo "{\\"text\\": \\"Hello\\"}"`
    )
    configure(machine, ada)
    const id = await send(bob, ada.handle, "One")
    assert.deepStrictEqual(await within("the end", connect(machine, []).ended), [null, "SIGKILL"])
    const second = connect(machine, [])
    const [reply] = await replies(bob, ada, [id])
    assert.deepInclude(reply, { content: { text: "Hello" } })
    await acknowledged(ada)
    assert.strictEqual(machine.runs, 2)
    assert.lengthOf(await stored(bob), 1)
    second.child.kill("SIGTERM")
    await second.ended
  })

  it("--dry-run prints the command and the prompt, and claims, runs, sends and acknowledges nothing", async () => {
    const [ada, bob] = await pair()
    const machine = new Machine()
    configure(machine, ada)
    const id = await send(bob, ada.handle, "What is the time?")
    const dry = connect(machine, ["--dry-run"])
    await eventually("the prompt", () => dry.output().includes("What is the time?") || undefined)
    assert.include(dry.output(), JSON.stringify([machine.program, "new"]))
    dry.child.kill("SIGINT")
    assert.deepStrictEqual(await within("the end", dry.ended), [0, null], dry.output())
    assert.strictEqual(machine.runs, 0)
    assert.deepStrictEqual((await stored(ada)).map((message) => message.id), [id])
    const claim = await ada.http.post("/v1/reply/claim", { message_id: id, holder: "session:other" })
    assert.deepInclude(claim.body, { claimed: true })
  })

  it("refuses a connect.json that others can read, and a program that can read files", async () => {
    const [ada] = await pair()
    const machine = new Machine()
    configure(machine, ada, { agent: "cursor" })
    const reads = connect(machine, [])
    assert.strictEqual((await within("the end", reads.ended))[0], 78)
    assert.include(reads.output(), "allowReads")
    configure(machine, ada, { agent: "openclaw", allowReads: true })
    const silent = connect(machine, [])
    assert.strictEqual((await within("the end", silent.ended))[0], 78)
    assert.include(silent.output(), '"reply": "tools"')
    chmodSync(fileOf(machine), 0o644)
    const { code, stderr } = await here(machine, "status")
    assert.strictEqual(code, 1)
    assert.include(stderr, "chmod 600")
  })

  it("ends with 78 if its key is dead, and says so in its status", async () => {
    const [ada] = await pair()
    const machine = new Machine()
    configure(machine, { ...ada, key: "ac_this-key-is-an-example-and-it-opens-no-door" } as TestAgent)
    const dead = connect(machine, [])
    assert.deepStrictEqual(await within("the end", dead.ended), [78, null], dead.output())
    assert.include(dead.output(), "refuses the key")
    assert.include((await here(machine, "status")).stdout, "stopped: the server refuses the key")
  })

  it("service install writes a unit and starts it, and remove ends it", async () => {
    const [ada] = await pair()
    const machine = new Machine()
    configure(machine, ada)
    const manager = process.platform === "darwin" ? "launchctl" : "systemctl"
    writeFileSync(join(machine.root, manager), `#!/bin/sh\necho "$@" >> ${machine.notes}\n`, { mode: 0o700 })
    const env = { HOME: machine.root, PATH: `${machine.root}:/usr/bin:/bin` }
    const carriedOut = async (what: string) => {
      const one = connect(machine, ["service", what, "--as", ada.handle], env)
      assert.deepStrictEqual(await within("the end", one.ended), [0, null], one.output())
    }
    const file = join(
      machine.root,
      process.platform === "darwin"
        ? `Library/LaunchAgents/parley.connect.${ada.handle}.plist`
        : `.config/systemd/user/parley-connect-${ada.handle}.service`
    )
    await carriedOut("install")
    const unit = readFileSync(file, "utf8")
    for (const part of [PROGRAM, env.PATH, placesOf(machine).XDG_STATE_HOME]) assert.include(unit, part)
    assert.notInclude(unit, ada.key)
    assert.strictEqual(statSync(file).mode & 0o777, 0o600)
    await carriedOut("remove")
    assert.isFalse(existsSync(file))
    const [first, second] = process.platform === "darwin"
      ? ["load -w", "unload -w"]
      : ["--user enable --now", "--user disable --now"]
    assert.match(machine.text, new RegExp(`${first}[^]*${second}`))
  })
})

import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import { RealtimeClient } from "agentchatme"
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { eventually, within } from "../../test/support/Eventually.ts"
import { missingForNodes } from "../../test/support/Nodes.ts"
import { Outbox } from "../../test/support/Outbox.ts"

const ROOT = resolve(import.meta.dirname, "../..")
const SHARDS = 300

/** `npm run cluster` as somebody starts it whose output goes to a file. */
class Run {
  readonly child: ChildProcess
  output = ""
  readonly ended: Promise<readonly [number | null, NodeJS.Signals | null]>

  constructor(dataDir: string, port = "0") {
    this.child = spawn(process.execPath, ["./runners/parley.js", "cluster"], {
      cwd: ROOT,
      env: {
        PATH: process.env["PATH"],
        HOME: process.env["HOME"],
        TMPDIR: process.env["TMPDIR"],
        PORT: port,
        DATA_DIR: dataDir
      },
      stdio: ["ignore", "pipe", "pipe"]
    })
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => (this.output += text))
    }
    this.ended = once(this.child, "close") as Promise<[number | null, NodeJS.Signals | null]>
  }

  get url(): string {
    return this.output.match(/clients +(http:\S+)/)?.[1] ?? assert.fail(this.output)
  }

  /** Every process that it has named. */
  get pids(): ReadonlyArray<number> {
    return [...new Set(Array.from(this.output.matchAll(/pid[ =](\d+)/g), ([, pid]) => Number(pid)))]
  }

  pidOf(node: string): number {
    return Number(this.output.match(new RegExp(`${node} pid=(\\d+)`))?.[1])
  }

  /** Waits for a line of the table that is written from now on. */
  line(what: string, holds: (line: string) => boolean, timeoutMs = 30_000): Promise<string> {
    const from = this.output.lastIndexOf("\n") + 1
    return eventually(what, () => {
      if (this.child.exitCode !== null) assert.fail(this.output)
      return this.output.slice(from).split("\n").slice(0, -1).find((line) => line.startsWith("shards=") && holds(line))
    }, timeoutMs).catch((error: unknown) => assert.fail(`${String(error)}\n${this.output}`))
  }
}

const shardsOf = (line: string, node: string): number =>
  Number(line.match(new RegExp(`${node} pid=\\d+ ready shards=(\\d+)`))?.[1] ?? 0)
const whole = (line: string, ...nodes: ReadonlyArray<string>): boolean =>
  nodes.every((node) => shardsOf(line, node) > 0) &&
  nodes.reduce((sum, node) => sum + shardsOf(line, node), 0) === SHARDS

/** Processes that have to do with a folder. */
const processesOf = (folder: string): ReadonlyArray<string> =>
  !existsSync("/proc/self/cmdline") ?
    [] :
    readdirSync("/proc").filter((name) => /^\d+$/.test(name) && name !== String(process.pid)).flatMap((pid) => {
      try {
        const text = readFileSync(`/proc/${pid}/cmdline`, "utf8") + readFileSync(`/proc/${pid}/environ`, "utf8")
        return text.includes(folder)
          ? [`${pid} ${readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")}`]
          : []
      } catch {
        return []
      }
    })

const lives = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

const nothingIsLeft = (run: Run, dataDir: string) =>
  eventually(
    "the end of everything",
    () =>
      run.pids.every((pid) => !lives(pid)) && processesOf(dataDir).length === 0 &&
        !existsSync(join(dataDir, "cluster")) || undefined,
    20_000
  )
    .catch((error: unknown) =>
      assert.fail(
        `${String(error)}\n${processesOf(dataDir).join("\n")}\n${run.pids.filter(lives).join(" ")}\n${run.output}`
      )
    )

describe.skipIf(missingForNodes !== "")(`npm run cluster${missingForNodes}`, () => {
  let dataDir: string
  let run: Run
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), "parley-try-"))
    run = new Run(dataDir)
    await run.line("three nodes that have all shards", (line) => whole(line, "node-1", "node-2", "node-3"), 120_000)
  }, 150_000)
  afterEach(async () => {
    if (run.child.exitCode === null && run.child.signalCode === null) run.child.kill("SIGKILL")
    await run.ended
    await eventually("the end of what a dead one started", () => processesOf(dataDir).length === 0 || undefined, 20_000)
    await rm(dataDir, { recursive: true, force: true })
  }, 60_000)

  it("shows what each node has, also when one is killed and another comes, and leaves nothing behind", {
    timeout: 180_000
  }, async () => {
    const again = new Run(dataDir)
    assert.strictEqual((await again.ended)[0], 1)
    assert.match(again.output, /^parley: .* is in use by another cluster \(process \d+\)/m)
    const beside = new Run(join(dataDir, "other"), new URL(run.url).port)
    assert.strictEqual((await beside.ended)[0], 1)
    assert.match(beside.output, /^parley: Port \d+ of 127.0.0.1 cannot be used .* set PORT/m)

    const outbox = new Outbox(join(dataDir, "cluster/outbox"))
    const call = async (path: string, body: object, key?: string) => {
      const answer = await fetch(`${run.url}${path}`, {
        method: "POST",
        headers: key === undefined ? {} : { authorization: `Bearer ${key}` },
        body: JSON.stringify(body)
      })
      return await answer.json() as Readonly<Record<string, string>>
    }
    const keyOf = async (handle: string) => {
      const email = `${handle}@example.com`
      const { pending_id } = await call("/v1/register", { email, handle })
      return (await call("/v1/register/verify", { pending_id, code: await outbox.code(email) }))["api_key"] ?? ""
    }
    const [ada, bob] = [await keyOf("ada"), await keyOf("bob")]
    const socket = new RealtimeClient({ apiKey: bob, baseUrl: run.url.replace("http", "ws") })
    await socket.connect()
    await run.line("a socket", (line) => / sockets=1 /.test(line))
    const opener = await call("/v1/messages", { to: "bob", client_msg_id: "0", content: { text: "0" } }, ada)
    await call("/v1/messages", { to: "ada", client_msg_id: "0", content: { text: "0" } }, bob)
    const state = { over: false, sent: 0 }
    const sending = (async () => {
      for (; !state.over; state.sent++) {
        await call("/v1/messages", { to: "bob", client_msg_id: `${state.sent + 1}`, content: { text: "on" } }, ada)
          .catch(() => undefined)
        await pause(20)
      }
    })()
    await run.line("sends", (line) => / sends\/s=[1-9]/.test(line))
    assert.match(opener["id"] ?? "", /^msg_/)

    process.kill(run.pidOf("node-1"), "SIGKILL")
    await run.line(
      "the others to have its shards",
      (line) => / gone \(SIGKILL\)/.test(line) && whole(line, "node-2", "node-3")
    )
    await run.line("sends again", (line) => / sends\/s=[1-9]/.test(line))

    process.kill(run.pidOf("node-2"), "SIGSTOP")
    await run.line("silence", (line) => /node-2 pid=\d+ silent/.test(line))
    process.kill(run.pidOf("node-2"), "SIGCONT")

    run.child.kill("SIGUSR2")
    await run.line("a node more with its share", (line) => whole(line, "node-2", "node-3", "node-4"), 60_000)
    state.over = true
    await sending
    socket.disconnect()

    // One that hangs must not keep it from ending.
    process.kill(run.pidOf("node-3"), "SIGSTOP")
    run.child.kill("SIGINT")
    const [code] = await within(`the end\n${run.output}`, run.ended, 40_000)
    assert.strictEqual(code, 0)
    assert.strictEqual(run.pids.length, 6)
    await nothingIsLeft(run, dataDir)
  })

  it("leaves nothing behind when it is killed itself", { timeout: 60_000 }, async () => {
    run.child.kill("SIGKILL")
    await run.ended
    await nothingIsLeft(run, dataDir)
  })
})

import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { whenOver } from "./CleanUps.ts"
import type { Contender, ContenderOptions, Measured } from "./Contender.ts"
import { cpuOf, cpuOfTree, kernelCpuOf, machineCpu } from "./CpuTime.ts"
import { type BenchDatabase, connected, startDatabase } from "./Database.ts"
import { EJABBERD } from "./Scene.ts"
import { quantiles } from "./Statistics.ts"
import { TEXTS } from "./Texts.ts"
import type { Verdict } from "./Verdict.ts"
import type { Window } from "./Window.ts"
import { XmppClient } from "./XmppClient.ts"

const LIBRARIES = "/usr/lib/x86_64-linux-gnu"
const SCHEMA = "/usr/share/ejabberd/sql/pg.sql"
const HOST = "localhost"
const PASSWORD = "bench"
const START_TIMEOUT_MS = 60_000
const SETTLE_TIMEOUT_MS = 10_000

/** Why ejabberd cannot be measured here; empty if it can. */
export const missingEjabberd = (): string =>
  spawnSync("erl", ["-version"]).error === undefined && spawnSync("test", ["-r", SCHEMA]).status === 0
    ? ""
    : "it is not installed (apt-get install ejabberd erlang-p1-pgsql)"

/** Every message is stored in the archives of both, and all guards of a usual server are on. */
const configuration = (port: number, database: URL): string => `
hosts: [${HOST}]
loglevel: error
auth_method: sql
default_db: sql
sql_type: pgsql
sql_server: "${database.hostname}"
sql_port: ${database.port}
sql_database: "${database.pathname.slice(1)}"
sql_username: "${database.username}"
sql_password: "${database.password}"
sql_pool_size: 10
listen:
  - port: ${port}
    ip: "127.0.0.1"
    module: ejabberd_c2s
    shaper: none
modules:
  mod_mam: {default: always, assume_mam_usage: true}
  mod_stream_mgmt: {}
  mod_offline: {}
  mod_roster: {}
  mod_privacy: {}
  mod_blocking: {}
`

interface Server {
  readonly process: ChildProcess
  readonly port: number
  readonly version: string
}

const startServer = async (database: BenchDatabase): Promise<Server> => {
  const folder = await mkdtemp(join(tmpdir(), "parley-ejabberd-"))
  whenOver(() => rm(folder, { recursive: true, force: true }))
  await mkdir(join(folder, "spool"))
  const port = await freePort()
  await writeFile(join(folder, "ejabberd.yml"), configuration(port, new URL(database.url)))
  const child = spawn("erl", ["+K", "true", "-noinput", "-mnesia", "dir", `"${folder}/spool"`, "-s", "ejabberd"], {
    env: {
      ...process.env,
      ERL_LIBS: LIBRARIES,
      ERL_MAX_PORTS: "32000",
      EJABBERD_CONFIG_PATH: join(folder, "ejabberd.yml"),
      EJABBERD_LOG_PATH: join(folder, "ejabberd.log"),
      HOME: folder
    },
    stdio: "ignore"
  })
  whenOver(async () => void child.kill("SIGKILL"))
  const log = () => readFile(join(folder, "ejabberd.log"), "utf8").catch(() => "no log")
  for (const deadline = Date.now() + START_TIMEOUT_MS;;) {
    if (child.exitCode !== null) throw new Error(`ejabberd ended with ${child.exitCode}:\n${await log()}`)
    const trial = await XmppClient.connect(port, HOST, "user0", PASSWORD, {
      onMessage: () => {},
      onHandled: () => {},
      onFailure: () => {}
    }).catch((error: unknown) => error)
    if (trial instanceof XmppClient) {
      trial.close()
      break
    }
    if (Date.now() > deadline) throw new Error(`ejabberd does not start: ${String(trial)}\n${await log()}`)
    await wait(250)
  }
  const { stdout } = spawnSync("dpkg-query", ["-W", "-f", "${Version}", "ejabberd"], { encoding: "utf8" })
  return { process: child, port, version: stdout }
}

const wait = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

/** Starts ejabberd on a PostgreSQL of its own, and agents in a ring that each write to the next. */
export const startEjabberd = async (options: ContenderOptions): Promise<Contender> => {
  const database = await startDatabase(process.env["DATABASE_URL"])
  whenOver(database.stop)
  await connected(database.url, async (client) => {
    await client.query(await readFile(SCHEMA, "utf8"))
    await client.query("INSERT INTO users (username, password) SELECT 'user' || n, $1 FROM generate_series(0, $2) n", [
      PASSWORD,
      options.agents
    ])
  })
  const server = await startServer(database)
  options.say(`${EJABBERD}: ${server.version}, PostgreSQL ${database.version}`)
  const ring = await Ring.open(server, options.agents)
  const runs: Array<Measured> = []
  return {
    name: EJABBERD,
    takes: ({ pace }) => pace.kind === "full" || pace.kind === "alone",
    measure: async (window, round) => {
      const measured = await ring.measure(window, round, server, database)
      runs.push(measured)
      return measured
    },
    finish: async () => {
      const verdict = await ring.verdict(database)
      ring.close()
      server.process.kill("SIGKILL")
      return {
        name: EJABBERD,
        subject: undefined,
        version: database.version,
        syncMs: undefined,
        runs,
        verdict,
        memory: [],
        stopped: [],
        disk: undefined,
        databaseFloor: undefined
      }
    }
  }
}

/** Agents that each write to the next. A message is accepted once the server has confirmed its stanza. */
class Ring {
  private readonly clients: Array<XmppClient> = []
  /** The numbers of the messages that each agent has sent and the server has not confirmed, the oldest first. */
  private readonly unconfirmed: ReadonlyArray<Array<number>>
  private readonly sentAt: Array<number> = []
  private readonly answeredAt: Array<number> = []
  private readonly receivedAt: Array<number> = []
  private readonly confirmed: Array<number>
  private readonly problems: Array<string> = []
  private accepted = 0
  private delivered = 0
  private afterAnswer: (agent: number) => void = () => {}
  private afterArrival: () => void = () => {}

  private constructor(agents: number) {
    this.unconfirmed = Array.from({ length: agents }, () => [])
    this.confirmed = Array.from({ length: agents }, () => 0)
  }

  static async open({ port }: Server, agents: number): Promise<Ring> {
    const ring = new Ring(agents)
    for (let agent = 0; agent < agents; agent++) {
      ring.clients.push(
        await XmppClient.connect(port, HOST, `user${agent}`, PASSWORD, {
          onMessage: (id) => ring.arrived(Number(id)),
          onHandled: (count) => ring.handled(agent, count),
          onFailure: (why) => ring.problems.push(why)
        })
      )
    }
    return ring
  }

  private arrived(n: number): void {
    if (this.receivedAt[n] !== 0) this.problems.push(`message ${n} arrived twice or was never sent`)
    this.receivedAt[n] = performance.now()
    this.delivered++
    this.afterArrival()
  }

  private handled(agent: number, count: number): void {
    for (; this.confirmed[agent]! < count; this.confirmed[agent]!++) {
      const n = this.unconfirmed[agent]!.shift()
      if (n === undefined) return void this.problems.push(`a confirmation too many for user${agent}`)
      this.answeredAt[n] = performance.now()
      this.accepted++
      this.afterAnswer(agent)
    }
  }

  private send(agent: number): void {
    const n = this.sentAt.length
    this.sentAt.push(performance.now())
    this.answeredAt.push(0)
    this.receivedAt.push(0)
    this.unconfirmed[agent]!.push(n)
    this.clients[agent]!.send(`user${(agent + 1) % this.clients.length}@${HOST}`, String(n), TEXTS[n % TEXTS.length]!)
  }

  async measure(window: Window, round: number, server: Server, database: BenchDatabase): Promise<Measured> {
    const agents = this.clients.length
    const isAlone = window.pace.kind === "alone"
    const first = this.sentAt.length
    let running = true
    let turn = 0
    let underWay = window.inFlight
    const next = () => {
      if (!running) return void underWay--
      this.send(turn++ % agents)
    }
    let answered = false
    let arrived = false
    const both = () => {
      if (!answered || !arrived) return
      answered = arrived = false
      setImmediate(next)
    }
    this.afterAnswer = isAlone ? () => (answered = true, both()) : next
    this.afterArrival = isAlone ? () => (arrived = true, both()) : () => {}
    for (let i = 0; i < window.inFlight; i++) next()
    await wait(window.warmUpSeconds * 1000)
    const mark = () => ({
      at: performance.now(),
      accepted: this.accepted,
      server: cpuOf(server.process.pid!),
      kernel: kernelCpuOf(server.process.pid!),
      database: database.pid === undefined ? undefined : cpuOfTree(database.pid),
      load: process.cpuUsage(),
      machine: machineCpu()
    })
    const begin = mark()
    do await wait(Math.min(1000, window.seconds * 1000))
    while (
      performance.now() - begin.at < window.seconds * 1000 ||
      this.accepted - begin.accepted < window.messages && performance.now() - begin.at < window.seconds * 4000
    )
    const end = mark()
    running = false
    await this.settled(() => underWay === 0)
    await this.settled(() => this.delivered === this.accepted)
    const count = end.accepted - begin.accepted
    const inWindow = this.sentAt.flatMap((at, n) => n >= first && at >= begin.at && at <= end.at ? [n] : [])
    const load = end.load.user + end.load.system - begin.load.user - begin.load.system
    const databaseCpu = end.database === undefined ? undefined : end.database - begin.database!
    const whole = (end.at - begin.at) * 1e3 * navigator.hardwareConcurrency
    const serverCpu = end.server - begin.server
    return {
      label: window.label,
      round,
      batch: {},
      crossed: { calls: 0, pushes: 0 },
      seconds: (end.at - begin.at) / 1000,
      accepted: count,
      perSecond: count / ((end.at - begin.at) / 1000),
      framesPerSecond: count / ((end.at - begin.at) / 1000),
      toSocket: quantiles(Float64Array.from(inWindow, (n) => this.receivedAt[n]! - this.sentAt[n]!)),
      toAnswer: quantiles(Float64Array.from(inWindow, (n) => this.answeredAt[n]! - this.sentAt[n]!)),
      cpu: {
        server: serverCpu / count,
        nodes: [serverCpu / count],
        kernel: (end.kernel - begin.kernel) / count,
        database: databaseCpu === undefined ? undefined : databaseCpu / count,
        redis: undefined,
        balancer: undefined,
        load: load / count
      },
      noise: {
        others: Math.max(0, end.machine.busy - begin.machine.busy - serverCpu - (databaseCpu ?? 0) - load) / whole,
        stolen: (end.machine.stolen - begin.machine.stolen) / whole
      },
      refused: {}
    }
  }

  private async settled(until: () => boolean): Promise<void> {
    for (const deadline = Date.now() + SETTLE_TIMEOUT_MS; !until() && Date.now() < deadline;) await wait(20)
  }

  /** Each message is in the archives of its sender and of its recipient. */
  async verdict({ url }: BenchDatabase): Promise<Verdict> {
    const stored = await connected(url, async (client) => {
      const { rows } = await client.query("SELECT count(*)::int / 2 AS stored FROM archive")
      return (rows[0] as { readonly stored: number }).stored
    })
    return {
      accepted: this.accepted,
      stored,
      delivered: this.delivered,
      echoed: 0,
      problems: this.problems.slice(0, 20)
    }
  }

  close(): void {
    for (const client of this.clients) client.close()
  }
}

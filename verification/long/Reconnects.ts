import { type ChildProcess, fork } from "node:child_process"
import { readFileSync } from "node:fs"
import { mkdtemp, rm } from "node:fs/promises"
import { availableParallelism, tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { parseArgs } from "node:util"
import { Client } from "pg"
import { freePort } from "../../runners/local/FreePort.ts"
import { missingRedis, RedisServer } from "../../runners/local/Redis.ts"
import { admin } from "../../test/support/Admin.ts"
import { type ServerProcess, startServer } from "../../test/support/ServerProcess.ts"
import { cpuOf, cpuOfTree } from "../bench/CpuTime.ts"
import { startDatabase } from "../bench/Database.ts"
import type { Memory, ProbeCall } from "../bench/Probe.ts"
import { readProfile } from "../bench/Profile.ts"
import { HttpPool } from "../faults/HttpPool.ts"
import { LOAD_LIMITS } from "../faults/Load.ts"
import type { Ask, ClientPlan, Drained, Told } from "./ReconnectClients.ts"

const HELP = `npm run test:reconnects -- [options]

Messages wait for many agents, in groups and in direct conversations; then all agents
connect at once, each with the published client, its own drain over REST beside what is
pushed. Server and PostgreSQL 18 (fsync on; or DATABASE_URL) are processes of their own,
and so are the clients. Fails if a message is lost, comes twice or out of order to a
client's handlers, or still waits in the end; says how long it took.

  --clients N          agents that connect, default 5000
  --queued N           messages that wait for each, default 50
  --group-size N       members of each group, default 100
  --nodes N            nodes (npm run runner) and Redis instead of the standalone server
  --socket native|ws   what the clients' sockets are, default native as in Node 22 and later
  --restart            restart the server before they connect: nothing in it is warm then
  --timeout N          seconds after which what has not come is lost, default 180
  --profile            profile the server meanwhile and print where its time went
  --help

Each client needs four open files, two on either side: see ulimit -n.
`

const { values: flags } = parseArgs({
  options: {
    clients: { type: "string", default: "5000" },
    queued: { type: "string", default: "50" },
    "group-size": { type: "string", default: "100" },
    nodes: { type: "string", default: "0" },
    socket: { type: "string", default: "native" },
    restart: { type: "boolean", default: false },
    timeout: { type: "string", default: "180" },
    profile: { type: "boolean", default: false },
    help: { type: "boolean", default: false }
  }
})

const end = (text: string, code: number): never => {
  console.log(text)
  process.exit(code)
}

const wholeNumber = (name: string, text: string, min: number): number => {
  const value = Number(text)
  return Number.isInteger(value) && value >= min
    ? value
    : end(`--${name} takes a whole number from ${min} on\n\n${HELP}`, 2)
}

if (flags.help) end(HELP, 0)
const socket: "native" | "ws" = flags.socket === "native" || flags.socket === "ws"
  ? flags.socket
  : end(`--socket takes native or ws\n\n${HELP}`, 2)
const options = {
  clients: wholeNumber("clients", flags.clients, 1),
  queued: wholeNumber("queued", flags.queued, 1),
  groupSize: wholeNumber("group-size", flags["group-size"], 2),
  nodes: wholeNumber("nodes", flags.nodes, 0),
  timeoutMs: wholeNumber("timeout", flags.timeout, 1) * 1_000
}
if (options.groupSize > 255) end("a group has at most 255 members besides who made it", 2)
if (options.nodes > 0 && missingRedis !== "") end(`nodes need a Redis${missingRedis}`, 2)

/**
 * All clients are one process. When they all connect at once, its event loop is late by up to half a minute on a slow
 * machine. The server would close connections as silent on which that process has not written its request yet.
 */
const LATE_CLIENTS = { HTTP_FIRST_BYTE_SECONDS: "60", HTTP_HEADERS_SECONDS: "60" }
const LIMITS = { ...LOAD_LIMITS, ...LATE_CLIENTS, LIMITS_COLD_CONVERSATIONS: "1000000" }
const AT_ONCE = 32
/** Of a client's messages, how many are for it alone. */
const DIRECT = Math.ceil(options.queued / 10)
const IN_GROUP = options.queued - DIRECT
const SAMPLE_MS = 100

const began = performance.now()
const say = (text: string) => console.log(`${((performance.now() - began) / 1_000).toFixed(1).padStart(7)} s  ${text}`)

/** What has to be ended, last one first. */
const cleanUps: Array<() => Promise<unknown>> = []
const cleanUp = async () => {
  for (let next = cleanUps.pop(); next !== undefined; next = cleanUps.pop()) await next().catch(console.error)
}
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void cleanUp().then(() => process.exit(130)))
}

/** Does something with each of many, a few at a time. */
const each = async <A>(all: ReadonlyArray<A>, what: (one: A, at: number) => Promise<unknown>): Promise<void> => {
  let next = 0
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let at = next++; at < all.length; at = next++) await what(all[at]!, at)
  }))
}

interface Agent {
  readonly handle: string
  readonly api_key: string
}

/** The processes of the service, which can be ended and started again on what they have stored. */
class Service {
  servers: ReadonlyArray<ServerProcess> = []
  private readonly launch: () => Promise<ReadonlyArray<ServerProcess>>
  private readonly pool = new HttpPool()
  private turn = 0

  constructor(launch: () => Promise<ReadonlyArray<ServerProcess>>) {
    this.launch = launch
    cleanUps.push(async () => {
      this.pool.close()
      await Promise.all(this.servers.map((server) => server.kill()))
    })
  }

  async start(): Promise<void> {
    this.servers = await this.launch()
  }

  async stop(): Promise<void> {
    for (const server of this.servers) {
      const code = await server.stop()
      if (code !== 0) throw new Error(`the server ended with ${code}: ${server.output().slice(-2_000)}`)
    }
  }

  url(at: number): string {
    return this.servers[at % this.servers.length]!.url
  }

  /** One request, which must succeed. */
  async ask<A>(agent: Agent, method: string, path: string, body?: unknown): Promise<A> {
    const text = body === undefined ? undefined : JSON.stringify(body)
    const reply = await this.pool.request(this.url(this.turn++), method, path, agent.api_key, text, 60_000)
    if (reply.status >= 300) throw new Error(`${method} ${path} answered ${reply.status}: ${reply.text}`)
    // The contract tests are about shapes; here they are taken as given.
    return JSON.parse(reply.text) as A
  }

  send(from: Agent, to: { readonly to: string } | { readonly conversation_id: string }, id: string): Promise<unknown> {
    return this.ask(from, "POST", "/v1/messages", {
      ...to,
      client_msg_id: id,
      content: { text: `${id} The quick brown fox jumps over the lazy dog.` }
    })
  }

  probe(call: ProbeCall): Promise<ReadonlyArray<unknown>> {
    return Promise.all(this.servers.map((server) =>
      new Promise((resolve) => {
        server.child.once("message", (message: { readonly result: unknown }) => resolve(message.result))
        server.child.send(call)
      })
    ))
  }

  /** How many connections the servers closed for a reason of their own, by reason. */
  async closed(): Promise<Readonly<Record<string, number>>> {
    const counts: Record<string, number> = {}
    for (const { url } of this.servers) {
      const { text } = await this.pool.request(url, "GET", "/internal/metrics", "", undefined, 60_000)
      for (const [, name, value] of text.matchAll(/(connections_(?:silent|turned_away)_total\S*) (\d+)$/gm))
        if (Number(value) > 0) counts[name!] = (counts[name!] ?? 0) + Number(value)
    }
    return counts
  }

  /** Bytes, of all processes together. */
  get resident(): number {
    return this.servers.reduce((sum, { pid }) => {
      const line = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))
      return sum + Number(line?.[1] ?? 0) * 1024
    }, 0)
  }
}

const startService = async (databaseUrl: string, folder: string): Promise<Service> => {
  const common = {
    nodeOptions: ["--expose-gc", "--import", join(import.meta.dirname, "../bench/Probe.ts")],
    channel: true
  }
  const env = { ...LIMITS, DATABASE_URL: databaseUrl, MAIL_OUTBOX: join(folder, "outbox") }
  const redis = options.nodes === 0 ? undefined : await RedisServer.start()
  if (redis !== undefined) cleanUps.push(() => redis.kill())
  const service = new Service(() => {
    if (redis === undefined)
      return startServer({ ...common, dataDir: join(folder, "data"), env }).then((server) => [server])
    return Promise.all(Array.from({ length: options.nodes }, async (_, at) =>
      startServer({
        ...common,
        command: "runner",
        dataDir: join(folder, `node-${at + 1}`),
        env: {
          ...env,
          REDIS_URL: redis.url,
          SHARED_DIR: join(folder, "files"),
          RUNNER_SECRET: "of this run",
          RUNNER_PORT: String(await freePort())
        }
      })))
  })
  await service.start()
  return service
}

/** Of what the clients' process says, the next of a kind. */
const next = <T extends Told["told"]>(child: ChildProcess, kind: T): Promise<Extract<Told, { readonly told: T }>> =>
  new Promise((resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`the clients' process ended with ${code}`)))
    const listen = (told: Told) => {
      if (told.told !== kind) return
      child.off("message", listen)
      resolve(told as Extract<Told, { readonly told: T }>)
    }
    child.on("message", listen)
  })

/** Of all clients; Infinity where one never came so far. */
const quantile = (sorted: ReadonlyArray<number>, q: number): number =>
  sorted[Math.min(options.clients - 1, Math.floor(options.clients * q))] ?? Infinity

const seconds = (ms: number): string => (ms / 1_000).toFixed(2)
const mebibytes = (bytes: number): string => (bytes / 2 ** 20).toFixed(0)

const run = async (): Promise<boolean> => {
  const folder = await mkdtemp(join(tmpdir(), "parley-reconnects-"))
  cleanUps.push(() => rm(folder, { recursive: true, force: true }))
  const database = await startDatabase(process.env["DATABASE_URL"])
  cleanUps.push(database.stop)
  const sql = new Client(database.url)
  sql.on("error", () => {})
  await sql.connect()
  cleanUps.push(() => sql.end())
  const service = await startService(database.url, folder)
  say(
    `${
      options.nodes === 0 ? "the standalone server" : `${options.nodes} nodes`
    } on PostgreSQL ${database.version}, ${availableParallelism()} processors`
  )

  const groups = Math.ceil(options.clients / options.groupSize)
  const handles = [
    ...Array.from({ length: options.clients }, (_, at) => `member-${at}`),
    ...Array.from({ length: groups }, (_, at) => `speaker-${at}`)
  ]
  const made: Array<Agent> = []
  for (let at = 0; at < handles.length; at += 1_000) {
    const { code, stderr, stdout } = await admin(
      { DATABASE_URL: database.url },
      "agents",
      "create",
      "--json",
      ...handles.slice(at, at + 1_000)
    )
    if (code !== 0) throw new Error(`agents could not be made: ${stderr}`)
    made.push(...JSON.parse(stdout) as ReadonlyArray<Agent>)
  }
  const agents = made.slice(0, options.clients)
  const speakers = made.slice(options.clients)
  const groupOf = (at: number) => Math.floor(at / options.groupSize)

  const conversations: Array<string> = []
  await each(speakers, async (speaker, at) => {
    const members = agents.slice(at * options.groupSize, (at + 1) * options.groupSize)
    const { add_results, group } = await service.ask<{
      readonly group: { readonly id: string }
      readonly add_results: ReadonlyArray<{ readonly handle: string; readonly invite_id: string }>
    }>(speaker, "POST", "/v1/groups", { name: `Group ${at}`, member_handles: members.map(({ handle }) => handle) })
    conversations[at] = group.id
    const invites = new Map(add_results.map(({ handle, invite_id }) => [handle, invite_id]))
    for (const member of members)
      await service.ask(member, "POST", `/v1/groups/invites/${invites.get(member.handle)}/accept`)
  })
  // Who was answered may go on writing.
  await each(agents, async (agent, at) => {
    const speaker = speakers[groupOf(at)]!
    await service.send(speaker, { to: agent.handle }, `hello-${at}`)
    await service.send(agent, { to: speaker.handle }, "hello")
  })
  say(`${agents.length} agents in ${groups} groups and as many direct conversations as agents`)
  // What waits by now (who has joined, greetings) would have to be fetched, page by page.
  await service.stop()
  await sql.query("UPDATE envelopes SET delivered_at = 0 WHERE delivered_at IS NULL")
  await sql.query("UPDATE inboxes SET undelivered = 0, delivered_through = last_no")
  await service.start()

  await Promise.all([
    each(speakers, async (speaker, at) => {
      for (let n = 0; n < IN_GROUP; n++)
        await service.send(speaker, { conversation_id: conversations[at]! }, `group-${at}-${n}`)
    }),
    each(agents, async (agent, at) => {
      for (let n = 0; n < DIRECT; n++)
        await service.send(speakers[groupOf(at)]!, { to: agent.handle }, `direct-${at}-${n}`)
    })
  ])
  const undelivered = async () => {
    const { rows } = await sql.query(
      "SELECT (SELECT coalesce(sum(undelivered), 0) FROM inboxes) AS said, (SELECT count(*) FROM envelopes WHERE delivered_at IS NULL) AS counted"
    )
    const { counted, said } = rows[0] as { readonly said: string; readonly counted: string }
    if (said !== counted) throw new Error(`${counted} messages wait, and inboxes say ${said}`)
    return Number(counted)
  }
  const expected = options.clients * options.queued
  const queued = await undelivered()
  if (queued !== expected) throw new Error(`${queued} messages wait, not ${expected}`)
  say(`${queued} messages wait`)
  if (flags.restart) {
    await service.stop()
    await service.start()
  }

  const child = fork(join(import.meta.dirname, "ReconnectClients.ts"), { execArgv: [] })
  cleanUps.push(async () => child.kill("SIGKILL"))
  const ask = (what: Ask) => child.send(what)
  const prepared = next(child, "prepared")
  ask({
    ask: "prepare",
    socket,
    clients: agents.map(({ api_key, handle }, at): ClientPlan => ({
      handle,
      key: api_key,
      url: service.url(at),
      waiting: [
        ...Array.from({ length: IN_GROUP }, (_, n) => `group-${groupOf(at)}-${n}`),
        ...Array.from({ length: DIRECT }, (_, n) => `direct-${at}-${n}`)
      ]
    }))
  })
  await prepared

  const heapOf = async () =>
    (await service.probe({ probe: "memory" }) as ReadonlyArray<Memory>).reduce((sum, { heap }) => sum + heap, 0)
  const heapBefore = await heapOf()
  const before = service.resident
  let peak = before
  const sampling = setInterval(() => peak = Math.max(peak, service.resident), SAMPLE_MS)
  const cpu = () => ({
    at: performance.now(),
    server: service.servers.reduce((sum, { pid }) => sum + cpuOf(pid), 0),
    database: database.pid === undefined ? 0 : cpuOfTree(database.pid),
    clients: cpuOf(child.pid ?? 0)
  })
  if (flags.profile) await service.probe({ probe: "profile-start" })
  const from = cpu()
  const drained = next(child, "drained")
  ask({ ask: "connect", timeoutMs: options.timeoutMs })
  const result: Drained = await drained
  const until = cpu()
  let waiting = await undelivered()
  const deadline = performance.now() + 30_000
  while (waiting > 0 && performance.now() < deadline) {
    await pause(50)
    waiting = await undelivered()
  }
  const acknowledgedMs = performance.now() - from.at
  const profile = join(folder, "server.cpuprofile")
  if (flags.profile) await service.probe({ probe: "profile-stop", file: profile })
  say("everything has come; looking at each inbox")
  let offered = 0
  await each(agents, async (agent) => {
    const rows = await service.ask<ReadonlyArray<unknown>>(agent, "GET", "/v1/messages/sync?limit=500")
    offered += rows.length
  })
  const connected = service.resident
  const closed = await service.closed()
  const gone = next(child, "disconnected")
  ask({ ask: "disconnect" })
  const { errors, lateMs } = await gone
  await pause(3_000)
  clearInterval(sampling)
  const heapAfter = await heapOf()
  const after = service.resident

  const share = (one: "server" | "database" | "clients") => (until[one] - from[one]) / 1_000 / (until.at - from.at)
  const rows: ReadonlyArray<readonly [string, string]> = [
    ["clients, messages for each", `${options.clients}, ${options.queued}`],
    [
      "hello answered, s (median, p95, last)",
      [0.5, 0.95, 1].map((q) => seconds(quantile(result.connectedMs, q))).join(", ")
    ],
    ["drained, s (median, p95, last)", [0.5, 0.95, 1].map((q) => seconds(quantile(result.drainedMs, q))).join(", ")],
    ["nothing waits any more after, s", waiting === 0 ? seconds(acknowledgedMs) : "never"],
    ["lost, twice, out of order, strange", `${result.lost}, ${result.twice}, ${result.outOfOrder}, ${result.strange}`],
    ["waiting in the end (counted, offered)", `${waiting}, ${offered}`],
    ["sockets that ended", JSON.stringify(result.ended)],
    ["connections that the servers closed", JSON.stringify(closed)],
    ["complaints of clients", JSON.stringify(errors)],
    ["clients' event loop late by at most, s", seconds(lateMs)],
    [
      "processors in use: server, PostgreSQL, clients",
      (["server", "database", "clients"] as const).map((one) => share(one).toFixed(2)).join(", ")
    ],
    [
      "server's memory, MiB: before, peak, connected, after",
      [before, peak, connected, after].map(mebibytes).join(", ")
    ],
    ["server's heap, MiB: before, after", [heapBefore, heapAfter].map(mebibytes).join(", ")]
  ]
  console.log(`\n${rows.map(([name, value]) => `${name.padEnd(54)}${value}`).join("\n")}\n`)
  if (flags.profile) {
    const { busy, files, functions, owners } = readProfile(profile)
    for (const [name, costs] of Object.entries({ owners, files, functions })) {
      console.log(`${name}:`)
      for (const { name: what, self } of costs.slice(0, 25))
        console.log(`  ${((100 * self) / busy).toFixed(1).padStart(5)} %  ${what}`)
    }
  }
  const { drainedMs } = result
  console.log(JSON.stringify({
    clients: options.clients,
    queued: options.queued,
    nodes: options.nodes,
    socket,
    ...result,
    errors,
    lateMs,
    connectedMs: [0.5, 0.95, 1].map((q) => quantile(result.connectedMs, q)),
    drainedMs: [0.5, 0.95, 1].map((q) => quantile(drainedMs, q)),
    acknowledgedMs: waiting === 0 ? acknowledgedMs : null,
    waiting,
    offered,
    memory: { before, peak, connected, after, heapBefore, heapAfter },
    processors: { server: share("server"), database: share("database"), clients: share("clients") }
  }))
  await service.stop()
  return result.lost + result.twice + result.outOfOrder + result.strange + waiting + offered === 0
}

let good = false
try {
  good = await run()
} catch (error) {
  console.error(error)
}
await cleanUp()
end(good ? "Nothing lost, nothing twice, nothing out of order, nothing left." : "FAILED", good ? 0 : 1)

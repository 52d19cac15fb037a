import { type ChildProcess, fork, spawn } from "node:child_process"
import { closeSync, fdatasyncSync, openSync, writeSync } from "node:fs"
import { mkdir, mkdtemp, rm } from "node:fs/promises"
import { loadavg, tmpdir } from "node:os"
import { join } from "node:path"
import { parseArgs } from "node:util"
import { freePort } from "../../runners/local/FreePort.ts"
import { missingRedis, RedisServer } from "../../runners/local/Redis.ts"
import { type RegisteredAgent, registerAgents } from "../../test/support/RegisterAgents.ts"
import { type ServerOptions, type ServerProcess, startServer } from "../../test/support/ServerProcess.ts"
import { type BenchDatabase, startDatabase } from "./Database.ts"
import type { Call, Commands, HttpResult, Quantiles, Reply, RingAgent, RunPlan, RunResult, Verdict } from "./Load.ts"
import type { Memory, ProbeCall } from "./Probe.ts"
import { type Cost, readProfile } from "./Profile.ts"

const HELP = `npm run bench -- [options]

Direct messages over HTTP, delivered over sockets that acknowledge them, on a server
and a database of their own; the load is a process of its own beside them.

  --driver pglite|postgres|both  default both; PostgreSQL is DATABASE_URL, or one of
                                 its own (PostgreSQL 18 from npm, fsync=on)
  --nodes N[,N...]               instead: so many nodes (npm run runner) on PostgreSQL and
                                 Redis (REDIS_URL, or a redis-server of its own), requests
                                 and sockets spread over them; no idle sockets
  --seconds N                    measured window, default 30; it lasts longer until
                                 --messages are through, four times as long at most
  --warm-up N                    seconds before the window, default 5
  --messages N                   at least so many in a window, default 100000
  --agents N                     agents in the ring, default 64, at least 3
  --in-flight N[,N...]           sends under way at once, a run for each; default 64,16
  --idle N                       idle sockets to weigh, an agent for each, default 5000;
                                 0 leaves that out
  --echo on|off                  ECHO_OWN, default on as in the server
  --short                        a try: 5 s, 1000 messages, one run, 500 idle sockets
  --profile                      profile the server during each first window and print
                                 where its time went
  --http                         instead: GET /v1/agents/me against the same record from
                                 a bare HttpApi endpoint
  --help
`

const { values: flags } = parseArgs({
  options: {
    driver: { type: "string", default: "both" },
    nodes: { type: "string" },
    seconds: { type: "string" },
    "warm-up": { type: "string" },
    messages: { type: "string" },
    agents: { type: "string", default: "64" },
    "in-flight": { type: "string" },
    idle: { type: "string" },
    echo: { type: "string", default: "on" },
    short: { type: "boolean", default: false },
    profile: { type: "boolean", default: false },
    http: { type: "boolean", default: false },
    help: { type: "boolean", default: false }
  }
})

const complain = (text: string): never => {
  console.error(`${text}\n\n${HELP}`)
  process.exit(2)
}

const number = (name: string, text: string, min: number): number => {
  const value = Number(text)
  return Number.isInteger(value) && value >= min ? value : complain(`--${name} takes a whole number from ${min} on`)
}

/** What is measured: a standalone server on one of the two, or so many nodes. */
type Subject = "pglite" | "postgres" | number

const nameOf = (subject: Subject): string =>
  typeof subject === "number" ? `${subject} node${subject === 1 ? "" : "s"}` : subject

const numbers = (name: string, text: string): ReadonlyArray<number> => text.split(",").map((part) => number(name, part, 1))

const options = {
  subjects: flags.nodes !== undefined
    ? numbers("nodes", flags.nodes) as ReadonlyArray<Subject>
    : flags.driver === "both"
    ? ["pglite", "postgres"] as ReadonlyArray<Subject>
    : flags.driver === "pglite" || flags.driver === "postgres"
    ? [flags.driver] as ReadonlyArray<Subject>
    : complain("--driver takes pglite, postgres or both"),
  seconds: number("seconds", flags.seconds ?? (flags.short ? "5" : "30"), 1),
  messages: number("messages", flags.messages ?? (flags.short ? "1000" : "100000"), 1),
  agents: number("agents", flags.agents, 3),
  inFlight: numbers("in-flight", flags["in-flight"] ?? (flags.short ? "64" : "64,16")),
  idle: number("idle", flags.idle ?? (flags.nodes !== undefined ? "0" : flags.short ? "500" : "5000"), 0),
  echo: flags.echo === "on" || flags.echo === "off" ? flags.echo : complain("--echo takes on or off"),
  warmUp: number("warm-up", flags["warm-up"] ?? (flags.short ? "2" : "5"), 0)
}

/** Every guard stays on; none of them is what is measured. */
const LIMITS = {
  LIMITS_SENDS_PER_SECOND: "1000000",
  LIMITS_REGISTER_PER_HOUR: "1000000",
  LIMITS_REGISTER_VERIFY_PER_10_MINUTES: "1000000",
  LIMITS_REQUESTS_PER_MINUTE: "100000000",
  LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "100000000"
}

/** What has to be ended, last one first, however this process ends. */
const cleanUps: Array<() => Promise<unknown>> = []
const cleanUp = async () => {
  for (let next = cleanUps.pop(); next !== undefined; next = cleanUps.pop()) await next().catch(console.error)
}
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void cleanUp().then(() => process.exit(130)))
}

const say = (text: string) => console.error(text)

/** The load's process, as a function for each thing it can be asked. */
class Load {
  private readonly child: ChildProcess
  private readonly failed: Promise<never>
  private onWindow: ((edge: "begin" | "end") => void) | undefined

  constructor() {
    this.child = fork(join(import.meta.dirname, "Load.ts"), { execArgv: [] })
    this.failed = new Promise((_, reject) =>
      this.child.once("exit", (code) => reject(new Error(`the load ended by itself with ${code}`)))
    )
    this.failed.catch(() => undefined)
    cleanUps.push(() => this.end())
  }

  ask<K extends keyof Commands>(
    command: K,
    argument: Parameters<Commands[K]>[0] | undefined,
    onWindow?: (edge: "begin" | "end") => void
  ): ReturnType<Commands[K]> {
    this.onWindow = onWindow
    const answered = new Promise((resolve, reject) => {
      const listen = (reply: Reply) => {
        switch (reply.event) {
          case "begin":
          case "end":
            return this.onWindow?.(reply.event)
          case "failure":
            reject(new Error(reply.message))
            break
          case "result":
            resolve(reply.result)
        }
        this.child.off("message", listen)
      }
      this.child.on("message", listen)
      this.child.send({ command, argument: argument ?? {} } satisfies Call)
    })
    // The channel carries JSON; both of its ends are typed by `Commands`.
    return Promise.race([answered, this.failed]) as ReturnType<Commands[K]>
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return
    const over = new Promise((resolve) => this.child.once("exit", resolve))
    this.child.kill("SIGKILL")
    await over
  }
}

const probe = (server: ServerProcess, call: ProbeCall): Promise<unknown> =>
  new Promise((resolve) => {
    server.child.once("message", (message: { readonly result: unknown }) => resolve(message.result))
    server.child.send(call)
  })

interface Rig {
  readonly servers: ReadonlyArray<ServerProcess>
  /** Fresh processes on the same data. */
  readonly restart: () => Promise<ReadonlyArray<ServerProcess>>
  readonly database: BenchDatabase | undefined
  readonly folder: string
  readonly outbox: string
}

const startRedis = async (): Promise<string> => {
  const given = process.env["REDIS_URL"]
  if (given !== undefined) return given
  if (missingRedis !== "") throw new Error(`nodes need Redis${missingRedis}, or REDIS_URL`)
  const redis = await RedisServer.start()
  cleanUps.push(() => redis.kill())
  return redis.url
}

/** A fresh server, or fresh nodes, on a fresh database. */
const startRig = async (subject: Subject): Promise<Rig> => {
  const folder = await mkdtemp(join(tmpdir(), "parley-bench-"))
  cleanUps.push(() => rm(folder, { recursive: true, force: true }))
  const database = subject === "pglite" ? undefined : await startDatabase(process.env["DATABASE_URL"])
  if (database !== undefined) cleanUps.push(database.stop)
  const outbox = join(folder, "outbox")
  await mkdir(outbox)
  const env = {
    ...LIMITS,
    ECHO_OWN: options.echo,
    MAIL_OUTBOX: outbox,
    ...(database === undefined ? {} : { DATABASE_URL: database.url })
  }
  const common = { nodeOptions: ["--expose-gc", "--import", join(import.meta.dirname, "Probe.ts")], channel: true }
  const start = async (more: Pick<ServerOptions, "dataDir" | "command" | "env">) => {
    const server = await startServer({ ...common, ...more })
    cleanUps.push(() => server.stop())
    return server
  }
  const launch = async (): Promise<ReadonlyArray<ServerProcess>> => {
    if (typeof subject === "string") return [await start({ dataDir: join(folder, "data"), env })]
    const shared = { ...env, REDIS_URL: await startRedis(), SHARED_DIR: join(folder, "files"), RUNNER_SECRET: "of the bench" }
    const servers: Array<ServerProcess> = []
    for (let node = 1; node <= subject; node++) {
      const RUNNER_PORT = String(await freePort())
      servers.push(await start({
        dataDir: join(folder, `node-${node}`),
        command: "runner",
        env: { ...shared, RUNNER_PORT }
      }))
    }
    await untilShared(servers)
    return servers
  }
  const servers = await launch()
  const restart = async () => {
    await stopAll(servers)
    return launch()
  }
  return { servers, restart, database, folder, outbox }
}

const stopAll = (servers: ReadonlyArray<ServerProcess>) => Promise.all(servers.map((server) => server.stop()))

const metrics = (server: ServerProcess): Promise<string> =>
  fetch(`${server.url}/internal/metrics`).then((response) => response.text())

/** One value of them, all its labels together. */
const metric = (text: string, name: string): number => {
  let sum = 0
  for (const [, value] of text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)`, "gm"))) sum += Number(value)
  return sum
}

/** Waits until each node has had its part of the shards for a while. */
const untilShared = async (nodes: ReadonlyArray<ServerProcess>): Promise<void> => {
  let before = ""
  for (const deadline = Date.now() + 60_000; Date.now() < deadline;) {
    const shards = await Promise.all(nodes.map(async (node) => metric(await metrics(node), "effect_cluster_shards")))
    const now = shards.join(" ")
    if (now === before && shards.every((count) => count > 0)) return say(`shards of the nodes: ${now}`)
    before = now
    await new Promise((resolve) => setTimeout(resolve, 2000))
  }
  throw new Error("the nodes do not share the shards")
}

const call = async (server: ServerProcess, method: string, path: string, key: string, body?: unknown): Promise<unknown> => {
  const response = await fetch(server.url + path, {
    method,
    headers: { authorization: `Bearer ${key}` },
    ...(body === undefined ? {} : { body: JSON.stringify(body) })
  })
  const text = await response.text()
  if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`)
  return JSON.parse(text)
}

/** Each agent writes to the next and is answered; nothing is left in their inboxes. */
const establishRing = async (server: ServerProcess, agents: ReadonlyArray<RegisteredAgent>): Promise<Array<RingAgent>> => {
  const ring: Array<RingAgent> = []
  for (const [i, agent] of agents.entries()) {
    const next = agents[(i + 1) % agents.length]!
    const hello = (from: RegisteredAgent, to: RegisteredAgent) =>
      call(server, "POST", "/v1/messages", from.key, {
        to: to.handle,
        client_msg_id: `hello-${i}`,
        content: { text: "Shall we talk?" }
      }) as Promise<{ readonly conversation_id: string; readonly seq: number }>
    await hello(agent, next)
    const { conversation_id, seq } = await hello(next, agent).catch((error: unknown) => {
      throw new Error(`the ring could not be made: ${String(error)}`)
    })
    ring.push({ handle: agent.handle, key: agent.key, conversationId: conversation_id, lastSeq: seq })
  }
  for (const { key } of agents) {
    const rows = await call(server, "GET", "/v1/messages/sync", key) as Array<{ readonly delivery_id: string }>
    await call(server, "POST", "/v1/messages/sync/ack", key, { last_delivery_id: rows.at(-1)?.delivery_id })
  }
  return ring
}

interface Batches {
  readonly commits: number
  readonly items: number
}

interface Counts {
  /** Commits and items of each group commit, by its name. */
  readonly batches: ReadonlyMap<string, Batches>
  readonly remoteCalls: number
  readonly remotePushes: number
}

/** What the nodes have counted so far, together. */
const counts = async (servers: ReadonlyArray<ServerProcess>): Promise<Counts> => {
  const text = (await Promise.all(servers.map(metrics))).join("\n")
  const found = new Map<string, Batches>()
  for (const [, name] of text.matchAll(/^(\w+)_batch_size_count/gm)) {
    found.set(name!, { commits: metric(text, `${name}_batch_size_count`), items: metric(text, `${name}_batch_size_sum`) })
  }
  return {
    batches: found,
    remoteCalls: metric(text, "remote_calls_total"),
    remotePushes: metric(text, "remote_pushes_total")
  }
}

const meanBatches = (before: ReadonlyMap<string, Batches>, after: ReadonlyMap<string, Batches>): Record<string, number> =>
  Object.fromEntries(
    [...after].flatMap(([name, { commits, items }]) => {
      const earlier = before.get(name) ?? { commits: 0, items: 0 }
      return commits === earlier.commits ? [] : [[name, (items - earlier.items) / (commits - earlier.commits)]]
    })
  )

/** Milliseconds that this disk takes to sync 8 kB, the median of 100. */
const syncTime = (folder: string): number => {
  const file = openSync(join(folder, "sync-probe"), "w")
  const page = Buffer.alloc(8192)
  const times = Array.from({ length: 100 }, () => {
    const begin = performance.now()
    writeSync(file, page)
    fdatasyncSync(file)
    return performance.now() - begin
  }).sort((a, b) => a - b)
  closeSync(file)
  return times[50]!
}

interface Measured extends RunResult {
  readonly label: string
  readonly batch: Record<string, number>
  /** For each accepted message: calls to actors of other nodes, and pushes to sockets there. */
  readonly crossed: { readonly calls: number; readonly pushes: number }
}

interface IdleResult {
  readonly sockets: number
  readonly agents: number
  /** Bytes for each socket. */
  readonly rss: number
  readonly heap: number
  readonly external: number
}

interface SubjectResult {
  readonly subject: string
  readonly version: string
  readonly syncMs: number
  readonly runs: ReadonlyArray<Measured>
  readonly verdict: Verdict
  /** Of each process. */
  readonly memoryAfter: ReadonlyArray<Memory>
  readonly stopped: ReadonlyArray<number | null>
  readonly idle: IdleResult | undefined
}

const measure = async (subject: Subject): Promise<SubjectResult> => {
  const name = nameOf(subject)
  const { database, folder, outbox, servers } = await startRig(subject)
  const [server] = servers
  if (server === undefined) throw new Error("no server")
  say(`${name}: at ${servers.map(({ url }) => url).join(" and ")}${database === undefined ? "" : `, PostgreSQL ${database.version}`}`)
  const handles = Array.from({ length: options.agents }, (_, i) => `bench-${i}`)
  const ring = await establishRing(server, await registerAgents(server.url, outbox, handles))
  const load = new Load()
  await load.ask("open", { nodes: servers.map(({ host, port }) => ({ host, port })), ring })

  const runs: Array<Measured> = []
  const run = async (label: string, changes: Partial<RunPlan>) => {
    say(`${name}: ${label}`)
    const plan: RunPlan = {
      inFlight: 1,
      warmUpSeconds: options.warmUp,
      seconds: options.seconds,
      messages: options.messages,
      maxSeconds: options.seconds * 4,
      rate: 0,
      settle: false,
      serverPids: servers.map(({ pid }) => pid),
      databasePid: database?.pid,
      ...changes
    }
    const fileOf = (node: number) => join(folder, `window-${node}.cpuprofile`)
    const profiled = flags.profile && runs.length === 0
    const profiling: Array<Promise<unknown>> = []
    const before = await counts(servers)
    const result = await load.ask("run", plan, (edge) => {
      if (!profiled) return
      for (const [node, server] of servers.entries()) {
        profiling.push(probe(server, edge === "begin" ? { probe: "profile-start" } : { probe: "profile-stop", file: fileOf(node) }))
      }
    })
    const after = await counts(servers)
    const sent = (counted: Counts) => counted.batches.get("message")?.items ?? 0
    const sends = Math.max(1, sent(after) - sent(before))
    runs.push({
      label,
      batch: meanBatches(before.batches, after.batches),
      crossed: {
        calls: (after.remoteCalls - before.remoteCalls) / sends,
        pushes: (after.remotePushes - before.remotePushes) / sends
      },
      ...result
    })
    if (profiled) {
      await Promise.all(profiling)
      for (const [node, cpu] of result.cpu.nodes.entries()) {
        printProfile(`${name}, ${label}${servers.length === 1 ? "" : `, node ${node + 1}`}`, fileOf(node), cpu)
      }
    }
    return result
  }

  let fastest = 0
  for (const inFlight of options.inFlight) {
    const result = await run(`${inFlight} in flight`, { inFlight })
    fastest = Math.max(fastest, result.perSecond)
  }
  const aside = { seconds: flags.short ? 2 : 8, messages: 0, warmUpSeconds: 1 }
  const half = Math.floor(fastest / 2)
  await run(`half load, ${half}/s`, { ...aside, inFlight: options.inFlight[0]!, rate: half })
  await run("unloaded, 1 in flight", { ...aside, settle: true })
  say(`${name}: reading everything back`)
  const verdict = await load.ask("verify", { echo: options.echo === "on" })
  const memoryAfter = await Promise.all(servers.map((one) => probe(one, { probe: "memory" }) as Promise<Memory>))
  const syncMs = syncTime(folder)
  const stopped = await stopAll(servers)
  if (verdict.problems.length > 0) {
    for (const one of servers) say(`the end of the log of ${one.url}:\n${one.output().slice(-3000)}`)
  }
  await cleanUp()
  const idle = options.idle === 0 ? undefined : await weighIdle(subject)
  return { subject: name, version: database?.version ?? "18 in process", syncMs, runs, verdict, memoryAfter, stopped, idle }
}

/** What an authenticated socket that does nothing costs the server's process (the first node's), with an agent of its own. */
const weighIdle = async (subject: Subject): Promise<IdleResult> => {
  const rig = await startRig(subject)
  say(`${nameOf(subject)}: registering ${options.idle} agents for idle sockets`)
  const handles = Array.from({ length: options.idle }, (_, i) => `idle-${i}`)
  const keys = (await registerAgents(rig.servers[0]!.url, rig.outbox, handles)).map((agent) => agent.key)
  // What the registrations left in the old process would hide what sockets add.
  const [server] = await rig.restart()
  if (server === undefined) throw new Error("no server")
  const load = new Load()
  const connect = async (some: ReadonlyArray<string>) => load.ask("idle", { host: server.host, port: server.port, keys: some })
  // Once with a few that go again, so that only the sockets are weighed and not the first use of the code.
  await connect(keys.slice(0, Math.ceil(keys.length / 10)))
  await load.ask("closeIdle", undefined)
  await settle()
  const before = await probe(server, { probe: "memory" }) as Memory
  await connect(keys)
  await settle()
  const after = await probe(server, { probe: "memory" }) as Memory
  const live = await load.ask("closeIdle", undefined)
  if (live !== keys.length) throw new Error(`of ${keys.length} idle sockets only ${live} stayed open`)
  await cleanUp()
  const each = (kind: keyof Memory) => (after[kind] - before[kind]) / keys.length
  return { sockets: keys.length, agents: keys.length, rss: each("rss"), heap: each("heap"), external: each("external") }
}

const settle = () => new Promise((resolve) => setTimeout(resolve, 3000))

const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  return rows.map((row) =>
    row.map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!))).join("  ").trimEnd()
  ).join("\n")
}

const ms = (value: number) => value.toFixed(value < 10 ? 2 : 1)
const latency = (q: Quantiles) => `${ms(q.p50)} / ${ms(q.p95)} / ${ms(q.p99)}`
const micros = (value: number | undefined) => (value === undefined ? "n/a" : value.toFixed(0))
const percent = (share: number) => `${(share * 100).toFixed(0)} %`
const kB = (bytes: number) => `${(bytes / 1000).toFixed(1)} kB`
const json = (value: unknown) =>
  JSON.stringify(value, (_, part: unknown) => (typeof part === "number" ? Math.round(part * 1000) / 1000 : part))
const batchText = (batch: Record<string, number>) =>
  Object.entries(batch).map(([name, mean]) => `${name} ${mean.toFixed(1)}`).join(", ") || "n/a"

const print = (result: SubjectResult) => {
  const { idle, memoryAfter, runs, verdict } = result
  console.log(`\n${result.subject} (PostgreSQL ${result.version}), ${options.agents} agents in a ring, echo ${options.echo}, ` +
    `payload 70 to 256 bytes; a sync of 8 kB takes ${result.syncMs.toFixed(2)} ms here`)
  console.log(table([
    ["", "msgs/s", "accepted", "to socket ms p50/p95/p99", "to answer ms p50/p95/p99", "CPU µs server", "in kernel", "database", "load", "others", "stolen"],
    ...runs.map((run) => [
      run.label,
      run.perSecond.toFixed(0),
      String(run.accepted),
      latency(run.toSocket),
      latency(run.toAnswer),
      micros(run.cpu.server),
      micros(run.cpu.kernel),
      micros(run.cpu.database),
      micros(run.cpu.load),
      percent(run.noise.others),
      percent(run.noise.stolen)
    ])
  ]))
  if (memoryAfter.length > 1) {
    for (const run of runs) {
      console.log(`each node, ${run.label}: CPU µs ${run.cpu.nodes.map(micros).join(" and ")}; ` +
        `${percent(run.crossed.calls)} of the sends called another node, ${run.crossed.pushes.toFixed(2)} pushes a message went to one`)
    }
  }
  for (const run of runs) console.log(`mean batch, ${run.label}: ${batchText(run.batch)}`)
  for (const run of runs) {
    if (Object.keys(run.refused).length > 0) console.log(`refused, ${run.label}: ${JSON.stringify(run.refused)}`)
  }
  for (const { heap, rss } of memoryAfter) {
    console.log(`memory of ${memoryAfter.length === 1 ? "the server" : "a node"} after all that: ${kB(heap)} of heap, ${kB(rss)} resident`)
  }
  if (idle !== undefined) {
    console.log(`an idle socket, ${idle.sockets} of them with an agent each: ${kB(idle.heap)} of heap, ` +
      `${kB(idle.external)} outside it, ${kB(idle.rss)} resident`)
  }
  console.log(`accepted ${verdict.accepted}, stored ${verdict.stored}, delivered ${verdict.delivered}, ` +
    `echoed ${verdict.echoed}; the server ended with ${result.stopped.join(" and ")}`)
  for (const problem of verdict.problems) console.log(`  PROBLEM ${problem}`)
}

/** Where `micros` of processor time, for each message or request, went. */
const printProfile = (title: string, file: string, micros: number) => {
  const { busy, files, functions, owners } = readProfile(file)
  // The profiler samples by the clock, time in which another process ran included (often after a write
  // that woke it): its shares are taken, and applied to the processor time that was really used.
  const each = (cost: Cost) => [`${((cost.self / busy) * micros).toFixed(1)} µs`, `${((cost.self / busy) * 100).toFixed(1)} %`]
  const show = (kind: string, costs: ReadonlyArray<Cost>, count: number) =>
    console.log(`\n${title}: ${micros.toFixed(0)} µs each, self time by ${kind}\n` +
      table(costs.slice(0, count).map((cost) => [cost.name, ...each(cost)])))
  show("package", owners, 16)
  show("file", files, 30)
  show("function", functions, 45)
}

const benchMessages = async (): Promise<boolean> => {
  const results: Array<SubjectResult> = []
  for (const subject of options.subjects) {
    const result = await measure(subject)
    print(result)
    results.push(result)
  }
  console.log(`\nload average of the machine's last minute: ${loadavg()[0]!.toFixed(1)} on ${navigator.hardwareConcurrency} processors; ` +
    `"others" and "stolen" are the shares of them that something else took during a window`)
  let good = true
  for (const { verdict, ...rest } of results) {
    const { accepted, delivered, echoed, problems, stored } = verdict
    good &&= problems.length === 0 && accepted === stored && accepted === delivered
    console.log(json({ bench: "messages", ...rest, verdict: { accepted, stored, delivered, echoed, problems } }))
  }
  if (!good) console.error("\nFAILED: what was accepted, stored and delivered is not the same")
  return good
}

const benchHttp = async (): Promise<boolean> => {
  const { folder, outbox, servers: [server] } = await startRig("pglite")
  if (server === undefined) throw new Error("no server")
  const [agent] = await registerAgents(server.url, outbox, ["bench-0"])
  const port = await freePort()
  const bare = spawn(process.execPath, [join(import.meta.dirname, "BareApi.ts")], {
    env: { PATH: process.env["PATH"], PORT: String(port) },
    stdio: "ignore"
  })
  cleanUps.push(async () => bare.kill("SIGKILL"))
  await untilAnswers(`http://127.0.0.1:${port}/v1/agents/me`)
  const load = new Load()
  const plan = { host: "127.0.0.1", path: "/v1/agents/me", key: agent!.key, inFlight: 32, seconds: flags.short ? 2 : 6 }
  const rounds: Array<{ readonly parley: HttpResult; readonly bare: HttpResult }> = []
  for (let round = 0; round < (flags.short ? 1 : 5); round++) {
    const profiled = flags.profile && round === 0
    if (profiled) {
      const file = join(folder, "window.cpuprofile")
      await probe(server, { probe: "profile-start" })
      const { perSecond, serverCpu } = await load.ask("http", { ...plan, port: server.port, serverPid: server.pid })
      await probe(server, { probe: "profile-stop", file })
      printProfile("GET /v1/agents/me", file, serverCpu)
      say(`${perSecond.toFixed(0)} req/s while profiled`)
    }
    rounds.push({
      bare: await load.ask("http", { ...plan, port, serverPid: bare.pid! }),
      parley: await load.ask("http", { ...plan, port: server.port, serverPid: server.pid })
    })
  }
  await cleanUp()
  const median = (values: ReadonlyArray<number>) => [...values].sort((a, b) => a - b)[values.length >> 1]!
  const figures = (side: "parley" | "bare") => {
    const speeds = rounds.map((round) => round[side].perSecond)
    return {
      perSecond: median(speeds),
      from: Math.min(...speeds),
      to: Math.max(...speeds),
      cpu: median(rounds.map((round) => round[side].serverCpu))
    }
  }
  const ours = figures("parley")
  const theirs = figures("bare")
  const ratio = median(rounds.map((round) => round.parley.perSecond / round.bare.perSecond))
  const row = (name: string, f: typeof ours) => [name, f.perSecond.toFixed(0), `${f.from.toFixed(0)} to ${f.to.toFixed(0)}`, f.cpu.toFixed(0)]
  console.log(table([
    ["GET /v1/agents/me, 32 in flight", "req/s", "spread", "CPU µs"],
    row("Parley, authenticated", ours),
    row("bare HttpApi endpoint", theirs)
  ]))
  console.log(`Parley has ${percent(ratio)} of the bare endpoint's speed (median of ${rounds.length} rounds taken in turn)`)
  console.log(json({ bench: "http", parley: ours, bare: theirs, ratio }))
  return true
}

const untilAnswers = async (url: string) => {
  for (const deadline = Date.now() + 15_000; Date.now() < deadline;) {
    const up = await fetch(url).then((response) => response.text().then(() => true), () => false)
    if (up) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`nothing answers at ${url}`)
}

if (flags.help) {
  console.log(HELP)
} else {
  try {
    process.exitCode = await (flags.http ? benchHttp() : benchMessages()) ? 0 : 1
  } catch (error) {
    console.error(error)
    process.exitCode = 1
  } finally {
    await cleanUp()
  }
}

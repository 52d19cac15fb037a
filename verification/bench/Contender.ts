import { fork } from "node:child_process"
import { join } from "node:path"
import type { ServerProcess } from "../../test/support/ServerProcess.ts"
import { whenOver } from "./CleanUps.ts"
import { measureDatabaseFloor } from "./DatabaseFloor.ts"
import { type DiskUse, growth, tableSizes } from "./DiskUse.ts"
import type { FloorCall } from "./HttpFloor.ts"
import type { Processes, RunPlan, RunResult } from "./Load.ts"
import { LoadProcess } from "./LoadProcess.ts"
import { counts, crossings, meanBatches } from "./Metrics.ts"
import type { Memory, ProbeCall } from "./Probe.ts"
import { nameOf, type Rig, startRig, stopAll, type Subject } from "./Rig.ts"
import { FLOOR } from "./Scene.ts"
import { type Scene, type SceneKind, setScene } from "./Scene.ts"
import { median } from "./Statistics.ts"
import { syncTime } from "./SyncTime.ts"
import type { Verdict } from "./Verdict.ts"
import type { Window } from "./Window.ts"

export interface Measured extends RunResult {
  readonly label: string
  readonly round: number
  /** Mean items per commit of each group commit, by its name. */
  readonly batch: Readonly<Record<string, number>>
  /** For each accepted message: calls to actors of other nodes, and pushes to sockets there. */
  readonly crossed: { readonly calls: number; readonly pushes: number }
}

export interface Outcome {
  readonly name: string
  readonly subject: Subject | undefined
  /** Of PostgreSQL. */
  readonly version: string | undefined
  readonly syncMs: number | undefined
  readonly runs: ReadonlyArray<Measured>
  readonly verdict: Verdict
  /** Of each process, after all windows. */
  readonly memory: ReadonlyArray<Memory>
  readonly stopped: ReadonlyArray<number | null>
  readonly disk: DiskUse | undefined
  /** Microseconds for each message, several times. */
  readonly databaseFloor: ReadonlyArray<number> | undefined
}

/** A server or cluster that takes the load, window by window, and whose messages are checked at the end. */
export interface Contender {
  readonly name: string
  /** Whether it can be measured in this window. */
  readonly takes: (window: Window) => boolean
  readonly measure: (window: Window, round: number) => Promise<Measured>
  readonly finish: () => Promise<Outcome>
}

export interface ContenderOptions {
  readonly scene: SceneKind
  readonly agents: number
  readonly echo: "on" | "off"
  readonly repeat: number
  /**
   * Receives the profile of each server in the first window of each load, with the processor time per message that the
   * server used.
   */
  readonly onProfile: ((title: string, file: string, micros: number) => void) | undefined
  readonly say: (text: string) => void
}

export const probe = (server: ServerProcess, call: ProbeCall): Promise<unknown> =>
  new Promise((resolve) => {
    server.child.once("message", (message: { readonly result: unknown }) => resolve(message.result))
    server.child.send(call)
  })

/** `scale` is the number of nodes that share the load. */
const planOf = (window: Window, fastest: number, pids: Processes, scale: number): RunPlan => {
  const { pace } = window
  const rate = pace.kind === "share"
    ? Math.max(1, Math.floor(fastest * pace.share))
    : pace.kind === "rate"
    ? pace.perSecond
    : 0
  const inFlight = window.inFlight * (pace.kind === "alone" ? 1 : scale)
  return {
    // The server closes a connection without a request for ten seconds. So there are only as many as each get a request
    // within five.
    inFlight: rate > 0 ? Math.min(inFlight, rate * 5) : inFlight,
    warmUpSeconds: window.warmUpSeconds,
    seconds: window.seconds,
    messages: window.messages,
    maxSeconds: window.seconds * 4,
    rate,
    settle: pace.kind === "alone",
    pids
  }
}

/** The greatest median throughput at full load so far. The median keeps the load of windows at half of it stable. */
const fastestOf = (runs: ReadonlyArray<Measured>, fullLoads: ReadonlySet<string>): number => {
  const byLabel = Map.groupBy(runs.filter(({ label }) => fullLoads.has(label)), ({ label }) => label)
  return Math.max(1, ...[...byLabel.values()].map((some) => median(some.map(({ perSecond }) => perSecond))))
}

/** Starts a server or nodes, with agents that know each other. */
export const startContender = async (
  subject: Subject,
  options: ContenderOptions
): Promise<{ readonly contender: Contender; readonly scene: Scene; readonly pids: Processes }> => {
  const name = nameOf(subject)
  const rig = await startRig(subject, { ECHO_OWN: options.echo }, (text) => options.say(`${name}: ${text}`))
  const { database, folder, pids, servers } = rig
  options.say(
    `${name}: at ${servers.map(({ url }) => url).join(" and ")}${
      database === undefined ? "" : `, PostgreSQL ${database.version}`
    }`
  )
  const scale = Math.max(1, subject.nodes)
  const scene = await setScene(
    servers[0]!,
    rig.outbox,
    options.scene,
    options.agents * (options.scene === "ring" ? scale : 1)
  )
  const load = new LoadProcess()
  await load.ask("open", {
    nodes: rig.addresses,
    ...scene,
    echo: options.echo === "on",
    keyInHeader: subject.balancer === "header"
  })
  const sizes = database === undefined ? undefined : await tableSizes(database.url)
  const runs: Array<Measured> = []
  const fullLoads = new Set<string>()

  const measure = async (window: Window, round: number): Promise<Measured> => {
    if (window.pace.kind === "full") fullLoads.add(window.label)
    const fileOf = (node: number) => join(folder, `window-${node}.cpuprofile`)
    const onProfile = runs.some(({ label }) => label === window.label) ? undefined : options.onProfile
    const profiling: Array<Promise<unknown>> = []
    const before = await counts(servers)
    const result = await load.ask("run", planOf(window, fastestOf(runs, fullLoads), pids, scale), (edge) => {
      if (onProfile === undefined) return
      for (const [node, server] of servers.entries()) {
        profiling.push(
          probe(server, edge === "begin" ? { probe: "profile-start" } : { probe: "profile-stop", file: fileOf(node) })
        )
      }
    })
    const after = await counts(servers)
    const measured = {
      label: window.label,
      round,
      batch: meanBatches(before, after),
      crossed: crossings(before, after),
      ...result
    }
    runs.push(measured)
    await Promise.all(profiling)
    for (const [node, cpu] of result.cpu.nodes.entries()) {
      onProfile?.(`${name}, ${window.label}${servers.length === 1 ? "" : `, node ${node + 1}`}`, fileOf(node), cpu)
    }
    return measured
  }

  const finish = async (): Promise<Outcome> => {
    options.say(`${name}: reading everything back`)
    const verdict = await load.ask("verify", { stores: true })
    const memory = await Promise.all(servers.map((one) => probe(one, { probe: "memory" }) as Promise<Memory>))
    const stopped = await stopAll(servers)
    if (verdict.problems.length > 0) {
      for (const one of servers) options.say(`the end of the log of ${one.url}:\n${one.output().slice(-3000)}`)
    }
    await load.end()
    return {
      name,
      subject,
      version: database?.version ?? "18 in process",
      syncMs: syncTime(folder),
      runs,
      verdict,
      memory,
      stopped,
      ...await inDatabase(rig, sizes, runs, verdict.stored)
    }
  }

  /** Figures that are read from the database once no server uses it any more. */
  const inDatabase = async (
    { database }: Rig,
    before: ReadonlyMap<string, number> | undefined,
    runs: ReadonlyArray<Measured>,
    stored: number
  ) => {
    if (database === undefined || before === undefined || stored === 0)
      return { disk: undefined, databaseFloor: undefined }
    const disk = growth(before, await tableSizes(database.url), stored)
    const [first] = runs
    if (database.pid === undefined || options.scene !== "ring" || subject.nodes > 0 || first === undefined)
      return { disk, databaseFloor: undefined }
    options.say(`${name}: the database's floor`)
    const of = (batch: string) =>
      median(runs.filter(({ label }) => label === first.label).map((run) => run.batch[batch] ?? 1))
    return {
      disk,
      databaseFloor: await measureDatabaseFloor(
        database.url,
        database.pid,
        { sends: of("message"), acks: of("ack") },
        Math.min(3, options.repeat)
      )
    }
  }

  return { scene, pids, contender: { name, takes: () => true, measure, finish } }
}

/** Starts the floor server (HttpFloor.ts) with the agents of another contender. */
export const startFloor = async ({ agents, channels }: Scene, options: ContenderOptions): Promise<Contender> => {
  const echo = options.echo === "on"
  const child = fork(join(import.meta.dirname, "HttpFloor.ts"), { execArgv: [] })
  whenOver(async () => child.kill("SIGKILL"))
  const listening = new Promise<{ readonly port: number }>((resolve) =>
    child.once("message", (address) => resolve(address as { readonly port: number }))
  )
  child.send({ agents, channels, echo } satisfies FloorCall)
  const { port } = await listening
  const load = new LoadProcess()
  await load.ask("open", { nodes: [{ host: "127.0.0.1", port }], agents, channels, echo, keyInHeader: false })
  const pids: Processes = { servers: [child.pid!], database: undefined, redis: undefined, balancer: undefined }
  const runs: Array<Measured> = []
  return {
    name: FLOOR,
    takes: ({ floor }) => floor,
    measure: async (window, round) => {
      const measured = {
        label: window.label,
        round,
        batch: {},
        crossed: { calls: 0, pushes: 0 },
        ...await load.ask("run", planOf(window, 1, pids, 1))
      }
      runs.push(measured)
      return measured
    },
    finish: async () => {
      const verdict = await load.ask("verify", { stores: false })
      await load.end()
      return {
        name: FLOOR,
        subject: undefined,
        version: undefined,
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

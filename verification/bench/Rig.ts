import { mkdir, mkdtemp, rm } from "node:fs/promises"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { missingRedis, RedisServer } from "../../runners/local/Redis.ts"
import { Haproxy } from "../../test/support/Haproxy.ts"
import { type ServerOptions, type ServerProcess, startServer } from "../../test/support/ServerProcess.ts"
import type { Checkout } from "./Checkout.ts"
import { whenOver } from "./CleanUps.ts"
import { type BenchDatabase, startDatabase } from "./Database.ts"
import type { Address, Processes } from "./Load.ts"
import { metric, metrics } from "./Metrics.ts"
import { fill } from "./Stored.ts"

/** One configuration that is measured. */
export interface Subject {
  readonly database: "pglite" | "postgres"
  /** The number of nodes; 0 for a standalone server. */
  readonly nodes: number
  /** Whether `nodes` are servers that share nothing, instead of nodes of a cluster. */
  readonly apart?: boolean
  /** Where the sockets carry their keys to servers behind HAProxy; undefined without HAProxy. */
  readonly balancer: "header" | "hello" | undefined
  /** Messages in the database before the measurement. */
  readonly stored: number
  readonly checkout: Checkout
  /** The share of the requests that are traced; undefined if tracing is off. */
  readonly traced?: number | undefined
}

export const nameOf = ({ balancer, checkout, database, nodes, stored, traced }: Subject): string =>
  (nodes === 0 ? database : `${nodes} node${nodes === 1 ? "" : "s"}`) +
  (balancer === undefined ? "" : ` behind HAProxy, ${balancer === "header" ? "key in header" : "HELLO"}`) +
  (stored === 0 ? "" : `, ${stored} stored`) +
  (traced === undefined ? "" : `, ${traced * 100} % traced`) +
  (checkout.commit === undefined ? "" : `, at ${checkout.commit}`)

/** Limits that the load does not reach. Every guard stays on, but none of them is measured. */
const LIMITS = {
  LIMITS_SENDS_PER_SECOND: "1000000",
  LIMITS_REGISTER_PER_HOUR: "1000000",
  LIMITS_REGISTER_VERIFY_PER_10_MINUTES: "1000000",
  LIMITS_REQUESTS_PER_MINUTE: "100000000",
  LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: "100000000"
}

/** Running servers with everything that they need. */
export interface Rig {
  readonly servers: ReadonlyArray<ServerProcess>
  /** Where the load connects. */
  readonly addresses: ReadonlyArray<Address>
  readonly pids: Processes
  /** Replaces the servers by new processes on the same data. */
  readonly restart: () => Promise<ReadonlyArray<ServerProcess>>
  readonly database: BenchDatabase | undefined
  readonly folder: string
  readonly outbox: string
}

const startRedis = async (): Promise<{ readonly url: string; readonly pid: number | undefined }> => {
  const given = process.env["REDIS_URL"]
  if (given !== undefined) return { url: given, pid: undefined }
  if (missingRedis !== "") throw new Error(`nodes need Redis${missingRedis}, or REDIS_URL`)
  const redis = await RedisServer.start()
  whenOver(() => redis.kill())
  return redis
}

/**
 * Starts a collector that accepts and discards all traces, and returns the settings with which a server sends traces to
 * it.
 */
const startCollector = async (share: number): Promise<Readonly<Record<string, string>>> => {
  const server = createServer((request, response) => request.resume().on("end", () => response.end("{}")))
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  whenOver(async () => {
    server.closeAllConnections()
    server.close()
  })
  return {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
    OTEL_TRACES_SAMPLER_ARG: String(share)
  }
}

const startBalancer = async (
  servers: ReadonlyArray<ServerProcess>,
  root: string
): Promise<{ readonly address: Address; readonly pid: number | undefined }> => {
  const port = await freePort()
  const haproxy = await Haproxy.start({
    port,
    root,
    nodes: servers.map(({ host, port }) => `${host}:${port}`),
    files: `127.0.0.1:${await freePort()}`
  })
  whenOver(() => haproxy.stop())
  await untilAnswers(`${haproxy.url}/v1/ready`).catch((error: unknown) =>
    Promise.reject(new Error(`${String(error)}\n${haproxy.log}`))
  )
  return { address: { host: "127.0.0.1", port }, pid: haproxy.process.pid }
}

/** Starts a server or nodes on a new database, which is filled first if the subject asks for stored messages. */
export const startRig = async (
  subject: Subject,
  env: Readonly<Record<string, string>>,
  say: (text: string) => void
): Promise<Rig> => {
  const { root } = subject.checkout
  const folder = await mkdtemp(join(tmpdir(), "parley-bench-"))
  whenOver(() => rm(folder, { recursive: true, force: true }))
  const database = subject.database === "pglite" ? undefined : await startDatabase(process.env["DATABASE_URL"])
  if (database !== undefined) whenOver(database.stop)
  const outbox = join(folder, "outbox")
  await mkdir(outbox)
  const common = {
    root,
    nodeOptions: ["--expose-gc", "--import", join(import.meta.dirname, "Probe.ts")],
    channel: true,
    timeoutMs: 300_000
  }
  const tracing = subject.traced === undefined ? {} : await startCollector(subject.traced)
  const settings = {
    ...LIMITS,
    ...tracing,
    ...env,
    MAIL_OUTBOX: outbox,
    ...(database === undefined ? {} : { DATABASE_URL: database.url })
  }
  const start = async (more: Pick<ServerOptions, "dataDir" | "command" | "env">) => {
    const server = await startServer({ ...common, ...more })
    whenOver(() => server.stop())
    return server
  }
  const redis = subject.nodes === 0 ? undefined : await startRedis()
  const launch = async (): Promise<ReadonlyArray<ServerProcess>> => {
    if (redis === undefined) return [await start({ dataDir: join(folder, "data"), env: settings })]
    const shared = {
      ...settings,
      REDIS_URL: redis.url,
      SHARED_DIR: join(folder, "files"),
      RUNNER_SECRET: "of the bench",
      ...(subject.balancer === undefined ? {} : { TRUST_PROXY: "1" })
    }
    const servers: Array<ServerProcess> = []
    for (let node = 1; node <= subject.nodes; node++) {
      servers.push(
        await start({
          dataDir: join(folder, `node-${node}`),
          command: "runner",
          env: { ...shared, RUNNER_PORT: String(await freePort()) }
        })
      )
    }
    await untilShared(servers, say)
    return servers
  }
  let servers = await launch()
  if (subject.stored > 0 && database !== undefined) {
    // The servers have created the tables. They are stopped, because they cache plans that were made for empty tables.
    await stopAll(servers)
    await fill(database.url, subject.stored, say)
    servers = await launch()
  }
  const balancer = subject.balancer === undefined ? undefined : await startBalancer(servers, root)
  return {
    servers,
    addresses: balancer === undefined ? servers.map(({ host, port }) => ({ host, port })) : [balancer.address],
    pids: {
      servers: servers.map(({ pid }) => pid),
      database: database?.pid,
      redis: redis?.pid,
      balancer: balancer?.pid
    },
    restart: async () => {
      await stopAll(servers)
      return servers = await launch()
    },
    database,
    folder,
    outbox
  }
}

export const stopAll = (servers: ReadonlyArray<ServerProcess>) => Promise.all(servers.map((server) => server.stop()))

/** Waits until each node has its part of the shards, without changes for a while. */
const untilShared = async (nodes: ReadonlyArray<ServerProcess>, say: (text: string) => void): Promise<void> => {
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

export const untilAnswers = async (url: string): Promise<void> => {
  for (const deadline = Date.now() + 15_000; Date.now() < deadline;) {
    const up = await fetch(url).then((response) => response.text().then(() => response.ok), () => false)
    if (up) return
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  throw new Error(`nothing answers at ${url}`)
}

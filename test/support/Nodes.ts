import { assert } from "@effect/vitest"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Balancer } from "../../runners/local/Balancer.ts"
import { freePort } from "../../runners/local/FreePort.ts"
import { missingRedis, RedisServer } from "../../runners/local/Redis.ts"
import { freshDatabase } from "./Databases.ts"
import { eventually } from "./Eventually.ts"
import type { Answer } from "./Http.ts"
import { agentOf, parley, type Server, startServer, type TestAgent } from "./Server.ts"

/** A note on the program that tests of nodes need and this machine lacks; empty if none is missing. */
export const missingForNodes = missingRedis

/** The same agent, as a client of this node. */
export const on = (node: Server, agent: TestAgent): TestAgent => agentOf(node, agent, agent.key)

/** The target of a message, as in the request. */
type To = { readonly to: string } | { readonly conversation_id: string }

/** Sends a new message, and returns the answer, also if it is a refusal. */
export const attempt = (from: TestAgent, to: To, text: string): Promise<Answer> =>
  from.http.post("/v1/messages", { ...to, client_msg_id: `${text}-${Math.random()}`, type: "text", content: { text } })

export interface Sent {
  readonly id: string
  readonly conversation_id: string
  readonly seq: number
}

export const send = async (from: TestAgent, to: To, text: string): Promise<Sent> => {
  const answer = await attempt(from, to, text)
  assert.include(answer.repeated ? [201, 200] : [201], answer.status, `${answer}`)
  return answer.body as Sent
}

/**
 * The environment of a node whose clock is wrong by `seconds`, and is set forward by `jump` seconds with each SIGUSR2.
 */
export const clockOff = (seconds: number, jump = 0): Readonly<Record<string, string>> => ({
  NODE_OPTIONS: `--import ${new URL("ShiftedClock.js", import.meta.url).href}`,
  CLOCK_SHIFT_SECONDS: String(seconds),
  CLOCK_JUMP_SECONDS: String(jump)
})

/** A cluster on one machine: a database, a Redis and a folder, and any number of nodes. */
export class Cluster {
  readonly nodes: Array<Server> = []
  private readonly folder: string
  readonly env: Readonly<Record<string, string>>
  private readonly redis: RedisServer
  /** The most files that each node may have open. */
  private readonly openFiles: number | undefined

  private constructor(
    folder: string,
    redis: RedisServer,
    env: Readonly<Record<string, string>>,
    openFiles: number | undefined
  ) {
    this.openFiles = openFiles
    this.folder = folder
    this.redis = redis
    this.env = env
  }

  static async start(nodes: number, env: Readonly<Record<string, string>> = {}, openFiles?: number): Promise<Cluster> {
    const folder = await mkdtemp(join(tmpdir(), "parley-nodes-"))
    const redis = await RedisServer.start()
    const cluster = new Cluster(folder, redis, {
      DATABASE_URL: await freshDatabase(),
      DATABASE_POOL: "5",
      REDIS_URL: redis.url,
      REDIS_TIMEOUT_MS: "5000",
      SHARED_DIR: join(folder, "files"),
      MAIL_OUTBOX: join(folder, "outbox"),
      RUNNER_SECRET: "known to the nodes of this test",
      LOG_LEVEL: "info",
      ...env
    }, openFiles)
    await Promise.all(Array.from({ length: nodes }, () => cluster.add()))
    return cluster
  }

  /** The first two nodes, as they are now. */
  get pair(): readonly [Server, Server] {
    return [this.nodes[0]!, this.nodes[1]!]
  }

  /** Starts one more node, or restarts one that has ended on its ports; `env` is for this node only. */
  async add(
    again?: Server,
    env: Readonly<Record<string, string>> = {},
    program: ReadonlyArray<string> = parley("runner")
  ): Promise<Server> {
    const ports = again === undefined
      ? { PORT: String(await freePort()), RUNNER_PORT: String(await freePort()) }
      : { PORT: new URL(again.url).port, RUNNER_PORT: this.runnerPorts.get(again) ?? "" }
    const dataDir = await mkdtemp(join(this.folder, "node-"))
    const node = await startServer({
      program,
      dataDir,
      env: { ...this.env, ...ports, ...env },
      ...this.openFiles === undefined ? {} : { openFiles: this.openFiles }
    })
    // A node is ready without waiting for Redis.
    if (env["REDIS_URL"] === undefined) {
      await eventually("a connection to Redis", () => node.stderr.includes("Connected to Redis") || undefined)
    }
    this.runnerPorts.set(node, ports.RUNNER_PORT)
    if (again === undefined) this.nodes.push(node)
    else this.nodes[this.nodes.indexOf(again)] = node
    return node
  }

  private readonly runnerPorts = new Map<Server, string>()

  /** The port at which the other nodes reach this one. */
  runnerPort(node: Server): number {
    return Number(this.runnerPorts.get(node))
  }

  async stop(): Promise<void> {
    try {
      await Promise.all(this.nodes.map((node) => node.stop()))
    } finally {
      await Promise.all(this.nodes.map((node) => node.kill().catch(() => undefined)))
      await this.redis.kill()
      await rm(this.folder, { recursive: true, force: true })
    }
  }
}

/** Several nodes behind a balancer, which look like one server. For tests that are not about nodes. */
export const startBalanced = async (nodes: number, env: Readonly<Record<string, string>> = {}): Promise<Server> => {
  let urls: ReadonlyArray<string> = []
  const balancer = await Balancer.start(() => urls)
  const cluster = await Cluster.start(nodes, { LOG_LEVEL: "debug", PUBLIC_URL: balancer.url, ...env }).catch(
    (error: unknown) => {
      balancer.stop()
      throw error
    }
  )
  const [first, ...others] = cluster.nodes
  if (first === undefined) throw new Error("no node")
  urls = cluster.nodes.map(({ url }) => url)
  await balancer.look()
  first.url = balancer.url
  first.others = others
  first.endOthers = async () => {
    balancer.stop()
    cluster.nodes.splice(0, cluster.nodes.length, ...others)
    await cluster.stop()
  }
  return first
}

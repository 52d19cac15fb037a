import { copyFile, mkdir, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { Client } from "pg"
import { Balancer } from "../../runners/local/Balancer.ts"
import { freePort } from "../../runners/local/FreePort.ts"
import { PostgresServer } from "../../runners/local/Postgres.ts"
import { RedisServer } from "../../runners/local/Redis.ts"
import { admin } from "../../test/support/Admin.ts"
import { eventually } from "../../test/support/Eventually.ts"
import { type Address, type Direction, Link } from "../../test/support/Link.ts"
import { type ServerProcess, spawnServer } from "../../test/support/ServerProcess.ts"
import type { Disk } from "./Disk.ts"
import { BUCKET, FileStore } from "./FileStore.ts"
import { LOAD_LIMITS, type LoadAgent } from "./Load.ts"
import { Mailbox } from "./Mailbox.ts"
import { Network, STRANGERS } from "./Network.ts"
import type { Detours } from "./Preload.ts"

const PRELOAD = join(import.meta.dirname, "Preload.ts")
const CLOCK = join(import.meta.dirname, "../../test/support/ShiftedClock.js")
const LOCALHOST = "127.0.0.1"
const DATABASE = "parley"
const LOOK_MS = 200
const LOOK_TIMEOUT_MS = 1_000
const READY_MS = 60_000

/** The cold cap. It is low enough for a load of some dozen agents to reach it. */
export const COLD_CAP = 20

const SECRET = "known to the nodes of this site"

/** Why an added node cannot communicate with the others. */
export type Unfit = "another secret" | "no secret" | "no way out"

const nameOf = ({ host, port }: Address): string => `${host}:${port}`

/**
 * One node. Its ports stay the same when its process is replaced. All its connections to others pass through its own
 * links.
 */
export class SiteNode {
  readonly name: string
  readonly address: Address
  /** The address at which the other nodes reach it. */
  readonly runner: Address
  readonly toPostgres: Link
  readonly toRedis: Link
  /** The link to each other node, by the node's name. */
  readonly toPeers = new Map<string, Link>()
  isReady = false
  private readonly dataDir: string
  private readonly through: ReadonlyArray<string>
  private readonly env: Readonly<Record<string, string>>
  /** Additional settings for processes that are started from now on. */
  settings: Readonly<Record<string, string>> = {}
  /** The limit of open files for processes that are started from now on; if undefined, the limit of this process. */
  openFiles: number | undefined
  private detours: Detours = {}
  private process: ServerProcess | undefined
  private written: () => string = () => ""

  constructor(options: {
    readonly name: string
    readonly dataDir: string
    readonly address: Address
    readonly runner: Address
    readonly toPostgres: Link
    readonly toRedis: Link
    readonly through: ReadonlyArray<string>
    readonly env: Readonly<Record<string, string>>
  }) {
    this.name = options.name
    this.dataDir = options.dataDir
    this.address = options.address
    this.runner = options.runner
    this.toPostgres = options.toPostgres
    this.toRedis = options.toRedis
    this.through = options.through
    this.env = options.env
  }

  get url(): string {
    return `http://${this.address.host}:${this.address.port}`
  }

  get isRunning(): boolean {
    return this.process !== undefined
  }

  /** The whole output of its processes. */
  output(): string {
    return this.written()
  }

  /** Starts a process for the node, which becomes ready later. `env` applies to this process only. */
  async start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    if (this.process !== undefined) throw new Error(`${this.name} runs already`)
    const started = await spawnServer({
      command: "runner",
      dataDir: this.dataDir,
      ...this.address,
      through: [
        ...this.through,
        ...this.openFiles === undefined ? [] : ["/bin/sh", "-c", `ulimit -n ${this.openFiles}; exec "$@"`, "sh"]
      ],
      env: {
        CLOCK_JUMP_SECONDS: "-3600",
        FAULTS_DETOURS: JSON.stringify(this.detours),
        ...this.env,
        ...this.settings,
        ...env
      },
      nodeOptions: [PRELOAD, CLOCK].flatMap((file) => ["--import", file]),
      channel: true
    })
    this.process = started
    this.written = started.output
    void started.ended.then((code) => {
      if (this.process !== started) return
      this.process = undefined
      this.endedByItself.push(`${this.name} ended by itself with ${code}: ${started.output().slice(-2_000)}`)
    })
  }

  /** Descriptions of unexpected ends of its processes. */
  readonly endedByItself: Array<string> = []

  /** Sends SIGTERM. Resolves with the exit code, or with null if the process had to be killed. */
  async stop(): Promise<number | null> {
    const stopping = this.process
    this.process = undefined
    return stopping === undefined ? 0 : await stopping.stop()
  }

  async kill(): Promise<void> {
    const killed = this.process
    this.process = undefined
    await killed?.kill()
  }

  /** Stops its process by SIGSTOP, without ending it. */
  pause(): void {
    this.process?.child.kill("SIGSTOP")
  }

  resume(): void {
    this.process?.child.kill("SIGCONT")
  }

  /**
   * Makes only its process's clock jump by CLOCK_JUMP_SECONDS, which is an hour back unless the process was started
   * otherwise.
   */
  jumpClock(): void {
    this.process?.child.kill("SIGUSR2")
  }

  /** Ends its connections to other nodes. New ones pass through the links, or no longer do, depending on `through`. */
  detour(through: boolean, peers: ReadonlyArray<SiteNode>): void {
    const pairs = peers.flatMap((peer) => {
      const link = this.toPeers.get(peer.name)
      return link === undefined || !through ? [] : [[nameOf(peer.runner), nameOf(link.address)] as const]
    })
    this.detours = Object.fromEntries(pairs)
    this.process?.child.send(this.detours)
  }

  get pid(): number | undefined {
    return this.process?.pid
  }

  /** Requests whether the node is ready, and notes the answer. */
  async look(): Promise<boolean> {
    const why = this.process === undefined ? "is not running" : await fetch(`${this.url}/v1/ready`, {
      signal: AbortSignal.timeout(LOOK_TIMEOUT_MS)
    }).then(async (answer) => {
      const { details } = await answer.json() as { readonly details?: { readonly reason?: string } }
      return answer.ok ? undefined : details?.reason ?? String(answer.status)
    }, () => "does not answer")
    this.isReady = why === undefined
    if (why !== undefined) this.unready.set(why, (this.unready.get(why) ?? 0) + 1)
    return this.isReady
  }

  /** The reasons why it was not ready, and how often each was the answer. */
  readonly unready = new Map<string, number>()
}

type Parts = Pick<Site, "nodes" | "postgres" | "redis" | "files" | "mail" | "network" | "disk"> & {
  readonly balancer: Balancer
  readonly folder: string
  readonly links: ReadonlyArray<Link>
  readonly toPostgres: Link
  readonly toRedis: Link
  readonly env: (toPostgres: Link, toRedis: Link, name: string, runner: Address) => Readonly<Record<string, string>>
}

/**
 * PostgreSQL, Redis, S3, a mail server and nodes on one machine, each in a process of its own. If the machine allows
 * it, every node has a network of its own. Otherwise the connections between nodes always pass through links that can
 * drop their bytes.
 */
export class Site {
  readonly nodes: ReadonlyArray<SiteNode>
  readonly postgres: PostgresServer
  readonly redis: RedisServer
  readonly files: FileStore
  readonly mail: Mailbox
  /** The URL of the balancer before the nodes, for clients that use a single address. */
  readonly url: string
  readonly network: Network | undefined
  /** The separate disk of PostgreSQL, if it has one. */
  readonly disk: Disk | undefined
  private readonly balancer: Balancer
  private readonly folder: string
  private readonly links: ReadonlyArray<Link>
  private readonly parts: Parts
  private readonly timer: NodeJS.Timeout
  private serial = 0

  private constructor(parts: Parts) {
    this.nodes = parts.nodes
    this.postgres = parts.postgres
    this.redis = parts.redis
    this.files = parts.files
    this.mail = parts.mail
    this.balancer = parts.balancer
    this.url = parts.balancer.url
    this.network = parts.network
    this.disk = parts.disk
    this.folder = parts.folder
    this.links = parts.links
    this.parts = parts
    this.timer = setInterval(() => {
      for (const node of this.nodes) void node.look()
    }, LOOK_MS)
  }

  /** Starts everything, and waits until every node is ready. */
  static async start(options: {
    readonly nodes: number
    /** Whether to use links between nodes even if namespaces are possible. */
    readonly withoutNamespaces?: boolean
    /** The disk for all data of PostgreSQL. It is closed with the site. */
    readonly disk?: Disk
    readonly env?: Readonly<Record<string, string>>
  }): Promise<Site> {
    const folder = await mkdtemp(join(tmpdir(), "parley-faults-"))
    const network = options.withoutNamespaces === true ? undefined : Network.open(options.nodes)
    const outside = network?.outside ?? LOCALHOST
    const [postgres, redis, files, mail] = await Promise.all([
      PostgresServer.start(18, {
        fsync: true,
        settings: { synchronous_commit: "on", shared_buffers: "'128MB'", max_wal_size: "'2GB'" },
        ...(options.disk === undefined ? {} : { parent: options.disk.folder })
      }),
      RedisServer.start(),
      FileStore.start(join(folder, "files"), outside),
      Mailbox.start(outside)
    ])
    const database = new Client(postgres.url())
    await database.connect()
    await database.query(`CREATE DATABASE ${DATABASE}`).finally(() => database.end())
    const places = await Promise.all(Array.from({ length: options.nodes }, async (_, at) => {
      const host = network?.host(at) ?? LOCALHOST
      return {
        name: `node-${at + 1}`,
        dataDir: join(folder, `node-${at + 1}`),
        address: { host, port: await freePort() },
        runner: { host, port: await freePort() },
        through: network?.prefix(at) ?? [],
        toPostgres: await Link.open(outside, { host: LOCALHOST, port: postgres.port }),
        toRedis: await Link.open(outside, { host: LOCALHOST, port: redis.port })
      }
    }))
    const env: Parts["env"] = (toPostgres, toRedis, name, runner) => ({
      ...LOAD_LIMITS,
      LIMITS_COLD_CONVERSATIONS: String(COLD_CAP),
      DATABASE_URL: `postgres://postgres@${nameOf(toPostgres.address)}/${DATABASE}?application_name=${name}`,
      REDIS_URL: `redis://${nameOf(toRedis.address)}`,
      S3_BUCKET: BUCKET,
      S3_ENDPOINT: files.url,
      S3_ACCESS_KEY_ID: "S3RVER",
      S3_SECRET_ACCESS_KEY: "S3RVER",
      S3_FORCE_PATH_STYLE: "on",
      SMTP_URL: mail.url,
      // The suite's own connections all come from one address, so the nodes treat this address as a balancer.
      TRUST_PROXY_ADDRESSES: outside,
      PROBE_ADDRESSES: outside,
      RUNNER_HOST: runner.host,
      RUNNER_PORT: String(runner.port),
      RUNNER_SECRET: SECRET,
      FAULTS_PEERS: places.map((other) => nameOf(other.runner)).filter((other) => other !== nameOf(runner)).join(","),
      ...options.env
    })
    const nodes = places.map((place) =>
      new SiteNode({ ...place, env: env(place.toPostgres, place.toRedis, place.name, place.runner) })
    )
    const toPostgres = await Link.open(outside, { host: LOCALHOST, port: postgres.port })
    const toRedis = await Link.open(outside, { host: LOCALHOST, port: redis.port })
    for (const node of nodes) {
      for (const other of nodes) {
        if (other !== node) node.toPeers.set(other.name, await Link.open(outside, other.runner))
      }
      if (network === undefined) node.detour(true, nodes)
    }
    const balancer = await Balancer.start(() => nodes.map(({ url }) => url))
    const links = [
      toPostgres,
      toRedis,
      ...nodes.flatMap((node) => [node.toPostgres, node.toRedis, ...node.toPeers.values()])
    ]
    const disk = options.disk
    const site = new Site({
      nodes,
      postgres,
      redis,
      files,
      mail,
      balancer,
      network,
      disk,
      folder,
      links,
      toPostgres,
      toRedis,
      env
    })
    try {
      await Promise.all(nodes.map((node) => node.start()))
      await site.untilReady()
    } catch (error) {
      await site.stop()
      throw error
    }
    return site
  }

  /**
   * Creates one more node, which cannot communicate with the others, at an address that sorts before or after theirs.
   * The node is not in `nodes` and is not started by this method. Needs the site's own network.
   */
  async neighbour(unfit: Unfit, order: "below" | "above"): Promise<SiteNode> {
    if (this.network === undefined) throw new Error("a neighbour needs a network namespace")
    const { spare } = this.network
    const host = spare[order]
    const name = `neighbour-${this.serial++}`
    const runner = { host, port: await freePort() }
    const { env, folder, toPostgres, toRedis } = this.parts
    if (unfit === "no way out") this.nodes.forEach((_, at) => this.network?.silence(spare.number, at))
    const { RUNNER_SECRET: _, ...open } = env(toPostgres, toRedis, name, runner)
    return new SiteNode({
      name,
      dataDir: join(folder, name),
      address: { host, port: await freePort() },
      runner,
      through: this.network.prefix(spare.number),
      toPostgres,
      toRedis,
      env: unfit === "no secret"
        ? open
        : { ...open, RUNNER_SECRET: unfit === "another secret" ? "known to nobody else" : SECRET }
    })
  }

  /** Restarts every node that does not have these settings and this limit of open files. */
  async set(settings: Readonly<Record<string, string>>, openFiles: number | undefined): Promise<void> {
    const differing = this.nodes.filter((node) =>
      node.openFiles !== openFiles || JSON.stringify(node.settings) !== JSON.stringify(settings)
    )
    for (const node of differing) Object.assign(node, { settings, openFiles })
    await Promise.all(differing.map((node) => node.stop()))
    await Promise.all(differing.map((node) => node.start()))
    await this.untilReady()
  }

  /** Whether the table of nodes lists the node as a member. */
  async lists({ runner }: SiteNode): Promise<boolean> {
    const client = new Client(this.database)
    await client.connect()
    const { rowCount } = await client
      .query(
        "SELECT FROM cluster_runners WHERE address = $1 AND healthy AND last_heartbeat > now() - interval '10 seconds'",
        [nameOf(runner)]
      )
      .finally(() => client.end())
    return rowCount !== 0
  }

  /** Cuts the direction from one node to another. */
  silence(from: SiteNode, to: SiteNode): void {
    if (this.network !== undefined) return this.network.silence(this.nodes.indexOf(from), this.nodes.indexOf(to))
    for (const [link, direction] of this.ways(from, to)) link.hold(direction)
  }

  /**
   * The links that carry bytes from one node to another, whichever of them has connected, and the direction in each
   * link.
   */
  ways(from: SiteNode, to: SiteNode): ReadonlyArray<readonly [Link, Direction]> {
    return ([[from.toPeers.get(to.name), "there"], [to.toPeers.get(from.name), "back"]] as const)
      .flatMap(([link, direction]) => link === undefined ? [] : [[link, direction] as const])
  }

  /** Cuts a node off from everything. Without namespaces, clients still reach it. */
  unplug(node: SiteNode): void {
    if (this.network !== undefined) return this.network.unplug(this.nodes.indexOf(node))
    for (const other of this.nodes) {
      if (other === node) continue
      this.silence(node, other)
      this.silence(other, node)
    }
    node.toPostgres.hold("there", "back")
    node.toRedis.hold("there", "back")
  }

  /** Leads the connections between nodes through links from now on. */
  detour(): ReadonlyArray<Link> {
    if (this.network !== undefined) { for (const node of this.nodes) node.detour(true, this.nodes) }
    return this.nodes.flatMap((node) => [...node.toPeers.values()])
  }

  /** Restores all connections. */
  reconnect(): void {
    this.network?.heal()
    for (const link of this.links) link.release()
    if (this.network !== undefined) { for (const node of this.nodes) node.detour(false, this.nodes) }
  }

  node(at: number): SiteNode {
    const node = this.nodes[at]
    if (node === undefined) throw new Error(`there is no node ${at}`)
    return node
  }

  /** The nodes to which a load balancer would send requests now: the ready ones, or all if none is ready. */
  get targets(): ReadonlyArray<SiteNode> {
    const ready = this.nodes.filter(({ isReady }) => isReady)
    return ready.length > 0 ? ready : this.nodes
  }

  /** Waits until every node is ready. Resolves with the seconds that this took. */
  async untilReady(nodes: ReadonlyArray<SiteNode> = this.nodes): Promise<number> {
    const began = performance.now()
    for (const node of nodes) {
      await eventually(
        `${node.name} to be ready`,
        async () => await node.look() || await pause(LOOK_MS / 2, undefined),
        READY_MS
      )
        .catch((error: unknown) => {
          throw new Error(`${String(error)}\n${node.output().slice(-3_000)}`)
        })
    }
    return (performance.now() - began) / 1_000
  }

  /** Registers new agents. */
  async agents(count: number): Promise<ReadonlyArray<LoadAgent>> {
    // One command registers up to 1,000 agents.
    if (count > 1_000) return [...await this.agents(1_000), ...await this.agents(count - 1_000)]
    const handles = Array.from({ length: count }, () => `agent-${(this.serial++).toString(36)}`)
    const { code, stderr, stdout } = await admin(
      { DATABASE_URL: this.database },
      "agents",
      "create",
      "--json",
      ...handles
    )
    if (code !== 0) throw new Error(`agents could not be made: ${stderr}`)
    const made: unknown = JSON.parse(stdout)
    return (made as ReadonlyArray<{ readonly id: string; readonly handle: string; readonly api_key: string }>)
      .map(({ api_key, handle, id }) => ({ id, handle, key: api_key }))
  }

  /** The address at which the suite itself listens, as nodes see it. */
  get outside(): string {
    return this.network?.outside ?? LOCALHOST
  }

  /** Addresses of this machine for clients that are not the suite's own. */
  get strangers(): ReadonlyArray<string> {
    return this.network?.strangers ?? Array.from({ length: STRANGERS }, (_, i) => `127.0.0.${2 + i}`)
  }

  /** The URL of the database, which does not pass through a link. */
  get database(): string {
    return this.postgres.url(DATABASE)
  }

  async sql(text: string, values: ReadonlyArray<unknown> = []): Promise<void> {
    const client = new Client(this.database)
    await client.connect()
    await client.query(text, [...values]).finally(() => client.end())
  }

  /** The whole output of all nodes. */
  logs(): string {
    return this.nodes.map((node) => node.output()).join("\n")
  }

  /** Writes the whole output of all nodes to a folder. */
  async keepLogs(folder: string): Promise<void> {
    await mkdir(folder, { recursive: true })
    await Promise.all(
      this.nodes.map(({ name }) => copyFile(join(this.folder, `${name}.log`), join(folder, `${name}.log`)))
    )
  }

  async stop(): Promise<void> {
    clearInterval(this.timer)
    this.balancer.stop()
    for (const node of this.nodes) node.resume()
    await Promise.all(this.nodes.map((node) => node.kill()))
    for (const link of this.links) link.close()
    this.network?.close()
    await Promise.all([this.redis.kill(), this.files.kill(), this.mail.stop(), this.postgres.stop()])
    this.disk?.close()
    await rm(this.folder, { recursive: true, force: true })
  }
}

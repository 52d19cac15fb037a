import { PushRouter } from "#domain/push/PushRouter"
import type { SocketSlot } from "#domain/push/SocketPlaces"
import * as ClusterNode from "#infrastructure/cluster/ClusterNode"
import { Members } from "#infrastructure/cluster/Members"
import { addressOf } from "#infrastructure/cluster/NodeAddress"
import { NodeCalls } from "#infrastructure/cluster/NodeCalls"
import { NODE_PROTOCOL_VERSION } from "#infrastructure/cluster/NodeGreeting"
import { ADDRESS_LOCKS, lockKeyOf } from "#infrastructure/cluster/NodeTable"
import * as Lines from "#infrastructure/cluster/PeerConnections"
import * as Migrations from "#infrastructure/database/Migrations"
import { layerPg } from "#infrastructure/database/SqlPostgres"
import { Config } from "#infrastructure/platform/Config"
import { Context, Effect, Exit, Layer, Logger, Redacted, Scope } from "effect"
import { Runner } from "effect/cluster"
import { type ChildProcess, fork } from "node:child_process"
import { once } from "node:events"
import { connect, type Socket } from "node:net"
import { join } from "node:path"
import { setTimeout as pause } from "node:timers/promises"
import { Client, Pool } from "pg"
import { freePort } from "../../runners/local/FreePort.ts"
import { cleanUp, whenOver } from "../bench/CleanUps.ts"
import { cpuOfTree } from "../bench/CpuTime.ts"
import { type BenchDatabase, startDatabase } from "../bench/Database.ts"
import type { NodeCommands, NodeOptions, NodeUse } from "./LargeClusterNode.ts"
import { PAUSE_PER_NODE_MS, rateOfConnects } from "./Model.ts"

/** The host of the observed node. The names of the other nodes are smaller, so that they connect to it. */
const HOST = "127.0.9.9"
const nameOfPeer = (i: number): string => `127.0.${1 + Math.floor(i / 250)}.${1 + i % 250}:14431`
const agentOf = (peer: number, no: number): string => `agt_${String(peer * 1e8 + no).padStart(16, "0")}`
const IDLE_SECONDS = 20
const LOAD_SECONDS = 20
const DEATHS = 8

/** The process of the observed node. */
class ObservedNode {
  private readonly child: ChildProcess
  private calls = 0

  private constructor(child: ChildProcess) {
    this.child = child
    whenOver(async () => {
      const over = once(child, "exit")
      child.kill("SIGKILL")
      await over
    })
  }

  static async start(options: NodeOptions): Promise<ObservedNode> {
    const child = fork(join(import.meta.dirname, "LargeClusterNode.ts"), [JSON.stringify(options)], {
      execArgv: ["--expose-gc", "--max-old-space-size=8192"]
    })
    const node = new ObservedNode(child)
    await Promise.race([once(child, "message"), once(child, "exit").then(() => Promise.reject(new Error("it ended")))])
    return node
  }

  ask<K extends keyof NodeCommands>(command: K, argument: Parameters<NodeCommands[K]>[0]): ReturnType<NodeCommands[K]> {
    const id = ++this.calls
    const answer = new Promise((resolve) => {
      const listen = (reply: { readonly id: number; readonly result: unknown }): void => {
        if (reply.id !== id) return
        this.child.off("message", listen)
        resolve(reply.result)
      }
      this.child.on("message", listen)
    })
    this.child.send({ id, command, argument })
    // The channel carries JSON. The types of both ends come from `NodeCommands`.
    return answer as ReturnType<NodeCommands[K]>
  }
}

/** One of the other nodes: its real connection to the observed node, and its real announcements on it. */
interface Peer {
  readonly name: string
  readonly router: PushRouter["Service"]
  readonly connection: () => Socket | undefined
  readonly places: Array<SocketSlot>
  entered: number
  /** Whether the node opens no connection any more. */
  isDead: boolean
}

const peerOf = Effect.fnUntraced(function*(name: string, observed: string) {
  let connection: Socket | undefined
  let peer: Peer | undefined
  const { host, port } = addressOf(observed)
  const dial = Effect.promise(async () => {
    connection = connect({ host, port, noDelay: true })
    connection.on("error", () => {})
    await once(connection, "connect")
    return connection
  })
  const lines = Lines.make(name, 1, () => Effect.suspend(() => peer?.isDead === true ? Effect.never : dial))
  const context = yield* Layer.build(
    Layer.fresh(PushRouter.layer).pipe(
      Layer.provideMerge(Layer.fresh(NodeCalls.layer)),
      Layer.provideMerge(Layer.effect(Lines.PeerConnections, lines)),
      Layer.provide([Members.layerAlone, Config.layerTest({}), Logger.layer([])]),
      Layer.fresh
    )
  )
  peer = {
    name,
    router: Context.get(context, PushRouter),
    connection: () => connection,
    places: [],
    entered: 0,
    isDead: false
  }
  yield* Context.get(context, Lines.PeerConnections).want([observed])
  return peer
})

/** The rows and locks of the other nodes. They are written as the nodes would write them, with one statement for all. */
class PeerRows {
  /** The session that holds the locks of all addresses. */
  private readonly locks: Client
  private readonly pool: Pool
  private readonly alive: Set<string>
  private readonly observed: string

  constructor(url: string, observed: string, names: ReadonlyArray<string>) {
    this.locks = new Client({ connectionString: url })
    this.pool = new Pool({ connectionString: url, max: 2 })
    this.observed = observed
    this.alive = new Set(names)
  }

  private get reaches(): string {
    return JSON.stringify([...this.alive, this.observed].sort())
  }

  async begin(): Promise<void> {
    this.locks.on("error", () => undefined)
    this.pool.on("error", () => undefined)
    whenOver(() => Promise.all([this.locks.end(), this.pool.end()]))
    await this.locks.connect()
    const limits = Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`LIMITS_OF_SOMETHING_${i}`, 100 + i]))
    for (const name of this.alive) {
      const facts = { wire: NODE_PROTOCOL_VERSION, schema: "", publicUrl: null, limits, url: `http://${name}` }
      const runner = Runner.Runner.encodeSync(Runner.make({ address: addressOf(name), groups: ["default"], weight: 1 }))
      await this.locks.query("SELECT pg_advisory_lock($1, $2)", [ADDRESS_LOCKS, lockKeyOf(name)])
      await this.pool.query(
        `INSERT INTO cluster_nodes (address, lock_key, reaches, facts, said_at, steady_since, owns, turned_at)
          VALUES ($1, $2, $3, $4, now(), now(), true, now() - interval '1 minute')`,
        [name, lockKeyOf(name), this.reaches, JSON.stringify(facts)]
      )
      await this.pool.query(
        "INSERT INTO cluster_runners (address, runner, healthy, last_heartbeat) VALUES ($1, $2, true, now())",
        [name, runner]
      )
    }
    const timer = setInterval(() => void this.renew().catch(() => undefined), 500)
    whenOver(() => Promise.resolve(clearInterval(timer)))
  }

  private async renew(): Promise<void> {
    await this.pool.query("UPDATE cluster_nodes SET said_at = clock_timestamp() WHERE address = ANY($1)", [[
      ...this.alive
    ]])
    await this.pool.query("UPDATE cluster_runners SET last_heartbeat = now() WHERE address <> $1", [this.observed])
  }

  /** A node is gone: it no longer renews its row, and the other nodes write that they do not reach it. */
  async lose(name: string, { isKilled }: { readonly isKilled: boolean }): Promise<void> {
    this.alive.delete(name)
    if (isKilled) await this.locks.query("SELECT pg_advisory_unlock($1, $2)", [ADDRESS_LOCKS, lockKeyOf(name)])
    // Nodes learn of a process that ends by its connections, and of one that hangs by its silence.
    if (!isKilled) await pause(3_000)
    await this.pool.query(
      "UPDATE cluster_nodes SET reaches = $1, said_at = clock_timestamp() WHERE address = ANY($2)",
      [
        this.reaches,
        [...this.alive]
      ]
    )
  }
}

const quantile = (values: ReadonlyArray<number>, share: number): number =>
  [...values].sort((one, other) => one - other)[Math.floor((values.length - 1) * share)] ?? Number.NaN

/** All parts of the simulated cluster. */
interface Rig {
  readonly database: BenchDatabase
  readonly observed: ObservedNode
  readonly rows: PeerRows
  readonly peers: ReadonlyArray<Peer>
}

interface Measured {
  readonly use: NodeUse
  readonly database: number
  readonly toNode: number
  readonly fromNode: number
  readonly at: number
}

const sample = (peers: ReadonlyArray<Peer>): ReadonlyArray<string> =>
  peers.flatMap(({ places }) => places.at(-1)?.agentId ?? [])

const measure = async ({ database, observed, peers }: Rig): Promise<Measured> => ({
  use: await observed.ask("use", sample(peers)),
  database: cpuOfTree(database.pid ?? 0),
  toNode: peers.reduce((sum, { connection }) => sum + (connection()?.bytesWritten ?? 0), 0),
  fromNode: peers.reduce((sum, { connection }) => sum + (connection()?.bytesRead ?? 0), 0),
  at: performance.now()
})

/** What the observed node uses during `work`, as one line. `driver` is what the database uses for the other nodes' rows. */
const during = async (rig: Rig, what: string, driver: number, work: () => Promise<unknown>): Promise<string> => {
  const before = await measure(rig)
  await work()
  const after = await measure(rig)
  const seconds = (after.at - before.at) / 1_000
  const share = (micros: number): string => `${(micros / 1e4 / seconds).toFixed(1)} %`
  const rate = (bytes: number): string => `${(bytes / 1e3 / seconds).toFixed(0)} kB/s`
  return `${what}: ${share(after.use.cpuMicros - before.use.cpuMicros)} of a processor, ${
    share(after.database - before.database - driver * seconds)
  } of one for its statements in PostgreSQL, ${rate(after.use.readBytes - before.use.readBytes)} from PostgreSQL, ${
    rate(after.toNode - before.toNode)
  } from and ${rate(after.fromNode - before.fromNode)} to other nodes`
}

/** Opens sockets on the other nodes. Each of them keeps its beat meanwhile. */
const open = async (peers: ReadonlyArray<Peer>, each: number): Promise<void> => {
  const STEP = 500
  for (let done = 0; done < each; done += STEP) {
    for (const [i, peer] of peers.entries()) {
      for (let no = done; no < Math.min(done + STEP, each); no++) {
        const place = peer.router.enter(agentOf(i, peer.entered++), () => undefined)
        if (place !== undefined) peer.places.push(place)
      }
      if (i % 20 === 0) await pause(1)
    }
  }
}

/**
 * Opens and closes sockets on the other nodes for some seconds. A node of a large cluster announces its changes with
 * pauses. Here each node has one connection and would announce at once, so its changes are made with these pauses.
 */
const churn = async (peers: ReadonlyArray<Peer>, perSecond: number, seconds: number): Promise<void> => {
  const every = PAUSE_PER_NODE_MS * peers.length
  const turn = async (i: number): Promise<void> => {
    const peer = peers[i]!
    await pause(Math.random() * every)
    const began = performance.now()
    let count = 0
    while (performance.now() - began < seconds * 1_000) {
      const due = Math.floor((performance.now() - began) / 1_000 * perSecond / peers.length) - count
      for (let n = 0; n < due; n++, count++) {
        peer.router.leave(peer.places.shift()!)
        const place = peer.router.enter(agentOf(i, peer.entered++), () => undefined)
        if (place !== undefined) peer.places.push(place)
      }
      if (due > 0) await Effect.runPromise(peer.router.reachable)
      await pause(every)
    }
  }
  await Promise.all(peers.map((_, i) => turn(i)))
}

/** Lets some nodes die, and returns the milliseconds until the observed node knows it. */
const deaths = async ({ observed, peers, rows }: Rig, isKilled: boolean): Promise<ReadonlyArray<number>> => {
  const times: Array<number> = []
  for (const peer of isKilled ? peers.slice(0, DEATHS) : peers.slice(DEATHS, 2 * DEATHS)) {
    const gone = observed.ask("gone", peer.name)
    await pause(500 + Math.random() * 500)
    const at = Date.now()
    const socket = peer.connection()
    peer.isDead = true
    if (isKilled) socket?.destroy()
    else if (socket !== undefined) {
      socket.pause()
      socket.write = () => true
    }
    await rows.lose(peer.name, { isKilled })
    times.push(await gone - at)
  }
  return times
}

const prepare = (url: string) =>
  Effect.runPromise(
    Effect.andThen(Migrations.run(), ClusterNode.migrate).pipe(
      Effect.provide(layerPg({ url: Redacted.make(url), poolSize: 2 })),
      Effect.provide(Logger.layer([]))
    )
  )

/**
 * One complete node of a cluster of so many nodes, in a process of its own with a real PostgreSQL, and its real
 * connections to all other nodes. The other nodes are in this process. They run the code of connections and
 * announcements, but each has a connection to the observed node only, and their rows are written together.
 */
export const largeCluster = async (nodes: number, sockets: number, say: (line: string) => void): Promise<void> => {
  const scope = Effect.runSync(Scope.make())
  whenOver(() => Effect.runPromise(Scope.close(scope, Exit.void)))
  try {
    const database = await startDatabase(undefined)
    whenOver(() => database.stop())
    await prepare(database.url)
    const port = await freePort()
    const self = `${HOST}:${port}`
    const names = Array.from({ length: nodes - 1 }, (_, i) => nameOfPeer(i))
    const rows = new PeerRows(database.url, self, names)
    await rows.begin()
    const before = cpuOfTree(database.pid ?? 0)
    await pause(5_000)
    const driver = (cpuOfTree(database.pid ?? 0) - before) / 5
    const observed = await ObservedNode.start({ url: database.url, host: HOST, port })
    const peers = await Effect.runPromise(
      Effect.forEach(names, (name) => peerOf(name, self)).pipe(Scope.provide(scope))
    )
    const rig = { database, observed, rows, peers }
    while ((await observed.ask("use", [])).others < nodes - 1) await pause(500)
    await pause(5_000)
    say(await during(rig, `one of ${nodes} nodes, idle`, driver, () => pause(IDLE_SECONDS * 1_000)))

    const each = Math.round(sockets / nodes)
    const empty = await observed.ask("memory", null)
    say(
      await during(rig, `${each * peers.length} sockets are announced to it`, driver, async () => {
        await open(peers, each)
        while ((await observed.ask("use", sample(peers))).known < peers.length) await pause(200)
        await pause(2_000)
      })
    )
    const bytes = (await observed.ask("memory", null) - empty) / each / peers.length
    const { residentBytes } = await observed.ask("use", [])
    say(`  it keeps ${bytes.toFixed(0)} bytes for each; its process has ${(residentBytes / 1e6).toFixed(0)} MB`)

    say(`  a push to an agent without sockets: ${(await observed.ask("push", 10_000)).toFixed(2)} µs`)
    const perSecond = rateOfConnects(sockets)
    let waits: ReadonlyArray<number> = []
    say(
      await during(
        rig,
        `${perSecond.toFixed(0)} sockets a second open on all nodes, and as many close`,
        driver,
        async () => {
          const [waited] = await Promise.all([
            observed.ask("connect", { perSecond: perSecond / nodes, seconds: LOAD_SECONDS }),
            churn(peers, perSecond * (nodes - 1) / nodes, LOAD_SECONDS)
          ])
          waits = waited
        }
      )
    )
    say(
      `  a socket waited ${quantile(waits, 0.5).toFixed(0)} ms (median), ${quantile(waits, 0.99).toFixed(0)} ms (p99)`
    )
    for (const isKilled of [true, false]) {
      const times = await deaths(rig, isKilled)
      say(
        `a node that ${isKilled ? "was killed" : "hangs"} is out after ${
          quantile(times, 0.5).toFixed(0)
        } ms (median), ${quantile(times, 1).toFixed(0)} ms (longest of ${times.length})`
      )
    }
  } finally {
    await cleanUp()
  }
}

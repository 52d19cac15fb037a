import type { Settings } from "#infrastructure/platform/Config"
import { LogThrottle, MINUTE_MS } from "#infrastructure/platform/LogThrottle"
import {
  connectionsBound,
  connectionsOpen,
  connectionsSilent,
  connectionsTurnedAway,
  type TURNED_AWAY
} from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Clock, Effect, Schedule } from "effect"
import type { Server as HttpServer } from "node:http"
import type { Server, Socket } from "node:net"
import { getHeapStatistics } from "node:v8"
import { addressKey, clientAddress, networksOf } from "./ClientAddress.ts"
import type { ServerRequest } from "./ServerRequest.ts"
import type { ServerResponse } from "./ServerResponse.ts"

/**
 * Bounds on the connections to the two ports of this process. Without these bounds, clients that open connections and
 * send nothing would use all file descriptors, and the database could no longer open its files. Node's
 * `server.maxConnections` is not used, because it counts the connections of one listening socket, and the public port
 * has 32 listening sockets (Listening.ts).
 */

/** The limit of open files that is assumed if the system does not report a limit. */
const DEFAULT_MAX_FILES = 4_096
/**
 * How many file descriptors are reserved for listening sockets, Redis, e-mail, S3, the log, traces and operators'
 * commands.
 */
const RESERVED_FILES = 100
/**
 * How many file descriptors are reserved for PGlite. PGlite has 190 files open after a start. The database of a new
 * server has 600 files.
 */
const PGLITE_FILES = 500
/** The least share of the limit that connections of clients get, however small the limit is. */
const MIN_SHARE = 1 / 4
/**
 * The share of the limit for connections from other nodes. The same share is reserved for connections to other nodes.
 */
const NODES_SHARE = 1 / 16
const MIN_NODE_CONNECTIONS = 32
/** The share of all connections of clients that one address may have. */
const PEER_SHARE = 1 / 4
/**
 * The share of all connections of nodes that one address may have. Several nodes of one machine may have the same
 * address.
 */
const NODE_PEER_SHARE = 1 / 2
/**
 * How many bytes of V8's heap are planned for one connection. An open connection needs 12 KiB of memory, of which 3 to
 * 7 KiB are in V8's heap.
 */
const HEAP_PER_CONNECTION = 16_384
const LOOPBACK = ["127.0.0.0/8", "::1/128"]

/** How many connections this process accepts. `docs/operations.md` describes the same calculation. */
export interface Bounds {
  /** How many connections clients may have. */
  readonly clients: number
  /** How many connections one address of clients may have; `undefined` if there is no bound. */
  readonly perPeer: number | undefined
  /** How many connections other nodes may have to this node. */
  readonly nodes: number
  /** How many connections of other nodes may come from one address. */
  readonly perNode: number
  /** Sentences for the log that name the settings which an operator should change. */
  readonly warnings: ReadonlyArray<string>
}

/**
 * How many files this process may have open. This is the process's soft limit, which Node raises to the hard limit at
 * startup.
 */
export const openFilesLimit = (): number => {
  // The types of Node lack `excludeNetwork`. Without this option, the report would list the sockets and look up the
  // name of each address.
  const report = process.report as typeof process.report & { excludeNetwork: boolean }
  const { excludeNetwork } = report
  report.excludeNetwork = true
  const { userLimits } = report.getReport() as {
    readonly userLimits?: { readonly open_files?: { readonly soft?: number | string } }
  }
  report.excludeNetwork = excludeNetwork
  const soft = userLimits?.open_files?.soft
  return soft === "unlimited" ? Number.POSITIVE_INFINITY : typeof soft === "number" ? soft : DEFAULT_MAX_FILES
}

/** Computes the bounds from the settings, the limit of open files and the maximum size of V8's heap. */
export const boundsOf = (
  config: Settings,
  files: number = openFilesLimit(),
  heap: number = getHeapStatistics().heap_size_limit
): Bounds => {
  const ofHeap = Math.floor(heap / HEAP_PER_CONNECTION)
  const reserve = config.HTTP_CONNECTIONS_RESERVE
    ?? RESERVED_FILES + config.WEBHOOK_POSTS + (config.S3_BUCKET === undefined ? config.HTTP_FILES : 0) +
      (config.DATABASE_URL === undefined ? PGLITE_FILES : config.DATABASE_POOL)
  const nodes = config.RUNNER_CONNECTIONS ??
    Math.min(ofHeap, Math.max(MIN_NODE_CONNECTIONS, Math.floor(files * NODES_SHARE)))
  const left = files - reserve - 2 * nodes
  const clients = config.HTTP_CONNECTIONS
    ?? Math.max(1, Math.min(ofHeap, Math.max(left, Math.floor(files * MIN_SHARE))))
  const warnings: Array<string> = []
  if (left < clients) {
    warnings.push(
      `ulimit -n is ${files}, which is too low: the server needs ${files - left} file descriptors for itself `
        + `and ${clients} for clients. Raise ulimit -n to ${files - left + clients}, or lower HTTP_CONNECTIONS.`
    )
  }
  const behindUnknown = config.TRUST_PROXY > 0 && config.TRUST_PROXY_ADDRESSES === undefined
  if (behindUnknown && config.HTTP_CONNECTIONS_PER_PEER !== undefined) {
    warnings.push(
      "HTTP_CONNECTIONS_PER_PEER has no effect: with TRUST_PROXY, set the addresses of the proxies in TRUST_PROXY_ADDRESSES."
    )
  }
  return {
    clients,
    perPeer: behindUnknown ? undefined : config.HTTP_CONNECTIONS_PER_PEER ?? Math.ceil(clients * PEER_SHARE),
    nodes,
    perNode: Math.ceil(nodes * NODE_PEER_SHARE),
    warnings
  }
}

/** An open connection. */
interface Held {
  readonly connection: Socket
  readonly host: string
  /** The address whose connections are counted; undefined for a trusted address. */
  readonly peer: string | undefined
  /** When the connection was accepted, in monotonic milliseconds. */
  readonly since: number
  /** The number of requests in progress on the connection. A request that upgrades the connection stays in progress. */
  underWay: number
}

type Reason = typeof TURNED_AWAY[number]

interface Options {
  readonly port: "http" | "nodes"
  readonly most: number
  readonly mostPerPeer: number | undefined
  /** How many milliseconds a new connection may take to send its first byte. */
  readonly firstByteMs: number
  readonly trusted: ReadonlyArray<string>
}

/**
 * The open connections of one port. If the bound of the port is reached, a connection without work in progress is
 * closed for each new connection. Such connections form two groups: connections that have not made a request yet, and
 * connections between two requests. The oldest connection of the larger group is closed. As a result, a flood of silent
 * connections closes silent connections, and a client that sends its request at once is served. If every connection has
 * work in progress, the new connection is closed. A new connection is also closed if its address has reached its own
 * bound.
 */
export class Connections {
  private readonly held = new Map<Socket, Held>()
  private readonly byPeer = new Map<string, number>()
  /** Connections without a request so far, the oldest first. */
  private readonly fresh = new Set<Held>()
  /** Connections between two requests, the oldest first. */
  private readonly idle = new Set<Held>()
  private readonly trusts: (address: string) => boolean
  private readonly options: Options
  private readonly now: () => number
  private readonly turnedAway: (reason: Reason, host: string) => void

  constructor(options: Options, now: () => number, turnedAway: (reason: Reason, host: string) => void) {
    this.options = options
    this.now = now
    this.turnedAway = turnedAway
    this.trusts = networksOf(options.trusted)
  }

  get size(): number {
    return this.held.size
  }

  /** Counts a new connection and returns true, or closes the connection and returns false. */
  takes(connection: Socket): boolean {
    const { most, mostPerPeer } = this.options
    const host = clientAddress(connection.remoteAddress, undefined, 0)
    const counted = mostPerPeer !== undefined && !this.trusts(host)
    const peer = counted ? addressKey(host) : undefined
    const ofPeer = peer === undefined ? 0 : this.byPeer.get(peer) ?? 0
    const refused = counted && ofPeer >= mostPerPeer
      ? "peer"
      : this.held.size >= most && !this.makeRoom()
      ? "full"
      : undefined
    if (refused !== undefined) {
      this.turnedAway(refused, host)
      connection.destroy()
      return false
    }
    const held: Held = { connection, host, peer, since: this.now(), underWay: 0 }
    this.held.set(connection, held)
    this.fresh.add(held)
    if (peer !== undefined) this.byPeer.set(peer, ofPeer + 1)
    connection.once("close", () => this.forget(held))
    return true
  }

  private makeRoom(): boolean {
    const [oldest] = this.fresh.size >= this.idle.size ? this.fresh : this.idle
    if (oldest === undefined) return false
    this.turnedAway("gave_way", oldest.host)
    this.end(oldest)
    return true
  }

  private end(held: Held): void {
    this.forget(held)
    held.connection.destroy()
  }

  private forget(held: Held): void {
    if (!this.held.delete(held.connection)) return
    if (held.connection.bytesRead === 0 && this.now() - held.since >= this.options.firstByteMs) connectionsSilent.add()
    this.fresh.delete(held)
    this.idle.delete(held)
    if (held.peer === undefined) return
    const left = (this.byPeer.get(held.peer) ?? 0) - 1
    if (left > 0) this.byPeer.set(held.peer, left)
    else this.byPeer.delete(held.peer)
  }

  /** Records that work is in progress on a connection. While it is, the connection is not closed for a new one. */
  readonly began = (connection: Socket): void => {
    const held = this.held.get(connection)
    if (held === undefined || held.underWay++ > 0) return
    this.fresh.delete(held)
    this.idle.delete(held)
  }

  readonly ended = (connection: Socket): void => {
    const held = this.held.get(connection)
    if (held !== undefined && --held.underWay === 0) this.idle.add(held)
  }

  /** Closes the connections that did not send their first byte in time. */
  readonly endSilent = (): void => {
    const before = this.now() - this.options.firstByteMs
    for (const held of this.fresh) {
      if (held.since > before) return
      if (held.connection.bytesRead === 0) this.end(held)
    }
  }

  /** Bounds the connections of a server. The server's own listeners get only the connections that may stay open. */
  guard(server: Server): void {
    const listeners = server.listeners("connection")
    server.removeAllListeners("connection")
    server.on("connection", (connection: Socket) => {
      if (this.takes(connection)) { for (const listener of listeners) listener.call(server, connection) }
    })
  }

  /** Bounds the connections of an HTTP server. The requests and upgrades on a connection are its work in progress. */
  guardRequests(server: HttpServer<typeof ServerRequest, typeof ServerResponse>): void {
    const { began, ended } = this
    const finished = function(this: ServerResponse): void {
      ended(this.req.socket)
    }
    const onRequest = (request: ServerRequest, response: ServerResponse): void => {
      began(request.socket)
      response.on("close", finished)
    }
    for (const event of ["request", "checkContinue", "checkExpectation"] as const)
      server.prependListener(event, onRequest)
    for (const event of ["upgrade", "connect"] as const) server.prependListener(event, ({ socket }) => began(socket))
    this.guard(server)
  }
}

const NAMES = {
  http: {
    whole: "HTTP_CONNECTIONS",
    perPeer: "If it is a proxy, name it in TRUST_PROXY_ADDRESSES; otherwise see HTTP_CONNECTIONS_PER_PEER."
  },
  nodes: { whole: "RUNNER_CONNECTIONS", perPeer: "The bound of an address is half of RUNNER_CONNECTIONS." }
} as const

const CHECK_INTERVAL = "500 millis"

const make = Effect.fnUntraced(function*(options: Options) {
  const { most, mostPerPeer, port } = options
  const now = monotonicMillis(yield* Clock.Clock)
  const fork = Effect.runForkWith(yield* Effect.context<never>())
  const lines = new LogThrottle(MINUTE_MS)
  const { perPeer, whole } = NAMES[port]
  const messages = {
    full: (host: string) =>
      `Refused a connection from ${host}: ${most} connections are open and have work under way (${whole}).`,
    peer: (host: string) =>
      `Refused a connection from ${host}: this address has ${mostPerPeer} connections open. ${perPeer}`,
    gave_way: (host: string) =>
      `Closed an idle connection from ${host} for a new one: ${most} connections are open (${whole}).`
  }
  const connections = new Connections(options, now, (reason, host) => {
    connectionsTurnedAway.at(port, reason).add()
    fork(lines.log(Effect.logWarning(messages[reason](host)), reason))
  })
  yield* connectionsOpen.at(port).readsIn(() => connections.size)
  yield* connectionsBound.at(port).readsIn(() => most)
  if (Number.isFinite(options.firstByteMs)) {
    // `setImmediate` lets the process first read the bytes that have arrived during a stall.
    const check = Effect.sync(() => void setImmediate(connections.endSilent))
    yield* Effect.forkScoped(Effect.repeat(check, Schedule.spaced(CHECK_INTERVAL)))
  }
  return connections
})

/**
 * Makes the bounds for the connections of clients to the public port. Logs a warning for each setting that an operator
 * should change.
 */
export const clientConnections = Effect.fnUntraced(function*(config: Settings, firstByteMs: number) {
  const { clients, perPeer, warnings } = boundsOf(config)
  for (const warning of warnings) yield* Effect.logWarning(warning)
  return yield* make({
    port: "http",
    most: clients,
    mostPerPeer: perPeer,
    firstByteMs,
    trusted: config.TRUST_PROXY_ADDRESSES ?? LOOPBACK
  })
})

/**
 * Makes the bounds for the connections of other nodes to RUNNER_PORT. NodePort.ts itself bounds the wait for their
 * first byte.
 */
export const nodeConnections = Effect.fnUntraced(function*(config: Settings) {
  const { nodes, perNode } = boundsOf(config)
  return yield* make({
    port: "nodes",
    most: nodes,
    mostPerPeer: perNode,
    firstByteMs: Number.POSITIVE_INFINITY,
    trusted: config.TRUST_PROXY_ADDRESSES ?? LOOPBACK
  })
})

import type { Prices } from "./Prices.ts"

/** How agents behave. These are assumptions, which you can replace by your own. */
export interface Habits {
  /** The share of agents that have a socket open. */
  readonly connected: number
  readonly messagesPerDay: number
  /** The rate of the busiest minute, divided by the mean rate. */
  readonly peak: number
  /** How often an agent opens its socket in a day. */
  readonly connectsPerDay: number
  /**
   * The share of messages for which nothing is cached: neither agent wrote within the last second, nor the pair within
   * five minutes.
   */
  readonly strangers: number
  readonly retentionDays: number
}

/** The limits of one node, one PostgreSQL and one Redis. These are choices, too. */
export interface Limits {
  /** The share of a node's one processor that may be in use at the peak. */
  readonly nodeShare: number
  /** Bytes of memory of a node for its sockets. */
  readonly nodeSockets: number
  /** Bytes of memory of a node for the ids of agents that have sockets on other nodes. */
  readonly nodeKnown: number
  /** Processors of PostgreSQL in use at the peak. */
  readonly databaseCores: number
  readonly databaseBytes: number
  readonly databaseConnections: number
  readonly connectionsPerNode: number
  /** The share of Redis's one processor that may be in use at the peak. */
  readonly redisShare: number
  /** The most nodes, so that each has at least three of the 300 shards and the shares are even. */
  readonly nodes: number
  /** Bytes a second that all nodes read of each other's reports. */
  readonly reports: number
}

export const HABITS: Habits = {
  connected: 0.5,
  messagesPerDay: 50,
  peak: 4,
  connectsPerDay: 10,
  strangers: 0.5,
  retentionDays: 90
}

export const LIMITS: Limits = {
  nodeShare: 0.6,
  nodeSockets: 1e9,
  nodeKnown: 250e6,
  databaseCores: 20,
  databaseBytes: 20e12,
  databaseConnections: 1_000,
  connectionsPerNode: 16,
  redisShare: 0.6,
  nodes: 100,
  reports: 50e6
}

const DAY = 86_400
/** Seconds between the comparisons of a socket's cursor with its inbox. */
const COMPARED_EVERY = 5
/** The default of SOCKETS_PING_SECONDS. */
export const PINGED_EVERY = 30
/** How often a node reads the list of nodes and the reports of all nodes (`Members.ts`). */
const READS_PER_SECOND = 2
/** Bytes of one node's report that has not changed, and of its entry in the list (`NodeTable.test.ts`). */
const REPORT_BYTES = 110
const LISTED_BYTES = 100

/** How long a node pauses after an announcement, for each other node, in milliseconds (`PushRouter.ts`). */
export const PAUSE_PER_NODE_MS = 0.5

/** How many of so many sockets open in a second of the busiest minute. */
export const rateOfConnects = (sockets: number): number => sockets * HABITS.connectsPerDay * HABITS.peak / DAY

/** Pushes of a message to other nodes: the recipient's hint and the sender's echo. Their sockets may be on any node. */
export const crossings = (nodes: number): number => 2 * (nodes - 1) / nodes

/** The load of a number of agents on a cluster of a number of nodes, at the peak. */
export interface Demand {
  readonly sends: number
  readonly sockets: number
  readonly connects: number
  /** Processors. */
  readonly node: number
  readonly database: number
  readonly redis: number
  /** Bytes. */
  readonly socketsOfNode: number
  readonly knownToNode: number
  readonly stored: number
  readonly connections: number
  /** Bytes a second. */
  readonly reports: number
}

export const demand = (
  agents: number,
  nodes: number,
  habits: Habits,
  prices: Prices,
  pingSeconds = PINGED_EVERY
): Demand => {
  const sends = agents * habits.messagesPerDay * habits.peak / DAY
  const sockets = agents * habits.connected
  const connects = sockets * habits.connectsPerDay * habits.peak / DAY
  const pings = sockets / pingSeconds
  const compared = sockets / COMPARED_EVERY
  const micros = (rate: number, price: number): number => rate * price / 1e6
  const shared = micros(
    sends,
    prices.message.server + habits.strangers * prices.stranger.server + (nodes > 1 ? prices.several : 0) +
      crossings(nodes) * prices.push
  ) +
    micros(connects, prices.connect.server) + micros(pings, prices.ping.server) +
    micros(compared, prices.compare.server)
  // Each node announces its part of the sockets to all others, when they open and when they close, and receives all
  // other announcements.
  const told = 2 * (nodes - 1) / nodes * micros(connects, prices.told.teller + prices.told.listener)
  return {
    sends,
    sockets,
    connects,
    node: shared / nodes + told,
    database: micros(sends, prices.message.database + habits.strangers * prices.stranger.database) +
      micros(connects, prices.connect.database) + micros(compared, prices.compare.database),
    redis: nodes === 0
      ? 0
      : micros(sends, prices.message.redis) + micros(connects, prices.connect.redis) + micros(pings, prices.ping.redis),
    socketsOfNode: sockets / nodes * prices.bytes.socket,
    knownToNode: sockets * (nodes - 1) / nodes * prices.bytes.known,
    stored: agents * habits.messagesPerDay * habits.retentionDays * prices.bytes.message,
    connections: nodes,
    reports: nodes < 2
      ? 0
      : nodes * nodes * READS_PER_SECOND * (REPORT_BYTES + LISTED_BYTES)
  }
}

/** The load on each bound, as a share of its limit. Above 1, the cluster no longer holds. */
export const shares = (asked: Demand, nodes: number, limits: Limits): Readonly<Record<Bound, number>> => ({
  "a node's processor": asked.node / limits.nodeShare,
  "who is connected where, in every node's memory": asked.knownToNode / limits.nodeKnown,
  "nodes (300 shards)": nodes / limits.nodes,
  "what nodes read of each other": asked.reports / limits.reports,
  "PostgreSQL's connections": asked.connections * limits.connectionsPerNode / limits.databaseConnections,
  "PostgreSQL's processors": asked.database / limits.databaseCores,
  "PostgreSQL's disk": asked.stored / limits.databaseBytes,
  "Redis's one processor": asked.redis / limits.redisShare
})

export const BOUNDS = [
  "a node's processor",
  "who is connected where, in every node's memory",
  "nodes (300 shards)",
  "what nodes read of each other",
  "PostgreSQL's connections",
  "PostgreSQL's processors",
  "PostgreSQL's disk",
  "Redis's one processor"
] as const
export type Bound = (typeof BOUNDS)[number]

/** Nodes beyond which adding one more does not help. */
const MOST_NODES = 10_000

/**
 * The fewest nodes whose processors and sockets fit. Work that every node must do in full does not shrink with the
 * number of nodes.
 */
export const nodesFor = (
  agents: number,
  habits: Habits,
  prices: Prices,
  limits: Limits,
  pingSeconds = PINGED_EVERY
): number => {
  const fits = (nodes: number): boolean => {
    const asked = demand(agents, nodes, habits, prices, pingSeconds)
    return asked.node <= limits.nodeShare && asked.socketsOfNode <= limits.nodeSockets
  }
  let nodes = 1
  while (nodes < MOST_NODES && !fits(nodes)) nodes++
  return nodes
}

export interface Cluster {
  readonly agents: number
  readonly nodes: number
  readonly asked: Demand
  readonly shares: Readonly<Record<Bound, number>>
  /** The bound with the least module. */
  readonly tightest: Bound
  /** Whether all bounds hold. */
  readonly holds: boolean
}

/** One cluster for this many agents, with as many nodes as they need. */
export const clusterFor = (
  agents: number,
  habits: Habits,
  prices: Prices,
  limits: Limits,
  pingSeconds = PINGED_EVERY
): Cluster => {
  const nodes = nodesFor(agents, habits, prices, limits, pingSeconds)
  const asked = demand(agents, nodes, habits, prices, pingSeconds)
  const found = shares(asked, nodes, limits)
  // Nodes are added until a node's processor fits, so this bound is reported only if it cannot fit.
  const tightest = BOUNDS.filter((bound) => bound !== "a node's processor" || found[bound] > 1)
    .reduce((one, other) => (found[other] > found[one] ? other : one), "nodes (300 shards)")
  return { agents, nodes, asked, shares: found, tightest, holds: BOUNDS.every((bound) => found[bound] <= 1) }
}

/** The number of agents at which each bound is reached, in a cluster that always has as many nodes as it needs. */
export const knees = (
  habits: Habits,
  prices: Prices,
  limits: Limits,
  pingSeconds = PINGED_EVERY
): ReadonlyMap<Bound, number> => {
  const knee = (bound: Bound): number => {
    let [low, high] = [0, 36]
    const broken = (power: number) => clusterFor(2 ** power, habits, prices, limits, pingSeconds).shares[bound] > 1
    if (!broken(high)) return Number.POSITIVE_INFINITY
    while (high - low > 0.01) {
      const middle = (low + high) / 2
      if (broken(middle)) high = middle
      else low = middle
    }
    return 2 ** low
  }
  return new Map(BOUNDS.filter((bound) => bound !== "a node's processor").map((bound) => [bound, knee(bound)]))
}

/** How many separate clusters (cells) such a population needs, each with room for this many agents. */
export const cellsFor = (
  agents: number,
  habits: Habits,
  prices: Prices,
  limits: Limits,
  pingSeconds = PINGED_EVERY
): number => {
  const least = Math.min(...knees(habits, prices, limits, pingSeconds).values())
  return Math.max(1, Math.ceil(agents / least))
}

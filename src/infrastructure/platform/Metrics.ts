import { type Count, Counter, type Description, Gauge, Histogram, type Kind, type Meter, SIZES } from "./Meters.ts"

/**
 * The catalogue of all metrics of this process, with their meaning and what an operator should do about them. `npm run
 * docs` makes docs/metrics.md from the catalogue, and a test compares the catalogue with the output of
 * `/internal/metrics`. Modules count with these objects. Code that needs a figure inside the process reads `total`,
 * `current` or `totals`. A label has few values, such as templates of routes, codes, and names from the code. It never
 * contains an id, a handle, an address or a text.
 */

/** A metric that a library in this process maintains. */
interface Foreign {
  readonly kind: Kind
  readonly description: Description
  readonly labelNames: ReadonlyArray<string>
}

export interface Chapter {
  readonly title: string
  readonly metrics: ReadonlyArray<Meter | Foreign>
}

const chapters: Array<Chapter> = []
/** The chapters of docs/metrics.md with their metrics, in the order of the page. */
export const catalogue: ReadonlyArray<Chapter> = chapters

/** Begins a chapter of the catalogue. The returned function adds a metric to the chapter. */
const chapter = (title: string) => {
  const metrics: Array<Meter | Foreign> = []
  chapters.push({ title, metrics })
  return <M extends Meter | Foreign>(metric: M): M => {
    metrics.push(metric)
    return metric
  }
}
const ofRequests = chapter("Requests")
const ofSending = chapter("Sending")
const ofSockets = chapter("Sockets")
const ofDatabase = chapter("Database")
const ofNodes = chapter("Between nodes")
const ofWebhooks = chapter("Webhooks and mail")
const ofJobs = chapter("Background jobs")
const ofProcess = chapter("The process")

const NODES = "nodes"

// HTTP

const CLASSES = ["1xx", "2xx", "3xx", "4xx", "5xx"]
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other"]

export const httpRequests = ofRequests(
  new Counter({
    name: "http_requests_total",
    help: "HTTP requests except probes, by method and class of the response's status",
    action:
      "If the share of 5xx rises, read the log. It contains each 500 with its stack, and at most one line a second about 503s. If there are many 429s, `refusals_total` says which limit was reached.",
    labels: { method: METHODS, status: CLASSES }
  })
)
const byMethod = new Map(METHODS.map((method) => [method, CLASSES.map((status) => httpRequests.at(method, status))]))

/**
 * Counts a request that got a response. An unknown method is counted as `other`, so that clients cannot add label
 * values.
 */
export const countRequest = (method: string | undefined, status: number): void => {
  countClass(byMethod.get(method ?? "other") ?? byMethod.get("other")!, status)
}

/** Counts a response. `classes` contains a counter for each class of status. */
const countClass = (classes: ReadonlyArray<Count>, status: number): void => {
  const series = classes[Math.floor(status / 100) - 1]
  if (series !== undefined) series.value++
}

const httpProbes = ofRequests(
  new Counter({
    name: "http_probes_total",
    help: "probes by balancers, orchestrators and monitoring, by path and class of the response's status",
    action:
      "If `/v1/ready` returns 5xx for minutes, the node is drained or makes no progress. `details.reason` in the response gives the reason. If there are no probes, the balancer does not poll this node.",
    labels: { route: undefined, status: CLASSES }
  })
)

/**
 * Returns the counters for health probes of a route, one for each class of status. From then on the metric shows them,
 * beginning with zero.
 */
export const probesOf = (route: string): ReadonlyArray<Count> => CLASSES.map((status) => httpProbes.at(route, status))

/** Counts the response to a health probe with the counters of its route. */
export const countProbe = countClass

/** The label for requests that match no route. */
export const NO_ROUTE = "none"
export const httpSeconds = ofRequests(
  new Histogram({
    name: "http_request_seconds",
    help:
      "seconds from the head of an HTTP request to the end of its response, by route; for /mcp this includes the time during which a call waits for messages",
    action:
      "If the 99th percentile of sends stays above 0.5, compare `commit_wait_seconds` (the database), `remote_call_seconds` (another node) and `event_loop_lag_p99_seconds` (this process).",
    labels: { method: undefined, route: undefined }
  })
)

export const refusals = ofRequests(
  new Counter({
    name: "refusals_total",
    help:
      "requests, upgrades and frames of sockets to which the server responded with an error, by the code of the error",
    action:
      "If `UNAVAILABLE` or `INTERNAL_ERROR` rises, the log says why. If `RATE_LIMITED` or `COLD_CAP_EXCEEDED` rises, agents reach their limits. If `UNAUTHORIZED` rises, clients use invalid keys.",
    labels: { door: undefined, code: undefined }
  })
)

export const mcpRequests = ofRequests(
  new Counter({
    name: "mcp_requests_total",
    help:
      "POST requests to /mcp, by family of the host's `User-Agent` and by outcome; `unauthorized` means that the request had no valid key, and `refused` includes requests of which only the tool call was refused",
    action:
      "If `unauthorized` rises for a host, the key in its configuration is missing or invalid. If `refused` rises, set the log level to `debug`: then the log contains a line with the reason for each refused request.",
    labels: { host: undefined, outcome: undefined }
  })
)

export const REDIS_FALLBACK_REASONS = ["down", "slow", "open", "refused", "nonsense"] as const
export const redisFallbacks = ofRequests(
  new Counter({
    name: "rate_limits_alone_total",
    help: "requests whose rate limit this node decided by its own count instead of Redis, by reason",
    action: "If it rises, Redis is unavailable or slow. Meanwhile an agent can use its limit once on each node.",
    labels: { reason: REDIS_FALLBACK_REASONS }
  })
)

export const heldBytes = ofRequests(
  new Gauge({
    name: "held_bytes",
    help:
      "bytes in this node's memory because of slow peers: responses and frames that the peers do not read, and request bodies that arrive slowly",
    action: "If it stays above half of `HELD_BYTES`, many clients are slow, or some do not read at all."
  })
)
export const heldCuts = ofRequests(
  new Counter({
    name: "held_cuts_total",
    help:
      "connections that were closed because their client made this node hold too many bytes, by the limit that was reached; `stalled` means that the client had read nothing for 10 s while more than half of `HELD_BYTES` was used",
    action:
      "If it rises, the log names the agents and addresses. If their clients are legitimate but slow, raise `HELD_PEER_BYTES`.",
    labels: { reason: ["connection", "peer", "process", "stalled"] }
  })
)
export const largeReads = ofRequests(
  new Gauge({
    name: "large_reads",
    help:
      "large responses in progress on this node, and requests for a large response that wait for a slot of their agent",
    action:
      "If `waiting` stays above 0, agents request more than `HTTP_LARGE_READS` pages at once, or read their responses slowly.",
    labels: { state: ["under way", "waiting"] }
  })
)

const PORTS = ["http", "nodes"]
export const connectionsOpen = ofRequests(
  new Gauge({
    name: "connections_open",
    help: "open connections from clients (`http`) and from other nodes (`nodes`)",
    action:
      "If it approaches `connections_bound`, raise `ulimit -n` or `HTTP_CONNECTIONS`, or find out which clients open the connections.",
    labels: { port: PORTS }
  })
)
export const connectionsBound = ofRequests(
  new Gauge({
    name: "connections_bound",
    help: "maximum number of open connections on a port",
    action: "",
    labels: { port: PORTS }
  })
)
export const TURNED_AWAY = ["full", "peer", "gave_way"] as const
export const connectionsTurnedAway = ofRequests(
  new Counter({
    name: "connections_turned_away_total",
    help:
      "connections that were closed because too many were open: new connections beyond the limit of the port (`full`) or of their address (`peer`), and idle connections that a new one replaced (`gave_way`)",
    action:
      "If `peer` rises, the log names the address. If this address is a proxy, add it to `TRUST_PROXY_ADDRESSES`. If `full` or `gave_way` rises, compare `connections_open` with `connections_bound`.",
    labels: { port: PORTS, reason: TURNED_AWAY }
  })
)
export const connectionsSilent = ofRequests(
  new Counter({
    name: "connections_silent_total",
    help: "connections of clients that were closed because they sent no byte within `HTTP_FIRST_BYTE_SECONDS`",
    action: "If it rises fast, a client or a balancer opens connections and sends nothing."
  })
)

// Sending

const storedMessages = ofSending(
  new Counter({
    name: "messages_stored_total",
    help: "messages that this node committed as the owner of their conversations",
    action: "If it stays at 0 on one node and rises on the others, this node owns no shards (`effect_cluster_shards`).",
    labels: { kind: ["direct", "group"] }
  })
)
export const stored = {
  direct: storedMessages.at("direct"),
  group: storedMessages.at("group"),
  total: () => storedMessages.total
}

/** Counts stored messages. Repeated and refused sends do not count. */
export const countStored = (kind: "direct" | "group", outcomes: ReadonlyArray<{ readonly _tag: string }>): void => {
  for (const { _tag } of outcomes) if (_tag === "Stored") stored[kind].value++
}

/** The queues of group commits, and what the items of each queue are. */
const QUEUES: Readonly<Record<string, string>> = {
  message: "messages of direct conversations",
  group_message: "messages of groups",
  ack: "acknowledgements",
  read: "read marks"
}
const QUEUE = { queue: Object.keys(QUEUES) }

const commitWaits = ofSending(
  new Histogram({
    name: "commit_wait_seconds",
    help:
      "seconds from the arrival of a send, an acknowledgement or a read mark at the node that commits it to the end of the commit",
    action:
      "If the median for `message` is above 0.05, compare two other metrics. If `commit_seconds` is high too, the database is slow. If `commit_queue_items` is high, more items arrive than the node can commit.",
    labels: QUEUE
  })
)
export const commitTimes = ofSending(
  new Histogram({
    name: "commit_seconds",
    help: "seconds that the commit of one batch took, whether it succeeded or failed",
    action:
      "If it rises while batches stay small, the database or its disk is slow, or a database session holds locks (`message_set_aside_total`).",
    labels: QUEUE
  })
)
const commitQueues = ofSending(
  new Gauge({
    name: "commit_queue_items",
    help: "items that wait for a commit or are being committed",
    action:
      "If it stays above 1,000, more items arrive than the database can commit. A queue with 20,000 items refuses further items with 503.",
    labels: QUEUE
  })
)
const SLOW =
  "If it approaches 1,000, the database is slow: many messages gather for the next batch while one is committed."
const FAILING =
  "If `connection` or `system` rises, PostgreSQL is unavailable, or has no disk space or memory left. If `defect` or `refused` rises, report the error in the log to the developers."
const LOCKED = "If it rises, look in `pg_stat_activity` for a transaction that was left open."

const commitCounts = (queue: string) => {
  const what = QUEUES[queue] ?? queue
  const first = queue === "message"
  return {
    size: new Histogram(
      { name: `${queue}_batch_size`, help: `${what} in one commit`, action: first ? SLOW : "" },
      SIZES
    ),
    failed: new Counter({
      name: `${queue}_commits_failed_total`,
      help: `commits of ${what} that failed, by reason`,
      action: first ? FAILING : "",
      labels: { reason: ["connection", "system", "lock", "refused", "defect"] }
    }),
    setAside: new Counter({
      name: `${queue}_set_aside_total`,
      help:
        `${what} that were taken out of their batch because another database session had locked a row that they change`,
      action: first ? LOCKED : ""
    })
  }
}
const perQueue = new Map(QUEUE.queue.map((queue) => [queue, commitCounts(queue)]))
for (const kind of ["size", "failed", "setAside"] as const)
  for (const counts of perQueue.values()) ofSending(counts[kind])

/**
 * Returns the metrics of the group commit of a queue. A queue that is not in the catalogue (in tests) is counted but
 * not printed.
 */
export const commitMeters = (queue: string) => {
  const counts = perQueue.get(queue) ?? commitCounts(queue)
  perQueue.set(queue, counts)
  return { ...counts, seconds: commitTimes.at(queue), waits: commitWaits.at(queue), queued: commitQueues.at(queue) }
}

// Sockets

export const socketsOpen = ofSockets(
  new Gauge({
    name: "sockets_open",
    help: "WebSockets that are open on this node",
    action: "If one node has most of them, the balancer does not distribute connections evenly."
  })
)
export const waitsOpen = ofSockets(
  new Gauge({
    name: "waits_open",
    help: "requests of MCP and A2A that wait for messages or events",
    action: "If one node has most of them, the balancer does not distribute connections evenly."
  })
)
export const socketsOpened = ofSockets(
  new Counter({
    name: "sockets_opened_total",
    help: "WebSockets that were opened with a valid key",
    action:
      "If it rises much faster than `sockets_open`, clients reconnect again and again. `sockets_closed_total` says why."
  })
)
export const reconnects = ofSockets(
  new Counter({
    name: "socket_reconnects_total",
    help: "WebSockets that an agent opened within a minute after one of its WebSockets on this node had closed",
    action: "If it rises, `sockets_closed_total` says why sockets close."
  })
)
const socketsClosed = ofSockets(
  new Counter({
    name: "sockets_closed_total",
    help:
      "WebSockets that were closed, by close code: 1000 and 1001 normal, 1006 connection lost, 1008 invalid key, 1009 frame too large, 1011 failure of the server, 1013 try again later",
    action:
      "If 1011 rises, the log contains the failure. If 1013 rises, clients read too slowly, open too many sockets or send too many frames, or the node stops. If many sockets close with 1006 at once, the network failed, or a balancer has a time-out below 30 s.",
    labels: { code: ["1000", "1001", "1006", "1008", "1009", "1011", "1013", "other"] }
  })
)
/** The WebSocket close codes that are label values. Other codes are counted as `other`. */
const CLOSE_CODES = new Set(socketsClosed.description.labels?.["code"])
export const countClosed = (code: number): void =>
  socketsClosed.at(CLOSE_CODES.has(String(code)) ? String(code) : code === 1005 ? "1000" : "other").add()
export const slowSockets = ofSockets(
  new Counter({
    name: "sockets_slow_total",
    help: "WebSockets that were closed because their client did not read",
    action:
      "If it rises, clients hang, or `SOCKETS_UNSENT_BYTES` is too small for their network. The clients get the remaining messages when they reconnect."
  })
)
export const catchingUp = ofSockets(
  new Gauge({
    name: "sockets_catching_up",
    help: "WebSockets for which the node is reading the backlog from the database",
    action:
      "If it stays high, many clients reconnected at once, clients read slowly, or the database is slow (`database_wait_seconds`)."
  })
)
export const pushes = ofSockets(
  new Counter({
    name: "pushes_total",
    help: "frames that this node wrote to its WebSockets",
    action:
      "If it stays at 0 while messages are stored and sockets are open, the nodes cannot reach each other, or all recipients have muted the senders."
  })
)
const pushWaits = ofSockets(
  new Histogram({
    name: "push_seconds",
    help:
      "seconds from the commit of a message until it is written to the recipient's WebSockets; `here` means that this node committed the message, `there` that another node did",
    action:
      "If only `there` is above 0.1, the calls between nodes are slow. If `here` is above 0.1 too, this process is busy (`event_loop_lag_p99_seconds`).",
    labels: { way: ["here", "there"] }
  })
)
export const pushedHere = pushWaits.at("here")
export const pushedThere = pushWaits.at("there")

// Actors and backlog

export const actors = ofSockets(
  new Gauge({
    name: "actors",
    help: "actors in this node's memory",
    action:
      "If it grows for hours with steady traffic, report this to the developers, because idle actors should be removed within minutes.",
    labels: { kind: ["agent", "conversation", "group", "webhook"] }
  })
)
const BACKLOG = "the node that counts it, once a minute"
export const backlogMessages = ofSockets(
  new Gauge({
    name: "backlog_messages",
    help:
      "messages that their recipients have not acknowledged yet, counted once for each recipient; use the maximum over the nodes",
    action: "If it only rises, agents do not read or do not acknowledge their messages.",
    only: BACKLOG
  })
)

// Database

export const databaseWaits = ofDatabase(
  new Histogram({
    name: "database_wait_seconds",
    help: "seconds that a statement waited for a database connection",
    action:
      "If its 99th percentile is above 0.05, all connections are in use. First find out why statements take so long. Then raise `DATABASE_POOL` if necessary."
  })
)
export const databaseTimes = ofDatabase(
  new Histogram({
    name: "database_statement_seconds",
    help: "seconds from the start of a statement on its connection to its result",
    action:
      "If its median rises, the database or its disk is busy. If only its 99th percentile rises, statements wait for locks, or a background job goes through many rows."
  })
)
const VACUUM = "the node that runs the job vacuum, once a minute"
export const transactionAge = ofDatabase(
  new Gauge({
    name: "database_transaction_age",
    help: "transactions since the oldest one that no vacuum has frozen; near 2 147 483 648 the database refuses writes",
    action:
      "If it is above 1 000 000 000, some table is not vacuumed. On PostgreSQL, check that autovacuum is on, and look in `pg_stat_activity` for an old transaction. On PGlite, restart the server, or stop it and run `compact`.",
    only: VACUUM
  })
)
export const connectionsUsed = ofDatabase(
  new Gauge({
    name: "database_connections_used",
    help: "connections that PostgreSQL has open, of all its clients",
    action:
      "If it approaches `database_connections_bound`, raise `max_connections` of PostgreSQL, or lower `DATABASE_POOL`.",
    only: `${VACUUM}; PostgreSQL`
  })
)
export const connectionsAllowed = ofDatabase(
  new Gauge({
    name: "database_connections_bound",
    help: "connections that PostgreSQL allows, without those that it reserves for superusers",
    action: "",
    only: `${VACUUM}; PostgreSQL`
  })
)
export const vacuumSkipped = ofDatabase(
  new Gauge({
    name: "database_vacuum_skipped_tables",
    help: "tables of PGlite that are due for vacuum and larger than `VACUUM_TABLE_MB`",
    action:
      "If it is above 0, the space of deleted rows in these tables is not reused. The log names the tables. Run `compact`, or raise `VACUUM_TABLE_MB`.",
    only: "a server on PGlite"
  })
)

// Nodes

/** Adds a metric that a library in this process maintains. */
const foreign = (kind: Kind, description: Description): Foreign =>
  ofNodes({ kind, description, labelNames: Object.keys(description.labels ?? {}) })
foreign("gauge", {
  name: "effect_cluster_runners",
  help: "nodes in the cluster, as this node sees it",
  action:
    "If nodes show different values, or fewer nodes than you run, `/v1/ready` and the log of the missing node say why."
})
foreign("gauge", {
  name: "effect_cluster_runners_healthy",
  help: "nodes that the cluster's library counts as healthy",
  action: ""
})
foreign("gauge", {
  name: "effect_cluster_shards",
  help: "how many of the shards (RUNNER_SHARDS, 300 by default) this node owns",
  action:
    "If the sum over the nodes is not the number of shards for more than 10 s, some conversations have no owner, and their requests get 503."
})
foreign("gauge", { name: "effect_cluster_shards_releasing", help: "shards that this node is handing over", action: "" })
foreign("gauge", { name: "effect_cluster_singletons", help: "background jobs that run on this node", action: "" })
foreign("gauge", {
  name: "effect_cluster_entities",
  help: "actors that were called through the cluster's library",
  action: "",
  labels: { type: undefined }
})
foreign("gauge", {
  name: "effect_cluster_entity_mailbox_size_max",
  help:
    "the largest number of calls that wait in one actor, of the actors that are called through the cluster's library",
  action: "",
  labels: { type: undefined }
})
foreign("histogram", {
  name: "effect_cluster_shard_release",
  help: "milliseconds that this node took to hand a shard over",
  action: "If it takes seconds, the node has much work to finish, or PostgreSQL is slow.",
  only: "a node that has handed a shard over"
})

export const remoteCalls = ofNodes(
  new Counter({
    name: "remote_calls_total",
    help: "calls from this node to actors of other nodes",
    action: "",
    only: NODES
  })
)
export const remoteSeconds = ofNodes(
  new Histogram({
    name: "remote_call_seconds",
    help: "seconds from a call to another node to its result, by procedure; lost calls do not count",
    action:
      "If it is far above `commit_wait_seconds` of the other nodes, the network between the nodes or a node's event loop is slow.",
    labels: { procedure: undefined },
    only: NODES
  })
)
export const lineFrames = ofNodes(
  new Histogram({
    name: "remote_call_batch_size",
    help: "calls, results, pushes and announcements in one frame to another node",
    action: "",
    only: NODES
  }, SIZES)
)
export const remoteOpen = ofNodes(
  new Gauge({
    name: "remote_calls_open",
    help: "calls to other nodes that wait for a result",
    action: "If it stays above 1,000, a node is slow. Calls beyond 20,000 to one node get 503.",
    only: NODES
  })
)
export const linesBroken = ofNodes(
  new Counter({
    name: "remote_call_lines_broken_total",
    help: "how often the connection to another node broke, by reason",
    action:
      "`connection` is normal when a node stops. `answer` rises if nodes of different releases run together. `silence` rises if a node hangs, or the network between the nodes fails.",
    labels: { reason: ["answer", "silence", "connection"] }
  })
)
export const remotePushes = ofNodes(
  new Counter({
    name: "remote_pushes_total",
    help: "pushes to sockets on other nodes",
    action: "",
    only: NODES
  })
)
export const remotePushQueue = ofNodes(
  new Gauge({
    name: "remote_push_queue_items",
    help: "pushes that wait to be sent to other nodes",
    action:
      "If it stays above 1,000, a node reads slowly. When 20,000 pushes wait for a node, they are dropped, and this node reads the messages from the database instead.",
    only: NODES
  })
)
export const GREETINGS = ["refused", "silent", "unreachable"] as const
export const greetingsFailed = ofNodes(
  new Counter({
    name: "node_greetings_failed_total",
    help: "failed attempts to open a connection to another node, by reason",
    action:
      "If it rises, the network between the nodes fails, or a node has a different `RUNNER_SECRET`. `/v1/ready` names the node.",
    labels: { reason: GREETINGS }
  })
)
export const CONNECTIONS = ["secret", "plain", "encrypted", "silent", "stranger"] as const
export const connectionsRefused = ofNodes(
  new Counter({
    name: "node_connections_refused_total",
    help: "connections to `RUNNER_PORT` that were refused, by reason",
    action: "If it rises, a node has a different `RUNNER_SECRET`, or other programs connect to the port.",
    labels: { reason: CONNECTIONS }
  })
)

// Webhooks and e-mail

export const webhookAttempts = ofWebhooks(
  new Counter({
    name: "webhook_attempts_total",
    help:
      "posts to webhooks, by outcome: `delivered`, the class of another status, `timeout`, `forbidden` (a private or reserved address) or `failed` (no connection, or no valid response)",
    action:
      "If posts to all hosts fail, check this machine's network and name server. If posts to one host fail, only the owner of the host can repair it.",
    labels: { outcome: ["delivered", "1xx", "3xx", "4xx", "5xx", "timeout", "forbidden", "failed"] }
  })
)
export const webhookSeconds = ofWebhooks(
  new Histogram({
    name: "webhook_attempt_seconds",
    help: "seconds that a post to a webhook took, from the look-up of the host's name to the end of the response",
    action:
      "If it approaches `WEBHOOK_TIMEOUT_SECONDS`, hosts do not respond. `webhook_posts` shows how many posts wait."
  })
)
export const webhookPosts = ofWebhooks(
  new Gauge({
    name: "webhook_posts",
    help:
      "posts to webhooks that are in progress or wait for a free place; `once` means posts of presence, which are not retried",
    action:
      "If `waiting` is high for minutes, hosts do not respond (`webhook_attempts_total`), or `WEBHOOK_POSTS`, `WEBHOOK_POSTS_PER_AGENT` or `WEBHOOK_POSTS_PER_HOST` is too small.",
    labels: { kind: ["delivery", "once"], state: ["under_way", "waiting"] }
  })
)
export const webhookPostsRefused = ofWebhooks(
  new Counter({
    name: "webhook_posts_refused_total",
    help:
      "posts that were refused because too many posts waited; a refused `delivery` is retried within seconds, a refused `once` is dropped",
    action: "If `delivery` rises, too many posts of some agents wait, and their deliveries are late.",
    labels: { kind: ["delivery", "once"] }
  })
)
export const webhookCircuits = ofWebhooks(
  new Counter({
    name: "webhook_circuits_total",
    help:
      "how often posts to a webhook were paused after failures (`opened`), and how often a success ended a pause (`closed`)",
    action: "If `opened` rises and `closed` does not, hosts remain unavailable.",
    labels: { change: ["opened", "closed"] }
  })
)
export const webhookDead = ofWebhooks(
  new Counter({
    name: "webhook_deliveries_dead_total",
    help: "deliveries to webhooks that the server gave up because the last attempt failed",
    action: "If it rises, `npm run admin -- webhooks dead` lists the deliveries. Inform the owners of the webhooks."
  })
)
export const backlogWebhooks = ofWebhooks(
  new Gauge({
    name: "backlog_webhook_deliveries",
    help: "deliveries to webhooks that wait for their next attempt; use the maximum over the nodes",
    action: "If it only rises, hosts of webhooks fail (`webhook_attempts_total`), or `WEBHOOK_POSTS` is too small.",
    only: BACKLOG
  })
)
export const mail = ofWebhooks(
  new Counter({
    name: "mail_total",
    help: "e-mails with one-time codes, by outcome: `sent` to the mail server or the outbox, or `failed`",
    action:
      "If `failed` rises, the log contains the mail server's code. Meanwhile nobody can register or recover an account.",
    labels: { outcome: ["sent", "failed"] }
  })
)
export const mailQueue = ofWebhooks(
  new Gauge({
    name: "mail_queue_items",
    help: "e-mails that wait for the mail server",
    action: "If it stays high, the mail server is slow. While 1,000 e-mails wait, requests for a code get `OTP_FAILED`."
  })
)

// Jobs

export const jobRuns = ofJobs(
  new Counter({
    name: "jobs_runs_total",
    help: "runs of background jobs, by outcome",
    action: "If `failed` rises, the log contains the reason.",
    labels: { job: undefined, outcome: ["done", "failed"] }
  })
)
export const jobRows = ofJobs(
  new Counter({
    name: "jobs_rows_total",
    help: "rows that background jobs removed or processed",
    action: "",
    labels: { job: undefined }
  })
)
export const jobSeconds = ofJobs(
  new Histogram({
    name: "jobs_batch_seconds",
    help: "seconds that a batch of a background job took",
    action: "If a batch takes seconds, the database is slow, or its statistics are out of date (`ANALYZE`).",
    labels: { job: undefined }
  }, [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10])
)

const SCHEDULED = "BACKUP_EVERY"
export const backupsMade = ofJobs(
  new Counter({
    name: "backups_total",
    help: "backups that the server made on its own, by outcome",
    action: "If `failed` rises, the log contains the reason.",
    labels: { outcome: ["done", "failed"] }
  })
)
export const backupAge = ofJobs(
  new Gauge({
    name: "backup_age_seconds",
    help: "seconds since the newest backup that the server made on its own",
    action: "If it is above twice `backup_interval_seconds`, backups fail: the log contains the reason.",
    only: SCHEDULED
  })
)
export const backupInterval = ofJobs(
  new Gauge({
    name: "backup_interval_seconds",
    help: "seconds between two backups that the server makes on its own",
    action: "",
    only: SCHEDULED
  })
)

// The process

export const buildInfo = ofProcess(
  new Gauge({
    name: "build_info",
    help: "always 1; its labels are the version and the commit of this node",
    action:
      "If nodes have different values for hours, an upgrade has not been completed. `count(count by (version, commit) (build_info))` is their number.",
    labels: { version: undefined, commit: undefined }
  })
)
export const nodeReady = ofProcess(
  new Gauge({
    name: "node_ready",
    help: "1 if `/v1/ready` would return 200 at the time of the scrape, else 0",
    action: "If it is 0 for minutes and `node_drained` is 0, `/v1/ready` returns the reason."
  })
)
export const nodeDrained = ofProcess(
  new Gauge({
    name: "node_drained",
    help: "1 while an operator has drained the node, or while it shuts down, else 0",
    action: "If it is 1 for hours, somebody has forgotten to undo the drain."
  })
)
export const lagSeconds = ofProcess(
  new Gauge({
    name: "event_loop_lag_p99_seconds",
    help: "99th percentile of the delay of the event loop since the previous scrape, in seconds",
    action: "If it is above 0.1, the process is overloaded. Add a node, or move from PGlite to PostgreSQL."
  })
)
export const residentBytes = ofProcess(
  new Gauge({
    name: "process_resident_memory_bytes",
    help: "resident memory in bytes",
    action:
      "If it grows while the number of sockets and the traffic do not, report this to the developers, with the values of `actors` and of the queues."
  })
)
export const heapBytes = ofProcess(
  new Gauge({ name: "process_heap_used_bytes", help: "JavaScript heap in use, in bytes", action: "" })
)
export const diskFree = ofProcess(
  new Gauge({
    name: "disk_free_bytes",
    help: "bytes that are free on the disk of a folder, measured every ten seconds",
    action:
      "If it is below 1 000 000 000, free some space, or enlarge the disk. Below 32 000 000 in `DATA_DIR`, a server on PGlite is not ready, and soon refuses sends with 503.",
    labels: { folder: ["DATA_DIR", "SHARED_DIR"] },
    only: "folders that exist"
  })
)
export const cpuSeconds = ofProcess(
  new Gauge({
    name: "process_cpu_seconds",
    help: "CPU seconds that the process has used, user and system together",
    action: "If its rate approaches 1, one core is fully used. Add a node."
  })
)
export const uptimeSeconds = ofProcess(
  new Gauge({
    name: "process_uptime_seconds",
    help: "seconds since the process started",
    action: "If it falls, the process was restarted. The log says why."
  })
)

export const spansTotal = ofProcess(
  new Counter({
    name: "trace_spans_total",
    help: "spans of traces that were sent to the collector, or dropped because it did not accept them",
    action:
      "If `dropped` rises, the collector is unavailable or slow, or `OTEL_TRACES_SAMPLER_ARG` is too high for the collector.",
    labels: { outcome: ["sent", "dropped"] }
  })
)

/** Returns all metrics of the catalogue that this process maintains itself, as text for Prometheus. */
export const metricsText = (): string =>
  catalogue.flatMap(({ metrics }) => metrics).map((metric) => "text" in metric ? metric.text() : "").join("")

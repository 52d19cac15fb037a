import { AgentSuspended } from "#domain/agents/Agent"
import { Agents } from "#domain/agents/Agents"
import type { CloseReason } from "#domain/agents/Sessions"
import { Auth } from "#domain/auth/Auth"
import { Budgets } from "#domain/auth/Budgets"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Presences } from "#domain/presence/Presences"
import { LiveAgents } from "#domain/push/LiveAgents"
import { type LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { BufferedBytes } from "#infrastructure/http/BufferedBytes"
import { addressKey, upgradeAddress } from "#infrastructure/http/ClientAddress"
import { UpgradeHandler } from "#infrastructure/http/UpgradeHandler"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { catchingUp, countClosed } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { forRequest } from "#infrastructure/platform/RequestId"
import { bearerOf } from "#infrastructure/wire/Bearer"
import { MethodNotAllowed, Unavailable, ValidationFailed } from "#infrastructure/wire/WireError"
import { refuse } from "#infrastructure/wire/WireErrors"
import { Cause, Clock, Effect, Layer, Schedule, Semaphore } from "effect"
import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import { type RawData, type ServerOptions, type WebSocket, WebSocketServer } from "ws"
import { CLOSED_BY, makeAdmission, NO_HELLO } from "./Admission.ts"
import { type FrameSource, makeClientFrames } from "./ClientFrames.ts"
import { ClientNames } from "./ClientNames.ts"
import { checkDeadlines, closeWith, type Connection, type HeartbeatTimes, makeConnection } from "./Connection.ts"
import { makeComparison } from "./Cursors.ts"
import { watchKeys } from "./KeyWatch.ts"
import type { SessionDependencies } from "./SocketSession.ts"
import { Waiters } from "./Waiters.ts"

/** How often deadlines are checked. One fiber checks all sockets, so that no socket needs a timer. */
const TICK_INTERVAL = "500 millis"
/** How often cursors are compared with storage. */
const CHECK_INTERVAL = "5 seconds"
/**
 * The most fragments of a message, and the most chunks in which a frame may arrive. Each fragment or chunk takes some
 * 400 bytes of memory besides its content.
 */
const MAX_FRAGMENTS = 64
const MAX_CHUNKS = 512
/**
 * How many sessions of the node may read their backlog at once. The sessions of one agent also need a slot of the agent
 * for each page.
 */
const MAX_BACKLOG_READS = 8
/** How much memory a page of a backlog may take. */
const BACKLOG_PAGE: LargeAnswer = { usual: 1, max: 1, bytes: 1_048_576 }
const DRAIN_MS = 5_000
/** Over how many milliseconds a stopping server spreads the closing of its sockets. */
const SPREAD_MS = 2_000
const SPREAD_TICK_MS = 20
/** How long a peer may take to read the frames before a close and to respond to the close, in milliseconds. */
const CLOSE_MS = 10_000

const LEAVING: CloseReason = { code: 1013, text: "the server is shutting down: try again" }

/**
 * Serves `/v1/ws` (wire.md E): upgrades, heartbeats and the closing of sockets. `Admission.ts` checks their keys, a
 * SocketSession decides which messages a socket shows, and `ClientFrames.ts` handles the frames of its client.
 */
export const SocketServer = Layer.effect(
  UpgradeHandler,
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const config = yield* Config
    const agents = yield* Agents
    const auth = yield* Auth
    const budgets = yield* Budgets
    const liveAgents = yield* LiveAgents
    const deliveries = yield* Deliveries
    const conversations = yield* Conversations
    const presences = yield* Presences
    const waiters = yield* Waiters
    const runFork = Effect.runForkWith(yield* Effect.context<never>())
    const logDefectOf = (defect: unknown) => Effect.logError("Work for a socket failed", Cause.die(defect))
    const fork = (effect: Effect.Effect<void>): void => {
      runFork(Effect.catchDefect(effect, logDefectOf))
    }
    // Deadlines use the monotonic clock, so that a change of the wall clock neither closes sockets nor keeps dead ones.
    const now = monotonicMillis(clock)
    const heartbeats = heartbeatTimes(config)
    const forkFor = ({ requestId }: FrameSource) => (effect: Effect.Effect<void>): void =>
      fork(forRequest(requestId, effect))
    const frames = makeClientFrames({
      conversations,
      deliveries,
      presences,
      framesPerSecond: config.LIMITS_FRAMES_PER_SECOND,
      refusalsPerSecond: config.LIMITS_REFUSALS_PER_SECOND,
      now,
      fork: forkFor,
      logDefect: logDefectOf
    })
    const connections = new Set<Connection>()
    const admission = makeAdmission({
      auth,
      budgets,
      clock,
      liveAgents,
      presences,
      now,
      pingMs: heartbeats.pingMs,
      session: { ...yield* sessionBounds, deliveries, fork },
      fork,
      logDefect: logDefectOf,
      receive: frames.receive
    })
    let leaving = false

    const requestIds = new WeakMap<IncomingMessage, string>()
    const clients = new ClientNames()
    const addressOf = (request: IncomingMessage) => addressKey(upgradeAddress(request, config.TRUST_PROXY))
    const server = makeServer(config.SOCKETS_FRAME_BYTES, requestIds)

    const opened = (socket: WebSocket, request: IncomingMessage): Connection => {
      const connection = makeConnection(
        socket,
        requestIds.get(request),
        clients.of(request),
        addressOf(request),
        now() + heartbeats.helloMs
      )
      connections.add(connection)
      socket.on("message", (data: RawData, isBinary: boolean) => {
        // The frame was in transit when the close was sent.
        if (socket.readyState !== 1) return
        try {
          const { session } = connection
          if (isBinary) {
            if (session === undefined) return closeWith(connection, NO_HELLO)
            return frames.refuse(connection, session, "VALIDATION_ERROR", "frames are text", null, undefined)
          }
          if (session === undefined) admission.receive(connection, textOf(data))
          else frames.receive(connection, session, textOf(data))
        } catch (error) {
          // An unexpected failure closes the socket instead of ending the process.
          forkFor(connection)(Effect.logError("A frame could not be handled", error))
          closeWith(connection, { code: 1011, text: "the server failed on this frame" })
        }
      })
      socket.on("pong", () => {
        // No limit counts pongs, so a pong without a ping is ignored.
        if (!connection.awaitingPong) return
        connection.awaitingPong = false
        if (connection.session !== undefined) fork(Effect.ignore(presences.sockets(connection.session.agent.id)))
      })
      // `ws` itself closes the socket with the right code (1009 for a frame that is too large).
      socket.on("error", () => undefined)
      socket.on("close", (code) => {
        countClosed(code)
        connections.delete(connection)
        admission.leave(connection)
      })
      return connection
    }

    /**
     * Completes an upgrade. Temporary failures are reported on the socket: a client that gets a 503 for its upgrade may
     * never retry, but it retries after close code 1013.
     */
    const accept = (
      request: IncomingMessage,
      socket: Duplex,
      head: Buffer,
      then: (connection: Connection) => void
    ): void => {
      if (socket.destroyed) return
      server.handleUpgrade(request, socket, head, (ws) => {
        const connection = opened(ws, request)
        if (leaving) closeWith(connection, LEAVING)
        else then(connection)
      })
    }

    const upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer, requestId: string): void => {
      requestIds.set(request, requestId)
      const header = request.headers.authorization
      if (header === undefined) return accept(request, socket, head, () => undefined)
      const key = bearerOf(header)
      const capabilities = String(request.headers["x-agentchat-capabilities"] ?? "").split(",").map((one) => one.trim())
      socket.on("error", ignore)
      fork(Effect.match(admission.checked(key, addressOf(request)), {
        onFailure: (failure) => {
          socket.off("error", ignore)
          if (failure._tag === "Unauthorized" || failure._tag === "RateLimited")
            return refuse(socket, failure, requestId)
          accept(request, socket, head, (connection) => closeWith(connection, CLOSED_BY[failure._tag]))
        },
        onSuccess: (agent) => {
          socket.off("error", ignore)
          if (agent.status === "suspended") return refuse(socket, new AgentSuspended(), requestId)
          accept(request, socket, head, (connection) => admission.welcome(connection, agent, key, capabilities))
        }
      }))
    }

    yield* watchSockets({
      agents,
      connections,
      deliveries,
      fork,
      heartbeats,
      liveAgents,
      logDefect: logDefectOf,
      now,
      presences
    })

    const turnAway = (): void => {
      if (!leaving) waiters.turnAway()
      leaving = true
    }

    const drain = Effect.gen(function*() {
      turnAway()
      yield* closeAll(connections)
    })
    yield* Effect.addFinalizer(() => drain)

    const welcomeAgain = (): void => {
      leaving = false
      waiters.welcomeAgain()
    }

    return UpgradeHandler.of({ path: "/v1/ws", upgrade, turnAway, drain, welcomeAgain, size: () => connections.size })
  })
)

const ignore = (): void => undefined

const textOf = (data: RawData): string => {
  if (Buffer.isBuffer(data)) return data.toString("utf8")
  return Buffer.concat(Array.isArray(data) ? data : [Buffer.from(data)]).toString("utf8")
}

const heartbeatTimes = (config: Settings): HeartbeatTimes => ({
  helloMs: config.SOCKETS_HELLO_SECONDS * 1_000,
  pingMs: config.SOCKETS_PING_SECONDS * 1_000,
  pongMs: config.SOCKETS_PONG_SECONDS * 1_000
})

/** Makes the bounds for the memory and the reads of all sockets together. */
const sessionBounds = Effect.gen(function*() {
  const config = yield* Config
  const reads = yield* LargeReads
  const readers = Semaphore.makeUnsafe(MAX_BACKLOG_READS)
  const inSlot: SessionDependencies["inSlot"] = (agentId, query) =>
    Effect.catchTag(
      reads.during(agentId, BACKLOG_PAGE, readers.withPermits(1)(query)),
      "RateLimited",
      () => Effect.fail(new Unavailable())
    )
  return {
    inSlot,
    backlogBytes: config.SOCKETS_BACKLOG_BYTES,
    unsentBytes: config.SOCKETS_UNSENT_BYTES,
    held: yield* BufferedBytes
  }
})

/**
 * Makes the server of `ws`. The server refuses requests that are no upgrade, and adds the request's id to the response.
 */
const makeServer = (maxPayload: number, requestIds: WeakMap<IncomingMessage, string>): WebSocketServer => {
  // The types of `ws` do not declare these options.
  const options: ServerOptions & Readonly<Record<"closeTimeout" | "maxBufferedChunks" | "maxFragments", number>> = {
    noServer: true,
    maxPayload,
    clientTracking: false,
    maxBufferedChunks: MAX_CHUNKS,
    maxFragments: MAX_FRAGMENTS,
    closeTimeout: CLOSE_MS
  }
  const server = new WebSocketServer(options)
  server.on("wsClientError", (error, socket, request) =>
    refuse(
      socket,
      request.method === "GET" ? new ValidationFailed({ message: `${error.message}.` }) : new MethodNotAllowed(),
      requestIds.get(request) ?? "",
      request.method === "GET" ? { "sec-websocket-version": "13" } : { allow: "GET" }
    ))
  server.on("headers", (headers, request) => headers.push(`x-request-id: ${requestIds.get(request) ?? ""}`))
  return server
}

/**
 * Closes all sockets and waits until they are closed. Spreads the closing, because all clients reconnect to the other
 * nodes.
 */
const closeAll = Effect.fnUntraced(function*(connections: ReadonlySet<Connection>) {
  const closing = [...connections]
  const slice = Math.ceil(closing.length * SPREAD_TICK_MS / SPREAD_MS)
  while (closing.length > 0) {
    for (const connection of closing.splice(0, slice)) {
      closeWith(connection, { code: 1001, text: "the server is shutting down" })
    }
    if (closing.length > 0) yield* Effect.sleep(SPREAD_TICK_MS)
  }
  for (let waited = 0; connections.size > 0 && waited < DRAIN_MS; waited += 20) yield* Effect.sleep(20)
  for (const connection of connections) connection.socket.terminate()
})

/** Closes sockets whose deadline has passed or whose key has become invalid, and finds lost pushes. */
const watchSockets = Effect.fnUntraced(
  function*({ deliveries, heartbeats, ...watched }: Parameters<typeof watchKeys>[0] & {
    readonly deliveries: Deliveries["Service"]
    readonly heartbeats: HeartbeatTimes
  }) {
    const { connections, fork, liveAgents, logDefect, now } = watched
    yield* catchingUp.readsIn(() => {
      let sessions = 0
      for (const { session } of connections) if (session?.isCatchingUp === true) sessions++
      return sessions
    })

    /** Finds lost pushes. After a lost push, the cursor of the session stays behind the inbox. */
    const check = makeComparison(connections, deliveries.heads)

    // `setImmediate` lets the process first read the HELLOs and pongs that have arrived while it was busy.
    const checkSoon = Effect.sync(() => void setImmediate(() => checkDeadlines(connections, now(), heartbeats)))
    yield* Effect.forkScoped(Effect.repeat(checkSoon, Schedule.spaced(TICK_INTERVAL)))
    yield* Effect.forkScoped(
      Effect.repeat(Effect.catchDefect(Effect.ignore(check), logDefect), Schedule.spaced(CHECK_INTERVAL))
    )

    yield* watchKeys(watched)
    // Compare twice, because a session acts only on the second comparison.
    liveAgents.onMissed(() => fork(Effect.ignore(Effect.andThen(check, check))))
  }
)

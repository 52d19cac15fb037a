import { Cause, Clock, Effect, Layer, Option, Schedule, Schema, Semaphore, Struct } from "effect"
import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import { type RawData, type ServerOptions, type WebSocket, WebSocketServer } from "ws"
import { type Agent, AgentSuspended } from "#domain/agents/Agent"
import { LiveAgents } from "#domain/push/LiveAgents"
import type { SocketSlot } from "#domain/push/SocketPlaces"
import { Agents } from "#domain/agents/Agents"
import { Auth } from "#domain/auth/Auth"
import { Conversations } from "#domain/conversations/Conversations"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { SUSPENDED } from "#domain/enforcement/Enforcement"
import { Config } from "#ground/platform/Config"
import { catchingUp, countClosed, reconnects, socketsOpened } from "#ground/platform/Metrics"
import { sha256 } from "#ground/platform/Ids"
import { monotonicMillis } from "#ground/platform/MonotonicClock"
import { forRequest } from "#ground/platform/RequestId"
import { bearerOf } from "#ground/wire/Bearer"
import { MethodNotAllowed, Unauthorized, Unavailable, ValidationFailed } from "#ground/wire/WireError"
import { refuse } from "#ground/wire/WireErrors"
import { Presences } from "#domain/presence/Presences"
import { type FrameSource, makeClientFrames, parseClientFrame } from "./ClientFrames.ts"
import { ClientNames } from "./ClientNames.ts"
import { makeComparison } from "./Cursors.ts"
import { badKey, closeDeadKeys } from "./DeadKeys.ts"
import { clientFrames } from "./Frames.ts"
import { type CloseReason } from "#domain/agents/Sessions"
import { HeldBytes } from "#ground/http/HeldBytes"
import { UpgradeHandler } from "#ground/http/UpgradeHandler"
import { readAgain, Session, type SessionDependencies } from "./Session.ts"
import { Waiters } from "./Waiters.ts"

/** How often deadlines are checked: one fiber for all sockets, instead of a timer for each. */
const TICK = "500 millis"
/** How long accounts are cached (`AgentCache.ts`). */
const CACHED = "1 second"
/** How often cursors are compared with storage. */
const CHECK = "5 seconds"
/** Frames that may wait while the socket's key or its place is checked. */
const MAX_EARLY_FRAMES = 16
/** Bounds of a message's fragments, and of the pieces in which a frame arrives. Each takes some 400 bytes of memory besides its content. */
const MAX_FRAGMENTS = 64
const MAX_CHUNKS = 512
const READERS = 8
const DRAIN_MS = 5_000
/**
 * How long the check of a key may take. A client waits four seconds for hello.ok, and must learn before then that it
 * has to retry.
 */
const KEY_CHECK = "3 seconds"
/** The time over which a stopping server spreads the closing of its sockets, in milliseconds. */
const SPREAD_MS = 2_000
const SPREAD_TICK_MS = 20
/** How soon an agent's next socket counts as a reconnect, and how many agents are remembered for it. */
const RECONNECT_MS = 60_000
const MAX_LEFT = 10_000
/** How long a peer may take to read what was sent before a close, and to answer the close. */
const CLOSE_MS = 10_000

/** How long a node keeps its sockets while it neither hears from all other nodes nor can read the sockets' keys, in milliseconds. */
const CUT_OFF_MS = 3_000

const TOO_MANY: CloseReason = { code: 1013, text: "too many sockets of this agent" }
const UNCHECKED: CloseReason = { code: 1013, text: "the key could not be checked: try again" }
const CUT_OFF: CloseReason = { code: 1013, text: "this server is cut off from the others: connect again" }
const LEAVING: CloseReason = { code: 1013, text: "the server is shutting down: try again" }

/** A socket from its upgrade to its end. */
interface Connection extends FrameSource {
  readonly socket: WebSocket
  /** The client's name from the upgrade request. */
  readonly client: string | null
  session: Session | undefined
  /** Its place among its agent's sockets, from the check of its key until it is closed. */
  place: SocketSlot | undefined
  /** The hash of its key, set when the session begins. */
  keyHash: string
  /** Frames that arrived while the key or the place is checked. Undefined at any other time. */
  early: Array<string> | undefined
  /** When a HELLO or a pong is due, on the monotonic clock. */
  deadline: number
  nextPing: number
  awaitingPong: boolean
}

/** Leaves out the capabilities, because malformed ones do not make a HELLO invalid. */
const decodeHello = Schema.decodeUnknownOption(clientFrames.hello.mapFields(Struct.omit(["capabilities"])))
const decodeCapabilities = Schema.decodeUnknownOption(Schema.Array(Schema.String))
/**
 * Serves `/v1/ws` (wire.md E): authentication, places and heartbeats of sockets. A Session decides what a socket shows,
 * and ClientFrames handles what its client sends.
 */
export const GatewayLive = Layer.effect(
  UpgradeHandler,
  Effect.gen(function*() {
    const clock = yield* Clock.Clock
    const config = yield* Config
    const agents = yield* Agents
    const auth = yield* Auth
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
    const helloMs = config.SOCKETS_HELLO_SECONDS * 1_000
    const pingMs = config.SOCKETS_PING_SECONDS * 1_000
    const pongMs = config.SOCKETS_PONG_SECONDS * 1_000
    const sessionDependencies: SessionDependencies = {
      deliveries,
      readers: Semaphore.makeUnsafe(READERS),
      fork,
      backlogBytes: config.SOCKETS_BACKLOG_BYTES,
      unsentBytes: config.SOCKETS_UNSENT_BYTES,
      held: yield* HeldBytes
    }
    const forkFor = ({ requestId }: FrameSource) => (effect: Effect.Effect<void>): void => fork(forRequest(requestId, effect))
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
    /** When the latest socket of an agent on this node ended, oldest first. A socket that follows soon counts as a reconnect. */
    const left = new Map<string, number>()
    let leaving = false

    const requestIds = new WeakMap<IncomingMessage, string>()
    const clients = new ClientNames()
    // The types of `ws` lack these options.
    const options: ServerOptions & Readonly<Record<"closeTimeout" | "maxBufferedChunks" | "maxFragments", number>> = {
      noServer: true,
      maxPayload: config.SOCKETS_FRAME_BYTES,
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

    const closeWith = (connection: Connection, reason: CloseReason): void => {
      connection.early = undefined
      connection.socket.close(reason.code, reason.text)
    }

    /** Called once the key is valid. The socket becomes a session of its agent, if there is a place for it. */
    const welcome = (connection: Connection, agent: Agent, key: string, capabilities: ReadonlyArray<string>): void => {
      if (connection.socket.readyState !== 1) return
      const place = liveAgents.enter(agent.id, () => {
        connection.place = undefined
        if (connection.session === undefined) closeWith(connection, TOO_MANY)
        else connection.session.close(TOO_MANY)
      })
      if (place === undefined) return closeWith(connection, TOO_MANY)
      connection.place = place
      if (!place.contested) return admit(connection, agent, key, capabilities)
      connection.early ??= []
      fork(Effect.map(liveAgents.reachable, () => {
        if (connection.place === place) admit(connection, agent, key, capabilities)
      }))
    }

    const admit = (connection: Connection, agent: Agent, key: string, capabilities: ReadonlyArray<string>): void => {
      if (connection.socket.readyState !== 1) return
      const actor = liveAgents.here(agent.id)
      const acknowledges = capabilities.includes("ack")
      const session = new Session(connection.socket, actor, agent.handle, acknowledges, sessionDependencies, {
        since: clock.currentTimeMillisUnsafe(),
        client: connection.client
      })
      connection.session = session
      socketsOpened.add()
      const lost = left.get(agent.id)
      if (lost !== undefined && now() - lost < RECONNECT_MS) reconnects.add()
      left.delete(agent.id)
      connection.keyHash = sha256(key).toString("hex")
      liveAgents.attach(agent.id, session)
      if (actor.sessions.size === 1) fork(Effect.ignore(presences.sockets(agent.id)))
      connection.deadline = Number.POSITIVE_INFINITY
      connection.nextPing = now() + pingMs
      connection.socket.send(JSON.stringify({
        type: "hello.ok",
        capabilities: acknowledges ? ["ack"] : [],
        agent: { handle: agent.handle },
        heartbeat_interval_ms: pingMs
      }))
      begin(session)
      const { early } = connection
      connection.early = undefined
      if (early !== undefined) for (const text of early) receive(connection, text)
      // If the key became invalid between its check and the attachment, no session was notified. Check it again.
      fork(Effect.matchEffect(auth.authenticate(key), {
        onFailure: (failure) =>
          failure._tag === "Unauthorized" ? Effect.sync(() => session.close(badKey)) : Effect.void,
        onSuccess: (again) => Effect.sync(() => again.status === "suspended" ? session.close(SUSPENDED) : undefined)
      }))
    }

    /**
     * Starts a session once the mutes are loaded, because it must not show muted messages. Messages that are committed
     * after its read of storage must be pushed to this node, so every node must know of the session before it starts.
     */
    const begin = (session: Session): void =>
      fork(Effect.matchEffect(
        Effect.catchDefect(
          Effect.andThen(liveAgents.reachable, Effect.retry(liveAgents.loadMutes(session.agent), readAgain)),
          (defect) => Effect.andThen(logDefectOf(defect), Effect.fail(undefined))
        ),
        {
          onFailure: () => Effect.sync(() => session.close({ code: 1011, text: "the mutes cannot be read right now" })),
          onSuccess: () => Effect.sync(() => session.start())
        }
      ))

    const checked = (key: string) =>
      Effect.timeoutOrElse(auth.authenticate(key), { duration: KEY_CHECK, orElse: () => Effect.fail(new Unavailable()) }).pipe(
        // A defect has the same effect as a key that cannot be checked.
        Effect.catchDefect((defect) => Effect.andThen(logDefectOf(defect), Effect.fail(new Unavailable())))
      )

    const hello = (connection: Connection, text: string): void => {
      const raw = parseClientFrame(text)
      const frame = Option.getOrUndefined(decodeHello(raw))
      const key = frame?.api_key ?? frame?.token
      if (frame === undefined || key === undefined) {
        return closeWith(connection, { code: 1008, text: "the first frame must be a HELLO with an api_key" })
      }
      connection.early = []
      fork(Effect.match(checked(key), {
        onFailure: (failure) =>
          closeWith(
            connection,
            failure._tag === "Unauthorized" ? badKey : UNCHECKED
          ),
        onSuccess: (agent) =>
          agent.status === "suspended"
            ? closeWith(connection, SUSPENDED)
            : welcome(connection, agent, key, Option.getOrElse(decodeCapabilities(raw?.["capabilities"]), () => []))
      }))
    }

    const receive = (connection: Connection, text: string): void => {
      if (connection.session !== undefined) return frames.receive(connection, connection.session, text)
      if (connection.early === undefined) return hello(connection, text)
      connection.early.push(text)
      if (connection.early.length > MAX_EARLY_FRAMES) closeWith(connection, { code: 1013, text: "too fast" })
    }

    const opened = (socket: WebSocket, requestId: string | undefined, client: string | null): Connection => {
      const connection: Connection = {
        socket,
        requestId,
        client,
        session: undefined,
        place: undefined,
        keyHash: "",
        early: undefined,
        deadline: now() + helloMs,
        nextPing: Number.POSITIVE_INFINITY,
        awaitingPong: false,
        frames: undefined,
        refusals: undefined,
        slowed: false,
        lookups: 0,
        waiting: undefined,
        holds: 0,
        reads: undefined
      }
      connections.add(connection)
      socket.on("message", (data: RawData, isBinary: boolean) => {
        // The frame was under way when the close was sent.
        if (socket.readyState !== 1) return
        try {
          if (!isBinary) return receive(connection, textOf(data))
          if (connection.session === undefined) {
            return closeWith(connection, { code: 1008, text: "the first frame must be a HELLO with an api_key" })
          }
          frames.refuse(connection, connection.session, "VALIDATION_ERROR", "frames are text", null, undefined)
        } catch (error) {
          // An unforeseen failure closes the socket, and does not end the process.
          forkFor(connection)(Effect.logError("A frame could not be handled", error))
          closeWith(connection, { code: 1011, text: "the server failed on this frame" })
        }
      })
      socket.on("pong", () => {
        // No limit counts pongs, so those without a ping are ignored.
        if (!connection.awaitingPong) return
        connection.awaitingPong = false
        if (connection.session !== undefined) fork(Effect.ignore(presences.sockets(connection.session.agent.id)))
      })
      // `ws` itself closes the socket with the right code (1009 for a frame that is too large).
      socket.on("error", () => undefined)
      socket.on("close", (code) => {
        countClosed(code)
        connections.delete(connection)
        const { place, session } = connection
        if (place !== undefined) liveAgents.leave(place)
        connection.place = undefined
        if (session === undefined) return
        session.ended()
        left.delete(session.agent.id)
        left.set(session.agent.id, now())
        if (left.size > MAX_LEFT) left.delete(left.keys().next().value!)
        liveAgents.detach(session.agent.id, session)
        // If the last sockets close on two nodes at once, the later update must know of both closes. Wait for the
        // announcements first.
        if (session.agent.sessions.size === 0) {
          fork(Effect.andThen(liveAgents.reachable, Effect.ignore(presences.sockets(session.agent.id))))
        }
      })
      return connection
    }

    /**
     * Completes an upgrade. Temporary failures are reported on the socket, because a client that gets a 503 for its
     * upgrade may never retry, but it does after a 1013.
     */
    const accept = (request: IncomingMessage, socket: Duplex, head: Buffer, then: (connection: Connection) => void): void => {
      if (socket.destroyed) return
      server.handleUpgrade(request, socket, head, (ws) => {
        const connection = opened(ws, requestIds.get(request), clients.of(request))
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
      fork(Effect.matchCause(checked(key), {
        onFailure: (cause) => {
          socket.off("error", ignore)
          if (cause.reasons.some((reason) => Cause.isFailReason(reason) && reason.error._tag === "Unauthorized")) {
            return refuse(socket, new Unauthorized(), requestId)
          }
          accept(request, socket, head, (connection) => closeWith(connection, UNCHECKED))
        },
        onSuccess: (agent) => {
          socket.off("error", ignore)
          if (agent.status === "suspended") return refuse(socket, new AgentSuspended(), requestId)
          accept(request, socket, head, (connection) => welcome(connection, agent, key, capabilities))
        }
      }))
    }

    /**
     * Checks the deadlines of all sockets: a HELLO that did not come, a ping that is due, a pong that did
     * not come.
     */
    const tick = (): void => {
      const at = now()
      for (const connection of connections) {
        if (connection.session === undefined) {
          if (connection.early === undefined && at >= connection.deadline) {
            closeWith(connection, { code: 1013, text: `no HELLO within ${config.SOCKETS_HELLO_SECONDS} seconds` })
            connection.deadline = Number.POSITIVE_INFINITY
          }
        } else if (connection.awaitingPong) {
          if (at >= connection.deadline) {
            connection.session.close({ code: 1001, text: "no pong" })
            connection.socket.terminate()
          }
        } else if (at >= connection.nextPing) {
          connection.nextPing = at + pingMs
          connection.awaitingPong = true
          connection.deadline = at + pongMs
          connection.socket.ping()
        }
      }
    }

    yield* catchingUp.readsIn(() => {
      let sessions = 0
      for (const { session } of connections) if (session?.isCatchingUp === true) sessions++
      return sessions
    })

    /** Finds lost hints: a lost hint leaves a cursor behind the inbox. */
    const check = makeComparison(connections, deliveries.heads)

    yield* Effect.forkScoped(Effect.repeat(Effect.sync(tick), Schedule.spaced(TICK)))
    yield* Effect.forkScoped(Effect.repeat(Effect.catchDefect(Effect.ignore(check), logDefectOf), Schedule.spaced(CHECK)))

    const checkKeys = closeDeadKeys(connections, agents.keyHashes)
    /** When all keys were known to be valid: by the notices of the other nodes, or by a read of the keys. */
    let knownAt = now()
    // A node that comes back to the cluster is ready before the others have its address again, and their notices do not
    // reach it until then. A node that is cut off knows of no change at all, so its clients must connect elsewhere.
    const watchKeys = Effect.gen(function*() {
      if (!liveAgents.hearsAll()) yield* Effect.timeout(checkKeys, CUT_OFF_MS)
      knownAt = now()
    }).pipe(
      Effect.catchDefect(logDefectOf),
      Effect.ignore,
      Effect.andThen(Effect.sync(() => {
        if (now() - knownAt < CUT_OFF_MS) return
        for (const connection of connections) closeWith(connection, CUT_OFF)
      }))
    )
    yield* Effect.forkScoped(Effect.repeat(watchKeys, Schedule.spaced(TICK)))

    /** Closes the sockets whose keys have become invalid without a notice, and reads the mutes again. */
    const recheck = Effect.gen(function*() {
      yield* checkKeys
      yield* liveAgents.reloadMutes
    }).pipe(
      Effect.retry(readAgain),
      Effect.catchCause((cause) => Effect.logWarning("The keys and mutes of the sockets could not be checked again", cause))
    )
    liveAgents.onParted((agentIds) =>
      fork(Effect.gen(function*() {
        yield* recheck
        yield* Effect.forEach(agentIds, (agentId) => Effect.ignore(presences.sockets(agentId)), { concurrency: 8, discard: true })
        // A socket may have been accepted meanwhile for an account that was cached before its key changed.
        yield* Effect.sleep(CACHED)
        yield* recheck
      })))
    // Compare twice, because only the second comparison acts.
    liveAgents.onMissed(() => fork(Effect.ignore(Effect.andThen(check, check))))

    const turnAway = (): void => {
      if (!leaving) waiters.turnAway()
      leaving = true
    }

    const drain = Effect.gen(function*() {
      turnAway()
      // Close the sockets over some time, because the clients reconnect to the other nodes.
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
    yield* Effect.addFinalizer(() => drain)

    const welcomeAgain = (): void => {
      leaving = false
      waiters.welcomeAgain()
    }

    return UpgradeHandler.of({ upgrade, turnAway, drain, welcomeAgain, size: () => connections.size })
  })
)

const ignore = (): void => undefined

const textOf = (data: RawData): string => {
  if (Buffer.isBuffer(data)) return data.toString("utf8")
  return Buffer.concat(Array.isArray(data) ? data : [Buffer.from(data)]).toString("utf8")
}

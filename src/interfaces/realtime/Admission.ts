import type { Agent } from "#domain/agents/Agent"
import type { CloseReason } from "#domain/agents/Sessions"
import type { Auth } from "#domain/auth/Auth"
import type { Budgets } from "#domain/auth/Budgets"
import { SUSPENDED } from "#domain/enforcement/Enforcement"
import type { Presences } from "#domain/presence/Presences"
import type { LiveAgents } from "#domain/push/LiveAgents"
import { sha256 } from "#infrastructure/platform/Ids"
import { reconnects, socketsOpened } from "#infrastructure/platform/Metrics"
import { Unavailable } from "#infrastructure/wire/WireError"
import { type Clock, Data, Effect, Option, Schema, Struct } from "effect"
import { parseClientFrame } from "./ClientFrames.ts"
import { closeWith, type Connection } from "./Connection.ts"
import { clientFrames } from "./Frames.ts"
import { badKey } from "./KeyWatch.ts"
import { readAgain, type SessionDependencies, SocketSession } from "./SocketSession.ts"

/** How many frames of a socket may wait while its key or its slot is checked. */
const MAX_EARLY_FRAMES = 16
/**
 * How long the check of a key may take. A client waits four seconds for hello.ok. It must be told to retry before then.
 */
const KEY_CHECK_TIMEOUT = "3 seconds"
/** How soon after its last socket an agent's next socket counts as a reconnect, in milliseconds. */
const RECONNECT_MS = 60_000
/** For how many agents a node remembers when their last sockets ended. */
const MAX_LEFT = 10_000

const TOO_MANY: CloseReason = { code: 1013, text: "too many sockets of this agent" }
/** The key of a socket could not be checked. */
export const UNCHECKED: CloseReason = { code: 1013, text: "the key could not be checked: try again" }
/** The request budget of the agent, or for a dead key that of the IP address, is used up. */
const TOO_OFTEN: CloseReason = { code: 1013, text: "too many requests within a minute: try again later" }
/** The request budget of a socket's agent is used up. */
class AgentTooOften extends Data.TaggedError("AgentTooOften")<{}> {}
/** Why a socket is closed whose key was not accepted. */
export const CLOSED_BY = {
  AgentTooOften: TOO_OFTEN,
  RateLimited: TOO_OFTEN,
  Unauthorized: badKey,
  Unavailable: UNCHECKED
} as const
/** The first frame of a socket is not a HELLO. */
export const NO_HELLO: CloseReason = { code: 1008, text: "the first frame must be a HELLO with an api_key" }

/** Does not decode the capabilities, because malformed capabilities do not make a HELLO invalid. */
const decodeHello = Schema.decodeUnknownOption(clientFrames.hello.mapFields(Struct.omit(["capabilities"])))
const decodeCapabilities = Schema.decodeUnknownOption(Schema.Array(Schema.String))

export interface AdmissionDependencies {
  readonly auth: Auth["Service"]
  readonly budgets: Budgets["Service"]
  readonly clock: Clock.Clock
  readonly liveAgents: LiveAgents["Service"]
  readonly presences: Presences["Service"]
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number
  readonly pingMs: number
  readonly session: SessionDependencies
  readonly fork: (effect: Effect.Effect<void>) => void
  readonly logDefect: (defect: unknown) => Effect.Effect<void>
  /** Handles a frame of a socket that has a session. */
  readonly receive: (connection: Connection, session: SocketSession, text: string) => void
}

/**
 * Checks the keys of sockets and starts their sessions. After a socket has closed, removes it from its agent's lists
 * (wire.md E.1).
 */
export const makeAdmission = (deps: AdmissionDependencies) => {
  const { auth, budgets, clock, fork, liveAgents, logDefect, now, presences } = deps
  /**
   * When the latest socket of each agent on this node ended, oldest first. A socket that follows soon counts as a
   * reconnect.
   */
  const left = new Map<string, number>()

  /**
   * Finds the agent of a key. Counts a live key against the request budget of its agent, and a dead one against that of
   * its IP address. A defect has the same effect as a key that cannot be checked.
   */
  const checked = (key: string, address: string) =>
    auth.authenticate(key).pipe(
      Effect.catchTag(
        "Unauthorized",
        (dead) => Effect.andThen(budgets.socketOfAddress(address), Effect.fail(dead))
      ),
      Effect.tap(({ id }) => Effect.mapError(budgets.socketOfAgent(id), () => new AgentTooOften())),
      Effect.timeoutOrElse({
        duration: KEY_CHECK_TIMEOUT,
        orElse: () => Effect.fail(new Unavailable())
      }),
      Effect.catchDefect((defect) => Effect.andThen(logDefect(defect), Effect.fail(new Unavailable())))
    )

  /** Starts a session for a socket with a valid key if the agent has a free slot for sockets. */
  const welcome = (connection: Connection, agent: Agent, key: string, capabilities: ReadonlyArray<string>): void => {
    if (connection.socket.readyState !== 1) return
    const slot = liveAgents.enter(agent.id, () => {
      connection.slot = undefined
      if (connection.session === undefined) closeWith(connection, TOO_MANY)
      else connection.session.close(TOO_MANY)
    })
    if (slot === undefined) return closeWith(connection, TOO_MANY)
    connection.slot = slot
    if (!slot.contested) return admit(connection, agent, key, capabilities)
    connection.early ??= []
    fork(Effect.map(liveAgents.reachable, () => {
      if (connection.slot === slot) admit(connection, agent, key, capabilities)
    }))
  }

  const admit = (connection: Connection, agent: Agent, key: string, capabilities: ReadonlyArray<string>): void => {
    if (connection.socket.readyState !== 1) return
    const actor = liveAgents.here(agent.id)
    const acknowledges = capabilities.includes("ack")
    const session = new SocketSession(connection.socket, actor, agent.handle, acknowledges, deps.session, {
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
    connection.nextPing = now() + deps.pingMs
    connection.socket.send(JSON.stringify({
      type: "hello.ok",
      capabilities: acknowledges ? ["ack"] : [],
      agent: { handle: agent.handle },
      heartbeat_interval_ms: deps.pingMs
    }))
    begin(session)
    const { early } = connection
    connection.early = undefined
    if (early !== undefined) { for (const text of early) deps.receive(connection, session, text) }
    // If the key became invalid between its check and the attachment, no session was notified. Check it again.
    fork(Effect.matchEffect(auth.authenticate(key), {
      onFailure: (failure) => failure._tag === "Unauthorized" ? Effect.sync(() => session.close(badKey)) : Effect.void,
      onSuccess: (again) => Effect.sync(() => again.status === "suspended" ? session.close(SUSPENDED) : undefined)
    }))
  }

  /**
   * Starts a session after the mutes are loaded, because the session must not show muted messages. Messages that are
   * committed after the session's read of storage must be pushed to this node. So every node must know of the session
   * before it starts.
   */
  const begin = (session: SocketSession): void =>
    fork(Effect.matchEffect(
      Effect.catchDefect(
        Effect.andThen(liveAgents.reachable, Effect.retry(liveAgents.loadMutes(session.agent), readAgain)),
        (defect) => Effect.andThen(logDefect(defect), Effect.fail(undefined))
      ),
      {
        onFailure: () => Effect.sync(() => session.close({ code: 1011, text: "the mutes cannot be read right now" })),
        onSuccess: () => Effect.sync(() => session.start())
      }
    ))

  const hello = (connection: Connection, text: string): void => {
    const raw = parseClientFrame(text)
    const frame = Option.getOrUndefined(decodeHello(raw))
    const key = frame?.api_key ?? frame?.token
    if (frame === undefined || key === undefined) return closeWith(connection, NO_HELLO)
    connection.early = []
    fork(Effect.match(checked(key, connection.address), {
      onFailure: (failure) => closeWith(connection, CLOSED_BY[failure._tag]),
      onSuccess: (agent) =>
        agent.status === "suspended"
          ? closeWith(connection, SUSPENDED)
          : welcome(connection, agent, key, Option.getOrElse(decodeCapabilities(raw?.["capabilities"]), () => []))
    }))
  }

  return {
    checked,
    welcome,
    /** Handles a frame of a socket without a session. The frame is a HELLO or has to wait until the key is checked. */
    receive: (connection: Connection, text: string): void => {
      if (connection.early === undefined) return hello(connection, text)
      connection.early.push(text)
      if (connection.early.length > MAX_EARLY_FRAMES) closeWith(connection, { code: 1013, text: "too fast" })
    },
    /** Call it after the socket has closed. */
    leave: (connection: Connection): void => {
      const { session, slot } = connection
      if (slot !== undefined) liveAgents.leave(slot)
      connection.slot = undefined
      if (session === undefined) return
      session.ended()
      left.delete(session.agent.id)
      left.set(session.agent.id, now())
      if (left.size > MAX_LEFT) left.delete(left.keys().next().value!)
      liveAgents.detach(session.agent.id, session)
      // If the last sockets close on two nodes at once, the later update of the presence must know of both closes. So
      // first wait until the other nodes know of this close.
      if (session.agent.sessions.size === 0) {
        fork(Effect.andThen(liveAgents.reachable, Effect.ignore(presences.sockets(session.agent.id))))
      }
    }
  }
}

import { AgentSuspended } from "#domain/agents/Agent"
import type { CloseReason } from "#domain/agents/Sessions"
import type { Principal } from "#domain/auth/Principal"
import { Deliveries } from "#domain/deliveries/Deliveries"
import type { MessagePosition, Rendered } from "#domain/messages/Message"
import { Presences } from "#domain/presence/Presences"
import type { LiveAgent, LiveSession } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import type { SocketSlot } from "#domain/push/SocketPlaces"
import { Config } from "#infrastructure/platform/Config"
import { waitsOpen } from "#infrastructure/platform/Metrics"
import { RateLimited, type Unauthorized, type Unavailable } from "#infrastructure/wire/WireError"
import { Cause, Effect, Random, Schedule } from "effect"
import { makeComparison } from "./Cursors.ts"
import { readAgain } from "./SocketSession.ts"

/** How often the listeners are compared with storage. */
const CHECK_INTERVAL = "5 seconds"
/** How long an agent stays online after a long poll, so that an agent that polls in a loop is online all the time. */
const MAX_GAP_BETWEEN_WAITS = "5 seconds"
/**
 * Over how many milliseconds a stopping server spreads the ends of its listeners, because their clients then connect to
 * the other nodes.
 */
const SPREAD_MS = 2_000

/** Why a listener is refused if its agent has no free slot for sockets. */
export const TOO_MANY = "too many sockets of this agent"

/** Why an agent cannot listen or poll. */
export type WaitRefusal = Unauthorized | AgentSuspended | RateLimited | Unavailable

/** The callbacks of a listener, for events of its agent's inbox. */
export interface InboxListener {
  /** A message of this conversation was committed and is not muted. `own` is true if the agent sent it. */
  readonly message: (conversationId: string, own: boolean) => void
  /** Messages may have been missed. */
  readonly missed: () => void
  /** The listener has ended for this reason. Undefined if it has ended because the server stops. */
  readonly ended: (reason: CloseReason | undefined) => void
}

/**
 * Listens to an agent's inbox without showing messages. A listener takes one of the slots of the agent's sockets, and
 * presence counts it as a socket.
 */
export class Listener implements LiveSession {
  agent: LiveAgent
  /** The newest number of the inbox that the listener knows. */
  reached = 0
  /** The listener's slot among the agent's sockets, while it has one. */
  slot: SocketSlot | undefined
  /** Whether the listener has ended. */
  over = false
  private readonly inbox: InboxListener

  constructor(agent: LiveAgent, inbox: InboxListener) {
    this.agent = agent
    this.inbox = inbox
  }

  /** The session that is compared with storage (Cursors.ts). It is the listener itself. */
  get session(): this {
    return this
  }

  hint(inboxNo: number, _messageId: string, rendered: Rendered, muted: boolean): void {
    // If numbers before this one are missing, do not advance `reached`. The next comparison with storage then finds the
    // missing messages.
    if (inboxNo === this.reached + 1) this.reached = inboxNo
    if (!muted && !this.over) this.inbox.message(rendered.conversationId, false)
  }

  echo(_after: number, _before: number | null, _frame: string, position?: MessagePosition): void {
    if (position !== undefined && !this.over) this.inbox.message(position.conversationId, true)
  }

  event(): void {}

  close(reason: CloseReason): void {
    this.end(reason)
  }

  end(reason: CloseReason | undefined): void {
    if (this.over) return
    this.over = true
    this.inbox.ended(reason)
  }

  /**
   * Compares `reached` with the newest number in storage. A greater number in storage means that a push from another
   * node was lost.
   */
  check(head: number): void {
    if (head <= this.reached || this.over) return
    this.reached = head
    this.inbox.missed()
  }
}

/** Attaches and ends the listeners of this node. Manages their slots and presence, and compares them with storage. */
export const makeListeners = Effect.gen(function*() {
  const deliveries = yield* Deliveries
  const limit = (yield* Config).LIMITS_SOCKETS_PER_AGENT
  const liveAgents = yield* LiveAgents
  const presences = yield* Presences
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const fork = (effect: Effect.Effect<void>): void => {
    runFork(
      Effect.catchDefect(effect, (defect) => Effect.logError("Work for a waiting agent failed", Cause.die(defect)))
    )
  }
  const listeners = new Set<Listener>()
  yield* waitsOpen.readsIn(() => listeners.size)

  const tooMany = () =>
    new RateLimited({
      message: `You have ${limit} open sockets and waiting calls, which is the limit: close one first.`,
      details: { limit, window: "at once", retry_after_ms: 1_000 }
    })

  const updatePresence = (agentId: string) => Effect.ignore(presences.sockets(agentId))

  const goneOffline = (agentId: string): Effect.Effect<void> =>
    Effect.andThen(
      Effect.sleep(MAX_GAP_BETWEEN_WAITS),
      Effect.suspend(() =>
        liveAgents.live(agentId) !== undefined
          ? Effect.void
          : Effect.andThen(liveAgents.reachable, updatePresence(agentId))
      )
    )

  /** Takes a slot and attaches the listener. `leave` reverses as many of these steps as were completed. */
  const join = Effect.fnUntraced(function*(listener: Listener, check: Principal["check"]) {
    const agentId = listener.agent.id
    const slot = listener.slot = liveAgents.enter(agentId, () => listener.close({ code: 1013, text: TOO_MANY }))
    if (slot?.contested === true) yield* liveAgents.reachable
    if (slot === undefined || listener.over) return yield* tooMany()
    listeners.add(listener)
    listener.agent = liveAgents.attach(agentId, listener)
    if (listener.agent.sessions.size === 1) fork(updatePresence(agentId))
    // If the credential became invalid between its check and the attachment, the listener was not notified. Check the
    // credential again.
    yield* admitted(check)
    // As for sockets, wait until the other nodes push to this listener and the agent's mutes are loaded.
    yield* liveAgents.reachable
    yield* Effect.retry(liveAgents.loadMutes(listener.agent), readAgain)
  })

  const leave = (listener: Listener): void => {
    if (listeners.delete(listener)) {
      liveAgents.detach(listener.agent.id, listener)
      if (listener.agent.sessions.size === 0) fork(goneOffline(listener.agent.id))
    }
    if (listener.slot === undefined) return
    liveAgents.leave(listener.slot)
    listener.slot = undefined
  }

  const listen = Effect.fnUntraced(function*({ agentId, check }: Principal, inbox: InboxListener) {
    const listener = new Listener(liveAgents.here(agentId), inbox)
    yield* Effect.addFinalizer(() => Effect.sync(() => leave(listener)))
    yield* join(listener, check)
    return listener
  })

  /** Fails unless the credential is still valid and its agent is not suspended. */
  const admitted = (check: Principal["check"]) =>
    Effect.flatMap(check, (agent) => agent.status === "suspended" ? Effect.fail(new AgentSuspended()) : Effect.void)

  const comparison = makeComparison(listeners, deliveries.heads)
  const compare = Effect.catchCause(
    comparison,
    (cause) => Effect.logWarning("Could not check for missed messages of waiting agents", cause)
  )
  yield* Effect.forkScoped(Effect.repeat(compare, Schedule.spaced(CHECK_INTERVAL)))
  liveAgents.onMissed(() => fork(compare))

  /** Ends all listeners within two seconds, because the server is about to stop. */
  const endAll = (): void => {
    for (const listener of listeners) {
      fork(
        Effect.flatMap(Random.nextIntBetween(0, SPREAD_MS), (ms) =>
          Effect.andThen(
            Effect.sleep(ms),
            Effect.sync(() => listener.end(undefined))
          ))
      )
    }
  }

  return { admitted, endAll, join, leave, listen, size: () => listeners.size, tooMany }
})

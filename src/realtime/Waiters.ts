import { Cause, Clock, Context, Effect, Layer, Random, Schedule, type Scope } from "effect"
import { AgentSuspended } from "../agents/Agent.ts"
import type { CloseReason } from "../agents/Sessions.ts"
import { Auth } from "../auth/Auth.ts"
import { Deliveries } from "../deliveries/Deliveries.ts"
import type { MessagePosition, Rendered } from "../messages/Message.ts"
import { Config } from "../platform/Config.ts"
import { waitsOpen } from "../platform/Metrics.ts"
import { monotonicMillis } from "../platform/MonotonicClock.ts"
import { Presences } from "../presence/Presences.ts"
import type { LiveAgent, LiveSession } from "../push/LiveAgent.ts"
import { LiveAgents } from "../push/LiveAgents.ts"
import { RateLimited, Unauthorized, Unavailable } from "../wire/WireError.ts"
import { makeComparison } from "./Cursors.ts"
import { readAgain } from "./Session.ts"

/** How often the listeners are compared with storage. */
const CHECK = "5 seconds"
/** Undelivered messages read at once while looking for one that is not muted. */
const PAGE = 100
/** Over how long a server that stops spreads the ends of its waits: the callers come back to the other nodes. */
const SPREAD_MS = 2_000
/** How long a server that stops holds a new wait before it sends the caller elsewhere. */
const TURNED_AWAY = "1 second"
/** An agent that waits in a loop stays online in between. */
const BETWEEN_WAITS = "5 seconds"

const TOO_MANY = "too many sockets of this agent"

/** What a listener hears about the inbox of its agent. */
export interface Ears {
  /** A message of this conversation was committed that is not muted, an own one included. */
  readonly message: (conversationId: string, own: boolean) => void
  /** Something may have been missed. */
  readonly missed: () => void
  /** No more is heard; undefined: because the server stops. */
  readonly ended: (reason: CloseReason | undefined) => void
}

/**
 * Listens to an agent's inbox without showing anything. It takes one of the places of the agent's sockets, and presence
 * counts it as a socket.
 */
export class Listener implements LiveSession {
  readonly agent: LiveAgent
  /** The newest number of the inbox that it knows of. */
  reached = 0
  private readonly ears: Ears
  private over = false

  constructor(agent: LiveAgent, ears: Ears) {
    this.agent = agent
    this.ears = ears
  }

  hint(inboxNo: number, _messageId: string, rendered: Rendered, muted: boolean): void {
    if (inboxNo > this.reached) this.reached = inboxNo
    if (!muted && !this.over) this.ears.message(rendered.conversationId, false)
  }

  echo(_after: number, _before: number | null, _frame: string, place?: MessagePosition): void {
    if (place !== undefined && !this.over) this.ears.message(place.conversationId, true)
  }

  event(): void {}

  close(reason: CloseReason): void {
    this.end(reason)
  }

  end(reason: CloseReason | undefined): void {
    if (this.over) return
    this.over = true
    this.ears.ended(reason)
  }

  /** Compares with the newest number in storage: a number that it has not heard of is a lost hint. */
  check(head: number): void {
    if (head <= this.reached || this.over) return
    this.reached = head
    this.ears.missed()
  }
}

/** How a wait ended: with messages, as the JSON texts of their SyncRows; after the time; or because the node stops. */
export interface Waited {
  readonly outcome: "messages" | "timeout" | "moved"
  readonly rows: ReadonlyArray<string>
}

export type WaitRefusal = Unauthorized | AgentSuspended | RateLimited | Unavailable

/**
 * Waits for messages, and listeners to inboxes, for the doors that have no socket. What is committed while a listener is
 * attached is heard, or found in storage by whoever reads it once `listen` has returned.
 */
export class Waiters extends Context.Service<Waiters, {
  /**
   * Listens until the scope closes. The key is the one that the agent came with: a key that dies ends the listener, also
   * if it died just before.
   */
  readonly listen: (agentId: string, key: string, ears: Ears) => Effect.Effect<Listener, WaitRefusal, Scope.Scope>
  /**
   * Waits until the agent's inbox holds an undelivered message that is not muted, and answers with the oldest `limit`
   * undelivered ones, muted ones included. Nothing is acknowledged.
   */
  readonly wait: (agentId: string, key: string, limit: number, timeoutMs: number) => Effect.Effect<Waited, WaitRefusal>
  /** From now on waits end soon, and new ones at once: the server is about to stop. */
  readonly turnAway: () => void
  /** Whether the server is about to stop. */
  readonly isLeaving: () => boolean
  /** Ends `turnAway`. */
  readonly welcomeAgain: () => void
  /** The number of listeners. */
  readonly size: () => number
}>()("parley/realtime/Waiters") {
  static readonly layer = Layer.effect(
    Waiters,
    Effect.gen(function*() {
      const auth = yield* Auth
      const now = monotonicMillis(yield* Clock.Clock)
      const deliveries = yield* Deliveries
      const limit = (yield* Config).LIMITS_SOCKETS_PER_AGENT
      const liveAgents = yield* LiveAgents
      const presences = yield* Presences
      const runFork = Effect.runForkWith(yield* Effect.context<never>())
      const fork = (effect: Effect.Effect<void>): void => {
        runFork(Effect.catchDefect(effect, (defect) => Effect.logError("Work for a waiting agent failed", Cause.die(defect))))
      }
      const listeners = new Map<Listener, { readonly session: Listener }>()
      let leaving = false
      yield* waitsOpen.readsIn(() => listeners.size)

      const tooMany = () =>
        new RateLimited({
          message: `You hold ${limit} sockets and waits at once, which is all you may: end one first.`,
          details: { limit, window: "at once", retry_after_ms: 1_000 }
        })

      const updatePresence = (agentId: string) => Effect.ignore(presences.sockets(agentId))

      const goneOffline = (agentId: string): Effect.Effect<void> =>
        Effect.andThen(
          Effect.sleep(BETWEEN_WAITS),
          Effect.suspend(() =>
            liveAgents.live(agentId) !== undefined ? Effect.void : Effect.andThen(liveAgents.reachable, updatePresence(agentId))
          )
        )

      const listen = Effect.fnUntraced(function*(agentId: string, key: string, ears: Ears) {
        const state: { listener: Listener | undefined; displaced: boolean } = { listener: undefined, displaced: false }
        const place = yield* Effect.acquireRelease(
          Effect.sync(() =>
            liveAgents.enter(agentId, () => {
              state.displaced = true
              state.listener?.close({ code: 1013, text: TOO_MANY })
            })
          ),
          (place) => Effect.sync(() => place === undefined ? undefined : liveAgents.leave(place))
        )
        if (place?.contested === true) yield* liveAgents.agreed
        if (place === undefined || state.displaced) return yield* tooMany()
        const listener = yield* Effect.acquireRelease(
          Effect.sync(() => {
            const listener = state.listener = new Listener(liveAgents.here(agentId), ears)
            const entry = { session: listener }
            listeners.set(listener, entry)
            liveAgents.attach(agentId, listener)
            if (listener.agent.sessions.size === 1) fork(updatePresence(agentId))
            return listener
          }),
          (listener) =>
            Effect.sync(() => {
              listeners.delete(listener)
              liveAgents.detach(agentId, listener)
              if (listener.agent.sessions.size === 0) fork(goneOffline(agentId))
            })
        )
        // If the key died between its check and the attachment, the listener was not told.
        yield* admitted(key)
        // As for sockets: what is committed from now on is pushed here, and muted messages are known.
        yield* liveAgents.reachable
        yield* Effect.retry(liveAgents.loadMutes(listener.agent), readAgain)
        return listener
      })

      /** Fails unless the key is still good. */
      const admitted = (key: string) =>
        Effect.flatMap(auth.authenticate(key), (agent) =>
          agent.status === "suspended" ? Effect.fail(new AgentSuspended()) : Effect.void)

      /** Whether an undelivered message above `after` is not muted; also how far the inbox was read. */
      const look = Effect.fnUntraced(function*(listener: Listener, after: number) {
        let from = after
        while (true) {
          const page = yield* deliveries.page(listener.agent.id, from, PAGE)
          if (page === undefined) return { found: false, read: from }
          for (const { message } of page.rows) {
            if (listener.agent.mutes?.covers(message.senderId, message.conversationId) !== true) return { found: true, read: from }
          }
          const last = page.rows.at(-1)
          if (page.rows.length < PAGE || last === undefined) return { found: false, read: Math.max(from, page.lastInboxNo) }
          from = last.inboxNo
        }
      })

      /** Ends when there is news, and after `ms`: with one fiber, where a race takes two. */
      const newsWithin = (state: { wake: () => void; readonly news: boolean }, ms: number) =>
        Effect.callback<void>((resume) => {
          const timer = runFork(Effect.sleep(ms))
          const end = () => {
            timer.interruptUnsafe()
            resume(Effect.void)
          }
          timer.addObserver(end)
          state.wake = end
          if (state.news) end()
          return Effect.sync(() => timer.interruptUnsafe())
        })

      const wait = Effect.fnUntraced(
        function*(agentId: string, key: string, limit: number, timeoutMs: number) {
          const state: { wake: () => void; news: boolean; over: boolean; reason: CloseReason | undefined } = {
            wake: () => undefined,
            news: false,
            over: false,
            reason: undefined
          }
          const heard = (): void => {
            state.news = true
            state.wake()
          }
          const listener = yield* listen(agentId, key, {
            message: (_conversationId, own) => own ? undefined : heard(),
            missed: heard,
            ended: (reason) => {
              state.over = true
              state.reason = reason
              heard()
            }
          })
          const until = now() + timeoutMs
          let read = 0
          while (!state.over) {
            state.news = false
            const looked = yield* look(listener, read)
            read = looked.read
            listener.reached = Math.max(listener.reached, read)
            if (looked.found) {
              const rows = yield* deliveries.sync(agentId, undefined, limit)
              // Acknowledged elsewhere meanwhile: there is nothing to show.
              if (rows.length === 0) continue
              yield* admitted(key)
              return { outcome: "messages", rows } as const
            }
            if (leaving) {
              yield* Effect.sleep(TURNED_AWAY)
              return { outcome: "moved", rows: [] } as const
            }
            const left = until - now()
            if (left <= 0) {
              yield* admitted(key)
              return { outcome: "timeout", rows: yield* deliveries.sync(agentId, undefined, limit) } as const
            }
            yield* newsWithin(state, left)
          }
          yield* admitted(key)
          if (state.reason?.code === 1008) return yield* new Unauthorized()
          if (state.reason?.text === TOO_MANY) return yield* tooMany()
          return { outcome: "moved", rows: [] } as const
        },
        Effect.scoped
      )

      const check = makeComparison({ [Symbol.iterator]: () => listeners.values() }, deliveries.heads)
      const compare = Effect.catchCause(check, (cause) => Effect.logWarning("Waiting agents could not be compared with storage", cause))
      yield* Effect.forkScoped(Effect.repeat(compare, Schedule.spaced(CHECK)))
      liveAgents.onMissed(() => fork(compare))

      return Waiters.of({
        listen,
        wait,
        turnAway: () => {
          leaving = true
          for (const session of listeners.keys()) {
            fork(Effect.flatMap(Random.nextIntBetween(0, SPREAD_MS), (ms) =>
              Effect.andThen(Effect.sleep(ms), Effect.sync(() => session.end(undefined)))))
          }
        },
        isLeaving: () => leaving,
        welcomeAgain: () => {
          leaving = false
        },
        size: () => listeners.size
      })
    })
  )
}

import { Cause, Clock, Context, Effect, Exit, type Fiber, Latch, Layer, Random, Schedule, type Scope } from "effect"
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
import type { SocketSlot } from "../push/SocketPlaces.ts"
import { LargeReads } from "../rates/LargeReads.ts"
import { RateLimited, Unauthorized, Unavailable } from "../wire/WireError.ts"
import { makeComparison } from "./Cursors.ts"
import { readAgain } from "./Session.ts"

/** How often the listeners are compared with storage. */
const CHECK = "5 seconds"
/** How often it is checked whose time is over: one fiber for all waits, instead of a timer for each. */
const TICK = "100 millis"
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
  agent: LiveAgent
  /** The newest number of the inbox that it knows of. */
  reached = 0
  /** Its place among the agent's sockets, while it has one. */
  place: SocketSlot | undefined
  /** It hears no more. */
  over = false
  private readonly ears: Ears

  constructor(agent: LiveAgent, ears: Ears) {
    this.agent = agent
    this.ears = ears
  }

  /** What is compared with storage: itself. */
  get session(): this {
    return this
  }

  hint(inboxNo: number, _messageId: string, rendered: Rendered, muted: boolean): void {
    // After a gap it does not know of what came before: the comparison with storage finds that.
    if (inboxNo === this.reached + 1) this.reached = inboxNo
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

const moved: Waited = { outcome: "moved", rows: [] }

export type WaitRefusal = Unauthorized | AgentSuspended | RateLimited | Unavailable

/** A wait from its beginning to its answer. While there is no news it is this object, its listener, and no fiber. */
export class Wait implements Ears {
  readonly listener: Listener
  readonly key: string
  /** How many messages it shows at most. */
  readonly limit: number
  /** When it ends without news, on the monotonic clock; it counts from when it listens. */
  until = Number.POSITIVE_INFINITY
  readonly settled: (exit: Exit.Exit<Waited, WaitRefusal>) => void
  /** How far it has read the inbox. */
  read = 0
  /** There may be something that it has not looked at. */
  news = false
  /** Why its listener was ended. */
  reason: CloseReason | undefined
  /** Whether it is looking, and the fiber that does, once it has begun. */
  looking = false
  worker: Fiber.Fiber<Waited | undefined, WaitRefusal> | undefined
  /** Lets it look. */
  private readonly wake: (wait: Wait) => void

  constructor(agent: LiveAgent, key: string, limit: number, settled: Wait["settled"], wake: (wait: Wait) => void) {
    this.listener = new Listener(agent, this)
    this.key = key
    this.limit = limit
    this.settled = settled
    this.wake = wake
  }

  message(_conversationId: string, own: boolean): void {
    if (!own) this.wake(this)
  }

  missed(): void {
    this.wake(this)
  }

  ended(reason: CloseReason | undefined): void {
    this.reason = reason
    this.wake(this)
  }
}

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
  /** The same without a fiber that waits: `settled` is called once, later, unless the wait is cancelled before. */
  readonly begin: (agentId: string, key: string, limit: number, timeoutMs: number, settled: Wait["settled"]) => Wait
  /** Nobody wants to know any more; without effect on a wait that is over. */
  readonly cancel: (wait: Wait) => void
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
      const reads = yield* LargeReads
      const runFork = Effect.runForkWith(yield* Effect.context<never>())
      const fork = (effect: Effect.Effect<void>): void => {
        runFork(Effect.catchDefect(effect, (defect) => Effect.logError("Work for a waiting agent failed", Cause.die(defect))))
      }
      const listeners = new Set<Listener>()
      const waits = new Set<Wait>()
      const some = Latch.makeUnsafe(false)
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

      /** Takes a place and attaches; `leave` takes back what was done of it. */
      const join = Effect.fnUntraced(function*(listener: Listener, key: string) {
        const agentId = listener.agent.id
        const place = listener.place = liveAgents.enter(agentId, () => listener.close({ code: 1013, text: TOO_MANY }))
        if (place?.contested === true) yield* liveAgents.reachable
        if (place === undefined || listener.over) return yield* tooMany()
        listeners.add(listener)
        listener.agent = liveAgents.attach(agentId, listener)
        if (listener.agent.sessions.size === 1) fork(updatePresence(agentId))
        // If the key died between its check and the attachment, the listener was not told.
        yield* admitted(key)
        // As for sockets: what is committed from now on is pushed here, and muted messages are known.
        yield* liveAgents.reachable
        yield* Effect.retry(liveAgents.loadMutes(listener.agent), readAgain)
      })

      const leave = (listener: Listener): void => {
        if (listeners.delete(listener)) {
          liveAgents.detach(listener.agent.id, listener)
          if (listener.agent.sessions.size === 0) fork(goneOffline(listener.agent.id))
        }
        if (listener.place === undefined) return
        liveAgents.leave(listener.place)
        listener.place = undefined
      }

      const listen = Effect.fnUntraced(function*(agentId: string, key: string, ears: Ears) {
        const listener = new Listener(liveAgents.here(agentId), ears)
        yield* Effect.addFinalizer(() => Effect.sync(() => leave(listener)))
        yield* join(listener, key)
        return listener
      })

      /** Fails unless the key is still good. */
      const admitted = (key: string) =>
        Effect.flatMap(auth.authenticate(key), (agent) =>
          agent.status === "suspended" ? Effect.fail(new AgentSuspended()) : Effect.void)

      /** Whether an undelivered message above `after` is not muted; also how far the inbox was read. */
      const search = Effect.fnUntraced(function*(listener: Listener, after: number) {
        let from = after
        while (true) {
          const page = yield* deliveries.page(listener.agent.id, from, PAGE)
          if (page === undefined) return { found: false, read: from }
          for (const { message } of page.rows) {
            if (listener.agent.mutes?.covers(message.senderId, message.conversationId) !== true) return { found: true, read: from }
          }
          const last = page.rows.at(-1)
          if (page.isLast || last === undefined) return { found: false, read: Math.max(from, page.lastInboxNo) }
          from = last.inboxNo
        }
      })

      /** The result with which a wait ends. */
      const shown = ({ limit, listener: { agent } }: Wait) =>
        reads.during(agent.id, { usual: limit, max: limit, bytes: "message" }, deliveries.sync(agent.id, undefined, limit))

      /** Looks whether a wait has an answer; undefined: not yet. */
      const look = Effect.fnUntraced(function*(wait: Wait) {
        wait.news = false
        const { key, listener, reason } = wait
        if (listener.over) {
          yield* admitted(key)
          if (reason?.code === 1008) return yield* new Unauthorized()
          if (reason?.text === TOO_MANY) return yield* tooMany()
          return moved
        }
        const { found, read } = yield* search(listener, wait.read)
        wait.read = read
        listener.reached = Math.max(listener.reached, read)
        if (found) {
          const rows = yield* shown(wait)
          if (rows.length > 0) {
            yield* admitted(key)
            return { outcome: "messages", rows } as const
          }
          // Acknowledged elsewhere meanwhile: there is nothing to show, but there may be more.
          wait.news = true
          return undefined
        }
        if (leaving) {
          yield* Effect.sleep(TURNED_AWAY)
          return moved
        }
        if (now() < wait.until) return undefined
        yield* admitted(key)
        return { outcome: "timeout", rows: yield* shown(wait) } as const
      })

      const work = (wait: Wait, effect: Effect.Effect<Waited | undefined, WaitRefusal>): void => {
        wait.looking = true
        const fiber = wait.worker = runFork(effect)
        fiber.addObserver((exit) => {
          wait.looking = false
          wait.worker = undefined
          // Cancelled, maybe before it had attached.
          if (!waits.has(wait)) return leave(wait.listener)
          if (Exit.isSuccess(exit) && exit.value === undefined) {
            if (wait.news) work(wait, look(wait))
            return
          }
          end(wait)
          wait.settled(exit as Exit.Exit<Waited, WaitRefusal>)
        })
      }

      const end = (wait: Wait): void => {
        waits.delete(wait)
        if (waits.size === 0) some.closeUnsafe()
        leave(wait.listener)
      }

      const wake = (wait: Wait): void => {
        wait.news = true
        if (!wait.looking && waits.has(wait)) work(wait, look(wait))
      }

      const begin = (agentId: string, key: string, limit: number, timeoutMs: number, settled: Wait["settled"]): Wait => {
        const wait = new Wait(liveAgents.here(agentId), key, limit, settled, wake)
        waits.add(wait)
        some.openUnsafe()
        work(wait, Effect.flatMap(join(wait.listener, key), () => {
          wait.until = now() + timeoutMs
          return look(wait)
        }))
        return wait
      }

      const cancel = (wait: Wait): void => {
        if (!waits.has(wait)) return
        end(wait)
        wait.worker?.interruptUnsafe()
      }

      const tick = Effect.sync(() => {
        const at = now()
        for (const wait of waits) if (at >= wait.until) wake(wait)
      })
      yield* Effect.andThen(some.await, Effect.sleep(TICK)).pipe(
        Effect.andThen(Effect.catchDefect(tick, (defect) => Effect.logError("Waits could not be ended", Cause.die(defect)))),
        Effect.forever,
        Effect.forkScoped
      )

      const check = makeComparison(listeners, deliveries.heads)
      const compare = Effect.catchCause(check, (cause) => Effect.logWarning("Waiting agents could not be compared with storage", cause))
      yield* Effect.forkScoped(Effect.repeat(compare, Schedule.spaced(CHECK)))
      liveAgents.onMissed(() => fork(compare))

      return Waiters.of({
        listen,
        wait: (agentId, key, limit, timeoutMs) =>
          Effect.callback((resume) => {
            const wait = begin(agentId, key, limit, timeoutMs, resume)
            return Effect.sync(() => cancel(wait))
          }),
        begin,
        cancel,
        turnAway: () => {
          leaving = true
          for (const session of listeners) {
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

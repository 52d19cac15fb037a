import type { CloseReason } from "#domain/agents/Sessions"
import type { Principal } from "#domain/auth/Principal"
import { Deliveries } from "#domain/deliveries/Deliveries"
import type { LiveAgent } from "#domain/push/LiveAgent"
import { LiveAgents } from "#domain/push/LiveAgents"
import { type LargeAnswer, LargeReads } from "#infrastructure/concurrency/LargeReads"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Unauthorized } from "#infrastructure/wire/WireError"
import { Cause, Clock, Context, Effect, Exit, type Fiber, Latch, Layer, type Scope } from "effect"
import { type InboxListener, Listener, makeListeners, TOO_MANY, type WaitRefusal } from "./Listeners.ts"

/**
 * How often the deadlines of long polls are checked. One fiber checks all of them, so that no long poll needs a timer.
 */
const TICK_INTERVAL = "100 millis"
/** How many undelivered messages one statement goes through to find one that is not muted. */
const PAGE_SIZE = 250
/** How much memory such a statement may take. */
const SEARCH: LargeAnswer = { usual: PAGE_SIZE, max: PAGE_SIZE, bytes: 1_024 }
/** After how long a stopping server ends a new long poll, so that its caller goes to another node. */
const TURNED_AWAY = "1 second"

/**
 * The result of a long poll. `rows` contains the messages as JSON texts of SyncRows. The outcome is `moved` if the node
 * stops.
 */
export interface Waited {
  readonly outcome: "messages" | "timeout" | "moved"
  readonly rows: ReadonlyArray<string>
}

const moved: Waited = { outcome: "moved", rows: [] }

/**
 * A long poll from its beginning to its result. While it waits, it consists of this object and its listener and has no
 * fiber.
 */
export class Wait implements InboxListener {
  readonly listener: Listener
  /** The check of the caller's credential. */
  readonly check: Principal["check"]
  /** The most messages in the result. */
  readonly limit: number
  /** When the long poll times out, on the monotonic clock. The time-out begins when the listener is attached. */
  until = Number.POSITIVE_INFINITY
  readonly settled: (exit: Exit.Exit<Waited, WaitRefusal>) => void
  /** The inbox number up to which the long poll has read. */
  read = 0
  /** Whether there may be messages that the long poll has not looked up yet. */
  news = false
  /** Why the listener was ended. */
  reason: CloseReason | undefined
  /** Whether a look-up for this long poll is running. `worker` is the fiber of the look-up. */
  looking = false
  worker: Fiber.Fiber<Waited | undefined, WaitRefusal> | undefined
  /** Starts a look-up for a long poll. */
  private readonly wake: (wait: Wait) => void

  constructor(
    agent: LiveAgent,
    check: Principal["check"],
    limit: number,
    settled: Wait["settled"],
    wake: (wait: Wait) => void
  ) {
    this.listener = new Listener(agent, this)
    this.check = check
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
 * Long polls for messages, and listeners to inboxes, for clients without a socket. A message that is committed while a
 * listener is attached is reported to the listener, or a read of storage after `listen` has returned finds it.
 */
export class Waiters extends Context.Service<Waiters, {
  /**
   * Listens until the scope closes. The listener ends if the credential of the principal is invalid or becomes invalid.
   */
  readonly listen: (principal: Principal, inbox: InboxListener) => Effect.Effect<Listener, WaitRefusal, Scope.Scope>
  /**
   * Waits until the agent's inbox contains an undelivered message that is not muted. Then returns the oldest `limit`
   * undelivered messages, including muted ones. Acknowledges nothing.
   */
  readonly wait: (principal: Principal, limit: number, timeoutMs: number) => Effect.Effect<Waited, WaitRefusal>
  /**
   * Does the same as `wait` without a waiting fiber. `settled` is called once, after `begin` has returned, unless the
   * long poll is cancelled first.
   */
  readonly begin: (principal: Principal, limit: number, timeoutMs: number, settled: Wait["settled"]) => Wait
  /** Cancels a long poll. Has no effect on a long poll that has ended. */
  readonly cancel: (wait: Wait) => void
  /**
   * Call it when the server is about to stop. Long polls then end within two seconds, and new ones after one second.
   */
  readonly turnAway: () => void
  /** Whether the server is about to stop. */
  readonly isLeaving: () => boolean
  /** Reverses `turnAway`. */
  readonly welcomeAgain: () => void
  /** The number of listeners. */
  readonly size: () => number
}>()("parley/realtime/Waiters") {
  static readonly layer = Layer.effect(
    Waiters,
    Effect.gen(function*() {
      const now = monotonicMillis(yield* Clock.Clock)
      const deliveries = yield* Deliveries
      const liveAgents = yield* LiveAgents
      const reads = yield* LargeReads
      const runFork = Effect.runForkWith(yield* Effect.context<never>())
      const { admitted, endAll, join, leave, listen, size, tooMany } = yield* makeListeners
      const waits = new Set<Wait>()
      const some = Latch.makeUnsafe(false)
      let leaving = false

      /** Whether there is an unmuted undelivered message above `after`, and up to which number the inbox was read. */
      const search = Effect.fnUntraced(function*(listener: Listener, after: number) {
        let from = after
        while (true) {
          // One message is enough if the agent mutes nothing.
          const most = listener.agent.mutes?.isEmpty === false ? PAGE_SIZE : 1
          const page = yield* deliveries.waiting(listener.agent.id, from, most)
          if (page === undefined) return { found: false, read: from }
          for (const { message } of page.rows) {
            if (listener.agent.mutes?.covers(message.senderId, message.conversationId) !== true)
              return { found: true, read: from }
          }
          const last = page.rows.at(-1)
          if (page.isLast || last === undefined) return { found: false, read: Math.max(from, page.lastInboxNo) }
          from = last.inboxNo
        }
      })

      /** The messages that a long poll returns. */
      const shown = ({ limit, listener: { agent } }: Wait) =>
        reads.during(
          agent.id,
          { usual: limit, max: limit, bytes: "message" },
          deliveries.sync(agent.id, undefined, limit)
        )

      /** Returns the result of a long poll; undefined if there is none yet. */
      const lookUp = Effect.fnUntraced(function*(wait: Wait) {
        wait.news = false
        const { check, listener, reason } = wait
        if (listener.over) {
          yield* admitted(check)
          if (reason?.code === 1008) return yield* new Unauthorized()
          if (reason?.text === TOO_MANY) return yield* tooMany()
          return moved
        }
        const { found, read } = yield* reads.during(listener.agent.id, SEARCH, search(listener, wait.read))
        wait.read = read
        listener.reached = Math.max(listener.reached, read)
        if (found) {
          const rows = yield* shown(wait)
          if (rows.length > 0) {
            yield* admitted(check)
            return { outcome: "messages", rows } as const
          }
          // The messages were acknowledged meanwhile, so there is nothing to show. There may be newer messages.
          wait.news = true
          return undefined
        }
        if (leaving) {
          yield* Effect.sleep(TURNED_AWAY)
          return moved
        }
        if (now() < wait.until) return undefined
        yield* admitted(check)
        return { outcome: "timeout", rows: yield* shown(wait) } as const
      })

      const work = (wait: Wait, effect: Effect.Effect<Waited | undefined, WaitRefusal>): void => {
        wait.looking = true
        const fiber = wait.worker = runFork(effect)
        fiber.addObserver((exit) => {
          wait.looking = false
          wait.worker = undefined
          // The long poll was cancelled, maybe before its listener was attached.
          if (!waits.has(wait)) return leave(wait.listener)
          if (Exit.isSuccess(exit) && exit.value === undefined) {
            if (wait.news) work(wait, lookUp(wait))
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
        if (!wait.looking && waits.has(wait)) work(wait, lookUp(wait))
      }

      const begin = (
        { agentId, check }: Principal,
        limit: number,
        timeoutMs: number,
        settled: Wait["settled"]
      ): Wait => {
        const wait = new Wait(liveAgents.here(agentId), check, limit, settled, wake)
        waits.add(wait)
        some.openUnsafe()
        work(
          wait,
          Effect.flatMap(join(wait.listener, check), () => {
            wait.until = now() + timeoutMs
            return lookUp(wait)
          })
        )
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
      yield* Effect.andThen(some.await, Effect.sleep(TICK_INTERVAL)).pipe(
        Effect.andThen(
          Effect.catchDefect(
            tick,
            (defect) => Effect.logError("Calls that waited for messages could not be ended", Cause.die(defect))
          )
        ),
        Effect.forever,
        Effect.forkScoped
      )

      return Waiters.of({
        listen,
        wait: (principal, limit, timeoutMs) =>
          Effect.callback((resume) => {
            const wait = begin(principal, limit, timeoutMs, resume)
            return Effect.sync(() => cancel(wait))
          }),
        begin,
        cancel,
        turnAway: () => {
          leaving = true
          endAll()
        },
        isLeaving: () => leaving,
        welcomeAgain: () => {
          leaving = false
        },
        size
      })
    })
  )
}

import { FullDisk } from "#infrastructure/platform/disk/DiskSpace"
import { nextTick } from "#infrastructure/platform/EventLoop"
import { LogThrottle } from "#infrastructure/platform/LogThrottle"
import { commitMeters } from "#infrastructure/platform/Metrics"
import { monotonicMillis } from "#infrastructure/platform/MonotonicClock"
import { Readiness } from "#infrastructure/platform/Readiness"
import { isTracing, type TraceContext, traceTime } from "#infrastructure/platform/Tracing"
import { CALLER_TIMEOUT_MS, Unavailable } from "#infrastructure/wire/WireError"
import { isStatementDefect } from "#infrastructure/wire/WireErrors"
import { Cause, Clock, Effect, Exit, Option } from "effect"
import { SqlError } from "effect/sql"
import { type ItemTrace, traceBatch } from "./BatchTrace.ts"
import { type CommitFailure, failureOf, maySucceedLater, outOfRoom } from "./CommitFailure.ts"
import { type Locks, LockWaiters } from "./LockWaiters.ts"
import { AnswerTimeout } from "./Sql.ts"
import { noSpace } from "./SqlValues.ts"

/**
 * The result of one item. `Failed` does not prove that the item was not committed. If the connection broke during the
 * commit, only a retry with the same key shows whether the item was committed. `exit` is the failure for the caller. It
 * is `Unavailable`, which is already logged, or a defect, which is not logged yet.
 */
export type Settled<Out> =
  /** `at` is the time at which the batch was committed, from `performance.now()`. */
  | { readonly _tag: "Done"; readonly value: Out; readonly at?: number }
  | { readonly _tag: "Failed"; readonly exit: Exit.Exit<never, Unavailable> }

const failed = (): Settled<never> => ({ _tag: "Failed", exit: Exit.fail(new Unavailable()) })

export interface CommitQueue<In, Out> {
  /**
   * Queues an item. After the item has been committed or has failed, `settle` is called once with the result. The calls
   * are made in commit order, and never before `submit` returns. If `settle` throws, it is called a second time, with
   * the exception as a defect. A lane has one batch in flight. It commits its items in submission order, except items
   * that wait for a lock. `age` is how many milliseconds the item has already waited. A span for the commit is added to
   * `trace`.
   */
  readonly submit: (item: In, settle: (settled: Settled<Out>) => void, age?: number, trace?: TraceContext) => void
  /** The number of waiting items, plus one for each lane that is committing. It is 0 when the queue is idle. */
  readonly size: () => number
  /** Ends all waits for further items (`lingerMs`), so that the queued items are committed at once. */
  readonly flush: () => void
  /** Calls `flush`, and completes once no item waits or is being committed. */
  readonly idle: Effect.Effect<void>
}

/** Hashes an id to select the lane for its writes. The hashes are evenly spread. */
export const laneOf = (id: string): number => {
  let hash = 0
  for (let i = id.length - 8; i < id.length; i++) hash = (hash * 31 + id.charCodeAt(i)) >>> 0
  return hash
}

interface QueuedItem<In, Out> {
  readonly item: In
  readonly settle: (settled: Settled<Out>) => void
  readonly since: number
  /** The item's position in the order of submission. */
  readonly order: number
  readonly trace: ItemTrace | undefined
}

interface Lane<In, Out> {
  queue: Array<QueuedItem<In, Out>>
  /** The batch in flight. */
  batch: ReadonlyArray<QueuedItem<In, Out>>
  running: boolean
}

const makeLane = <In, Out>(): Lane<In, Out> => ({ queue: [], batch: [], running: false })

/** How often to check whether the rows of blocked items are free, in milliseconds. */
const POLL_MS = 100
/** How long a statement of an ordinary lane waits for one lock, in milliseconds. */
const LOCK_MS = 300
/**
 * How long a statement that retries blocked items waits for one lock, in milliseconds. This is long enough for slow
 * commits of other nodes.
 */
const PATIENT_LOCK_MS = 2_000

/**
 * How long an item may wait, in milliseconds. After a longer wait the node is not ready, because its commits make no
 * progress.
 */
const OLD_MS = 10_000

/**
 * Group commit: items that arrive while a batch commits form the next batch. If the database refuses a batch and the
 * failure may be transient, the batch is retried. A batch that is still refused or that meets a defect is halved until
 * the faulty item is alone, so that no item fails because of other items. If the database itself fails, the whole batch
 * fails. Items whose rows another session has locked are blocked for up to 5 s, and the other items are committed at
 * once. When a row becomes free or another session gets its lock, the items of the row are retried in a separate lane,
 * which waits longer for locks.
 */
export const makeCommitQueue = Effect.fnUntraced(function*<In, Out>(options: {
  /** The label of the metrics. */
  readonly name: string
  readonly lanes: number
  readonly laneOf: (item: In) => number
  /** The number of rows that an item adds to its batch. */
  readonly rowsOf: (item: In) => number
  readonly bytesOf: (item: In) => number
  readonly maxRows: number
  readonly maxBytes: number
  /** How many items may wait in a lane, and how many may wait for locks. Further items fail at once. */
  readonly capacity: number
  /**
   * Whether to wait for one tick of the event loop before each batch. This helps if the database runs in this thread
   * (PGlite).
   */
  readonly batchPerTick: boolean
  /**
   * How many milliseconds to wait before each batch, instead of one tick, so that items that arrive one by one are
   * committed together. Use it for items whose callers do not wait for the commit.
   */
  readonly lingerMs?: number
  /**
   * Commits the batch in one statement, all or nothing, and returns the results in the order of the items. The
   * statement fails with SQLSTATE 55P03 if it waits for one lock longer than `lockMs` milliseconds.
   */
  readonly commit: (items: ReadonlyArray<In>, lockMs: number) => Effect.Effect<ReadonlyArray<Out>, SqlError.SqlError>
  /** The rows that the items lock. If it is omitted, a batch that times out on a lock is halved. */
  readonly locks?: Locks<In>
}): Effect.fn.Return<CommitQueue<In, Out>> {
  const context = yield* Effect.context<never>()
  const runFork = Effect.runForkWith(context)
  const lanes: Array<Lane<In, Out>> = Array.from({ length: options.lanes }, () => makeLane())
  /** The lane in which blocked items are retried. */
  const retryLane: Lane<In, Out> = makeLane()
  const now = monotonicMillis(yield* Clock.Clock)
  const meters = commitMeters(options.name)
  const idleWaiters = new Set<() => void>()

  /** The items that wait for a lock. */
  const blocked = new LockWaiters<In, QueuedItem<In, Out>>(options.locks?.of ?? (() => [""]))
  let submitted = 0
  /** Whether `poll` is running. */
  let polling = false

  const countFailed = (failure: CommitFailure): Effect.Effect<void> =>
    Effect.sync(() => meters.failed.at(failure).add())
  const fullDisk = yield* FullDisk
  const lines = {
    failed: new LogThrottle(),
    full: new LogThrottle(),
    blocked: new LogThrottle(),
    late: new LogThrottle()
  }

  /** Settles one item. If its callback throws, the rest of the batch is still settled. */
  const settleItem = ({ settle }: QueuedItem<In, Out>, settled: Settled<Out>): void => {
    try {
      settle(settled)
    } catch (error) {
      try {
        settle({ _tag: "Failed", exit: Exit.die(error) })
      } catch (another) {
        runFork(
          Effect.logError(
            `A result of ${options.name} could not be returned to its caller`,
            Cause.combine(Cause.die(error), Cause.die(another))
          )
        )
      }
    }
  }

  const fail = (batch: ReadonlyArray<QueuedItem<In, Out>>, cause: Cause.Cause<unknown>): Effect.Effect<void> => {
    for (const waiting of batch) settleItem(waiting, failed())
    const error = cause.reasons.find(Cause.isFailReason)?.error
    const full = SqlError.isSqlError(error) ? noSpace(error) : undefined
    if (full !== undefined) return fullDisk.report("database", full)
    return lines.failed.log(Effect.logError(`A commit of ${options.name} failed`, cause))
  }

  const halve = (batch: ReadonlyArray<QueuedItem<In, Out>>): Effect.Effect<void> => {
    const middle = batch.length >> 1
    return Effect.andThen(
      attempt(batch.slice(0, middle), 0),
      Effect.suspend(() => {
        // If items of the first half were blocked, items with the same rows must wait behind them.
        const rest = divert(batch.slice(middle))
        return rest.length === 0 ? Effect.void : attempt(rest, 0)
      })
    )
  }

  const attempt = (batch: ReadonlyArray<QueuedItem<In, Out>>, tries: number, lockMs = LOCK_MS): Effect.Effect<void> => {
    let began = 0
    const timed = Effect.suspend(() => {
      began = now()
      return options.commit(batch.map((waiting) => waiting.item), lockMs)
    })
    return Effect.matchCauseEffect(timed, {
      onSuccess: (results) => {
        refused = undefined
        const at = performance.now()
        const ended = now()
        meters.seconds.millis(ended - began)
        for (const { since } of batch) meters.waits.millis(ended - since)
        if (isTracing()) traceBatch(options.name, batch, ended - began, undefined)
        for (let i = 0; i < batch.length; i++) settleItem(batch[i]!, { _tag: "Done", value: results[i]!, at })
        return Effect.void
      },
      onFailure: (cause) => {
        meters.seconds.millis(now() - began)
        if (isTracing()) traceBatch(options.name, batch, now() - began, "failed")
        const error = cause.reasons.find(Cause.isFailReason)?.error
        if (error === undefined) {
          if (Cause.hasInterruptsOnly(cause)) return fail(batch, cause)
          if (batch.length > 1) return Effect.andThen(countFailed("defect"), halve(batch))
          // The caller logs the defect, with its request id.
          settleItem(batch[0]!, { _tag: "Failed", exit: Exit.failCause(cause as Cause.Cause<never>) })
          return countFailed("defect")
        }
        const state = outOfRoom(error)
        // A full disk is not recorded here, because `FullDisk` reports it.
        if (state !== undefined && noSpace(error) === undefined) refused = { state, at: now() }
        return Effect.andThen(countFailed(failureOf(error)), afterFailure(batch, tries, error, cause))
      }
    })
  }

  const afterFailure = (
    batch: ReadonlyArray<QueuedItem<In, Out>>,
    tries: number,
    error: SqlError.SqlError,
    cause: Cause.Cause<unknown>
  ): Effect.Effect<void> => {
    const failure = failureOf(error)
    if (failure === "connection" || failure === "system") return fail(batch, cause)
    if (failure === "lock" && options.locks !== undefined) return block(options.locks, batch, tries, cause)
    if (tries < 3 && maySucceedLater(error)) return attempt(batch, tries + 1)
    if (batch.length > 1) return halve(batch)
    if (!isStatementDefect(error)) return fail(batch, cause)
    // The caller logs the defect, with its request id.
    return Effect.sync(() => settleItem(batch[0]!, { _tag: "Failed", exit: Exit.die(error) }))
  }

  /**
   * Returns which rows of the items are locked. The query times out after the time that an item may wait, because a
   * dead connection may never respond.
   */
  const heldOf = (locks: Locks<In>, items: ReadonlyArray<In>) =>
    Effect.provideService(Effect.suspend(() => locks.held(items)), AnswerTimeout, CALLER_TIMEOUT_MS)

  /**
   * Blocks items of a batch in flight, and the items in the queues that must wait behind them. Returns the rest of the
   * batch.
   */
  const divert = (batch: ReadonlyArray<QueuedItem<In, Out>>): Array<QueuedItem<In, Out>> => {
    const rest = blocked.divert(batch)
    if (rest.length < batch.length) {
      for (const lane of [...lanes, retryLane])
        lane.queue = blocked.divert(lane.queue)
    }
    return rest
  }

  /**
   * Handles a batch that timed out on a lock. Blocks the items that need the locked rows, and commits the rest at once.
   */
  const block = (
    locks: Locks<In>,
    batch: ReadonlyArray<QueuedItem<In, Out>>,
    tries: number,
    cause: Cause.Cause<unknown>
  ): Effect.Effect<void> =>
    Effect.matchCauseEffect(heldOf(locks, batch.map(({ item }) => item)), {
      onFailure: (another) => fail(batch, Cause.combine(cause, another)),
      onSuccess: (found) => {
        blocked.lock(found)
        const rest = divert(batch)
        const count = batch.length - rest.length
        if (count === 0) {
          // The lock was released meanwhile, or it is on a row that `locks.of` does not name.
          if (tries < 3) return attempt(batch, tries + 1)
          return batch.length === 1 ? fail(batch, cause) : halve(batch)
        }
        poll(locks)
        meters.setAside.add(count)
        return Effect.andThen(
          lines.blocked.log(
            Effect.logWarning(
              `Other sessions have locked rows that ${options.name} writes. Items that need these rows wait for at most 5 s`
            ).pipe(Effect.annotateLogs({ waiting: blocked.size }))
          ),
          rest.length === 0 ? Effect.void : attempt(rest, 0)
        )
      }
    })

  /**
   * Polls the locks until no item is blocked. Retries items whose rows are free, and fails items that have waited for 5
   * s.
   */
  const poll = (locks: Locks<In>): void => {
    if (polling) return
    polling = true
    runFork(Effect.exit(Effect.gen(function*() {
      while (blocked.size > 0) {
        yield* Effect.sleep(POLL_MS)
        const late = blocked.takeLate(now() - CALLER_TIMEOUT_MS)
        if (late.length > 0) {
          for (const waiting of late) settleItem(waiting, failed())
          yield* lines.late.log(
            Effect.logWarning(
              `Other sessions kept rows that ${options.name} writes locked for 5 s. Look for a transaction that was left open`
            ).pipe(Effect.annotateLogs({ failed: late.length }))
          )
        }
        const { all, locked } = blocked
        blocked.unlock(locked, all.length === 0 ? new Map() : yield* heldOf(locks, all))
        retryBlocked()
      }
    }))).addObserver(() => {
      polling = false
      if (blocked.size > 0) return poll(locks)
      blocked.clear()
      whenIdle()
    })
  }

  /** Retries the items whose rows are free. */
  const retryBlocked = (): void => {
    if (retryLane.running) return
    retryLane.queue = blocked.takeFree(lanes.flatMap(({ batch, queue }) => [...batch, ...queue]))
    if (retryLane.queue.length > 0) start(retryLane)
  }

  const take = (lane: Lane<In, Out>): Array<QueuedItem<In, Out>> => {
    let rows = 0
    let bytes = 0
    let n = 0
    for (; n < lane.queue.length; n++) {
      const { item } = lane.queue[n]!
      rows += options.rowsOf(item)
      bytes += options.bytesOf(item)
      if (n > 0 && (rows > options.maxRows || bytes > options.maxBytes)) break
    }
    if (n === lane.queue.length) {
      const all = lane.queue
      lane.queue = []
      return all
    }
    return lane.queue.splice(0, n)
  }

  /** Functions that end the waits of `linger`. */
  const lingering = new Set<() => void>()
  const flush = (): void => {
    for (const end of lingering) end()
  }
  const linger = (millis: number): Effect.Effect<void> =>
    Effect.suspend(() =>
      idleWaiters.size > 0 ? nextTick : Effect.callback<void>((resume) => {
        const end = () => {
          clearTimeout(timer)
          lingering.delete(end)
          resume(Effect.void)
        }
        const timer = setTimeout(end, millis)
        lingering.add(end)
      })
    )

  const drain = (lane: Lane<In, Out>): Effect.Effect<void> =>
    Effect.gen(function*() {
      while (lane.queue.length > 0) {
        if (options.lingerMs !== undefined) yield* linger(options.lingerMs)
        else if (options.batchPerTick) yield* nextTick
        const batch = take(lane)
        // Meanwhile another lane may have blocked all items of this lane.
        if (batch.length === 0) continue
        lane.batch = batch
        meters.size.observe(batch.length)
        yield* attempt(batch, 0, lane === retryLane ? PATIENT_LOCK_MS : LOCK_MS)
        lane.batch = []
      }
    })

  const start = (lane: Lane<In, Out>): void => {
    lane.running = true
    runFork(Effect.exit(drain(lane))).addObserver(() => {
      lane.running = false
      lane.batch = []
      if (lane.queue.length > 0) return start(lane)
      // Meanwhile items that need the same rows may have been blocked.
      if (lane === retryLane) retryBlocked()
      whenIdle()
    })
  }

  const isIdle = (): boolean => !polling && !retryLane.running && lanes.every((lane) => !lane.running)

  const whenIdle = (): void => {
    if (!isIdle()) return
    // The set is copied first, because a resumed waiter may submit an item and wait again immediately.
    const waiters = [...idleWaiters]
    idleWaiters.clear()
    for (const resume of waiters) resume()
  }

  /** The last commit that failed with an SQLSTATE of `outOfRoom`; undefined again after the next successful commit. */
  let refused: { readonly state: string; readonly at: number } | undefined
  /**
   * How long the oldest item in the lanes has waited, in milliseconds, or 0 if none waits. Blocked items do not count.
   */
  const oldest = (): number => {
    let since = Number.POSITIVE_INFINITY
    for (const lane of lanes) since = Math.min(since, (lane.batch[0] ?? lane.queue[0])?.since ?? since)
    return since === Number.POSITIVE_INFINITY ? 0 : now() - since
  }
  Option.map(yield* Effect.serviceOption(Readiness), (readiness) =>
    readiness.check(() => {
      const waited = oldest()
      if (refused !== undefined && now() - refused.at < OLD_MS) {
        return `Commits of ${options.name} fail: the database has no room (memory, connections) or refuses writes (SQLSTATE ${refused.state}).`
      }
      return waited < OLD_MS
        ? undefined
        : `Commits of ${options.name} do not complete: the oldest item has waited for ${
          Math.floor(waited / 1_000)
        } s. Check the database.`
    }))

  meters.queued.reads(() =>
    [...lanes, retryLane].reduce((sum, { batch, queue }) => sum + queue.length + batch.length, blocked.size)
  )

  return {
    submit: (item, settle, age = 0, trace) => {
      const lane = lanes[options.laneOf(item) % lanes.length]!
      const waiting = {
        item,
        settle,
        since: now() - age,
        order: submitted++,
        trace: trace === undefined ? undefined : { context: trace, at: traceTime() }
      }
      const { locks } = options
      const held = locks !== undefined && blocked.mustWait(item)
      if ((held ? blocked.size : lane.queue.length) >= options.capacity) {
        queueMicrotask(() => settleItem(waiting, failed()))
        runFork(lines.full.log(Effect.logWarning(`The commit queue of ${options.name} is full: an item is refused`)))
        return
      }
      if (held) {
        blocked.add(waiting)
        poll(locks)
        return
      }
      lane.queue.push(waiting)
      if (!lane.running) start(lane)
    },
    size: () =>
      [...lanes, retryLane].reduce((sum, lane) => sum + lane.queue.length + (lane.running ? 1 : 0), blocked.size),
    flush,
    idle: Effect.callback<void>((resume) => {
      if (isIdle()) return resume(Effect.void)
      const done = () => resume(Effect.void)
      idleWaiters.add(done)
      flush()
      return Effect.sync(() => idleWaiters.delete(done))
    })
  }
})
